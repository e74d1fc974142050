import pytest

from broker.common.errors import InvalidConfigError
from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.setting import ConfigError
from broker.config.topic_config import TopicConfig
from broker.config.topic_setting import TopicSetting
from tests.support.tiered_topics import DISABLED, FIT, MISFITS, TIERED, TIERING, WITHOUT_DELETION

from . import kafka_settings

KAFKA = kafka_settings.read("topic")
BROKER = BrokerConfig(DEFAULT_SINGLE_NODE)

NOT_OURS = {
    "errors.deadletterqueue.group.enable",  # share groups
    "max.decompressed.message.bytes",  # new in 4.4
}
OUR_OWN = {"remote.wal.enable"}


def broker(**properties: str) -> BrokerConfig:
    return BROKER.with_overrides({name.replace("_", "."): value for name, value in properties.items()})


def test_every_topic_setting_of_kafka_is_here_with_type_default_and_bounds() -> None:
    ours = {setting.name: setting for setting in TopicConfig.settings()}
    assert set(KAFKA) - set(ours) == NOT_OURS
    assert set(ours) - set(KAFKA) == OUR_OWN
    for name in ours.keys() - OUR_OWN:
        setting = ours[name]
        kafka = KAFKA[name]
        assert setting.config_type.name == kafka.type, name
        assert setting.importance.value == kafka.importance, name
        assert setting.default_text == (None if kafka.default == "<null>" else kafka.default), name
        if name != "internal.segment.bytes":
            assert (setting.valid.text if setting.valid else "") == kafka.valid, name


def test_a_topics_defaults_are_the_brokers_defaults() -> None:
    for setting in TopicConfig.settings():
        if isinstance(setting, TopicSetting) and setting.broker_value is not None:
            assert setting.broker_value(BROKER) == setting.default, setting.name
            assert all(BrokerConfig.setting(name) is not None for name in setting.broker_synonyms)


def test_own_values_win_over_the_brokers() -> None:
    config = TopicConfig.effective(
        broker(log_segment_bytes="2097152", log_retention_hours="1"), {"segment.bytes": "3145728"}
    )
    assert config.segment_bytes == 3_145_728
    assert config.retention_ms == 3_600_000
    assert config.max_message_bytes == 1_048_588


@pytest.mark.parametrize(
    ("broker_properties", "attribute", "value"),
    [
        ({"log_cleanup_policy": "compact"}, "cleanup_policy", ("compact",)),
        ({"compression_type": "lz4"}, "compression_type", "lz4"),
        ({"compression_gzip_level": "5"}, "compression_gzip_level", 5),
        ({"compression_lz4_level": "5"}, "compression_lz4_level", 5),
        ({"compression_zstd_level": "5"}, "compression_zstd_level", 5),
        ({"log_segment_delete_delay_ms": "5"}, "file_delete_delay_ms", 5),
        ({"log_flush_interval_messages": "5"}, "flush_messages", 5),
        ({"log_flush_interval_ms": "5"}, "flush_ms", 5),
        ({"log_flush_scheduler_interval_ms": "6"}, "flush_ms", 6),
        ({"log_index_interval_bytes": "5"}, "index_interval_bytes", 5),
        ({"message_max_bytes": "5"}, "max_message_bytes", 5),
        ({"log_message_timestamp_after_max_ms": "5"}, "message_timestamp_after_max_ms", 5),
        ({"log_message_timestamp_before_max_ms": "5"}, "message_timestamp_before_max_ms", 5),
        ({"log_message_timestamp_type": "LogAppendTime"}, "message_timestamp_type", "LogAppendTime"),
        ({"min_insync_replicas": "2"}, "min_insync_replicas", 2),
        ({"log_local_retention_bytes": "5"}, "local_retention_bytes", 5),
        ({"log_local_retention_ms": "5"}, "local_retention_ms", 5),
        ({"log_retention_bytes": "5"}, "retention_bytes", 5),
        ({"log_retention_minutes": "5"}, "retention_ms", 300_000),
        ({"log_index_size_max_bytes": "5"}, "segment_index_bytes", 5),
        ({"log_roll_jitter_hours": "1"}, "segment_jitter_ms", 3_600_000),
        ({"log_roll_hours": "1"}, "segment_ms", 3_600_000),
        ({"unclean_leader_election_enable": "true"}, "unclean_leader_election_enable", True),
        ({"log_cleaner_min_cleanable_ratio": "0.1"}, "min_cleanable_dirty_ratio", 0.1),
        ({"log_cleaner_delete_retention_ms": "5"}, "delete_retention_ms", 5),
        ({"log_cleaner_min_compaction_lag_ms": "5"}, "min_compaction_lag_ms", 5),
        ({"log_cleaner_max_compaction_lag_ms": "5"}, "max_compaction_lag_ms", 5),
    ],
)
def test_each_setting_of_the_broker_reaches_its_topics(
    broker_properties: dict[str, str], attribute: str, value: object
) -> None:
    assert getattr(TopicConfig.effective(broker(**broker_properties), {}), attribute) == value


