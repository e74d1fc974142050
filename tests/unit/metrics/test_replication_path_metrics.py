from dataclasses import dataclass, field
from typing import Any

from broker.common.identifiers import TopicPartition
from broker.metrics.registry import MetricsRegistry
from broker.metrics.replication_path_metrics import ReplicationPathMetrics
from broker.replication.replica_state import ReplicaState
from broker.replication.topic_stats import BrokerTopicStats, ReplicationPath

ZONES = {1: "a", 2: "b", 3: "a"}


@dataclass
class Log:
    local_log_start_offset: int = 0
    log_end_offset: int = 100
    size_bytes: int = 5000


@dataclass
class LeaderWal:
    is_falling_back: bool = False


@dataclass
class Partition:
    topic_partition: TopicPartition
    local_log: Any = field(default_factory=Log)
    is_leader: bool = True
    leader_wal: Any = None
    remote_replicas: dict[int, ReplicaState] = field(default_factory=dict)

    def follower(self, broker_id: int, log_end_offset: int, caught_up_ms: int | None = None) -> "Partition":
        state = self.remote_replicas[broker_id] = ReplicaState(broker_id)
        state.log_end_offset = log_end_offset
        if caught_up_ms is not None:
            state.last_caught_up_time_ms = caught_up_ms
        return self


class Replicas:
    def __init__(self) -> None:
        self.stats = BrokerTopicStats()
        self.hosted: list[Partition] = []

    def partitions(self) -> Any:
        return iter(self.hosted)

    @property
    def topic_counts(self) -> Any:
        return {**self.stats.topics, "": self.stats.unknown}


class World:
    def __init__(self) -> None:
        self.registry = MetricsRegistry()
        metrics = ReplicationPathMetrics(self.registry)
        self.replicas = Replicas()
        assert self.lag("records", "t", "fetch") is None  # before anything is observed
        metrics.observe(self.replicas, own_zone="a", zone_of=ZONES.get, monotonic_ms=lambda: 10_000)

    def lag(self, unit: str, topic: str, path: str) -> float | None:
        return self.registry.prometheus.get_sample_value(
            f"broker_replication_lag_{unit}", {"topic": topic, "path": path}
        )

    def received(self, topic: str, path: str, zone_from: str) -> float | None:
        labels = {"topic": topic, "path": path, "zone_from": zone_from, "zone_to": "a"}
        return self.registry.prometheus.get_sample_value("broker_replication_bytes_total", labels)


def test_bytes_are_told_by_path_and_zones() -> None:
    world = World()
    topic = world.replicas.stats.of("t")
    topic.count_received(ReplicationPath.FETCH, 2, 100)
    topic.count_received(ReplicationPath.FETCH, 3, 20)
    topic.count_received(ReplicationPath.FETCH, 1, 3)  # of the same zone as broker 3
    topic.count_received(ReplicationPath.WAL, 2, 4000)
    topic.count_received(ReplicationPath.FALLBACK, 9, 7)  # nobody knows that broker any more
    assert world.received("t", "fetch", "b") == 100
    assert world.received("t", "fetch", "a") == 23
    assert world.received("t", "wal", "b") == 4000
    assert world.received("t", "fallback", "") == 7
    assert world.received("t", "fallback", "b") is None


def test_lags_are_those_of_the_follower_furthest_behind() -> None:
    world = World()
    world.replicas.hosted = [
        Partition(TopicPartition("t", 0)).follower(2, 90, 9_000).follower(3, 100, 500),
        Partition(TopicPartition("t", 1)).follower(2, 40, 8_500),
        Partition(TopicPartition("t", 2), local_log=None).follower(2, 1, 1),
        Partition(TopicPartition("t", 3), is_leader=False).follower(2, 1, 1),
        Partition(TopicPartition("alone", 0)),
    ]
    assert world.lag("records", "t", "fetch") == 60
    assert world.lag("bytes", "t", "fetch") == 3000
    assert world.lag("seconds", "t", "fetch") == 1.5
    assert world.lag("records", "alone", "fetch") is None
    world.replicas.hosted[1].follower(2, 100, 8_500)
    assert world.lag("records", "t", "fetch") == 10
    assert world.lag("seconds", "t", "fetch") == 1.0


def test_lags_have_the_path_their_records_take_now() -> None:
    world = World()
    wal = LeaderWal()
    world.replicas.hosted = [
        Partition(TopicPartition("t", 0), leader_wal=wal).follower(2, 95, 9_900),
        Partition(TopicPartition("t", 1)).follower(2, 99, 9_990),
    ]
    assert (world.lag("records", "t", "wal"), world.lag("records", "t", "fetch")) == (5, 1)
    wal.is_falling_back = True
    assert (world.lag("records", "t", "wal"), world.lag("records", "t", "fallback")) == (None, 5)


def test_followers_of_buckets_are_also_told_of_by_topic_alone() -> None:
    world = World()
    wal = LeaderWal()
    world.replicas.hosted = [
        Partition(TopicPartition("t", 0), leader_wal=wal).follower(2, 95, 9_900),
        Partition(TopicPartition("t", 1), leader_wal=LeaderWal()).follower(2, 97, 9_900).follower(3, 98, 9_900),
        Partition(TopicPartition("t", 2)).follower(2, 10, 9_900),
        Partition(TopicPartition("classic", 0)).follower(2, 10, 9_900),
    ]
    name = "kafka_server_brokertopicmetrics_remotewalfollowerlagbytes"
    assert world.registry.prometheus.get_sample_value(name, {"topic": "t"}) == 250
    wal.is_falling_back = True
    assert world.registry.prometheus.get_sample_value(name, {"topic": "t"}) == 250
    assert world.registry.prometheus.get_sample_value(name, {"topic": "classic"}) is None


def test_who_was_never_caught_up_lacks_what_the_local_log_still_has() -> None:
    world = World()
    deleted = Log(local_log_start_offset=60, log_end_offset=100, size_bytes=4000)
    world.replicas.hosted = [Partition(TopicPartition("t", 0), local_log=deleted).follower(2, -1)]
    assert world.lag("records", "t", "fetch") == 40
    assert world.lag("bytes", "t", "fetch") == 4000
    assert world.lag("seconds", "t", "fetch") == 0
