"""Stories about topics whose records go through a bucket to followers (KIP-1176) and are tiered as well (KIP-405).

A number in a name is that of the behaviour of KIP-1176's replication it shows.
"""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.common.identifiers import TopicIdPartition
from broker.objectstore.failing_object_store import Latency
from broker.records.record_batch import batches
from broker.replication.topic_stats import ReplicationPath
from broker.wal.retention.object_retention import RetentionPass, RetentionSettings
from broker.wal.retention.replica_progress import ReplicaProgress
from tests.support.builders import values_of
from tests.support.memory_remote_tier import MemoryRemoteTier
from tests.support.replica_cluster import tell_of
from tests.support.scripted_remote_log import ScriptedRemoteLog
from tests.support.sim_loop import EPOCH_MS
from tests.support.tiered_partition import tier
from tests.support.tiered_topics import TIERED, TIERING
from tests.support.wal_replica_cluster import WAL_TOPIC, StoryLeaderWal, T, WalReplicaCluster, bucket_of
from tests.unit.wal.upload_world import FOLLOWER, LEADER, UploadWorld, told
from tests.unit.wal.wal_world import entry

MINUTE_MS = 60_000
LOCAL_RETENTION_MS = 30 * MINUTE_MS


class TieredWalCluster(WalReplicaCluster):
    """Broker 3 has a replica of t and is not there until a story starts it."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.tier = MemoryRemoteTier()
        self.remote = ScriptedRemoteLog()
        self.remote.states = self.tier.state_before
        super().__init__(directory, broker_ids=(1, 2), properties=TIERING, remote_log=self.remote, **options)
        self.buckets[bucket_of(3)] = type(self.buckets[bucket_of(1)])(bucket_of(3))
        configs = {**WAL_TOPIC, **TIERED, "min.insync.replicas": "1", "local.retention.ms": str(LOCAL_RETENTION_MS)}
        self.create_topic(replicas=(1, 2, 3), isr=(1, 2), configs=configs)

    async def produce(self, *values: str, broker_id: int = 1) -> None:
        """A batch for each, which are committed afterwards."""
        self.append(broker_id, *values)
        log = self.partition(broker_id).log
        await self.until(lambda: log.high_watermark == log.log_end_offset)

    def copy(self, broker_id: int = 1) -> int:
        """All that a leader has is copied, and leaves its disk; returns where that begins now."""
        log = self.partition(broker_id).log
        log.roll()
        return self.tier.copy(log)

    async def lose(self, broker_id: int) -> None:
        """Its process ends, and the others go on without it."""
        await self.kill(broker_id)
        self.fence(broker_id)
        self.place(isr=tuple(each for each in self.registration().isr if each != broker_id))

    async def leave_behind(self, broker_id: int, value: str) -> None:
        """It hears no more of what is in the bucket, and the others go on without it; the first record is `value`."""
        self.deaf.add(broker_id)
        self.append(self.leader(), value)
        await asyncio.sleep(31)  # replica.lag.time.max.ms, and a little more
        self.place(isr=tuple(each for each in self.registration().isr if each != broker_id))
        log = self.partition(self.leader()).log
        await self.until(lambda: log.high_watermark == log.log_end_offset)

    async def join(self, broker_id: int) -> None:
        """Until it is in sync, and has all the leader has."""
        await self.until(lambda: broker_id in self.registration().isr)
        await self.until(self.reaches(broker_id, self.partition(self.leader()).log.log_end_offset))

    def received(self, broker_id: int, path: ReplicationPath) -> int:
        """Bytes that came that way."""
        stats = self.partition(broker_id).topic_stats
        return sum(size for (by, _), size in stats.received_bytes.items() if by is path)

    def fetched_entries(self, broker_id: int) -> set[int]:
        """The first offsets of slices it took from buckets."""
        keys = {key for key, _, _ in self.gets(broker_id)}
        return {each.start_offset for each in self.topic if each.object_key in keys}


tell = functools.partial(tell_of, TieredWalCluster)


def test_45_a_new_replica_begins_behind_tiered_storage_and_goes_on_in_the_bucket(tmp_path: Path) -> None:
    async def story(cluster: TieredWalCluster) -> None:
        await cluster.produce("a", "b")
        next_offset = cluster.copy()
        await cluster.produce("c")
        await cluster.produce("d")
        cluster.start(3)
        await cluster.join(3)
        log = cluster.partition(3).log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, next_offset, 4)
        assert cluster.received(3, ReplicationPath.FALLBACK) == 0
        assert cluster.received(3, ReplicationPath.WAL) == len(cluster.log_bytes(3)) > 0
        assert min(cluster.fetched_entries(3)) == next_offset  # what is below is in the bucket, and of no use
        assert cluster.log_bytes(3) == cluster.log_bytes(1)
        await cluster.produce("e")
        assert log.log_end_offset == 5

    tell(tmp_path, story)


def test_45_what_the_bucket_does_not_have_yet_comes_from_the_leader(tmp_path: Path) -> None:
    async def story(cluster: TieredWalCluster) -> None:
        await cluster.produce("a", "b")
        next_offset = cluster.copy()
        await cluster.produce("c")
        wal = cluster.partition(1).leader_wal
        assert isinstance(wal, StoryLeaderWal)
        wal.start_offset = 3  # it is not announced below, as far as this leader knows
        cluster.topic.clear()
        cluster.start(3)
        await cluster.join(3)
        fallback = cluster.received(3, ReplicationPath.FALLBACK)
        assert fallback == len(cluster.log_bytes(3)) > 0
        await cluster.produce("d")
        await cluster.join(3)
        assert cluster.received(3, ReplicationPath.FALLBACK) == fallback
        assert [each.base_offset for each in batches(cluster.log_bytes(3))] == [next_offset, 3]

    tell(tmp_path, story, may_fall_back=True)


def test_45_a_follower_that_the_bucket_failed_for_too_long_begins_behind_tiered_storage(tmp_path: Path) -> None:
    """It is half-way through what it had to catch up on when that leaves the leader's disk."""

    async def story(cluster: TieredWalCluster) -> None:
        cluster.start(3)
        await cluster.produce("a")
        await cluster.join(3)
        await cluster.leave_behind(3, "b")
        await cluster.produce("c")
        next_offset = cluster.copy()
        cluster.deaf.discard(3)
        await cluster.produce("d")
        await cluster.join(3)
        log = cluster.partition(3).log
        assert (log.local_log_start_offset, log.log_end_offset) == (next_offset, 4)
        assert cluster.received(3, ReplicationPath.FALLBACK) == 0

    tell(tmp_path, story)


