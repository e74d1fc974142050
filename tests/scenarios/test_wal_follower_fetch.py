"""Stories about followers that take records from a bucket: real logs, leaders and fetchers, a bucket without substance.

What a follower may append is the bucket's matter; here it is what the fetches must do meanwhile.
"""

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import NotLeaderOrFollowerError
from broker.common.identifiers import TopicPartition
from broker.config.topic_config import TopicConfig
from broker.protocol.api_keys import ApiKey
from broker.replication.bucket_fetch_state import BucketFetchState
from broker.replication.topic_stats import ReplicationPath
from tests.support.builders import batch, values_of
from tests.support.plain_bucket import PlainBucket, PlainBucketFollower, PlainLeaderWal
from tests.support.replica_cluster import ReplicaCluster
from tests.support.sim_loop import SimLoop, simulate

PROPERTIES = {
    "remote.wal.storage.system.enable": "true",
    "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
    "rwsm.config.bucket": "file:///not/used",
    "broker.rack": "zone-a",
}
WAL = {"remote.wal.enable": "true"}

Story = Callable[[ReplicaCluster, PlainBucket], Awaitable[None]]


def tell(tmp_path: Path, story: Story, **options: Any) -> None:
    async def run(loop: SimLoop) -> None:
        bucket = PlainBucket()
        cluster = ReplicaCluster(tmp_path, properties=PROPERTIES, make_bucket_follower=bucket.make_follower, **options)
        try:
            await story(cluster, bucket)
            assert [broker.fetchers.failed_count for broker in cluster.brokers.values()] == [0] * len(cluster.brokers)
        finally:
            await cluster.stop()

    simulate(run)


def now() -> float:
    return asyncio.get_running_loop().time()


def state(cluster: ReplicaCluster, broker_id: int) -> BucketFetchState:
    [found] = [each for _, each in cluster.brokers[broker_id].fetchers.states()]
    assert isinstance(found, BucketFetchState)
    return found


def follower(cluster: ReplicaCluster, broker_id: int) -> PlainBucketFollower:
    found = state(cluster, broker_id).follower
    assert isinstance(found, PlainBucketFollower)
    return found


def fetches(cluster: ReplicaCluster, source: int) -> list[Any]:
    return [each for sender, _, each in cluster.requests if sender == source and each.__api_key__ == ApiKey.FETCH]


def received(cluster: ReplicaCluster, broker_id: int) -> dict[str, int]:
    """Bytes by the path they took."""
    found = dict.fromkeys(ReplicationPath, 0)
    for (path, _), size in cluster.partition(broker_id).topic_stats.received_bytes.items():
        found[path] += size
    return {str(path): size for path, size in found.items() if size}


def begin(cluster: ReplicaCluster, bucket: PlainBucket, **options: Any) -> PlainLeaderWal:
    cluster.create_topic(configs=WAL, **options)
    return bucket.lead(cluster.partition(cluster.leader()))


def elect(cluster: ReplicaCluster, bucket: PlainBucket, leader: int, isr: tuple[int, ...] | None = None) -> None:
    cluster.elect(leader, isr)
    bucket.lead(cluster.partition(leader))


class Watching:
    """What readers of a follower are shown when its high watermark moves; each record is a batch."""

    def __init__(self, cluster: ReplicaCluster, broker_id: int) -> None:
        self.shown: list[list[bytes | None]] = []
        self._cluster = cluster
        self._broker_id = broker_id
        cluster.partition(broker_id).add_listener(self)

    def on_high_watermark_updated(self, topic_partition: TopicPartition, offset: int) -> None:
        self.shown.append(values_of(self._cluster.log_bytes(self._broker_id))[:offset])

    def on_becoming_follower(self, topic_partition: TopicPartition) -> None: ...
    def on_deleted(self, topic_partition: TopicPartition) -> None: ...


