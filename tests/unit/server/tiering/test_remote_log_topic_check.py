from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from broker.config.setting import ConfigError
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.schemas.cluster_metadata import ConfigRecord, RemoveTopicRecord
from broker.server.tiering.remote_log_topic_check import RemoteLogTopicCheck
from tests.support.tiered_topics import TIERING
from tests.unit.server.link_support import config_holder, topic_records

HOUR_MS = 3_600_000
METADATA_OF_AN_HOUR = {**TIERING, "rlmm.config.remote.log.metadata.topic.retention.ms": str(HOUR_MS)}


class Setup:
    def __init__(self, properties: dict[str, str]) -> None:
        self.cache = MetadataCache()
        config = config_holder().current.with_overrides(properties)
        self.check = RemoteLogTopicCheck(ConfigRepository(config, self.cache))
        self.logged: list[Any] = []
        self._offset = 0

    def publish(self, *records: object) -> list[str]:
        """The events logged."""
        delta = MetadataDelta(self.cache.image)
        for record in records:
            delta.replay(record)  # type: ignore[arg-type]
        self._offset += len(records)
        image = delta.apply(self._offset, 1)
        self.cache.set_image(image)
        with capture_logs() as logs:
            self.check.on_metadata(delta, image)
        self.logged += logs
        return [f"{entry['log_level']} {entry['event']} {entry['topic']}" for entry in logs]


def topic_config(topic: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=int(ConfigResourceType.TOPIC), resource_name=topic, name=name, value=value)


def tiered(topic: str, value: str | None = "true") -> ConfigRecord:
    return topic_config(topic, "remote.storage.enable", value)


def new_topic(name: str, number: int) -> list[object]:
    return topic_records(name, UUID(int=number), (1,))


def test_a_broker_with_tiering_off_does_not_start_among_tiered_topics() -> None:
    setup = Setup({})
    setup.publish(*new_topic("t", 1), *new_topic("u", 2), tiered("u", "false"))
    setup.check.check_start(setup.cache.image)
    setup.publish(tiered("u"))
    with pytest.raises(ConfigError) as refused:
        setup.check.check_start(setup.cache.image)
    assert str(refused.value) == (
        "remote.log.storage.system.enable=false: u of this cluster have remote.storage.enable=true; set it to true "
        "with the bucket of the cluster, or delete those topics, or set remote.storage.enable=false and "
        "remote.log.delete.on.disable=true on them while brokers with tiered storage run."
    )
    whole = Setup(dict(TIERING))
    whole.publish(*new_topic("u", 2), tiered("u"))
    whole.check.check_start(whole.cache.image)


def test_many_topics_are_named_in_short() -> None:
    setup = Setup({})
    for number in range(7):
        setup.publish(*new_topic(f"t{number}", number + 1), tiered(f"t{number}"))
    with pytest.raises(ConfigError, match="t0, t1, t2, t3, t4 and 2 more of this cluster"):
        setup.check.check_start(setup.cache.image)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__remote_log_metadata"])
def test_topics_that_are_never_tiered_do_not_count(topic: str) -> None:
    """Controllers of Apache Kafka store the setting for them as well, and nobody looks at it."""
    setup = Setup({})
    assert setup.publish(*new_topic(topic, 1), tiered(topic)) == []
    setup.check.check_start(setup.cache.image)
    assert setup.check.not_tiered == frozenset()


def test_a_topic_that_a_running_broker_does_not_tier_is_told_once() -> None:
    setup = Setup({})
    assert setup.publish(*new_topic("t", 1)) == []
    assert setup.publish(tiered("t")) == ["error topic_not_tiered t"]
    assert setup.publish(tiered("u")) == []  # there is no such topic yet
    assert setup.publish(*new_topic("u", 2)) == ["error topic_not_tiered u"]
    assert setup.publish(topic_config("t", "flush.ms", "5")) == []
    assert setup.check.not_tiered == {"t", "u"}
    setup.publish(tiered("t", None))
    assert setup.check.not_tiered == {"u"}
    setup.publish(RemoveTopicRecord(topic_id=UUID(int=2)))
    assert setup.check.not_tiered == frozenset()
    assert setup.publish(tiered("t")) == ["error topic_not_tiered t"]