def test_records_of_a_deposed_leader_are_refused_behind_tiered_storage_as_anywhere(tmp_path: Path) -> None:
    """By the leader epochs that came from there, and the leader's word about them."""

    async def story(cluster: TieredWalCluster) -> None:
        await cluster.produce("a", "b")
        await cluster.until(cluster.reaches(2, 2))
        cluster.uploads_itself = False
        cluster.unaware.add(1)
        cluster.elect(2, isr=(2,))
        next_offset = cluster.copy(2)
        cluster.append(1, "foreign")
        cluster.announce(cluster.upload(1, (0, next_offset)))  # of epoch 0, at the offset that is next
        cluster.append(2, "c")
        cluster.start(3)
        await cluster.until(lambda: cluster.is_agreed(3))
        await asyncio.sleep(1)
        assert cluster.partition(3).log.log_end_offset == next_offset
        cluster.announce(cluster.upload(2, (0, next_offset)))
        await cluster.join(3)
        assert values_of(cluster.log_bytes(3)) == [b"c"]
        assert [tuple(each) for each in cluster.partition(3).log.leader_epochs.entries] == [(0, 0), (1, 2)]

    tell(tmp_path, story)


def test_who_began_behind_tiered_storage_can_lead_through_the_bucket(tmp_path: Path) -> None:
    async def story(cluster: TieredWalCluster) -> None:
        await cluster.produce("a", "b")
        await cluster.until(cluster.reaches(2, 2))
        next_offset = cluster.copy()
        cluster.start(3)
        await cluster.join(3)
        cluster.elect(3)
        await cluster.produce("c", broker_id=3)
        await cluster.until(cluster.reaches(1, 3))
        await cluster.until(cluster.reaches(2, 3))
        assert [each.start_offset for each in cluster.topic if each.bucket == bucket_of(3)] == [next_offset]
        assert values_of(cluster.log_bytes(2)) == [b"a", b"b", b"c"]  # it never was behind
        assert values_of(cluster.log_bytes(3)) == [b"c"]

    tell(tmp_path, story)


# Objects


def place_of(cluster: WalReplicaCluster) -> TopicIdPartition:
    return TopicIdPartition(cluster.image.topics.by_name["t"].id, *T)


def sweep(cluster: TieredWalCluster, age_ms: int) -> set[str]:
    """Delete what the leader's broker need not keep of objects that old, as its sweep does; returns what is left."""
    leader = cluster.brokers[cluster.leader()]
    progress = ReplicaProgress(lambda: cluster.image, leader.replicas.hosted_partition, leader.topic_config)
    settings = RetentionSettings(metadata_retention_ms=120 * MINUTE_MS)
    look = RetentionPass(settings, progress, age_ms, is_early_allowed=True)
    objects = cluster.buckets[bucket_of(leader.broker_id)].objects
    for key in list(objects):
        ends = {each.partition: each.end_offset for each in cluster.topic if each.object_key == key}
        if look.releases(ends, 0):
            del objects[key]
    return set(objects)