def test_segments_may_be_small_for_tests_only() -> None:
    assert TopicConfig.effective(BROKER, {"internal.segment.bytes": "1000"}).segment_bytes == 1000
    with pytest.raises(ConfigError, match=r"segment\.bytes='1000': valid values are \[1048576,\.\.\.\]"):
        TopicConfig.effective(BROKER, {"segment.bytes": "1000"})


def test_meanings_that_are_read_often() -> None:
    both = TopicConfig({"cleanup.policy": "compact,delete", "compression.type": "uncompressed"})
    assert (both.is_compact, both.is_delete, both.compression) == (True, True, "none")
    kept = TopicConfig({"cleanup.policy": "", "message.timestamp.type": "LogAppendTime"})
    assert (kept.is_compact, kept.is_delete, kept.is_log_append_time) == (False, False, True)
    assert TopicConfig({"segment.ms": "10", "segment.jitter.ms": "20"}).random_segment_jitter_max_ms == 10


def test_validation_in_kafkas_words() -> None:
    TopicConfig.validate("retention.ms", "-1")
    with pytest.raises(InvalidConfigError, match=r"^Unknown topic config name: retention\.msec\.$"):
        TopicConfig.validate("retention.msec", "1")
    with pytest.raises(InvalidConfigError, match=r"^retention\.ms='soon': not a whole number"):
        TopicConfig.validate("retention.ms", "soon")


