import pytest

from broker.common.errors import InvalidConfigError
from broker.common.identifiers import NEVER_REMOTE_WAL_TOPICS
from broker.config.broker_config import DEFAULT_SINGLE_NODE, BrokerConfig
from broker.config.remote_wal_rules import check_remote_wal_system, check_remote_wal_topic
from broker.config.setting import ConfigError

WHOLE = {
    **DEFAULT_SINGLE_NODE,
    "remote.wal.storage.system.enable": "true",
    "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
    "rwsm.config.bucket": "file:///var/wal",
    "broker.rack": "a",
}


def sentences(properties: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(properties)
    return list(refused.value.sentences)


def test_what_is_whole_is_accepted() -> None:
    assert BrokerConfig(WHOLE).remote_wal_storage_system_enable


@pytest.mark.parametrize("missing", ["remote.wal.storage.manager.class.name", "rwsm.config.bucket", "broker.rack"])
def test_what_is_missing_is_named(missing: str) -> None:
    given = {name: text for name, text in WHOLE.items() if name != missing}
    (sentence,) = sentences(given)
    assert sentence.startswith(f"{missing} is missing: remote.wal.storage.system.enable=true needs it")
    BrokerConfig({**given, "remote.wal.storage.system.enable": "false"})


def test_a_controller_alone_needs_no_bucket() -> None:
    controller = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9190",
        "listeners": "CONTROLLER://127.0.0.1:9190",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "data",
        "remote.wal.storage.system.enable": "true",
    }
    assert BrokerConfig(controller).remote_wal_storage_system_enable


def test_leaders_send_records_before_followers_count_as_lagging() -> None:
    lag = {"replica.lag.time.max.ms": "10000"}
    assert sentences({**WHOLE, **lag}) == [
        "remote.wal.fallback.lag.ms=5000: it must be less than half of replica.lag.time.max.ms=10000."
    ]
    BrokerConfig({**WHOLE, **lag, "remote.wal.fallback.lag.ms": "4999"})
    BrokerConfig({**DEFAULT_SINGLE_NODE, **lag})  # without a bucket it does not matter


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"remote.wal.combine.max.bytes": "102399", "remote.wal.combine.partition.max.bytes": "1024"},
            "remote.wal.combine.min.bytes=102400: it must be at most remote.wal.combine.max.bytes=102399.",
        ),
        (
            {"remote.wal.combine.partition.max.bytes": "524289"},
            "remote.wal.combine.partition.max.bytes=524289: it must be at most remote.wal.combine.max.bytes=524288.",
        ),
        (
            {"remote.wal.combine.economy.linger.ms": "19"},
            "remote.wal.combine.max.linger.ms=20: it must be at most remote.wal.combine.economy.linger.ms=19.",
        ),
        (
            {"remote.wal.upload.retry.max.ms": "19"},
            "remote.wal.upload.retry.backoff.ms=20: it must be at most remote.wal.upload.retry.max.ms=19.",
        ),
        (
            {"rwsm.config.bucket": "s3://wal--use1-az5--x-s3", "rwsm.config.az.id": "use1-az4"},
            "rwsm.config.az.id='use1-az4': the bucket is one of the zone 'use1-az5' by its name.",
        ),
    ],
)
def test_values_that_do_not_fit_together(given: dict[str, str], sentence: str) -> None:
    assert sentences({**WHOLE, **given}) == [sentence]


def test_a_bucket_of_the_named_zone_or_without_a_zone_is_fine() -> None:
    for bucket in ("s3://wal--use1-az4--x-s3", "s3://wal", "file:///var/wal"):
        BrokerConfig({**WHOLE, "rwsm.config.bucket": bucket, "rwsm.config.az.id": "use1-az4"})


@pytest.mark.parametrize("policy", [("compact",), ("delete", "compact"), ()])
def test_only_topics_that_are_deleted_by_age_and_size_go_through_a_bucket(policy: tuple[str, ...]) -> None:
    check_remote_wal_topic(BrokerConfig(WHOLE), "t", ("delete",))
    with pytest.raises(InvalidConfigError, match=r"cannot be compacted: its cleanup\.policy must be delete\.$"):
        check_remote_wal_topic(BrokerConfig(WHOLE), "t", policy)


@pytest.mark.parametrize("topic", sorted(NEVER_REMOTE_WAL_TOPICS))
def test_internal_topics_and_those_of_metadata_never_go_through_a_bucket(topic: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"^The topic {topic} is internal"):
        check_remote_wal_topic(BrokerConfig(WHOLE), topic, ("delete",))


def test_topics_go_through_a_bucket_only_where_nodes_have_one() -> None:
    config = BrokerConfig(DEFAULT_SINGLE_NODE)
    for topic in ("t", None):
        with pytest.raises(
            InvalidConfigError, match=r"where brokers and controllers have remote\.wal\.storage\.system"
        ):
            check_remote_wal_topic(config, topic, ("delete",))
    with pytest.raises(InvalidConfigError, match=r"^Replication through a bucket is disabled"):
        check_remote_wal_system(config)
    check_remote_wal_system(BrokerConfig(WHOLE))
