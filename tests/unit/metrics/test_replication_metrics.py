import asyncio
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.metrics.registry import MetricsRegistry
from broker.metrics.replication_metrics import ReplicationMetrics
from broker.replication.fetch_params import FetchParams, FetchPartition
from tests.support.builders import ReplicaWorld, batch
from tests.support.sim_loop import SimLoop, simulate


class Scraped:
    """A world whose metrics are read as Prometheus would."""

    def __init__(self, tmp_path: Path) -> None:
        self.world = ReplicaWorld(tmp_path)
        self.world.register_brokers(1, 2, 3)
        self.registry = MetricsRegistry()
        self.metrics = ReplicationMetrics(self.registry)
        self.metrics.observe(self.world.replicas)
        self.metrics.observe_sessions(self.world.sessions.cache)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.prometheus.get_sample_value(name, labels)

    def replica_manager(self, name: str) -> float | None:
        return self.value(f"kafka_server_replicamanager_{name}")

    def topic(self, name: str, topic: str = "t") -> float | None:
        return self.value(f"kafka_server_brokertopicmetrics_{name}_total", topic=topic)


@pytest.fixture
def scraped(tmp_path: Path) -> Scraped:
    return Scraped(tmp_path)


def test_before_anything_is_observed_all_is_zero_or_absent() -> None:
    registry = MetricsRegistry()
    ReplicationMetrics(registry)
    text = generate_latest(registry.prometheus).decode()
    assert "kafka_server_replicamanager_partitioncount 0.0" in text
    assert "kafka_server_fetchsessioncache_numincrementalfetchsessions 0.0" in text
    assert "kafka_server_brokertopicmetrics_bytesin_total{" not in text


def test_what_producers_and_consumers_move(scraped: Scraped) -> None:
    async def story(loop: SimLoop) -> None:
        world = scraped.world
        target = world.create_topic("t")
        broken = batch("x")
        broken[-1] ^= 1
        await world.produce([(target, batch("a", "b"))])
        await world.produce([(target, broken)])
        await world.produce([(target, batch("y", producer_id=3, producer_epoch=0, base_sequence=0))])
        await world.produce([(target, batch("z", producer_id=3, producer_epoch=0, base_sequence=9))])
        await world.produce([(target, batch(b"x" * 2_000_000))])
        await world.produce([(TopicPartition("missing", 0), batch("a"))])
        read = await world.fetch(FetchParams(version=12), FetchPartition("t", 0, 0, 10_000))
        world.replicas.count_bytes_out(read, -1)
        size = len(batch("a", "b")) + len(batch("y"))
        assert scraped.topic("messagesin") == 3
        assert scraped.topic("bytesin") == size
        assert scraped.topic("bytesout") == size
        assert scraped.topic("bytesrejected") == len(batch(b"x" * 2_000_000))
        assert scraped.topic("totalproducerequests") == 5
        assert scraped.topic("totalproducerequests", "") == 1
        assert scraped.topic("totalfetchrequests") == 1
        assert scraped.topic("failedproducerequests") == 1
        assert scraped.topic("invalidmessagecrcrecords") == 1
        assert scraped.topic("invalidoffsetorsequencerecords") == 1
        assert scraped.topic("replicationbytesout") == scraped.topic("failedfetchrequests") == 0

    simulate(story)


def test_records_without_keys_are_counted(scraped: Scraped) -> None:
    async def story(loop: SimLoop) -> None:
        target = scraped.world.create_topic("t", configs={"cleanup.policy": "compact"})
        await scraped.world.produce([(target, batch("a", "b"))])
        assert scraped.topic("nokeycompactedtopicrecords") == 2

    simulate(story)


def test_partitions_and_their_isr(scraped: Scraped) -> None:
    world = scraped.world
    world.create_topic("t", replicas=(1, 2, 3), isr=(1, 2), configs={"min.insync.replicas": "2"})
    world.create_topic("led-elsewhere", replicas=(2, 1), leader=2)
    assert scraped.replica_manager("partitioncount") == 2
    assert scraped.replica_manager("leadercount") == 1
    assert scraped.replica_manager("underreplicatedpartitions") == 1
    assert scraped.replica_manager("atminisrpartitioncount") == 1
    assert scraped.replica_manager("underminisrpartitioncount") == 0
    world.place(isr=(1,), adding_replicas=(3,))
    assert scraped.replica_manager("underminisrpartitioncount") == 1
    assert scraped.replica_manager("reassigningpartitions") == 1
    here = {"topic": "t", "partition": "0"}
    there = {"topic": "led-elsewhere", "partition": "0"}
    values = {
        name: (
            scraped.value(f"kafka_cluster_partition_{name}", **here),
            scraped.value(f"kafka_cluster_partition_{name}", **there),
        )
        for name in ("underreplicated", "underminisr", "atminisr", "insyncreplicascount", "replicascount")
    }
    assert values == {
        "underreplicated": (1, 0),
        "underminisr": (1, 0),
        "atminisr": (0, 0),
        "insyncreplicascount": (1, 0),
        "replicascount": (3, 0),
    }
    assert scraped.replica_manager("offlinereplicacount") == 0
    world.partition().stop(ErrorCode.kafka_storage_error, is_deleted=False)
    assert scraped.replica_manager("offlinereplicacount") == 1
    assert scraped.value("kafka_cluster_partition_underreplicated", **here) is None


