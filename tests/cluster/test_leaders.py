"""What a leader owes its followers, its consumers and its controller, in a cluster of real processes."""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from broker.common.errors import ErrorCode
from broker.config.replication_settings import RACK_AWARE_REPLICA_SELECTOR
from broker.protocol.api_keys import ApiKey
from broker.records.memory_records_builder import records_batch
from tests.interop.test_every_metric import Scrape
from tests.support.cluster_process import DEDICATED_CONTROLLER_ID, ClusterProcess
from tests.support.patience import PATIENCE, PATIENCE_S, until
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.interop

SESSION_S, LAG_S = 12.0, 2.0  # far apart: which of them was waited for shows on a busy machine, too
SETTINGS = {
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": str(int(LAG_S * 1000)),
    "replica.selector.class": RACK_AWARE_REPLICA_SELECTOR,
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
}
PRODUCE_VERSION = 9


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    directory = tmp_path_factory.mktemp("leaders")
    with ClusterProcess(directory, settings=SETTINGS, dedicated_controller=True) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: ClusterProcess, request: pytest.FixtureRequest) -> str:
    """A topic of one partition, on all three brokers and in sync."""
    name: str = request.node.name.replace("_", "-")[:100]
    cluster.create_topic(name)
    cluster.wait_for_full_isr(name)
    return name


def placement(cluster: ClusterProcess, topic: str) -> tuple[int, list[int]]:
    """Leader and ISR."""
    partition = cluster.admin().list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions[0]
    return partition.leader, sorted(partition.isrs)


def followers(cluster: ClusterProcess, topic: str) -> list[int]:
    leader, _ = placement(cluster, topic)
    return [node_id for node_id in (1, 2, 3) if node_id != leader]


def seconds_until(happens: Callable[[], bool], what: str) -> float:
    started = time.monotonic()
    until(happens, what)
    return time.monotonic() - started


def metric(cluster: ClusterProcess, node_id: int, name: str, **labels: str) -> float:
    return Scrape(cluster.broker(node_id).metrics()).value(name, **labels)


def in_sync_count(cluster: ClusterProcess, leader: int, topic: str) -> float:
    return metric(cluster, leader, "kafka_cluster_partition_insyncreplicascount", topic=topic, partition="0")


def produce(cluster: ClusterProcess, node_id: int, topic: str, value: bytes, *, acks: int) -> Any:
    """Send one batch to a broker; the answer of the partition."""
    with WireClient(cluster.broker(node_id).port) as client:
        schema = client.request(ApiKey.PRODUCE, PRODUCE_VERSION)
        records = bytes(records_batch((int(time.time() * 1000), None, value)))
        row = schema.PartitionProduceData(index=0, records=records)
        data = schema.TopicProduceData(name=topic, topic_id=None, partition_data=(row,))
        asked = schema.ProduceRequest(transactional_id=None, acks=acks, timeout=PATIENCE, topic_data=(data,))
        return client.ask(ApiKey.PRODUCE, PRODUCE_VERSION, asked).responses[0].partition_responses[0]


def consume(cluster: ClusterProcess, topic: str, count: int, **config: str) -> list[bytes | None]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", **config})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []

    def are_there() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value())
        return len(values) >= count

    until(are_there, f"{count} records of {topic}", lambda: values, every_s=0)
    consumer.close()
    return values


def test_a_stopped_follower_delays_acks_all_once(cluster: ClusterProcess, topic: str) -> None:
    leader, _ = placement(cluster, topic)
    stopped = followers(cluster, topic)[0]
    expands = metric(cluster, leader, "kafka_server_replicamanager_isrexpands_total")
    shrinks = metric(cluster, leader, "kafka_server_replicamanager_isrshrinks_total")
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})

    def latency() -> float:
        started = time.monotonic()
        producer.produce(topic, b"x")
        assert producer.flush(PATIENCE_S) == 0
        return time.monotonic() - started

    latency()
    cluster.pause(stopped)
    try:
        assert latency() < SESSION_S - 1  # a heartbeat before the pause began the session
        until(lambda: stopped not in placement(cluster, topic)[1], "everybody knows that it is out")
        assert metric(cluster, leader, "kafka_server_replicamanager_underreplicatedpartitions") >= 1
        assert statistics.median(latency() for _ in range(20)) < LAG_S / 2  # one may meet a busy moment
    finally:
        cluster.resume(stopped)
    cluster.wait_for_full_isr(topic)
    until(lambda: metric(cluster, leader, "kafka_server_replicamanager_isrexpands_total") > expands, "it is counted")
    assert metric(cluster, leader, "kafka_server_replicamanager_isrshrinks_total") > shrinks


