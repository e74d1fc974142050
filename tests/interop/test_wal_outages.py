"""What brokers do when a zone is lost together with its bucket, and when a leader comes back that is none any more."""

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from tests.cluster.history import judge
from tests.cluster.load import LibrdkafkaProducer, read_log
from tests.cluster.replicas import wait_for_identical
from tests.support.patience import PATIENCE_S, until
from tests.support.s3_proxy import S3Proxy
from tests.support.s3_server import SeaweedServer
from tests.support.threaded_server import in_thread
from tests.support.wal_cluster import WAL_TOPIC, WalCluster, leaders, log_bytes, received_bytes, s3_bucket

pytestmark = pytest.mark.interop

TOPIC = "outage"
PARTITIONS = 3
RATE = 150
FOREVER = 10**9
CONFIG = {**WAL_TOPIC, "min.insync.replicas": "1"}
REPUBLISHED = "kafka_server_brokertopicmetrics_remotewalrepublishbytes_total"
SHORT_SESSIONS = {
    "broker.session.timeout.ms": "5000",
    "broker.heartbeat.interval.ms": "400",
    "auto.leader.rebalance.enable": "false",
}


@contextmanager
def load(cluster: WalCluster, number: int = 0, **config: object) -> Iterator[LibrdkafkaProducer]:
    """An idempotent producer with acks=all unless told otherwise; flushed at the end."""
    producer = LibrdkafkaProducer(number, cluster.bootstrap, TOPIC, PARTITIONS, RATE, config)
    producer.start()
    try:
        yield producer
    finally:
        producer.stop()


def acknowledges_everywhere(producer: LibrdkafkaProducer) -> None:
    """Every partition takes records now."""
    begun = time.monotonic()
    until(
        lambda: (
            {each.partition for each in producer.acknowledged[-500:] if each.at_s > begun} == set(range(PARTITIONS))
        ),
        "records are acknowledged in every partition",
    )


def assert_nothing_lost(cluster: WalCluster, *producers: LibrdkafkaProducer) -> None:
    for producer in producers:
        assert producer.failures == []
    acknowledged = [each for producer in producers for each in producer.acknowledged]
    verdict = judge(acknowledged, read_log(cluster.bootstrap, TOPIC, PARTITIONS))
    assert verdict.examples == []
    assert verdict.read >= len(acknowledged) > 0
    _, differing = wait_for_identical(cluster, TOPIC, PARTITIONS)
    assert differing == []


def victim_of(cluster: WalCluster) -> int:
    """A broker that leads a partition and does not hold the controller."""
    return next(leader for leader in leaders(cluster, TOPIC).values() if leader != 1)


def leads_nothing(cluster: WalCluster, node_id: int) -> bool:
    return not {node_id, -1} & set(leaders(cluster, TOPIC).values())


class Zone:
    """What is lost with a broker: its bucket, a directory or one behind an S3 endpoint that does not answer for it."""

    def __init__(self, cluster: WalCluster, proxy: S3Proxy | None) -> None:
        self.cluster, self.proxy = cluster, proxy

    def lose(self, node_id: int) -> None:
        self.cluster.kill(node_id)
        if self.proxy is None:
            place = self.cluster.bucket_directories[node_id]
            place.rename(place.with_name(f"{place.name}-away"))
        else:
            for method in ("GET", "HEAD", "PUT", "POST"):
                self.proxy.fail("hang", method, f"^/wal-{node_id}([/?]|$)", FOREVER)

    def come_back(self, node_id: int) -> None:
        if self.proxy is None:
            place = self.cluster.bucket_directories[node_id]
            place.with_name(f"{place.name}-away").rename(place)
        else:
            self.proxy.heal()
        self.cluster.launch(node_id)


