"""Topics whose followers take their records from the leader's bucket, with ordinary clients (KIP-1176).

Buckets are directories, those of an S3 server, and those of S3 Express by a shim.  `WHERRY_WAL_RECORDS=100000` is the
long form.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from broker.config.replication_settings import RACK_AWARE_REPLICA_SELECTOR
from tests.cluster.load import partition_of
from tests.support.express_shim import ExpressShim
from tests.support.patience import PATIENCE_S
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, SeaweedServer
from tests.support.threaded_server import in_thread
from tests.support.wal_cluster import (
    WAL_TOPIC,
    WalCluster,
    bucket_requests,
    leaders,
    log_bytes,
    received_bytes,
    s3_bucket,
    wait_until_equal,
    warnings_logged,
)

pytestmark = pytest.mark.interop

RECORDS = int(os.environ.get("WHERRY_WAL_RECORDS", "10000"))
RECORD_BYTES = 1600
BATCH_BYTES = 32768
PARTITIONS = 4
STANDSTILL_S = 0.5
S3_BROKERS = 2
RACKS = {"replica.selector.class": RACK_AWARE_REPLICA_SELECTOR}
PATIENT = {  # a server with a disk and a processor that others use as well
    "remote.wal.combine.interval.ms": "50",
    "remote.wal.combine.max.linger.ms": "100",
    "remote.wal.upload.timeout.ms": "10000",
    "remote.wal.fetch.timeout.ms": "10000",
    "remote.wal.fallback.enable": "false",  # a machine that stands still for a second is no reason for it here
}
BUCKETS = ["directories", pytest.param("s3", marks=pytest.mark.s3), pytest.param("express", marks=pytest.mark.s3)]


@contextmanager
def running_cluster(kind: str, directory: Path) -> Iterator[WalCluster]:
    with ExitStack() as stack:
        if kind == "directories":
            yield stack.enter_context(WalCluster(directory, settings={**RACKS, **PATIENT}))
            return
        name = "wal-{}" if kind == "s3" else "wal-{0}--use1-az{0}--x-s3"
        buckets = [name.format(number) for number in range(1, S3_BROKERS + 1)]
        server = stack.enter_context(SeaweedServer(directory / "s3", buckets))
        url = server.url
        if kind == "express":
            url = stack.enter_context(in_thread(ExpressShim(server.url, ACCESS_KEY, SECRET_KEY, life_seconds=20))).url
        by_node = {number: s3_bucket(bucket, url) for number, bucket in enumerate(buckets, 1)}
        settings = {**RACKS, **PATIENT}
        yield stack.enter_context(
            WalCluster(directory / "cluster", brokers=S3_BROKERS, settings=settings, buckets=by_node)
        )


@pytest.fixture(scope="module", params=BUCKETS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WalCluster]:
    with running_cluster(request.param, tmp_path_factory.mktemp("wal")) as processes:
        yield processes
        for broker in processes.brokers:
            assert broker.is_running(), f"a broker died:\n{broker.log_tail()}"


def value_of(number: int) -> bytes:
    """Of no two records the same, and not to be compressed away."""
    return hashlib.shake_128(str(number).encode()).digest(RECORD_BYTES - 9) + b"%09d" % number


def produce(cluster: WalCluster, topic: str, acks: str) -> None:
    failed: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 5, "batch.size": BATCH_BYTES}
    )
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(
                    topic,
                    value_of(number),
                    partition=number % PARTITIONS,
                    on_delivery=lambda error, message: failed.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def assert_readable_in(cluster: WalCluster, topic: str, rack: str) -> None:
    """Every record, in order in its partition, by a consumer in this rack."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "client.rack": rack,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    expected = {partition: iter(range(partition, RECORDS, PARTITIONS)) for partition in range(PARTITIONS)}
    read = 0
    while read < RECORDS and (messages := consumer.consume(1000, timeout=PATIENCE_S)):
        for message in messages:
            assert message.error() is None, message.error()
            assert message.value() == value_of(next(expected[partition_of(message)]))
        read += len(messages)
    consumer.close()
    assert read == RECORDS


@pytest.mark.parametrize("acks", ["all", "1"])
def test_followers_have_the_leaders_bytes_and_got_them_from_the_bucket(cluster: WalCluster, acks: str) -> None:
    topic = f"through-the-bucket-{acks}"
    followers = len(cluster.brokers) - 1
    cluster.create_topic(topic, PARTITIONS, len(cluster.brokers), WAL_TOPIC)
    cluster.wait_for_full_isr(topic)
    puts, gets = bucket_requests(cluster, "put_if_absent"), bucket_requests(cluster, "get_range")
    moved = bucket_bytes(cluster)
    produce(cluster, topic, acks)
    wait_until_equal(cluster, topic, PARTITIONS)
    produced = sum(log_bytes(cluster, topic, partition, 1) for partition in range(PARTITIONS))
    assert produced > RECORDS * RECORD_BYTES
    # No byte went from broker to broker, and each follower got each object once, and no byte twice.
    assert received_bytes(cluster, topic) == {"wal": followers * produced}
    objects = bucket_requests(cluster, "put_if_absent") - puts
    assert bucket_requests(cluster, "get_range") - gets == followers * objects
    assert bucket_bytes(cluster) - moved == pytest.approx(followers * produced, rel=0.02)

    reader = cluster.node_ids[-1]
    led = [partition for partition, leader in leaders(cluster, topic).items() if leader == reader]
    assert_readable_in(cluster, topic, f"rack-{reader}")
    sent = {broker_id: sent_bytes(cluster, topic, broker_id) for broker_id in cluster.node_ids}
    assert len(led) < PARTITIONS
    assert sent.pop(reader) >= produced
    assert sum(sent.values()) == 0, "the consumer's own zone has every record"


def bucket_bytes(cluster: WalCluster) -> float:
    return sum(broker.metric("broker_objectstore_bytes_total", operation="get_range") for broker in cluster.brokers)


def sent_bytes(cluster: WalCluster, topic: str, node_id: int) -> float:
    return cluster.broker(node_id).metric("kafka_server_brokertopicmetrics_bytesout_total", topic=topic)


def test_nobody_is_warned_of_a_healthy_cluster(cluster: WalCluster) -> None:
    stood_still_s = max(broker.metric("broker_event_loop_lag_longest_seconds") for broker in cluster.brokers)
    if stood_still_s > STANDSTILL_S:
        pytest.skip(f"a broker got no processor for {stood_still_s:.1f} s, and others may well complain of that")
    logged = {node_id: warnings_logged(cluster.broker(node_id).log_text()) for node_id in cluster.node_ids}
    assert logged == {node_id: [] for node_id in cluster.node_ids}
