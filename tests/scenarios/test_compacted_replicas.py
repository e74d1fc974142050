"""Stories about replicas that compact their logs: what followers copy, what they cut, who leads next."""

import functools
import random
from pathlib import Path

from broker.common.disk import InlineDiskExecutor
from broker.log.cleaner.cleanable_log import cleanable
from broker.log.cleaner.io_throttle import IoThrottle
from broker.log.cleaner.last_batches import last_batches
from broker.log.cleaner.log_compaction import LogCompaction
from broker.log.cleaner.offset_map import OffsetMap
from broker.log.unified_log import UnifiedLog
from broker.records.record_batch import batches
from tests.support.builders import batch
from tests.support.replica_cluster import ReplicaCluster, tell_of

CONFIGS = {"cleanup.policy": "compact", "internal.segment.bytes": "400", "min.cleanable.dirty.ratio": "0"}
Entry = tuple[int, bytes | None, bytes | None]


tell = functools.partial(tell_of, ReplicaCluster)


def write(cluster: ReplicaCluster, broker_id: int, seed: int, count: int = 40) -> None:
    """Batches of two records, few keys."""
    chance = random.Random(seed)
    for number in range(count):
        keys = [b"k%d" % chance.randrange(8) for _ in range(2)]
        cluster.brokers[broker_id].append(batch(f"{seed}-{number}-a", f"{seed}-{number}-b", keys=keys))


async def compact(cluster: ReplicaCluster, broker_id: int) -> UnifiedLog:
    log = cluster.partition(broker_id).log
    target = cleanable(log, cluster.brokers[broker_id].clock.now_ms())
    if target.cleanable_bytes:
        log.flush()
        throttle = IoThrottle(lambda: float("inf"))
        size = log.size_bytes
        producers = last_batches(log.producer_state_manager.producers)
        compaction = LogCompaction(target, producers, OffsetMap(1000), log._environment, InlineDiskExecutor(), throttle)
        log.clean_offset = await compaction.run()
        assert log.size_bytes < size
    return log


def entries(cluster: ReplicaCluster, broker_id: int) -> list[Entry]:
    found = batches(cluster.log_bytes(broker_id))
    return [(record.offset, record.key, record.value) for each in found for record in each.records()]


def table(found: list[Entry]) -> dict[bytes | None, bytes | None]:
    return {key: value for _, key, value in found}


def are_equal(cluster: ReplicaCluster, *broker_ids: int) -> bool:
    tables = [table(entries(cluster, broker_id)) for broker_id in broker_ids]
    ends = {cluster.partition(broker_id).log.log_end_offset for broker_id in broker_ids}
    return len(ends) == 1 and all(each == tables[0] for each in tables)


def test_a_new_replica_copies_a_compacted_log_with_its_holes(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(replicas=(1, 2), configs=CONFIGS)
        write(cluster, 1, 1)
        await cluster.until_caught_up()
        await compact(cluster, 1)
        cluster.place(replicas=(1, 2, 3), isr=(1, 2))
        await cluster.until_caught_up()
        assert entries(cluster, 3) == entries(cluster, 1)
        assert len(entries(cluster, 3)) < len(entries(cluster, 2)) == 80
        assert are_equal(cluster, 1, 2, 3)
        cluster.elect(3)
        write(cluster, 3, 2)
        await cluster.until_caught_up()
        for broker_id in (1, 2, 3):
            await compact(cluster, broker_id)
        assert are_equal(cluster, 1, 2, 3)

    tell(tmp_path, story)


def test_an_old_leader_is_cut_to_where_the_compacted_log_of_the_new_one_agrees(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(configs=CONFIGS)
        write(cluster, 1, 1)
        await cluster.until_caught_up()
        cluster.cut |= {(2, 1), (3, 1)}
        write(cluster, 1, 2, count=20)
        old = await compact(cluster, 1)
        assert old.high_watermark == 80
        assert (old.clean_offset or 0) <= 80, "what is not replicated decides over nothing"
        cluster.elect(2, isr=(2, 3))
        write(cluster, 2, 3)
        await cluster.until_caught_up()
        for broker_id in (2, 3):
            await compact(cluster, broker_id)
        await cluster.until_caught_up()
        assert are_equal(cluster, 1, 2, 3)
        assert b"2-0-a" not in table(entries(cluster, 1)).values()
        await compact(cluster, 1)
        assert are_equal(cluster, 1, 2, 3)

    tell(tmp_path, story)


def test_a_compacted_leader_that_is_killed_comes_back_as_it_was(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(configs=CONFIGS)
        write(cluster, 1, 1)
        await cluster.until_caught_up()
        await compact(cluster, 1)
        before = entries(cluster, 1)
        await cluster.kill(1)
        cluster.elect(2, isr=(2, 3))
        write(cluster, 2, 2)
        await compact(cluster, 2)
        cluster.start(1)
        await cluster.until_caught_up()
        assert entries(cluster, 1)[: len(before)] == before
        assert are_equal(cluster, 1, 2, 3)
        cluster.elect(1)
        write(cluster, 1, 3)
        await cluster.until_caught_up()
        assert are_equal(cluster, 1, 2, 3)

    tell(tmp_path, story)