def test_37_high_watermarks_move_while_appends_overtake_every_fetch(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster, bucket: PlainBucket) -> None:
        begin(cluster, bucket)
        bucket.latency = lambda: 0.001  # a fetch takes 2 ms, and 5 ms more while the follower is behind
        sent = 0
        uncommitted, unknown = [], []
        for number in range(400):
            data = batch(f"{number:04}")
            sent += len(data)
            cluster.brokers[1].append(data)
            await asyncio.sleep(0.001)
            leader, local = cluster.partition(1).log, cluster.partition(2).log
            uncommitted.append(leader.log_end_offset - leader.high_watermark)
            unknown.append(leader.high_watermark - local.high_watermark)
        # The bucket's latency and a fetch or two, and no more as the load goes on.
        assert max(uncommitted) <= 20
        assert max(unknown) <= 20
        assert cluster.partition(1).isr == (1, 2, 3)
        await cluster.until_caught_up(seconds=1)
        assert cluster.are_identical()
        for broker_id in (2, 3):
            assert received(cluster, broker_id) == {"wal": sent}

    tell(tmp_path, story)


def test_38_fallback_and_bucket_bring_the_same_records_at_once(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster, bucket: PlainBucket) -> None:
        wal = begin(cluster, bucket)
        draw = random.Random(38)
        bucket.latency = lambda: draw.choice((0.001, 0.003, 0.02))
        cluster.latency = lambda: draw.choice((0.0005, 0.004))
        for number in range(600):
            cluster.brokers[1].append(batch(*[f"{number}"] * draw.randint(1, 3)))
            wal.falls_back = {2} if draw.random() < 0.5 else {2, 3}
            await asyncio.sleep(draw.choice((0.0, 0.001, 0.004)))
        await cluster.until_caught_up(seconds=2)
        assert cluster.are_identical()
        paths = received(cluster, 2)
        assert paths["wal"] > 1000
        assert paths["fallback"] > 1000
        total = len(cluster.log_bytes(1))
        # What came twice was paid for twice, and is in the log once.
        assert paths["wal"] + paths["fallback"] > total
        wal.falls_back = set()
        await asyncio.sleep(1)  # the fetches that wait at the leader were promised records
        cluster.brokers[1].append(batch("maybe still by a fetch that the session had not looked at again"))
        await cluster.until_caught_up(seconds=1)
        before = received(cluster, 2)["fallback"]
        cluster.brokers[1].append(batch("through the bucket again"))
        await cluster.until_caught_up(seconds=1)
        assert received(cluster, 2)["fallback"] == before

    tell(tmp_path, story)


def test_39_a_fetcher_asks_no_faster_than_the_leader_lets_it(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster, bucket: PlainBucket) -> None:
        begin(cluster, bucket)
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up(seconds=1)
        await asyncio.sleep(1)
        before = len(fetches(cluster, 2))
        await asyncio.sleep(10)
        assert len(fetches(cluster, 2)) - before <= 30
        bucket.is_down = True
        cluster.brokers[1].append(batch("b"))
        await asyncio.sleep(0.1)
        before = len(fetches(cluster, 2))
        await asyncio.sleep(1)
        assert 8 <= len(fetches(cluster, 2)) - before <= 12  # the leader's 5 ms, a rest, and the way there and back
        bucket.is_down = False
        follower(cluster, 2).pump()
        follower(cluster, 3).pump()
        await cluster.until_caught_up(seconds=1)

    tell(tmp_path, story)


def test_33_a_diverged_log_is_cut_before_anything_comes_from_the_bucket(tmp_path: Path) -> None:
    """And what the diverging answer says of high watermarks is about a log that is not there yet."""

    async def story(cluster: ReplicaCluster, bucket: PlainBucket) -> None:
        begin(cluster, bucket, leader=3)
        cluster.brokers[3].append(batch("a"), batch("b"))
        await cluster.until_caught_up(seconds=1)
        watching = Watching(cluster, 3)
        cluster.cut |= {(1, 3), (2, 3), (3, 1), (3, 2)}
        bucket.is_down = True
        cluster.brokers[3].append(batch("only 3"), batch("only 3 too"))
        bucket.is_down = False
        cluster.unaware.add(3)
        elect(cluster, bucket, 1, isr=(1, 2))
        cluster.brokers[1].append(batch("c"), batch("d"), batch("e"))
        await cluster.until(lambda: cluster.partition(1).log.high_watermark == 5, seconds=1)
        cluster.brokers[3].append(batch("of a leader that does not know"))
        assert cluster.partition(3).log.log_end_offset == 5
        cluster.tell(cluster.brokers[3])
        await asyncio.sleep(0.5)
        assert values_of(cluster.log_bytes(3))[2:] == [b"only 3", b"only 3 too", b"of a leader that does not know"]
        cluster.cut.clear()
        await cluster.until_caught_up(seconds=5)
        assert follower(cluster, 3).told[:2] == ["truncated", (2, 0)]
        assert cluster.are_identical()
        assert values_of(cluster.log_bytes(3)) == [b"a", b"b", b"c", b"d", b"e"]
        assert watching.shown == [[b"a", b"b", b"c", b"d", b"e"]]

    tell(tmp_path, story)