@contextmanager
def running_zones(kind: str, directory: Path) -> Iterator[Zone]:
    with ExitStack() as stack:
        proxy, buckets = None, None
        if kind == "s3":
            server = stack.enter_context(SeaweedServer(directory / "s3", [f"wal-{number}" for number in (1, 2, 3)]))
            proxy = stack.enter_context(in_thread(S3Proxy(server.url)))
            buckets = {number: s3_bucket(f"wal-{number}", proxy.url) for number in (1, 2, 3)}
        settings = {**SHORT_SESSIONS, "remote.wal.fallback.enable": "false"}  # what comes, comes through buckets
        cluster = WalCluster(directory / "cluster", settings=settings, buckets=buckets)
        yield Zone(stack.enter_context(cluster), proxy)


@pytest.mark.parametrize("kind", ["directories", pytest.param("s3", marks=pytest.mark.s3)])
def test_a_zone_is_lost_with_its_bucket(tmp_path: Path, kind: str) -> None:
    """The others go on, have in their own buckets what the lost one held, and take the zone back."""
    with running_zones(kind, tmp_path) as zone:
        cluster = zone.cluster
        cluster.create_topic(TOPIC, PARTITIONS, 3, CONFIG)
        cluster.wait_for_full_isr(TOPIC)
        victim = victim_of(cluster)
        lost = [partition for partition, leader in leaders(cluster, TOPIC).items() if leader == victim]
        with load(cluster) as before:
            acknowledges_everywhere(before)
            zone.lose(victim)
            until(lambda: leads_nothing(cluster, victim), "the others lead")
            acknowledges_everywhere(before)
        survivors = [node_id for node_id in cluster.node_ids if node_id != victim]
        until(
            lambda: sum(cluster.broker(node_id).metric(REPUBLISHED, topic=TOPIC) for node_id in survivors) > 0,
            "what was in the lost bucket alone is in another one",
        )
        rebuild_from_buckets(cluster, survivors[-1], lost)
        zone.come_back(victim)
        cluster.wait_for_full_isr(TOPIC)
        with load(cluster, 1) as after:
            acknowledges_everywhere(after)
        assert_nothing_lost(cluster, before, after)


def rebuild_from_buckets(cluster: WalCluster, node_id: int, lost: list[int]) -> None:
    """A replica that has lost its logs finds all of them in the bucket of the leader who took over."""
    cluster.kill(node_id)
    for partition in lost:
        shutil.rmtree(cluster.nodes[node_id].data / f"{TOPIC}-{partition}")
    until(lambda: leads_nothing(cluster, node_id), "somebody else leads")
    cluster.restart(node_id)
    broker = cluster.broker(node_id)

    def received(path: str) -> float:
        return broker.metric("broker_replication_bytes_total", topic=TOPIC, path=path)

    size_bytes = sum(log_bytes(cluster, TOPIC, partition, 1) for partition in lost)
    until(lambda: received("wal") >= size_bytes, f"{size_bytes} bytes came through the bucket")
    assert received("fallback") == 0


def test_a_leader_that_comes_back_as_a_zombie_writes_nothing_into_others_logs(tmp_path: Path) -> None:
    """Stopped until the others elected another leader; then it appends, and uploads, what was sent to it before."""
    with WalCluster(tmp_path / "cluster", settings=SHORT_SESSIONS) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, 3, CONFIG)
        cluster.wait_for_full_isr(TOPIC)
        zombie = victim_of(cluster)
        partition = next(number for number, leader in leaders(cluster, TOPIC).items() if leader == zombie)
        careless = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "0"})
        careless.produce(TOPIC, "9.0", partition=partition)
        assert careless.flush(PATIENCE_S) == 0
        with load(cluster) as producer:
            acknowledges_everywhere(producer)
            cluster.pause(zombie)
            for number in range(1, 1000):
                careless.produce(TOPIC, f"9.{number} {'z' * 100}", partition=partition)
                careless.poll(0)
            careless.flush(1)
            until(lambda: leads_nothing(cluster, zombie), "the others lead")
            acknowledges_everywhere(producer)
            cluster.resume(zombie)
            cluster.wait_for_full_isr(TOPIC)
            acknowledges_everywhere(producer)
        careless.purge()
        assert_nothing_lost(cluster, producer)
        assert received_bytes(cluster, TOPIC)["wal"] > 0
