"""The metrics of tiered storage: all of them are there at zero, move, and vanish with what they are of."""

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.common.identifiers import TopicPartition
from broker.metrics.registry import OWNERS_PER_PAUSE, PAUSE, MetricsRegistry
from broker.metrics.remote_log_metrics import RemoteLogMetrics
from broker.tiering.remote_log_stats import RemoteLogStats, RemotePartitionStats, RemoteTopicStats

TOPIC = "kafka_server_brokertopicmetrics_"
POOL = "org_apache_kafka_storage_internals_log_remotestoragethreadpool_"
TASKS = "kafka_log_remote_remotelogmanager_remotelogmanagertasksavgidlepercent"
FETCHES = "kafka_server_delayedremotefetchmetrics_expires_total"
LOOKUPS = "kafka_server_delayedremotelistoffsetsmetrics_expires_total"

COUNTERS = {
    "fetch_bytes": "RemoteFetchBytesPerSec",
    "fetch_requests": "RemoteFetchRequestsPerSec",
    "fetch_errors": "RemoteFetchErrorsPerSec",
    "copy_bytes": "RemoteCopyBytesPerSec",
    "copy_requests": "RemoteCopyRequestsPerSec",
    "copy_errors": "RemoteCopyErrorsPerSec",
    "delete_requests": "RemoteDeleteRequestsPerSec",
    "delete_errors": "RemoteDeleteErrorsPerSec",
    "build_aux_state_requests": "BuildRemoteLogAuxStateRequestsPerSec",
    "build_aux_state_errors": "BuildRemoteLogAuxStateErrorsPerSec",
}
GAUGES = {
    "copy_lag_bytes": "RemoteCopyLagBytes",
    "copy_lag_segments": "RemoteCopyLagSegments",
    "delete_lag_bytes": "RemoteDeleteLagBytes",
    "delete_lag_segments": "RemoteDeleteLagSegments",
    "metadata_count": "RemoteLogMetadataCount",
    "size_bytes": "RemoteLogSizeBytes",
    "size_computation_ms": "RemoteLogSizeComputationTime",
}
OTHER_BEANS = {
    "kafka.log.remote:type=RemoteLogManager,name=RemoteLogManagerTasksAvgIdlePercent",
    "kafka.log.remote:type=RemoteLogManager,name=RemoteLogReaderFetchRateAndTimeMs",
    "org.apache.kafka.storage.internals.log:type=RemoteStorageThreadPool,name=RemoteLogReaderTaskQueueSize",
    "org.apache.kafka.storage.internals.log:type=RemoteStorageThreadPool,name=RemoteLogReaderAvgIdlePercent",
    "kafka.server:type=DelayedRemoteFetchMetrics,name=ExpiresPerSec",
    "kafka.server:type=DelayedRemoteListOffsetsMetrics,name=ExpiresPerSec,topic=*,partition=*",
    "kafka.server:type=RemoteLogManager,name=remote-fetch-throttle-time-avg|remote-copy-throttle-time-avg",
    "kafka.server:type=RemoteLogManager,name=remote-fetch-throttle-time-max|remote-copy-throttle-time-max",
    "kafka.server:type=RLMCopy:byte-rate",
    "kafka.server:type=RLMFetch:byte-rate",
}


@dataclass
class Purgatory:
    name: str
    expired_count: int


@dataclass
class Partition:
    topic_partition: TopicPartition
    expired_remote_list_offsets: int = 0


@dataclass
class Lookups:
    expired_partitions: int = 0


@dataclass
class Replicas:
    hosted: list[Partition] = field(default_factory=list)
    purgatories: tuple[Purgatory, ...] = ()
    remote_offset_lookups: Lookups = field(default_factory=Lookups)

    def partitions(self) -> Any:
        return iter(self.hosted)


@dataclass
class Quota:
    byte_rate: float


class World:
    def __init__(self) -> None:
        self.registry = MetricsRegistry()
        self.metrics = RemoteLogMetrics(self.registry)
        self.stats = RemoteLogStats()
        self.metrics.observe(self.stats)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.prometheus.get_sample_value(name, labels)

    def counters(self, topic: str) -> dict[str, float | None]:
        return {
            name: self.value(f"{TOPIC}{bean.removesuffix('PerSec').lower()}_total", topic=topic)
            for name, bean in COUNTERS.items()
        }

    def gauges(self, topic: str) -> dict[str, float | None]:
        return {name: self.value(f"{TOPIC}{bean.lower()}", topic=topic) for name, bean in GAUGES.items()}


def test_54_every_bean_of_tiered_storage_has_a_metric() -> None:
    beans = {definition.bean for definition in World().registry.definitions if definition.bean is not None}
    topics = {
        f"kafka.server:type=BrokerTopicMetrics,name={bean},topic=*" for bean in (*COUNTERS.values(), *GAUGES.values())
    }
    assert beans == topics | OTHER_BEANS


