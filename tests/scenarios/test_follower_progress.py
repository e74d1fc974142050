"""Stories about what a leader knows of its followers, and what keeps followers from going on."""

import asyncio
from pathlib import Path

from broker.common.byte_budget import ByteBudget
from broker.replication.fetch_params import FetchParams, FetchPartition
from tests.scenarios.test_followers import fetches, tell
from tests.support.builders import batch, parsed
from tests.support.replica_cluster import ReplicaCluster


def test_epochs_that_come_as_one_change_commit_nothing_a_follower_has_cut(tmp_path: Path) -> None:
    """Leader here, elsewhere and here again, heard of as one change: what followers had in the first is the past."""

    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(configs={"min.insync.replicas": "2"})
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up()
        cluster.cut |= {(2, 1)}
        cluster.brokers[1].append(batch("b"))
        known = cluster.partition(1).remote_replicas
        await cluster.until(lambda: known[3].log_end_offset == 2)
        assert cluster.partition(1).log.high_watermark == 1
        cluster.unaware.add(1)
        cluster.elect(2)
        await cluster.until(lambda: cluster.partition(3).log.log_end_offset == 1)  # broker 3 cuts "b"
        cluster.cut |= {(3, 1)}
        cluster.elect(1, isr=(1, 3))
        cluster.tell(cluster.brokers[1])
        leader, follower = cluster.partition(1).log, cluster.partition(3).log
        assert (leader.log_end_offset, leader.high_watermark, follower.log_end_offset) == (2, 1, 1)
        cluster.cut.clear()
        cluster.unaware.clear()
        await cluster.until_caught_up()
        assert cluster.are_identical()

    tell(tmp_path, story)


def test_a_fetch_with_an_epoch_nobody_has_does_not_lock_a_follower_out(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic()
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up()
        forged = FetchParams(17, replica_id=2, replica_epoch=1 << 62)
        await cluster.brokers[1].start_fetch(forged, [FetchPartition("t", 0, 1, 1000)])
        cluster.brokers[1].append(batch("b"))
        await cluster.until_caught_up(seconds=1)

    tell(tmp_path, story)


def test_a_follower_the_leader_has_not_heard_of_yet_is_served_once_it_has(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic()
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up()
        await cluster.kill(2)
        cluster.unaware.add(1)
        cluster.start(2)
        cluster.brokers[1].append(batch("b"))
        await asyncio.sleep(0.5)
        assert cluster.partition(2).log.log_end_offset == 1
        assert cluster.partition(1).log.high_watermark == 1
        cluster.unaware.clear()
        cluster.tell(cluster.brokers[1])
        await cluster.until_caught_up(seconds=1)

    tell(tmp_path, story)


def test_a_throttled_follower_of_two_partitions_gets_all_of_both(tmp_path: Path) -> None:
    """KIP-73 leaves both out at once, one of them with an answer taken meanwhile: they come back in any order."""

    async def story(cluster: ReplicaCluster) -> None:
        configs = {"follower.replication.throttled.replicas": "*"}
        cluster.create_topic(partitions=2, replicas=(1, 2), isr=(1,), configs=configs)
        for partition in range(2):
            for _ in range(40):
                cluster.partition(1, "t", partition).append_records_to_leader(parsed(batch("x" * 10_000)))
        logs = [cluster.partition(2, "t", partition).log for partition in range(2)]
        fetchers = cluster.brokers[2].fetchers
        await cluster.until(
            lambda: fetchers.failed_count > 0 or [log.log_end_offset for log in logs] == [40, 40], seconds=300
        )
        assert fetchers.failed_count == 0

    throttle = {"follower.replication.throttled.rate": "20000"}
    sizes = {"replica.fetch.max.bytes": "30000", "replica.fetch.response.max.bytes": "30000"}
    tell(tmp_path, story, broker_ids=(1, 2), properties={**throttle, **sizes})


def test_consumers_that_do_not_read_do_not_make_followers_fetch_batch_by_batch(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster) -> None:
        cluster.create_topic(partitions=20, replicas=(1, 2))
        budget = cluster.brokers[1].replicas._reader.answer_budget = ByteBudget(1000)
        budget.acquire(2000)
        for partition in range(20):
            for _ in range(20):
                cluster.partition(1, "t", partition).append_records_to_leader(parsed(batch("a")))
        before = len(fetches(cluster, 2))
        for partition in range(20):
            await cluster.until_caught_up("t", partition)
        assert len(fetches(cluster, 2)) - before < 5

    tell(tmp_path, story)