def test_50_what_is_tiered_and_on_every_replica_leaves_the_bucket_and_nothing_before(tmp_path: Path) -> None:
    async def story(cluster: TieredWalCluster) -> None:
        cluster.start(3)
        await cluster.produce("a")
        await cluster.join(3)
        assert len(sweep(cluster, 0)) == 1  # it is on every replica, and is not tiered
        cluster.copy()
        await cluster.leave_behind(3, "b")
        assert len(sweep(cluster, 0)) == 1
        cluster.copy()
        assert len(sweep(cluster, 0)) == 1  # it is tiered, and one replica has not come so far
        await cluster.join(3)
        await cluster.until(lambda: cluster.partition(1).remote_replicas[3].log_end_offset == 2)
        assert sweep(cluster, 0) == set()

    tell(tmp_path, story)


def test_51_an_object_is_not_kept_for_ever_for_a_replica_that_begins_behind_tiered_storage_then(tmp_path: Path) -> None:
    async def story(cluster: TieredWalCluster) -> None:
        cluster.start(3)
        await cluster.produce("a")
        await cluster.join(3)
        await cluster.lose(3)
        await cluster.produce("b", "c")
        next_offset = cluster.copy()
        kept = sweep(cluster, LOCAL_RETENTION_MS + 10 * MINUTE_MS - 1)
        assert len(kept) > 0  # the replica may come back
        assert sweep(cluster, LOCAL_RETENTION_MS + 10 * MINUTE_MS) == set()
        await cluster.produce("d")
        cluster.start(3)
        assert cluster.partition(3).log.log_end_offset == 1
        await cluster.join(3)
        log = cluster.partition(3).log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, next_offset, 4)
        assert not kept & {key for key, _, _ in cluster.gets(3)}
        assert cluster.received(3, ReplicationPath.FALLBACK) == 0

    tell(tmp_path, story)


# The leader's uploads


def tiered_uploads(tmp_path: Path, story: Callable[[UploadWorld], Any], **settings: str) -> None:
    told(tmp_path, story, **{key.replace(".", "_"): value for key, value in TIERING.items()}, **settings)


@pytest.mark.parametrize("is_told", [True, False])
def test_what_leaves_the_disk_before_it_is_uploaded_is_passed_over(tmp_path: Path, is_told: bool) -> None:
    """Followers had it from the leader, while the bucket was slow; those that did not begin behind tiered storage."""

    async def story(world: UploadWorld) -> None:
        partition = world.topic(remote_storage_enable="true")
        world.store.plan.latency = Latency(0.2)
        for _ in range(3):
            world.append()
        world.fetched(3)
        tier(partition.log, 2)
        if is_told:
            assert partition.leader_wal is not None
            partition.leader_wal.log_start_moved()
        await asyncio.sleep(1)
        assert world.publisher.offsets() == [(2, 2)]
        assert world.stats.of("t").copy_errors == 0
        assert (world.uploads().wal_start, world.uploads().wal_next) == (2, 3)

    tiered_uploads(tmp_path, story)


def test_47_a_new_leader_uploads_again_what_is_on_its_disk_and_not_tiered(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        partition = world.topic(leader=FOLLOWER, remote_storage_enable="true")
        world.append_as_follower(*[1] * 10)
        partition.log.update_high_watermark(10)
        tier(partition.log, 4)
        partition.log.update_highest_remote_offset(6)
        world.elect(LEADER, 1)
        await asyncio.sleep(3)
        assert world.publisher.offsets() == [(7, 9)]

    tiered_uploads(tmp_path, story)


def test_47_with_all_of_the_local_retention_it_begins_where_the_disk_does(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        partition = world.topic(leader=FOLLOWER, remote_storage_enable="true", retention_ms="-1")
        world.append_as_follower(*[1] * 10)
        partition.log.update_high_watermark(10)
        tier(partition.log, 4)
        world.elect(LEADER, 1)
        await asyncio.sleep(3)
        assert world.publisher.offsets() == [(4, 9)]

    tiered_uploads(tmp_path, story, remote_wal_republish_mode="local-retention")


def test_followers_are_served_from_the_disk_where_the_bucket_does_not_reach_back_to_it(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        partition = world.topic(leader=FOLLOWER, remote_storage_enable="true")
        world.append_as_follower(*[1] * 10)
        partition.log.update_high_watermark(10)
        tier(partition.log, 4)
        world.map_of().add(replace(entry(6, 9, timestamp=EPOCH_MS), partition=world.place()))
        world.elect(LEADER, 1)
        wal = partition.leader_wal
        assert wal is not None
        assert [wal.serves_records(FOLLOWER, offset) for offset in (4, 6)] == [True, False]

    tiered_uploads(tmp_path, story, remote_wal_republish_mode="none")
