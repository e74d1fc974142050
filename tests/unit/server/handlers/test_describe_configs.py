import asyncio
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.metadata.config_repository import ConfigRepository
from broker.protocol.api_keys import ApiKey
from broker.schemas.cluster_metadata import ConfigRecord
from broker.server.handlers.describe_configs import describe_configs
from tests.unit.server.link_support import (
    IDENTITY,
    TOPIC_ID,
    ask,
    broker_record,
    cache_with,
    request_of,
    schema_of,
    topic_records,
)

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def config(resource_type: int, resource: str, name: str, value: str) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value)


RECORDS = (
    broker_record(1),
    *topic_records("t", TOPIC_ID, (1,)),
    config(TOPIC, "t", "retention.ms", "1000"),
    config(BROKER, "", "log.retention.ms", "3000"),
    config(BROKER, "1", "log.retention.ms", "2000"),
    config(METRICS, "m", "interval.ms", "100"),
    config(GROUP, "g", "consumer.session.timeout.ms", "5000"),
)
STATIC = BrokerConfig({**DEFAULT_SINGLE_NODE, "num.partitions": "7", "ssl.key.password": "secret"})


def get(*resources: tuple[int, str, tuple[str, ...] | None], version: int = 4, full: bool = False) -> list[Any]:
    schema = schema_of(ApiKey.DESCRIBE_CONFIGS, version)
    entries = tuple(
        schema.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in resources
    )
    given = request_of(
        ApiKey.DESCRIBE_CONFIGS, version, resources=entries, include_synonyms=full, include_documentation=full
    )
    cache = cache_with(*RECORDS)
    answer = asyncio.run(ask(describe_configs, given, cache, ConfigRepository(STATIC, cache), IDENTITY))
    return list(answer.results)


def one(kind: int, name: str, key: str, **how: Any) -> Any:
    (result,) = get((kind, name, (key,)), **how)
    assert (result.error_code, result.resource_type, result.resource_name) == (ErrorCode.none, kind, name)
    (entry,) = result.configs
    return entry


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_own_value_and_its_synonyms(version: int) -> None:
    entry = one(TOPIC, "t", "retention.ms", version=version, full=True)
    assert (entry.name, entry.value, entry.config_source, entry.read_only) == ("retention.ms", "1000", 1, False)
    assert [(each.name, each.value, each.source) for each in entry.synonyms][:3] == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "2000", 2),
        ("log.retention.ms", "3000", 3),
    ]
    if version >= 3:
        assert entry.config_type == 5
        assert "How long records are kept" in entry.documentation


def test_synonyms_and_documentation_only_on_demand() -> None:
    entry = one(TOPIC, "t", "retention.ms")
    assert (entry.synonyms, entry.documentation) == ((), None)


def test_sources_of_a_brokers_values() -> None:
    assert one(BROKER, "1", "log.retention.ms").value == "2000"
    assert one(BROKER, "1", "log.retention.ms").config_source == 2
    assert (one(BROKER, "1", "num.partitions").value, one(BROKER, "1", "num.partitions").config_source) == ("7", 4)
    assert one(BROKER, "1", "message.max.bytes").config_source == 5
    assert one(BROKER, "1", "node.id").read_only
    assert one(BROKER, "", "log.retention.ms").config_source == 3


def test_secrets_are_never_shown() -> None:
    entry = one(BROKER, "1", "ssl.key.password", full=True)
    assert (entry.value, entry.is_sensitive) == (None, True)
    assert [each.value for each in entry.synonyms] == [None]


@pytest.mark.parametrize("keys", [None, ()])
def test_no_keys_are_all_of_them(keys: tuple[str, ...] | None) -> None:
    broker, default, topic = get((BROKER, "1", keys), (BROKER, "", keys), (TOPIC, "t", keys))
    assert len(broker.configs) > 90
    assert [entry.name for entry in default.configs] == ["log.retention.ms"]
    topics = {entry.name: entry.value for entry in topic.configs}
    assert (topics["cleanup.policy"], topics["max.message.bytes"]) == ("delete", "1048588")


def test_what_was_set_for_groups_and_metrics() -> None:
    entry = one(GROUP, "g", "consumer.session.timeout.ms", full=True)
    assert (entry.value, entry.config_source) == ("5000", 8)
    assert [(each.name, each.source) for each in entry.synonyms] == [("consumer.session.timeout.ms", 8)]
    assert one(METRICS, "m", "interval.ms").config_source == 7
    assert get((GROUP, "other", None))[0].configs == ()


@pytest.mark.parametrize(
    ("kind", "name", "error", "text"),
    [
        (TOPIC, "nope", ErrorCode.unknown_topic_or_partition, "does not exist"),
        (TOPIC, "b@d", ErrorCode.invalid_topic_exception, "other than ASCII"),
        (BROKER, "2", ErrorCode.invalid_request, "expected 1 or empty string, but received 2"),
        (BROKER, "one", ErrorCode.invalid_request, "must be an integer"),
        (LOGGER, "1", ErrorCode.invalid_request, "no loggers"),
        (LOGGER, "", ErrorCode.invalid_request, "must be an integer"),
        (GROUP, "", ErrorCode.invalid_request, "must not be empty"),
        (3, "x", ErrorCode.invalid_request, "Unsupported resource type: 3"),
    ],
)
def test_each_resource_has_its_own_error(kind: int, name: str, error: ErrorCode, text: str) -> None:
    good, bad = get((TOPIC, "t", None), (kind, name, None))
    assert good.error_code == ErrorCode.none
    assert (bad.error_code, bad.resource_type, bad.resource_name, bad.configs) == (error, kind, name, ())
    assert text in bad.error_message
