"""Removing whole partitions: the order of what is told and deleted, failures, bounds, and who may wait."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from broker.common.chance import Chance
from broker.common.errors import ReplicaNotAvailableError
from broker.common.identifiers import TopicIdPartition
from broker.objectstore.decorated import Operation
from broker.objectstore.failing_object_store import Fault
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from broker.tiering.remote_log_stats import RemoteLogStats
from broker.tiering.remote_partition_remover import PARTITIONS_AT_ONCE, RemotePartitionRemover, RemovalPurpose
from tests.support.sim_disk import SimFileSystem
from tests.support.sim_loop import SimClock, SimLoop, simulate

from .memory_remote_log_metadata_manager import MemoryRemoteLogMetadataManager
from .segment_world import DELETING, FINISHED, PARTITION, STARTED, segment, update
from .storage_world import Bucket, storage_manager

OTHER = TopicIdPartition(UUID(int=2 << 100), "other", 3)


class Metadata(MemoryRemoteLogMetadataManager):
    """Tells the story; `errors` are raised by the next updates, `gate` holds questions up."""

    def __init__(self, story: list[str], partitions: Iterable[TopicIdPartition]) -> None:
        super().__init__(partitions)
        self.story = story
        self.errors: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        await asyncio.sleep(0.1)
        if self.errors:
            raise self.errors.pop(0)
        self.story.append(f"{update.state.name} {update.segment_id.int}")
        assert update.broker_id == 7
        await super().update_remote_log_segment_metadata(update)

    async def list_remote_log_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> list[RemoteLogSegmentMetadata]:
        listed = list(await super().list_remote_log_segments(partition, epoch))
        await self.gate.wait()
        return listed


class Indexes:
    def __init__(self, story: list[str]) -> None:
        self.story = story

    def remove(self, segment_ids: Iterable[UUID]) -> None:
        self.story.append(f"indexes {sorted(each.int for each in segment_ids)}")


class World:
    def __init__(self, loop: SimLoop, partitions: Iterable[TopicIdPartition] = (PARTITION, OTHER)) -> None:
        self.story: list[str] = []
        self.bucket = Bucket()
        self.storage = storage_manager(self.bucket, SimFileSystem())
        self.metadata = Metadata(self.story, partitions)
        self.stats = RemoteLogStats()
        self.stats.topic("topic")
        self.remover = RemotePartitionRemover(
            7, self.metadata, self.storage, Indexes(self.story), self.stats, SimClock(loop), Chance(1)
        )

    async def add(self, *segments: RemoteLogSegmentMetadata) -> None:
        """Known and stored, as far as it matters."""
        for each in segments:
            self.metadata.store.apply(each)
            folder = f"tiered/cluster/{each.partition.topic}-{each.partition.partition}"
            folder += "-AAAAEAAAAAAAAAAAAAAAAA" if each.partition == PARTITION else "-AAAAIAAAAAAAAAAAAAAAAA"
            tail = "A" * 21 + "AQgwABCDEFGH"[each.segment_id.int]
            await self.bucket.inner.put(f"{folder}/{each.start_offset:020d}-{tail}.log", b"log")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.storage.running(), self.remover.running():
            yield


def test_first_nobody_reads_then_all_is_deleted() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await world.add(segment(1, 0, 9), segment(2, 10, 19), segment(3, 20, 29))
            for number in (1, 2):
                world.metadata.store.apply(update(number, FINISHED))
            world.metadata.store.apply(update(2, DELETING))
            done = world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED)
            assert PARTITION in world.remover and len(world.remover) == 1
            await done
            await asyncio.sleep(0)
            assert PARTITION not in world.remover and len(world.remover) == 0
        assert world.story[0] == "indexes [1, 2, 3]"
        assert sorted(world.story[1:3]) == [f"DELETE_SEGMENT_STARTED {number}" for number in (1, 3)]
        assert sorted(world.story[3:]) == [f"DELETE_SEGMENT_FINISHED {number}" for number in (1, 2, 3)]
        assert world.bucket.objects == {}
        assert await world.metadata.list_remote_log_segments(PARTITION) == []
        assert (world.stats.topic("topic").delete_requests, world.stats.topic("topic").delete_errors) == (3, 0)

    simulate(story)


def test_a_partition_without_segments_is_done_at_once_and_others_stay() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await world.add(segment(1, 0, 9, partition=OTHER))
            await world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED)
        assert len(world.bucket.objects) == 1
        assert len(await world.metadata.list_remote_log_segments(OTHER)) == 1

    simulate(story)


def test_what_cannot_be_deleted_is_tried_again_and_the_others_go() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await world.add(segment(1, 0, 9), segment(2, 10, 19))
            world.bucket.failing.fail_next(Operation.DELETE_MANY, *[Fault.RESET] * 3)  # of both, and one repetition
            done = world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED)
            await asyncio.sleep(0.45)
            assert not done.done()
            left = await world.metadata.list_remote_log_segments(PARTITION)
            assert [each.state for each in left] in ([DELETING], [DELETING, DELETING])
            await done
        assert world.bucket.objects == {}
        counts = world.stats.topic("topic")
        assert counts.delete_errors >= 1
        assert counts.delete_requests == 2 + counts.delete_errors
        assert world.story.count("DELETE_SEGMENT_STARTED 1") == world.story.count("DELETE_SEGMENT_STARTED 2") == 1

    simulate(story)


@pytest.mark.parametrize("error", [RemoteStorageError("not seen in time"), OSError("a manager of one's own")])
def test_nothing_is_deleted_before_everybody_knows(error: Exception) -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await world.add(segment(1, 0, 9), segment(2, 10, 19))
            world.metadata.errors.append(error)
            done = world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED)
            await asyncio.sleep(0.4)
            assert len(world.bucket.objects) == 2
            await done
        assert world.bucket.objects == {}

    simulate(story)


def test_a_partition_that_is_not_known_yet_is_waited_for_ever_more_slowly() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop, partitions=[])
        world.metadata.store.assign([PARTITION])
        await world.add(segment(1, 0, 9))
        async with world.running():
            done = world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED)
            await asyncio.sleep(600)
            assert not done.done()
            assert 8 <= world.metadata.asked <= 30
            with pytest.raises(ReplicaNotAvailableError):
                await world.metadata.list_remote_log_segments(PARTITION)
            world.metadata.store.mark_initialized(PARTITION)
            await asyncio.wait_for(done, 91)
        assert world.bucket.objects == {}

    simulate(story)


def test_what_is_added_meanwhile_goes_as_well() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await world.add(segment(1, 0, 9))
            done = world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED)
            await asyncio.sleep(0.15)
            await world.add(segment(2, 10, 19, state=STARTED))
            await done
        assert world.bucket.objects == {}
        assert world.story[-1] == "DELETE_SEGMENT_FINISHED 2"

    simulate(story)


def test_of_a_topic_that_is_there_only_what_was_known_and_what_is_ones_own_goes() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await world.add(segment(1, 0, 9))
            done = world.remover.remove(PARTITION, RemovalPurpose.TIERED_NO_MORE)
            await asyncio.sleep(0.15)
            await world.add(segment(2, 10, 19), replace(segment(3, 20, 29), broker_id=7))
            await done
            assert [each.segment_id.int for each in await world.metadata.list_remote_log_segments(PARTITION)] == [2]
            await world.remover.remove(PARTITION, RemovalPurpose.TIERED_NO_MORE)
        assert world.bucket.objects == {}

    simulate(story)


async def finished(world: World, count: int) -> None:
    """So many segments of ten records each, which may be read."""
    await world.add(*(segment(number, 10 * number, 10 * number + 9) for number in range(1, count + 1)))
    for number in range(1, count + 1):
        world.metadata.store.apply(update(number, FINISHED))


async def readable(world: World) -> list[int]:
    listed = await world.metadata.list_remote_log_segments(PARTITION)
    return [each.segment_id.int for each in listed if each.state is not DELETING]


@pytest.mark.parametrize("has_begun", [True, False])
def test_who_tiers_it_again_tells_of_all_that_was_known_and_deletes_none(has_begun: bool) -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await finished(world, 3)
            world.metadata.errors += [RemoteStorageError("not seen in time")] * 4
            if has_begun:
                removal = world.remover.remove(PARTITION, RemovalPurpose.TIERED_NO_MORE)
                await asyncio.sleep(0.05)
            done = world.remover.remove(PARTITION, RemovalPurpose.TIERED_AGAIN)
            assert not has_begun or removal.cancelled()
            await asyncio.sleep(0.05)
            await world.add(segment(4, 40, 49))  # what another leader copies meanwhile
            await done
            await asyncio.sleep(0)
            assert PARTITION not in world.remover
            assert await readable(world) == [4]
        assert len(world.bucket.objects) == 4
        assert world.stats.topic("topic").delete_requests == 0

    simulate(story)


def test_who_tiers_it_again_does_not_tell_what_is_told_already() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await finished(world, 2)
            world.metadata.errors += [RemoteStorageError("not seen in time")] * 2
            done = world.remover.remove(PARTITION, RemovalPurpose.TIERED_AGAIN)
            await asyncio.sleep(0.2)
            for number in (1, 2):
                world.metadata.store.apply(update(number, DELETING))  # an event that comes late
            await done
        assert world.story == ["indexes [1, 2]", "indexes []"]

    simulate(story)


def test_what_is_in_remote_storage_alone_stays_when_it_is_tiered_again() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await finished(world, 3)
            await world.remover.remove(PARTITION, RemovalPurpose.TIERED_AGAIN, from_offset=20)
            assert await readable(world) == [1]

    simulate(story)


@pytest.mark.parametrize("is_tiered_again", [True, False])
def test_who_follows_waits_until_the_leader_has_told_of_all_that_was_known(is_tiered_again: bool) -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await finished(world, 3)
            done = world.remover.remove(PARTITION, RemovalPurpose.FOLLOWED_NO_MORE, from_offset=20)
            await asyncio.sleep(0.05)
            if is_tiered_again:
                done = world.remover.remove(PARTITION, RemovalPurpose.FOLLOWED_AGAIN, from_offset=20)
            await world.add(segment(4, 40, 49))
            world.metadata.store.apply(update(2, DELETING))
            await asyncio.sleep(20)
            assert not done.done()
            world.metadata.store.apply(update(3, DELETING))
            await asyncio.wait_for(done, 60)
        assert world.story == [] and len(world.bucket.objects) == 4

    simulate(story)


def test_who_has_not_looked_before_it_is_tiered_again_waits_for_nothing() -> None:
    """What there is may be new."""

    async def story(loop: SimLoop) -> None:
        world = World(loop, partitions=[])
        world.metadata.store.assign([PARTITION])
        await finished(world, 1)
        async with world.running():
            world.remover.remove(PARTITION, RemovalPurpose.FOLLOWED_NO_MORE)
            await asyncio.sleep(0.05)
            done = world.remover.remove(PARTITION, RemovalPurpose.FOLLOWED_AGAIN)
            world.metadata.store.mark_initialized(PARTITION)
            await asyncio.wait_for(done, 60)

    simulate(story)


def test_who_waits_for_a_leader_in_vain_says_so_once() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await finished(world, 1)
            with capture_logs() as logs:
                world.remover.remove(PARTITION, RemovalPurpose.FOLLOWED_NO_MORE)
                await asyncio.sleep(600)
                assert logs == []
                world.remover.remove(PARTITION, RemovalPurpose.FOLLOWED_AGAIN)
                await asyncio.sleep(600)
        assert [each["event"] for each in logs] == ["remote_partition_removal_awaited"]

    simulate(story)


def test_who_leads_after_it_has_waited_goes_by_what_it_knew_then() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await finished(world, 2)
            waiting = world.remover.remove(PARTITION, RemovalPurpose.FOLLOWED_NO_MORE)
            await asyncio.sleep(0.05)
            await world.add(segment(3, 30, 39))
            await world.remover.remove(PARTITION, RemovalPurpose.TIERED_AGAIN)
            assert waiting.cancelled()
            assert await readable(world) == [3]
            await world.remover.remove(PARTITION, RemovalPurpose.TIERED_NO_MORE)  # and that is of all there is
        assert world.bucket.objects == {}

    simulate(story)


def test_a_failure_is_told_once_and_what_is_not_known_yet_is_none() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop, partitions=[])
        world.metadata.store.assign([PARTITION])
        await world.add(segment(1, 0, 9))
        world.metadata.errors += [RemoteStorageError("not seen in time")] * 2
        async with world.running():
            with capture_logs() as logs:
                done = world.remover.remove(PARTITION, RemovalPurpose.TIERED_NO_MORE)
                await asyncio.sleep(10)
                world.metadata.store.mark_initialized(PARTITION)
                await done
        warnings = [each["event"] for each in logs if each["log_level"] == "warning"]
        assert warnings == ["remote_partition_removal_failed"]

    simulate(story)


def test_twice_is_once_and_a_waiter_that_leaves_stops_nothing() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await world.add(segment(1, 0, 9))
            done = world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED)
            assert world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED) is done
            await asyncio.sleep(0.05)
            done.cancel()
            await asyncio.sleep(5)
            assert world.bucket.objects == {} and len(world.remover) == 0
        assert world.story.count("DELETE_SEGMENT_FINISHED 1") == 1

    simulate(story)


def test_few_partitions_at_once() -> None:
    async def story(loop: SimLoop) -> None:
        partitions = [TopicIdPartition(UUID(int=3 << 100), "many", number) for number in range(10)]
        world = World(loop, partitions)
        world.metadata.gate.clear()
        async with world.running():
            done = [world.remover.remove(each, RemovalPurpose.TOPIC_DELETED) for each in partitions]
            await asyncio.sleep(1)
            assert world.metadata.asked == PARTITIONS_AT_ONCE
            world.metadata.gate.set()
            await asyncio.gather(*done)
        assert world.metadata.asked == 10

    simulate(story)


def test_a_partition_that_is_tiered_again_keeps_what_is_left() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await world.add(segment(1, 0, 9))
            done = world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED)
            world.remover.stop(PARTITION)
            world.remover.stop(OTHER)
            again = world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED)
            assert again is not done and done.cancelled()
            world.remover.stop(PARTITION)
            await asyncio.sleep(100)
            assert again.cancelled() and PARTITION not in world.remover
            assert len(world.bucket.objects) == 1
            await world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED)
        assert world.bucket.objects == {}

    simulate(story)


def test_whoever_waits_when_the_broker_stops_is_cancelled() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        await world.add(segment(1, 0, 9))
        async with world.running():
            done = world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED)
            await asyncio.sleep(0.05)
        with pytest.raises(asyncio.CancelledError):
            await done
        assert len(world.bucket.objects) == 1

    simulate(story)


def test_topics_that_are_forgotten_count_elsewhere() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        async with world.running():
            await world.add(segment(1, 0, 9))
            world.stats.forget_topic("topic")
            await world.remover.remove(PARTITION, RemovalPurpose.TOPIC_DELETED)
        assert world.stats.topics == {}
        assert world.stats.unknown.delete_requests == 1

    simulate(story)
