"""Which topics go through a bucket, as operators say it: with Kafka's tools, with an admin client, and wrongly."""

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from tests.support import java_tools
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_MS, PATIENCE_S, until
from tests.support.wal_cluster import WalCluster, log_bytes, received_bytes, wait_until_equal

pytestmark = pytest.mark.interop

SECRET = "a-secret-that-nobody-sees"


def with_bucket(directory: Path) -> BrokerProcess:
    settings = {
        "remote.wal.storage.system.enable": "true",
        "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
        "rwsm.config.bucket": f"file://{directory}/bucket",
        "rwsm.config.secret.key": SECRET,
        "broker.rack": "a",
    }
    return BrokerProcess(directory, settings)


@pytest.fixture(scope="module")
def bucket_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with with_bucket(tmp_path_factory.mktemp("bucket-broker")) as broker:
        yield broker
        assert SECRET not in broker.log_text()


def create(broker: BrokerProcess, topic: str, **config: str) -> confluent_kafka.KafkaError | None:
    """What the broker says against it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    given = {name.replace("_", "."): value for name, value in config.items()}
    failure = admin.create_topics([NewTopic(topic, 1, 1, config=given)])[topic].exception(PATIENCE_S)
    return None if failure is None else failure.args[0]


def config_command(broker: BrokerProcess, *arguments: str) -> str:
    return java_tools.run("ConfigCommand", "--bootstrap-server", broker.bootstrap, *arguments, check=False)


def test_a_topic_is_created_with_it_by_an_admin_client(bucket_broker: BrokerProcess) -> None:
    assert create(bucket_broker, "created", remote_wal_enable="true") is None


def test_a_compacted_topic_cannot_have_it(bucket_broker: BrokerProcess) -> None:
    refusal = create(bucket_broker, "compacted", remote_wal_enable="true", cleanup_policy="compact")
    assert refusal is not None
    assert refusal.name() == "INVALID_CONFIG"
    assert (
        refusal.str() == "A topic with remote.wal.enable=true cannot be compacted: its cleanup.policy must be delete."
    )


@pytest.mark.java
def test_kafka_configs_turns_it_on_and_off(bucket_broker: BrokerProcess) -> None:
    assert create(bucket_broker, "altered") is None
    topic = ["--entity-type", "topics", "--entity-name", "altered"]
    assert "Completed" in config_command(bucket_broker, *topic, "--alter", "--add-config", "remote.wal.enable=true")
    assert "remote.wal.enable=true" in config_command(bucket_broker, *topic, "--describe")
    refused = config_command(bucket_broker, *topic, "--alter", "--add-config", "cleanup.policy=compact")
    assert "A topic with remote.wal.enable=true cannot be compacted" in refused
    assert "Completed" in config_command(bucket_broker, *topic, "--alter", "--delete-config", "remote.wal.enable")
    assert "remote.wal.enable" not in config_command(bucket_broker, *topic, "--describe")


@pytest.mark.java
def test_kafka_topics_knows_the_names_of_settings_itself(bucket_broker: BrokerProcess) -> None:
    """Why docs/operations.md creates a topic first and turns this on afterwards."""
    output = java_tools.run(
        "TopicCommand",
        *("--bootstrap-server", bucket_broker.bootstrap, "--create", "--topic", "by-the-tool"),
        *("--config", "remote.wal.enable=true"),
        check=False,
    )
    assert "Unknown topic config name: remote.wal.enable" in output
    assert create(bucket_broker, "by-the-tool") is None  # it was never asked for


@pytest.mark.java
def test_topics_are_listed_for_the_whole_cluster(bucket_broker: BrokerProcess) -> None:
    for topic in ("listed", "pattern-1", "not-listed"):
        assert create(bucket_broker, topic) is None
    brokers = ["--entity-type", "brokers"]
    change = ["--alter", "--add-config", "remote.wal.topics=[listed,pattern-.*]"]
    refused = config_command(bucket_broker, *brokers, "--entity-name", "1", *change)
    assert "Cannot update these configs for one broker" in refused
    assert "Completed" in config_command(bucket_broker, *brokers, "--entity-default", *change)
    for topic, value in (("listed", "true"), ("pattern-1", "true"), ("not-listed", "false")):
        described = config_command(
            bucket_broker, "--entity-type", "topics", "--entity-name", topic, "--describe", "--all"
        )
        assert f"remote.wal.enable={value} " in described
    brokers_settings = config_command(bucket_broker, *brokers, "--entity-name", "1", "--describe", "--all")
    assert "rwsm.config.secret.key=null sensitive=true" in brokers_settings
    assert SECRET not in brokers_settings


def test_a_broker_without_a_bucket_is_told_why_it_does_not_start(tmp_path: Path) -> None:
    broker = with_bucket(tmp_path)
    with broker:
        assert create(broker, "t", remote_wal_enable="true") is None
        broker.stop()
        broker.overrides["remote.wal.storage.system.enable"] = "false"
        broker.launch()
        assert broker.wait_for_end() == 2
        assert "wherry: remote.wal.storage.system.enable=false: this cluster replicates t through" in broker.log_tail(1)


@pytest.mark.java
def test_the_list_takes_effect_while_the_cluster_runs(tmp_path: Path) -> None:
    """On and off: what followers received before stays classic, what comes between goes through the bucket."""
    topic = "listed-later"
    patient = {"replica.lag.time.max.ms": str(3 * PATIENCE_MS), "remote.wal.fallback.lag.ms": str(PATIENCE_MS)}
    with WalCluster(tmp_path / "cluster", settings=patient) as cluster:
        cluster.create_topic(topic, partitions=1, replication_factor=3)
        everyone = ["--bootstrap-server", cluster.bootstrap, "--entity-type", "brokers", "--entity-default", "--alter"]
        assert ways_of(cluster, topic, records=200) == {"fetch"}
        for change, way in (
            (["--add-config", "remote.wal.topics=[x,listed-.*]"], "wal"),
            (["--delete-config", "remote.wal.topics"], "fetch"),
        ):
            java_tools.run("ConfigCommand", *everyone, *change)
            is_on = way == "wal"
            until(lambda: all(said == is_on for said in are_listed(cluster)), "every broker knows")  # noqa: B023
            # A fetch that was under way when its broker heard of it takes the next record the old way.
            until(lambda: ways_of(cluster, topic, records=1) == {way}, "no such fetch is left")  # noqa: B023
            assert ways_of(cluster, topic, records=200) == {way}


def ways_of(cluster: WalCluster, topic: str, records: int) -> set[str]:
    """How new records come to the two followers, each byte once to each."""
    size, received = log_bytes(cluster, topic, 0, 1), received_bytes(cluster, topic)
    produce(cluster, topic, records)
    wait_until_equal(cluster, topic, 1)
    expected = 2 * (log_bytes(cluster, topic, 0, 1) - size)

    def grown() -> dict[str, int]:
        now = received_bytes(cluster, topic)
        return {way: now[way] - received.get(way, 0) for way in now if now[way] > received.get(way, 0)}

    until(lambda: sum(grown().values()) >= expected, f"{expected} bytes are counted", grown)
    found = grown()
    assert sum(found.values()) == expected, found
    return set(found)


def are_listed(cluster: WalCluster) -> Iterator[bool]:
    """Whether the list has something, as each broker says for itself."""
    admin = cluster.admin()
    for node_id in cluster.node_ids:
        resource = ConfigResource(ResourceType.BROKER, str(node_id))
        described = admin.describe_configs([resource])[resource].result(PATIENCE_S)
        yield "listed-" in (described["remote.wal.topics"].value or "")


def produce(cluster: WalCluster, topic: str, records: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5})
    for number in range(records):
        producer.produce(topic, f"record {number}".encode() * 20)
    assert producer.flush(PATIENCE_S) == 0
