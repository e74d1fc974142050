from pathlib import Path

from broker.replication.partition_context import IsrStats
from tests.support.builders import ReplicaWorld


def test_isr_stats_begin_at_zero() -> None:
    stats = IsrStats()
    assert (stats.expands, stats.shrinks, stats.failed_updates) == (0, 0, 0)


def test_all_partitions_share_one_context(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.create_topic(partitions=2)
    first, second = world.partition("t", 0), world.partition("t", 1)
    assert first._context is second._context is world.replicas.context
    assert world.replicas.context.isr_stats is world.replicas.isr_stats
