import pytest

from broker.common.identifiers import REMOTE_LOG_METADATA_TOPIC, REMOTE_WAL_LOG_METADATA_TOPIC
from broker.config.setting import ConfigError
from broker.config.topic_config import TopicConfig
from broker.server.topic_spec import TopicSpec, topic_spec
from tests.unit.server.link_support import config_holder

WAL = {
    "remote__wal__storage__system__enable": "true",
    "remote__wal__storage__manager__class__name": "LocalWalStorageManager",
    "rwsm__config__bucket": "file:///bucket",
    "broker__rack": "zone",
}
TIERED = {
    "remote__log__storage__system__enable": "true",
    "remote__log__storage__manager__class__name": "LocalTieredStorage",
    "rsm__config__bucket": "file:///bucket",
}
TIERED_PREFIX = "rlmm__config__remote__log__metadata__topic__"
WAL_PREFIX = "rwlmm__config__remote__wal__log__metadata__topic__"


def test_the_offsets_topic_has_its_own_shape() -> None:
    configs = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    assert topic_spec("__consumer_offsets", config_holder().current) == TopicSpec("__consumer_offsets", 50, 1, configs)


def test_the_offsets_topic_has_the_shape_of_the_settings() -> None:
    config = config_holder(
        offsets__topic__num__partitions="7",
        offsets__topic__replication__factor="3",
        offsets__topic__segment__bytes="2000000",
    ).current
    topic = topic_spec("__consumer_offsets", config)
    assert (topic.partition_count, topic.replication_factor) == (7, 3)
    assert topic.configs["segment.bytes"] == "2000000"


def test_segments_of_the_offsets_topic_are_as_large_as_any_topics_must_be() -> None:
    config = config_holder(offsets__topic__segment__bytes="100").current
    topic = topic_spec("__consumer_offsets", config)
    assert TopicConfig(dict(topic.configs)).segment_bytes == 1024 * 1024
    with pytest.raises(ConfigError):
        TopicConfig({"segment.bytes": "100"})


def test_the_metadata_topic_of_the_wal_has_its_own_shape() -> None:
    config = config_holder(**WAL, **{f"{WAL_PREFIX}replication__factor": "3"}).current
    topic = topic_spec(REMOTE_WAL_LOG_METADATA_TOPIC, config)
    assert (topic.name, topic.partition_count, topic.replication_factor) == ("__remote_wal_log_metadata", 50, 3)
    assert topic.configs == {
        "cleanup.policy": "delete",
        "retention.ms": "7200000",
        "segment.ms": "600000",
        "segment.bytes": "67108864",
        "min.insync.replicas": "2",
        "max.message.bytes": "4194304",
    }
    of_the_topic = TopicConfig(dict(topic.configs))
    assert (of_the_topic.remote_storage_enable, of_the_topic.remote_wal_enable) == (False, False)


@pytest.mark.parametrize(("replicas", "min_isr"), [("1", "1"), ("2", "2"), ("3", "2")])
def test_the_metadata_topic_of_the_wal_has_the_shape_of_the_settings(replicas: str, min_isr: str) -> None:
    config = config_holder(
        **WAL,
        **{
            f"{WAL_PREFIX}num__partitions": "7",
            f"{WAL_PREFIX}replication__factor": replicas,
            f"{WAL_PREFIX}retention__ms": "9000",
        },
    ).current
    topic = topic_spec(REMOTE_WAL_LOG_METADATA_TOPIC, config)
    assert (topic.partition_count, topic.replication_factor) == (7, int(replicas))
    assert (topic.configs["retention.ms"], topic.configs["min.insync.replicas"]) == ("9000", min_isr)


def test_the_metadata_topic_of_tiered_storage_has_its_own_shape() -> None:
    topic = topic_spec(REMOTE_LOG_METADATA_TOPIC, config_holder(**TIERED).current)
    assert (topic.name, topic.partition_count) == ("__remote_log_metadata", 50)
    assert topic.configs == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "remote.storage.enable": "false",
        "min.insync.replicas": str(min(2, topic.replication_factor)),
    }
    assert not TopicConfig(dict(topic.configs)).remote_storage_enable


@pytest.mark.parametrize(("replicas", "min_isr"), [("1", "1"), ("2", "2"), ("3", "2")])
def test_the_metadata_topic_of_tiered_storage_has_the_shape_of_the_settings(replicas: str, min_isr: str) -> None:
    config = config_holder(
        **TIERED,
        **{
            f"{TIERED_PREFIX}num__partitions": "7",
            f"{TIERED_PREFIX}replication__factor": replicas,
            f"{TIERED_PREFIX}retention__ms": "9000",
        },
    ).current
    topic = topic_spec(REMOTE_LOG_METADATA_TOPIC, config)
    assert (topic.partition_count, topic.replication_factor) == (7, int(replicas))
    assert (topic.configs["retention.ms"], topic.configs["min.insync.replicas"]) == ("9000", min_isr)


@pytest.mark.parametrize("name", [REMOTE_LOG_METADATA_TOPIC, REMOTE_WAL_LOG_METADATA_TOPIC])
def test_without_a_bucket_it_is_a_topic_like_any_other(name: str) -> None:
    config = config_holder(num__partitions="4").current
    assert topic_spec(name, config) == TopicSpec(name, 4, 1)