def test_below_min_insync_replicas_nothing_is_committed(cluster: ClusterProcess, topic: str) -> None:
    leader, _ = placement(cluster, topic)
    for node_id in followers(cluster, topic):
        cluster.pause(node_id)
    try:
        until(lambda: placement(cluster, topic)[1] == [leader], "an ISR of the leader alone")
        until(
            lambda: produce(cluster, leader, topic, b"all", acks=-1).error_code is ErrorCode.not_enough_replicas,
            "the leader knows its ISR",
        )
        answer = produce(cluster, leader, topic, b"one", acks=1)
        assert answer.error_code is ErrorCode.none
        assert metric(cluster, leader, "kafka_cluster_partition_underminisr", topic=topic) == 1
        consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.broker(leader).bootstrap, "group.id": "g"})
        _, high_watermark = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=PATIENCE_S)
        consumer.close()
        assert high_watermark <= answer.base_offset
    finally:
        for node_id in followers(cluster, topic):
            cluster.resume(node_id)
    cluster.wait_for_full_isr(topic)
    assert b"one" in consume(cluster, topic, answer.base_offset + 1)


def test_a_consumer_is_served_in_its_rack(cluster: ClusterProcess, topic: str) -> None:
    near = followers(cluster, topic)[0]
    leader, _ = placement(cluster, topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(50):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0
    values = consume(cluster, topic, 50, **{"client.rack": f"rack-{near}", "auto.offset.reset": "earliest"})
    assert values == [b"%d" % number for number in range(50)]
    bytes_out = "kafka_server_brokertopicmetrics_bytesout_total"
    assert metric(cluster, near, bytes_out, topic=topic) > 0
    assert metric(cluster, leader, bytes_out, topic=topic) == 0
    assert consume(cluster, topic, 50, **{"client.rack": f"rack-{leader}"}) == values
    assert metric(cluster, leader, bytes_out, topic=topic) > 0


def test_a_leader_that_does_not_reach_the_controller_refuses_writes(cluster: ClusterProcess, topic: str) -> None:
    leader, _ = placement(cluster, topic)
    assert produce(cluster, leader, topic, b"before", acks=1).error_code is ErrorCode.none
    cluster.pause(DEDICATED_CONTROLLER_ID)
    try:
        took = seconds_until(
            lambda: produce(cluster, leader, topic, b"x", acks=1).error_code is ErrorCode.not_leader_or_follower,
            "writes are refused",
        )
        assert took <= 3 * SESSION_S
        assert produce(cluster, leader, topic, b"y", acks=-1).error_code is ErrorCode.not_leader_or_follower
    finally:
        cluster.resume(DEDICATED_CONTROLLER_ID)
    cluster.wait_for_full_isr(topic)
    until(
        lambda: produce(cluster, placement(cluster, topic)[0], topic, b"z", acks=-1).error_code is ErrorCode.none,
        "writes are accepted again",
    )


def test_a_throttled_follower_catches_up_at_the_rate_it_is_given(cluster: ClusterProcess, topic: str) -> None:
    leader, _ = placement(cluster, topic)
    behind = followers(cluster, topic)[0]
    rate, missed = 400_000, 6_000_000  # a rate is an average: 4.4 MB may go at once after eleven quiet seconds
    _set(cluster, "TOPIC", topic, "leader.replication.throttled.replicas", "*")
    _set(
        cluster,
        "BROKER",
        str(leader),
        "leader.replication.throttled.rate",
        str(rate),
    )
    cluster.pause(behind)
    try:
        until(lambda: in_sync_count(cluster, leader, topic) == 2, "the follower is out")
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for _ in range(missed // 10_000):
            producer.produce(topic, random.randbytes(10_000))
        assert producer.flush(PATIENCE_S) == 0
    finally:
        started = time.monotonic()
        cluster.resume(behind)
    # Asked of the leader: the follower itself may say for a while that it is in sync, as it was when it was paused.
    until(lambda: in_sync_count(cluster, leader, topic) == 3, "the follower has caught up")
    assert time.monotonic() - started >= 3, "more, as a rule: what went to the other follower meanwhile counts as well"
    assert metric(cluster, leader, "kafka_server_leaderreplication_byte_rate") > 0


def _set(cluster: ClusterProcess, kind: str, name: str, key: str, value: str) -> None:
    kinds: Any = confluent_kafka.admin  # its stubs hide what it takes from its C library
    entry = kinds.ConfigEntry(key, value, incremental_operation=kinds.AlterConfigOpType.SET)
    resource = kinds.ConfigResource(kinds.ResourceType[kind], name, incremental_configs=[entry])
    admin = cluster.admin()  # kept: it takes what it was asked down with it
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(PATIENCE_S)