def test_values_must_fit_together() -> None:
    TopicConfig.validate_all(BROKER, {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfigError, match=r"min\.compaction\.lag\.ms \(6\) > max\.compaction\.lag\.ms \(5\)"):
        TopicConfig.validate_all(BROKER, {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


THROUGH_A_BUCKET = {
    "remote.wal.storage.system.enable": "true",
    "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
    "rwsm.config.bucket": "file:///var/wal",
    "broker.rack": "a",
}


def test_topics_through_a_bucket_are_checked_with_their_names() -> None:
    with_bucket, wanted = BROKER.with_overrides(THROUGH_A_BUCKET), {"remote.wal.enable": "true"}
    TopicConfig.validate_all(with_bucket, wanted, "t")
    TopicConfig.validate_all(BROKER, {"remote.wal.enable": "false", "cleanup.policy": "compact"}, "t")
    with pytest.raises(InvalidConfigError, match=r"only where brokers and controllers have remote\.wal\.storage"):
        TopicConfig.validate_all(BROKER, wanted, "t")
    with pytest.raises(InvalidConfigError, match=r"^The topic __consumer_offsets is internal"):
        TopicConfig.validate_all(with_bucket, wanted, "__consumer_offsets")
    with pytest.raises(InvalidConfigError, match="cannot be compacted"):
        TopicConfig.validate_all(with_bucket, {**wanted, "cleanup.policy": "compact,delete"}, "t")
    compacting = with_bucket.with_overrides({"log.cleanup.policy": "compact"})
    with pytest.raises(InvalidConfigError, match="cannot be compacted"):
        TopicConfig.validate_all(compacting, wanted, "t")


def test_tiered_topics_are_checked_whole_and_against_what_they_were() -> None:
    tiering = BROKER.with_overrides(TIERING)
    for _, given in FIT:
        TopicConfig.validate_all(tiering, given, "t")
    for given, sentence in MISFITS:
        with pytest.raises(InvalidConfigError, match=sentence):
            TopicConfig.validate_all(tiering, given, "t")
    with pytest.raises(InvalidConfigError, match=DISABLED):
        TopicConfig.validate_all(BROKER, TIERED, "t")
    for after in ({}, {"remote.storage.enable": "false"}):
        with pytest.raises(InvalidConfigError, match=WITHOUT_DELETION):
            TopicConfig.validate_all(tiering, after, "t", TIERED)
        for config in (tiering, BROKER):
            TopicConfig.validate_all(config, {**after, "remote.log.delete.on.disable": "true"}, "t", TIERED)


def test_what_brokers_say_counts_for_tiered_topics() -> None:
    local = BROKER.with_overrides({**TIERING, "log.local.retention.ms": "5000"})
    TopicConfig.validate_all(local, TIERED, "t")
    with pytest.raises(InvalidConfigError, match=r"^local\.retention\.ms=5000: it must be at most retention\.ms=4999"):
        TopicConfig.validate_all(local, {**TIERED, "retention.ms": "4999"}, "t")
    compacting = BROKER.with_overrides({**TIERING, "log.cleanup.policy": "compact"})
    with pytest.raises(InvalidConfigError, match="cannot be compacted"):
        TopicConfig.validate_all(compacting, TIERED, "t")


def test_a_listed_topic_is_as_if_it_said_so_itself() -> None:
    config = BROKER.with_overrides({"remote.wal.topics": "t,o.*"})
    assert TopicConfig.is_listed_for_remote_wal(config, "t", {})
    assert TopicConfig.is_listed_for_remote_wal(config, "orders", {"retention.ms": "5"})
    assert not TopicConfig.is_listed_for_remote_wal(config, "u", {})
    assert not TopicConfig.is_listed_for_remote_wal(config, "t", {"remote.wal.enable": "false"})
    assert TopicConfig.effective(config, {}, is_listed=True).remote_wal_enable
    assert not TopicConfig.effective(config, {}).remote_wal_enable
    assert not TopicConfig.effective(config, {"cleanup.policy": "compact"}, is_listed=True).remote_wal_enable


def test_unknown_names_among_stored_values_are_left_aside() -> None:
    assert TopicConfig.effective(BROKER, {"from.the.future": "1"}).unknown_names == ("from.the.future",)


@pytest.mark.parametrize("name", ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"])
def test_throttled_replicas_are_all_or_pairs_of_partition_and_broker(name: str) -> None:
    for text in ("", "*", "0:1", "0:1, 12:34"):
        TopicConfig.effective(BROKER, {name: text})
    for text in ("none", "0", "0:1,*", "0:1:2", "a:1"):
        with pytest.raises(ConfigError):
            TopicConfig.effective(BROKER, {name: text})


@pytest.mark.parametrize(("local", "effective"), [("-2", 5000), ("-1", -1), ("1000", 1000)])
def test_records_stay_on_local_disks_as_long_as_all_unless_said_otherwise(local: str, effective: int) -> None:
    config = TopicConfig.effective(BROKER, {"retention.ms": "5000", "local.retention.ms": local})
    assert config.local_retention_ms_effective == effective
    config = TopicConfig.effective(BROKER, {"retention.bytes": "5000", "local.retention.bytes": local})
    assert config.local_retention_bytes_effective == effective