def test_with_tiering_on_nothing_is_told() -> None:
    setup = Setup(dict(TIERING))
    assert setup.publish(*new_topic("t", 1), tiered("t")) == []
    assert (setup.check.not_tiered, setup.check.outlive_metadata) == (frozenset(), frozenset())


@pytest.mark.parametrize(
    ("properties", "retention_ms", "outlives"),
    [
        (METADATA_OF_AN_HOUR, HOUR_MS - 1, False),
        (METADATA_OF_AN_HOUR, HOUR_MS, True),
        (METADATA_OF_AN_HOUR, -1, True),
        (TIERING, -1, False),  # kept for ever
        ({**METADATA_OF_AN_HOUR, "remote.log.storage.system.enable": "false"}, HOUR_MS, False),
    ],
)
def test_it_must_be_known_where_records_are_for_as_long_as_they_are_kept(
    properties: dict[str, str], retention_ms: int, outlives: bool
) -> None:
    setup = Setup(dict(properties))
    setup.publish(*new_topic("t", 1), *new_topic("u", 2), topic_config("t", "retention.ms", str(retention_ms)))
    assert setup.check.outlive_metadata == frozenset()
    events = setup.publish(tiered("t"))
    assert ("warning remote_log_metadata_expires_early t" in events) == outlives
    assert setup.check.outlive_metadata == ({"t"} if outlives else set())
    assert setup.publish(topic_config("t", "flush.ms", "5")) == []


def metadata_config(name: str, value: str | None) -> ConfigRecord:
    return topic_config("__remote_log_metadata", name, value)


@pytest.mark.parametrize(
    ("name", "value", "is_early"),
    [
        ("retention.ms", str(HOUR_MS), True),
        ("retention.ms", str(HOUR_MS + 1), False),
        ("retention.ms", None, False),  # the brokers' default, a week
        ("cleanup.policy", "compact", True),
        ("cleanup.policy", "compact,delete", True),
        ("cleanup.policy", "delete", False),
        ("cleanup.policy", "", False),  # nothing is deleted at all
        ("retention.bytes", "0", True),
        ("retention.bytes", "-1", False),
    ],
)
def test_the_metadata_topic_as_it_is_counts_once_it_is_there(name: str, value: str | None, is_early: bool) -> None:
    setup = Setup(dict(METADATA_OF_AN_HOUR))
    setup.publish(*new_topic("__remote_log_metadata", 9), metadata_config("retention.ms", "-1"))
    setup.publish(*new_topic("t", 1), topic_config("t", "retention.ms", str(HOUR_MS)), tiered("t"))
    assert setup.check.outlive_metadata == frozenset()

    events = setup.publish(metadata_config(name, value))

    assert events == (["warning remote_log_metadata_expires_early t"] if is_early else [])
    assert setup.check.outlive_metadata == ({"t"} if is_early else set())
    assert setup.publish(topic_config("t", "flush.ms", "5")) == []
    setup.publish(metadata_config("retention.ms", "-1"), metadata_config("cleanup.policy", "delete"))
    setup.publish(metadata_config("retention.bytes", None))
    assert setup.check.outlive_metadata == frozenset()


def test_before_it_is_there_the_settings_tell_what_it_will_be() -> None:
    setup = Setup(dict(METADATA_OF_AN_HOUR))
    setup.publish(*new_topic("t", 1), topic_config("t", "retention.ms", "-1"), tiered("t"))
    assert setup.check.outlive_metadata == {"t"}
    setup.publish(*new_topic("__remote_log_metadata", 9), metadata_config("retention.ms", "-1"))
    assert setup.check.outlive_metadata == frozenset()
    assert setup.publish(RemoveTopicRecord(topic_id=UUID(int=9))) == ["warning remote_log_metadata_expires_early t"]


def test_what_is_wrong_with_it_is_told() -> None:
    setup = Setup(dict(TIERING))
    setup.publish(*new_topic("__remote_log_metadata", 9), metadata_config("retention.bytes", "5"))
    setup.publish(*new_topic("t", 1), tiered("t"))
    assert setup.logged[-1] == {
        "event": "remote_log_metadata_expires_early",
        "log_level": "warning",
        "topic": "t",
        "cleanup_policy": "delete",
        "metadata_retention_ms": 7 * 24 * HOUR_MS,
        "metadata_retention_bytes": 5,
    }