def test_an_open_transaction_shows_in_the_lag_of_the_last_stable_offset(scraped: Scraped) -> None:
    scraped.world.create_topic("t")
    scraped.world.append(batch("a", producer_id=3, producer_epoch=0, base_sequence=0, is_transactional=True))
    assert scraped.value("kafka_cluster_partition_laststableoffsetlag", topic="t", partition="0") == 1


def test_changes_of_the_isr(scraped: Scraped) -> None:
    world = scraped.world
    world.create_topic("t", replicas=(1, 2), isr=(1,))
    fetched = {"fetch_offset": 0, "log_start_offset": 0, "leader_log_end_offset": 0, "replica_epoch": 12}
    world.partition().update_follower_fetch_state(2, **fetched)
    world.alter_partition.answer(ErrorCode.ineligible_replica)
    world.partition().update_follower_fetch_state(2, **fetched)
    world.alter_partition.agree()
    world.append(batch("a"))
    world.now_ms += 40_000
    world.replicas.maybe_shrink_isrs()
    world.alter_partition.agree()
    assert scraped.replica_manager("isrexpands_total") == 1
    assert scraped.replica_manager("isrshrinks_total") == 1
    assert scraped.replica_manager("failedisrupdates_total") == 1


def test_what_throttled_replicas_are_sent(scraped: Scraped) -> None:
    scraped.world.create_topic(configs={"leader.replication.throttled.replicas": "*"})
    scraped.world.partition().followers.count_sent(2, 300)
    scraped.world.partition().followers.count_sent(2, 400)
    assert scraped.value("kafka_server_leaderreplication_byte_rate") == 700


def test_what_waits_and_what_waited_in_vain(scraped: Scraped) -> None:
    async def story(loop: SimLoop) -> None:
        world = scraped.world
        target = world.create_topic("t", replicas=(1, 2))
        world.start_fetch(FetchParams(version=12, max_wait_ms=500), [FetchPartition("t", 0, 0, 100)])
        produced = loop.create_task(world.produce([(target, batch("a"))], acks=-1, timeout_ms=500))
        await asyncio.sleep(0.1)

        def waiting(kind: str) -> float | None:
            return scraped.value("kafka_server_delayedoperationpurgatory_numdelayedoperations", delayedOperation=kind)

        def watched(kind: str) -> float | None:
            return scraped.value("kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation=kind)

        assert [waiting(kind) for kind in ("Produce", "Fetch", "DeleteRecords")] == [1, 1, 0]
        assert [watched(kind) for kind in ("Produce", "Fetch", "DeleteRecords")] == [1, 1, 0]
        await produced
        await asyncio.sleep(1)
        assert [waiting(kind) for kind in ("Produce", "Fetch", "DeleteRecords")] == [0, 0, 0]
        assert scraped.value("broker_delayed_operations_expired_total", delayedOperation="Produce") == 1
        assert scraped.value("kafka_server_delayedfetchmetrics_expires_total", fetcherType="consumer") == 1
        assert scraped.value("kafka_server_delayedfetchmetrics_expires_total", fetcherType="follower") == 0

    simulate(story)


def test_fetch_sessions(scraped: Scraped) -> None:
    cache = scraped.world.sessions.cache
    session = cache.try_create(replica_id=-1, size=2, uses_topic_ids=False, now_ms=0)
    assert session is not None
    session.add(FetchPartition("t", 0, 0, 1))
    cache.touch(session, 0)
    cache.shards[0].evictions = 4
    prefix = "kafka_server_fetchsessioncache_"
    assert scraped.value(prefix + "numincrementalfetchsessions") == 1
    assert scraped.value(prefix + "numincrementalfetchpartitionscached") == 1
    assert scraped.value(prefix + "incrementalfetchsessionevictions_total") == 4
