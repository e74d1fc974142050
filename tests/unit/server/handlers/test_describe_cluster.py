import asyncio
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.describe_cluster import describe_cluster
from tests.unit.server.link_support import (
    CLUSTER_ID,
    IDENTITY,
    ask,
    broker_record,
    cache_with,
    config_holder,
    request_of,
)

RECORDS = broker_record(2, rack="b"), broker_record(3, fenced=True)


def get(version: int, *records: Any, **fields: Any) -> Any:
    values = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False}
    given = request_of(ApiKey.DESCRIBE_CLUSTER, version, **values | fields)
    return asyncio.run(ask(describe_cluster, given, cache_with(*(records or RECORDS)), config_holder(), IDENTITY))


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_in_every_version(version: int) -> None:
    answer = get(version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (ErrorCode.none, CLUSTER_ID, 2)
    assert [(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers] == [(2, "host-2", 9002, "b")]
    assert answer.cluster_authorized_operations == -2147483648


def test_fenced_brokers_on_demand() -> None:
    answer = get(2, include_fenced_brokers=True)
    assert [(each.broker_id, each.is_fenced) for each in answer.brokers] == [(2, False), (3, True)]
    assert answer.controller_id == 2


def test_operations_on_demand() -> None:
    assert get(0, include_cluster_authorized_operations=True).cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "error"), [(2, ErrorCode.mismatched_endpoint_type), (0, ErrorCode.unsupported_endpoint_type)]
)
def test_only_brokers_are_described_here(endpoint_type: int, error: ErrorCode) -> None:
    answer = get(1, endpoint_type=endpoint_type)
    assert (answer.error_code, answer.brokers, answer.controller_id) == (error, (), -1)
