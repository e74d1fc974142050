from uuid import UUID

import pytest
from structlog.testing import capture_logs

from broker.config.setting import ConfigError
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.schemas.cluster_metadata import ConfigRecord, RemoveTopicRecord
from broker.server.wal.remote_wal_topic_check import RemoteWalTopicCheck
from tests.unit.server.link_support import config_holder, topic_records

WITH_BUCKET = {
    "remote.wal.storage.system.enable": "true",
    "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
    "rwsm.config.bucket": "file:///var/wal",
    "broker.rack": "a",
}


class Setup:
    def __init__(self, properties: dict[str, str]) -> None:
        self.cache = MetadataCache()
        config = config_holder().current.with_overrides(properties)
        self.check = RemoteWalTopicCheck(ConfigRepository(config, self.cache))
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
        return [f"{entry['event']} {entry['topic']}" for entry in logs]


def topic_config(topic: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=int(ConfigResourceType.TOPIC), resource_name=topic, name=name, value=value)


def listed(names: str) -> ConfigRecord:
    return ConfigRecord(
        resource_type=int(ConfigResourceType.BROKER), resource_name="", name="remote.wal.topics", value=names
    )


def new_topic(name: str, number: int) -> list[object]:
    return topic_records(name, UUID(int=number), (1,))


def test_a_broker_without_a_bucket_does_not_start_among_topics_that_go_through_one() -> None:
    setup = Setup({})
    setup.publish(*new_topic("t", 1), *new_topic("u", 2), topic_config("u", "remote.wal.enable", "false"))
    setup.check.check_start(setup.cache.image)
    setup.publish(topic_config("u", "remote.wal.enable", "true"))
    with pytest.raises(ConfigError) as refused:
        setup.check.check_start(setup.cache.image)
    assert str(refused.value) == (
        "remote.wal.storage.system.enable=false: this cluster replicates u through a bucket; set it to true with a "
        "bucket of this broker, or set remote.wal.enable=false on those topics and take them off remote.wal.topics."
    )
    whole = Setup(WITH_BUCKET)
    whole.publish(*new_topic("u", 2), topic_config("u", "remote.wal.enable", "true"))
    whole.check.check_start(whole.cache.image)


def test_listed_topics_count_and_many_are_named_in_short() -> None:
    setup = Setup({})
    setup.publish(*(record for number in range(7) for record in new_topic(f"t{number}", number + 1)), listed("t.*"))
    with pytest.raises(ConfigError, match="replicates t0, t1, t2, t3, t4 and 2 more through a bucket"):
        setup.check.check_start(setup.cache.image)


def test_a_topic_that_wants_a_bucket_of_a_running_broker_without_one_is_told_once() -> None:
    setup = Setup({})
    assert setup.publish(*new_topic("t", 1)) == []
    assert setup.publish(listed("t,u")) == ["topic_needs_a_bucket t"]
    assert setup.publish(*new_topic("u", 2)) == ["topic_needs_a_bucket u"]
    assert setup.publish(topic_config("t", "flush.ms", "5")) == []
    assert setup.check.without_bucket == {"t", "u"}
    setup.publish(RemoveTopicRecord(topic_id=UUID(int=1)))
    assert setup.check.without_bucket == {"u"}


@pytest.mark.parametrize(
    ("settings", "is_too_short"),
    [
        ({"remote.storage.enable": "true", "local.retention.ms": "7199999"}, False),
        ({"remote.storage.enable": "true", "local.retention.ms": "7200000"}, True),
        ({"remote.storage.enable": "true", "retention.ms": "7199999"}, False),
        ({"remote.storage.enable": "true", "retention.ms": "-1"}, True),
        ({"retention.ms": "-1"}, False),  # not tiered: what leaves local disks is gone, with or without pointers
    ],
)
def test_pointers_must_outlive_the_local_records_of_tiered_topics(settings: dict[str, str], is_too_short: bool) -> None:
    setup = Setup(WITH_BUCKET)
    records = [topic_config("t", name, text) for name, text in settings.items()]
    events = setup.publish(*new_topic("t", 1), topic_config("t", "remote.wal.enable", "true"), *records)
    assert events == ["remote_wal_pointers_expire_early t"] * is_too_short
    assert setup.check.pointers_too_short == ({"t"} if is_too_short else set())
    assert setup.publish(topic_config("t", "flush.ms", "5")) == []


def test_pointers_may_be_kept_for_longer() -> None:
    setup = Setup({**WITH_BUCKET, "rwlmm.config.remote.wal.log.metadata.topic.retention.ms": "7200001"})
    tiered = (topic_config("t", "remote.storage.enable", "true"), topic_config("t", "local.retention.ms", "7200000"))
    assert setup.publish(*new_topic("t", 1), topic_config("t", "remote.wal.enable", "true"), *tiered) == []
