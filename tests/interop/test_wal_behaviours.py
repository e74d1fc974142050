"""Topics through buckets in the course of their life: switched on and off under load, deleted and made again, with
ends of transactions, with too few replicas, and over restarts of brokers."""

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.cluster.history import judge
from tests.cluster.load import LibrdkafkaProducer, read_log
from tests.support.patience import PATIENCE_S, until
from tests.support.wal_cluster import (
    WAL_TOPIC,
    WalCluster,
    bucket_requests,
    leaders,
    log_bytes,
    received_bytes,
    segment_files,
    wait_until_equal,
)
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.interop

MARKERS_VERSION = 1
# Bytes that were acknowledged are to come through the bucket however slow the machine is.
SETTINGS = {"remote.wal.fallback.enable": "false", "auto.leader.rebalance.enable": "false"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WalCluster]:
    with WalCluster(tmp_path_factory.mktemp("wal"), brokers=2, settings=SETTINGS) as processes:
        yield processes
        for broker in processes.brokers:
            assert broker.is_running(), f"a broker died:\n{broker.log_tail()}"


def produce(cluster: WalCluster, topic: str, first: int, count: int) -> None:
    failed: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(
            topic,
            f"1.{number} {'x' * 200}",
            partition=0,
            on_delivery=lambda error, message: failed.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def switch(cluster: WalCluster, topic: str, enable: str) -> None:
    entry = ConfigEntry("remote.wal.enable", enable, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = cluster.admin()  # kept: it takes what it was asked down with it
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def grows(cluster: WalCluster, topic: str, path: str, by: int) -> None:
    """Until so many bytes more have come this way."""
    begun = received_bytes(cluster, topic).get(path, 0)
    until(
        lambda: received_bytes(cluster, topic).get(path, 0) >= begun + by,
        f"{by} bytes more than {begun} by {path}",
        lambda: received_bytes(cluster, topic),
    )


def nothing_comes_by_bucket(cluster: WalCluster, topic: str, while_bytes: int) -> bool:
    """While so many bytes come from leaders: for one partition that may begin a moment later than for another."""
    before = received_bytes(cluster, topic)["wal"]
    grows(cluster, topic, "fetch", while_bytes)
    return received_bytes(cluster, topic)["wal"] == before


def test_46_it_is_switched_on_and_off_under_load(cluster: WalCluster) -> None:
    """No gap, nothing twice, and afterwards the followers fetch from their leaders again."""
    topic, size_bytes = "switched", 20_000
    cluster.create_topic(topic, partitions=2, replication_factor=2)
    producer = LibrdkafkaProducer(1, cluster.bootstrap, topic, 2, 300, {})
    producer.start()
    try:
        grows(cluster, topic, "fetch", size_bytes)
        for _ in range(2):
            switch(cluster, topic, "true")
            grows(cluster, topic, "wal", size_bytes)
            switch(cluster, topic, "false")
            grows(cluster, topic, "fetch", size_bytes)
        until(lambda: nothing_comes_by_bucket(cluster, topic, size_bytes), "followers fetch from their leaders alone")
    finally:
        producer.stop()
    wait_until_equal(cluster, topic, partitions=2)
    log = read_log(cluster.bootstrap, topic, 2)
    verdict = judge(producer.acknowledged, log)
    assert (producer.failures, verdict.examples) == ([], [])
    assert verdict.read == verdict.acknowledged == producer.sent
    produced = sum(log_bytes(cluster, topic, partition, 1) for partition in range(2))
    assert sum(received_bytes(cluster, topic).values()) == produced, "no byte was sent twice, whichever way"


def test_53_a_topic_that_is_made_again_has_its_own_objects(cluster: WalCluster) -> None:
    topic = "again"
    sizes = []
    for life, count in enumerate((300, 40)):
        cluster.create_topic(topic, 1, 2, WAL_TOPIC)
        produce(cluster, topic, first=1000 * life, count=count)
        wait_until_equal(cluster, topic, partitions=1)
        (entries,) = read_log(cluster.bootstrap, topic, 1).values()
        assert [entry.record.sequence for entry in entries] == list(range(1000 * life, 1000 * life + count))
        sizes.append(log_bytes(cluster, topic, 0, 1))
        if life == 0:
            admin = cluster.admin()
            admin.delete_topics([topic])[topic].result(PATIENCE_S)
            wait_until_gone(cluster, topic)
    assert sizes[1] < sizes[0]


def wait_until_gone(cluster: WalCluster, topic: str) -> None:
    until(
        lambda: not any(segment_files(cluster, topic, 0, node_id) for node_id in cluster.node_ids), "its logs are gone"
    )


def test_12_ends_of_transactions_replicate(cluster: WalCluster) -> None:
    """Control batches are bytes like any others; transactions themselves are told in virtual time."""
    topic = "markers"
    cluster.create_topic(topic, 1, 2, WAL_TOPIC)
    leader = leaders(cluster, topic)[0]
    produce(cluster, topic, first=0, count=10)
    with WireClient(cluster.broker(leader).port) as client:
        for producer_id, commits in ((7001, False), (7002, True)):
            end_transaction(client, topic, producer_id, commits=commits)
    produce(cluster, topic, first=10, count=10)
    wait_until_equal(cluster, topic, partitions=1)
    assert received_bytes(cluster, topic) == {"wal": log_bytes(cluster, topic, 0, leader)}
    (entries,) = read_log(cluster.bootstrap, topic, 1).values()
    assert [entry.offset for entry in entries] == [*range(10), *range(12, 22)]


def end_transaction(client: WireClient, topic: str, producer_id: int, *, commits: bool) -> None:
    schema = client.request(ApiKey.WRITE_TXN_MARKERS, MARKERS_VERSION)
    marker = schema.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_result=commits,
        topics=(schema.WritableTxnMarkerTopic(name=topic, partition_indexes=(0,)),),
        coordinator_epoch=0,
    )
    answer = client.ask(ApiKey.WRITE_TXN_MARKERS, MARKERS_VERSION, schema.WriteTxnMarkersRequest(markers=(marker,)))
    assert answer.markers[0].topics[0].partitions[0].error_code is ErrorCode.none


def test_44_and_54_without_its_follower_and_after_it_is_back(cluster: WalCluster) -> None:
    """Too few replicas are told as ever; the follower goes on at its log end and gets nothing a second time."""
    topic = "alone"
    cluster.create_topic(topic, 1, 2, {**WAL_TOPIC, "min.insync.replicas": "2"})
    produce(cluster, topic, first=0, count=500)
    wait_until_equal(cluster, topic, partitions=1)
    controller, other = 1, 2
    follower = other if leaders(cluster, topic)[0] == controller else controller
    if follower == controller:  # it holds the controller as well: the other one is to be stopped
        cluster.graceful_stop(other)
        cluster.restart(other)
        cluster.wait_for_full_isr(topic)
        follower = other
    before = log_bytes(cluster, topic, 0, controller)
    cluster.graceful_stop(follower)
    assert "NOT_ENOUGH_REPLICAS" in refusal(cluster, topic)
    cluster.restart(follower)
    cluster.wait_for_full_isr(topic)
    broker = cluster.broker(follower)
    assert broker.metric("broker_objectstore_requests_total", operation="get_range") == 0
    puts = bucket_requests(cluster, "put_if_absent")
    produce(cluster, topic, first=500, count=20)
    wait_until_equal(cluster, topic, partitions=1)
    gets = broker.metric("broker_objectstore_requests_total", operation="get_range", outcome="ok")
    assert 1 <= gets <= bucket_requests(cluster, "put_if_absent") - puts
    received = broker.metric("broker_replication_bytes_total", topic=topic)
    assert received == log_bytes(cluster, topic, 0, controller) - before


def refusal(cluster: WalCluster, topic: str) -> str:
    """Why a record with acks=all is not taken, to whom does not try again."""
    failed: list[str] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "retries": 0})
    producer.produce(topic, "1.0", partition=0, on_delivery=lambda error, message: failed.append(str(error)))
    assert producer.flush(PATIENCE_S) == 0
    return failed[0]
