import asyncio
from typing import Any

import pytest

from broker.common.errors import UnsupportedVersionError
from broker.protocol.api_keys import ApiKey
from broker.schemas.cluster_metadata import ConfigRecord
from broker.server.handlers.list_config_resources import list_config_resources
from tests.unit.server.link_support import TOPIC_ID, ask, broker_record, cache_with, request_of, topic_records

RECORDS = (
    broker_record(2),
    broker_record(1, fenced=True),
    *topic_records("t", TOPIC_ID, (1,)),
    ConfigRecord(resource_type=16, resource_name="m", name="interval.ms", value="1000"),
    ConfigRecord(resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="1000"),
    ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1000"),
)


def get(version: int, *types: int) -> list[tuple[int, str]]:
    fields: dict[str, Any] = {"resource_types": types} if version else {}
    given = request_of(ApiKey.LIST_CONFIG_RESOURCES, version, **fields)
    answer = asyncio.run(ask(list_config_resources, given, cache_with(*RECORDS)))
    return [(getattr(each, "resource_type", 16), each.resource_name) for each in answer.config_resources]


def test_version_0_lists_metric_subscriptions_only() -> None:
    assert get(0) == [(16, "m")]


def test_types_asked_for() -> None:
    assert get(1, 4, 2) == [(4, "1"), (4, "2"), (2, "t")]
    assert get(1, 8, 32) == [(8, "1"), (8, "2"), (32, "g")]


def test_no_types_are_all_types() -> None:
    assert get(1) == [(2, "t"), (4, "1"), (4, "2"), (8, "1"), (8, "2"), (16, "m"), (32, "g")]


def test_unknown_types_are_told() -> None:
    with pytest.raises(UnsupportedVersionError, match="3"):
        get(1, 3)