def test_54_all_are_there_at_zero_after_the_start() -> None:
    world = World()
    own = [definition.name for definition in world.registry.definitions[1:]]
    samples: dict[str, set[float]] = {}
    for family in world.registry.prometheus.collect():
        for sample in family.samples:
            name = re.sub("_(bucket|sum|count|created)$", "", sample.name)
            samples.setdefault(name, set()).add(sample.value)
    idle = {f"{POOL}remotelogreaderavgidlepercent", TASKS}
    assert {name: samples.get(name) for name in own} == {name: {1.0} if name in idle else {0.0} for name in own}


def test_nothing_is_needed_to_look() -> None:
    registry = MetricsRegistry()
    RemoteLogMetrics(registry)
    assert all(list(family.collect()) for family in registry.families)
    assert registry.prometheus.get_sample_value(TASKS) == 1


def test_54_every_count_of_a_topic_is_a_metric_until_the_topic_is_gone() -> None:
    world = World()
    assert set(RemoteTopicStats.__slots__) == set(COUNTERS)
    for topic in (world.stats.topic("t"), world.stats.unknown):
        for number, name in enumerate(COUNTERS, start=1):
            setattr(topic, name, number)
    numbers = {name: number for number, name in enumerate(COUNTERS, start=1)}
    assert world.counters("t") == world.counters("") == numbers
    world.stats.forget_topic("t")
    assert set(world.counters("t").values()) == {None}


def test_54_gauges_of_partitions_add_up_and_vanish_when_nothing_is_led() -> None:
    world = World()
    assert set(RemotePartitionStats.__slots__) == set(GAUGES)
    first, second, other = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
    for partition, factor in ((first, 1), (second, 10), (other, 100)):
        for number, name in enumerate(GAUGES, start=1):
            setattr(world.stats.partition(partition), name, factor * number)
    numbers = {name: number for number, name in enumerate(GAUGES, start=1)}
    assert world.gauges("t") == {name: 11 * number for name, number in numbers.items()}
    assert world.gauges("u") == {name: 100 * number for name, number in numbers.items()}
    world.stats.forget_partition(second)
    assert world.gauges("t") == numbers
    world.stats.forget_partition(first)
    assert set(world.gauges("t").values()) == {None}
    assert set(world.gauges("").values()) == {0}


def test_many_partitions_leave_room_for_others() -> None:
    world = World()
    for number in range(OWNERS_PER_PAUSE):
        world.stats.partition(TopicPartition("t", number)).copy_lag_bytes = 1
    (family,) = [each for each in world.registry.families if each.definition.name == f"{TOPIC}remotecopylagbytes"]
    assert list(family.rows()) == [PAUSE, (("",), 0), (("t",), OWNERS_PER_PAUSE)]


def test_54_tasks_and_readers() -> None:
    world = World()
    stats = world.stats
    stats.copy_tasks_max, stats.copy_tasks_busy = 10, 4
    stats.readers_max, stats.readers_busy, stats.read_queue_size = 4, 5, 17  # one too many: just made smaller
    assert world.value(TASKS) == pytest.approx(0.6)
    assert world.value(f"{POOL}remotelogreaderavgidlepercent") == 0
    assert world.value(f"{POOL}remotelogreadertaskqueuesize") == 17
    stats.read_seconds.observe(0.02)
    stats.read_seconds.observe(0.4)
    assert world.value("broker_remote_log_read_seconds_count") == 2
    assert world.value("broker_remote_log_read_seconds_bucket", le="0.025") == 1
    assert world.value("broker_remote_log_read_seconds_sum") == pytest.approx(0.42)


def test_54_throttling_and_rates() -> None:
    world = World()
    world.metrics.observe(world.stats, copy_quota=Quota(1000.0), fetch_quota=Quota(50.0))
    world.stats.copy_throttle_ms.observe(1500)
    world.stats.copy_throttle_ms.observe(500)
    world.stats.fetch_throttle_ms.observe(20)
    assert world.value("broker_remote_log_throttle_seconds_sum", what="copy") == pytest.approx(2.0)
    assert world.value("broker_remote_log_throttle_seconds_count", what="copy") == 2
    assert world.value("broker_remote_log_throttle_seconds_count", what="fetch") == 1
    assert world.value("broker_remote_log_throttle_longest_seconds", what="copy") == pytest.approx(1.5)
    assert world.value("broker_remote_log_throttle_longest_seconds", what="fetch") == pytest.approx(0.02)
    assert world.value("kafka_server_rlmcopy_byte_rate") == 1000
    assert world.value("kafka_server_rlmfetch_byte_rate") == 50


def test_54_requests_that_waited_in_vain() -> None:
    world = World()
    partitions = [
        Partition(TopicPartition("t", 0), 2),
        Partition(TopicPartition("t", 1)),
        Partition(TopicPartition("u", 0), 1),
    ]
    purgatories = (Purgatory("Fetch", 100), Purgatory("RemoteFetch", 7), Purgatory("RemoteListOffsets", 3))
    world.metrics.observe(world.stats, replicas=Replicas(partitions, purgatories, Lookups(5)))
    assert world.value(FETCHES) == 7
    assert world.value(LOOKUPS, topic="t", partition="0") == 2
    assert world.value(LOOKUPS, topic="t", partition="1") is None
    assert world.value(LOOKUPS, topic="u", partition="0") == 1
    assert world.value(LOOKUPS, topic="", partition="") == 2  # of partitions that have left