def test_36_what_was_got_for_an_epoch_is_not_appended_in_the_next(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster, bucket: PlainBucket) -> None:
        begin(cluster, bucket)
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up(seconds=1)
        for broker_id in (2, 3):
            follower(cluster, broker_id).is_careless = True
        bucket.latency = lambda: 0.2
        cluster.brokers[1].append(batch("only 1"))
        await asyncio.sleep(0.05)  # the followers are getting it
        before = state(cluster, 3)
        cluster.cut |= {(1, 2), (1, 3)}
        elect(cluster, bucket, 2, isr=(2, 3))
        cluster.brokers[2].append(batch("b"))
        await asyncio.sleep(0.3)
        assert bucket.refused_appends == 2
        with pytest.raises(NotLeaderOrFollowerError):
            before.append(bucket.slices[0][-1:])
        cluster.cut.clear()
        await cluster.until_caught_up(seconds=5)
        assert cluster.are_identical()
        assert values_of(cluster.log_bytes(3)) == [b"a", b"b"]

    tell(tmp_path, story)


@pytest.mark.parametrize("is_mentioned", [True, False])
def test_a_new_epoch_of_the_same_leader_is_agreed_on_though_nothing_has_changed(
    tmp_path: Path, is_mentioned: bool
) -> None:
    """The fetch session is the old one, the high watermark is the old one, and there are no records by design."""

    async def story(cluster: ReplicaCluster, bucket: PlainBucket) -> None:
        begin(cluster, bucket)
        cluster.brokers[1].append(batch("a"))
        await cluster.until_caught_up(seconds=1)

        def leave_out_what_has_not_changed(source: int, response: Any) -> Any:
            return dataclasses.replace(response, responses=()) if response.session_id else response

        if not is_mentioned:
            await asyncio.sleep(0.2)
            asked = len(fetches(cluster, 3))
            # One that has just begun to wait at the leader is answered, and not interrupted with its session.
            await cluster.until(lambda: len(fetches(cluster, 3)) > asked, seconds=1)
            cluster.tamper = leave_out_what_has_not_changed
        elect(cluster, bucket, 1)
        await cluster.until(lambda: state(cluster, 2).is_agreed and state(cluster, 3).is_agreed, seconds=1)
        cluster.tamper = None
        cluster.brokers[1].append(batch("b"))
        await cluster.until_caught_up(seconds=1)
        assert cluster.are_identical()
        assert set(received(cluster, 2)) == {"wal"}

    tell(tmp_path, story)


async def deleted_on_the_leader(cluster: ReplicaCluster, bucket: PlainBucket) -> None:
    """Broker 3 has offset 0, and is out of the ISR; the others have 0 to 2, and 0 and 1 are deleted."""
    begin(cluster, bucket)
    cluster.brokers[1].append(batch("a"))
    await cluster.until_caught_up(seconds=1)
    follower(cluster, 3).is_paused = True
    cluster.brokers[1].append(batch("b"), batch("c"))
    cluster.fence(3)
    cluster.place(isr=(1, 2))
    await cluster.until(lambda: cluster.partition(1).log.high_watermark == 3, seconds=1)
    assert cluster.partition(3).log.log_end_offset == 1


