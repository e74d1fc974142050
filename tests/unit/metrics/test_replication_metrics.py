from types import SimpleNamespace

import pytest

from broker.common.identifiers import TopicPartition
from broker.metrics.registry import MetricsRegistry
from broker.metrics.replication_metrics import _TOPIC_COUNTERS, ReplicationMetrics

from .scrape import scrape


class Sized(SimpleNamespace):
    """A thing with a length: a purgatory, a session cache."""

    size: int

    def __len__(self) -> int:
        return self.size

    def watched_keys_count(self) -> int:
        return 7


def partition(number: int, **facts: object) -> SimpleNamespace:
    quiet = {
        "is_leader": False,
        "is_offline": False,
        "is_under_replicated": False,
        "is_under_min_isr": False,
        "is_at_min_isr": False,
        "is_reassigning": False,
        "isr": (),
        "replicas": (1, 2, 3),
        "last_stable_offset_lag": 0,
    }
    return SimpleNamespace(topic_partition=TopicPartition("orders", number), **{**quiet, **facts})


def replicas(*partitions: SimpleNamespace, **facts: object) -> SimpleNamespace:
    nothing = {
        "isr_stats": SimpleNamespace(expands=0, shrinks=0, failed_updates=0),
        "purgatories": (),
        "expired_fetches": {},
        "topic_counts": {},
    }
    return SimpleNamespace(partitions=lambda: iter(partitions), **{**nothing, **facts})


def seen_of(owner: SimpleNamespace) -> dict[str, float]:
    registry = MetricsRegistry()
    ReplicationMetrics(registry).observe(owner)
    return scrape(registry)


def test_nothing_is_read_before_there_is_an_owner() -> None:
    registry = MetricsRegistry()
    ReplicationMetrics(registry)
    assert scrape(registry)["kafka_server_replicamanager_partitioncount"] == 0


def test_partitions_are_counted_by_their_state() -> None:
    leader = partition(
        0, is_leader=True, is_under_replicated=True, is_under_min_isr=True, is_reassigning=True, isr=(1,)
    )
    seen = seen_of(replicas(leader, partition(1, is_leader=True, is_at_min_isr=True), partition(2, is_offline=True)))
    prefix = "kafka_server_replicamanager_"
    names = ("leadercount", "partitioncount", "offlinereplicacount", "underreplicatedpartitions")
    assert [seen[prefix + name] for name in names] == [2, 3, 1, 1]
    names = ("underminisrpartitioncount", "atminisrpartitioncount", "reassigningpartitions")
    assert [seen[prefix + name] for name in names] == [1, 1, 1]


def test_each_partition_tells_of_its_replicas() -> None:
    leader = partition(0, is_leader=True, is_under_replicated=True, isr=(1, 2), last_stable_offset_lag=9)
    seen = seen_of(replicas(leader, partition(1, isr=(1, 2, 3)), partition(2, is_offline=True)))
    of_leader, of_follower = '{partition="0",topic="orders"}', '{partition="1",topic="orders"}'
    prefix = "kafka_cluster_partition_"
    assert (seen[f"{prefix}underreplicated{of_leader}"], seen[f"{prefix}underreplicated{of_follower}"]) == (1, 0)
    assert seen[f"{prefix}insyncreplicascount{of_leader}"] == 2
    assert seen[f"{prefix}insyncreplicascount{of_follower}"] == 0
    assert (seen[f"{prefix}replicascount{of_leader}"], seen[f"{prefix}replicascount{of_follower}"]) == (3, 0)
    assert seen[f"{prefix}laststableoffsetlag{of_leader}"] == 9
    assert (seen[f"{prefix}underminisr{of_leader}"], seen[f"{prefix}atminisr{of_leader}"]) == (0, 0)
    assert not any('partition="2"' in name for name in seen)


@pytest.mark.parametrize("name", [counter[0] for counter in _TOPIC_COUNTERS])
def test_each_topic_counts_by_itself(name: str) -> None:
    attribute = next(counter[2] for counter in _TOPIC_COUNTERS if counter[0] == name)
    counts = {counter[2]: 0 for counter in _TOPIC_COUNTERS}
    seen = seen_of(replicas(topic_counts={"orders": SimpleNamespace(**{**counts, attribute: 12})}))
    assert seen[f'kafka_server_brokertopicmetrics_{name}_total{{topic="orders"}}'] == 12
    moved = [key for key, value in seen.items() if key.startswith("kafka_server_brokertopicmetrics") and value]
    assert len(moved) == 1


def test_changes_of_in_sync_replicas() -> None:
    seen = seen_of(replicas(isr_stats=SimpleNamespace(expands=1, shrinks=2, failed_updates=3)))
    prefix = "kafka_server_replicamanager_"
    names = ("isrexpands", "isrshrinks", "failedisrupdates")
    assert [seen[f"{prefix}{name}_total"] for name in names] == [1, 2, 3]


def test_requests_that_wait() -> None:
    produce = Sized(name="Produce", size=4, expired_count=5)
    seen = seen_of(replicas(purgatories=(produce,), expired_fetches={"consumer": 6}))
    label = '{delayedOperation="Produce"}'
    assert seen[f"kafka_server_delayedoperationpurgatory_numdelayedoperations{label}"] == 4
    assert seen[f"kafka_server_delayedoperationpurgatory_purgatorysize{label}"] == 7
    assert seen[f"broker_delayed_operations_expired_total{label}"] == 5
    assert seen['kafka_server_delayedfetchmetrics_expires_total{fetcherType="consumer"}'] == 6


def test_fetch_sessions() -> None:
    registry = MetricsRegistry()
    ReplicationMetrics(registry).observe_sessions(Sized(size=2, partition_count=30, evictions=4))
    seen = scrape(registry)
    prefix = "kafka_server_fetchsessioncache_"
    assert seen[f"{prefix}numincrementalfetchsessions"] == 2
    assert seen[f"{prefix}numincrementalfetchpartitionscached"] == 30
    assert seen[f"{prefix}incrementalfetchsessionevictions_total"] == 4