def test_a_reset_under_way_is_not_overtaken_by_the_bucket(tmp_path: Path) -> None:
    """While broker 3 finds out where the leader begins, the bucket brings what it lacks.  Appended, it would be in
    sync, count for the high watermark, and then be emptied by a decision made for the log of before."""

    async def story(cluster: ReplicaCluster, bucket: PlainBucket) -> None:
        await deleted_on_the_leader(cluster, bucket)
        cluster.latency = lambda: 0.1
        cluster.partition(1).delete_records_on_leader(2)
        cluster.unfence(3)
        refused = 0
        await cluster.until(lambda: state(cluster, 3).is_resetting, seconds=2)
        while state(cluster, 3).is_resetting:
            with pytest.raises(NotLeaderOrFollowerError):
                state(cluster, 3).append(bucket.slices[0][1:])
            refused += 1
            await asyncio.sleep(0.01)
        assert refused >= 40  # two questions to the leader, there and back
        log = cluster.partition(3).log
        assert (log.log_start_offset, log.log_end_offset) == (2, 2)
        assert follower(cluster, 3).told[-3:] == ["begin_reset", "truncated", "end_reset"]
        follower(cluster, 3).is_paused = False
        cluster.latency = lambda: 0.001
        await cluster.until_caught_up(seconds=2)
        await cluster.until(lambda: cluster.partition(1).isr == (1, 2, 3), seconds=2)
        assert values_of(cluster.log_bytes(3)) == [b"c"]

    tell(tmp_path, story)


def test_what_the_bucket_brought_before_the_refusal_came_is_not_given_up(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster, bucket: PlainBucket) -> None:
        await deleted_on_the_leader(cluster, bucket)
        cluster.latency = lambda: 0.1
        asked = len(fetches(cluster, 3))
        await cluster.until(lambda: len(fetches(cluster, 3)) > asked, seconds=1)
        cluster.partition(1).delete_records_on_leader(2)
        assert state(cluster, 3).append(bucket.slices[0][1:]) == 3  # the fetch at 1 is under way
        await cluster.until(lambda: state(cluster, 3).is_resetting, seconds=1)
        await cluster.until(lambda: not state(cluster, 3).is_resetting, seconds=1)
        log = cluster.partition(3).log
        assert (log.log_start_offset, log.log_end_offset) == (0, 3)
        assert follower(cluster, 3).told[-2:] == ["begin_reset", "end_reset"]
        cluster.latency = lambda: 0.001
        await cluster.until(lambda: cluster.partition(3).log.log_start_offset == 2, seconds=1)
        await cluster.until_caught_up(seconds=1)

    tell(tmp_path, story)


def test_46_to_the_bucket_and_back_on_a_live_topic(tmp_path: Path) -> None:
    async def story(cluster: ReplicaCluster, bucket: PlainBucket) -> None:
        def switch(configs: dict[str, str]) -> None:
            """As the publisher of topic settings does: first the logs, then who follows them."""
            for broker_id, broker in cluster.brokers.items():
                partition = cluster.partition(broker_id)
                partition.log.update_config(TopicConfig.effective(broker.config.current, configs))
                if partition.is_leader:
                    partition.leader_wal = bucket.lead(partition) if configs else None
                else:
                    broker.fetchers.follow([partition])

        async def append_some() -> None:
            for _ in range(50):
                cluster.brokers[1].append(batch("x"))
                await asyncio.sleep(0.002)

        cluster.create_topic()
        await append_some()
        switch(WAL)
        assert isinstance(state(cluster, 2), BucketFetchState)
        await append_some()
        await cluster.until_caught_up(seconds=2)
        switch({})
        before = now()
        cluster.brokers[1].append(batch("y"))
        await cluster.until(lambda: cluster.partition(1).log.high_watermark == 101, seconds=1)
        assert now() - before < 0.02  # a fetch and another, as ever
        await append_some()
        await cluster.until_caught_up(seconds=1)
        assert cluster.are_identical()
        assert cluster.partition(1).isr == (1, 2, 3)
        assert set(received(cluster, 2)) == {"fetch", "wal"}
        assert sum(received(cluster, 2).values()) == len(cluster.log_bytes(1))

    tell(tmp_path, story)
