"""What is counted, charged and refused; what is read is the business of the reader's own tests."""

import dataclasses
from pathlib import Path

import pytest

from broker.common.errors import OffsetOutOfRangeError, ReplicaNotAvailableError
from broker.replication.remote_log import RemoteFetch, RemoteRecords
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_log_stats import RemoteTopicStats
from tests.support.builders import settle, values_of

from .access_world import MUCH, AccessWorld, reading
from .segment_world import DELETED, DELETING, epoch_entries, update
from .task_world import T0


def wanted(world: AccessWorld, offset: int = 0, *, upper_bound: int = MUCH, size: int = MUCH) -> RemoteFetch:
    return RemoteFetch(world.replicas.partition(), offset, size, True, upper_bound, False)


async def tiered(world: AccessWorld, batches: int = 4) -> None:
    """All but the last batch have left the disk."""
    world.tiered_topic()
    world.append(batches)
    await world.move()


def test_a_read_is_counted_and_charged(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world)
        found = await world.access.fetch(wanted(world, 2))
        size_bytes = len(found.records)
        assert values_of(found.records) == [b"first", b"second"]
        assert (found.aborted, found.next_offset) == (None, None)
        assert (world.counts.fetch_requests, world.counts.fetch_bytes, world.counts.fetch_errors) == (1, size_bytes, 0)
        assert world.stats.read_seconds.count == 1
        assert world.access._quota.byte_rate > 0

    reading(tmp_path, story)


def test_a_read_ends_where_its_reader_may_not_see_on(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world)
        assert await world.access.fetch(wanted(world, 2, upper_bound=3)) == RemoteRecords(b"", None)

    reading(tmp_path, story)


def test_an_error_of_the_bucket_is_counted(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world)
        for key in list(world.remote.bucket.objects):
            if key.endswith(".log"):
                del world.remote.bucket.objects[key]
        with pytest.raises(RemoteStorageError):
            await world.access.fetch(wanted(world))
        assert (world.counts.fetch_requests, world.counts.fetch_bytes, world.counts.fetch_errors) == (1, 0, 1)
        assert world.stats.read_seconds.count == 1

    reading(tmp_path, story)


@pytest.mark.parametrize("method", ["fetch_log_segment", "fetch_index"])
def test_a_storage_manager_of_ones_own_may_raise_anything(tmp_path: Path, method: str) -> None:
    """A reader is told, and the broker goes on: else the next leader would be asked the same, and end as well."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    async def story(world: AccessWorld) -> None:
        await tiered(world)
        setattr(world.remote.storage, method, fail)
        with pytest.raises(RemoteStorageError, match="a defect"):
            await world.access.fetch(wanted(world))
        assert world.counts.fetch_errors == 1

    reading(tmp_path, story)


def test_37_an_offset_that_is_out_of_range_is_no_error(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world)
        with pytest.raises(OffsetOutOfRangeError):
            await world.access.fetch(wanted(world, 6))
        assert (world.counts.fetch_requests, world.counts.fetch_errors) == (1, 0)

    reading(tmp_path, story)


def test_what_is_not_known_yet_is_told(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world)
        world.metadata.on_stop_partitions([T0])
        with pytest.raises(ReplicaNotAvailableError):
            await world.access.fetch(wanted(world))
        with pytest.raises(ReplicaNotAvailableError):
            await world.access.find_offset(world.replicas.partition(), 0, 0)
        with pytest.raises(ReplicaNotAvailableError):
            await world.access.state_before(world.replicas.partition(), 0, 0)

    reading(tmp_path, story)


def test_32_too_many_reads_are_refused(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world)
        for _ in range(2):
            world.access.fetch(wanted(world))
        with pytest.raises(RemoteStorageError, match="no room for t-0"):
            world.access.fetch(wanted(world))
        with pytest.raises(RemoteStorageError, match="no room for t-0"):
            world.access.find_offset(world.replicas.partition(), 0, 0)
        assert world.stats.readers_busy == world.stats.read_queue_size == 1

    reading(tmp_path, story, {"remote.log.reader.threads": "1", "remote.log.reader.max.pending.tasks": "1"})


def test_33_the_quota_is_exceeded_by_what_was_read(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world)
        assert not world.access.is_fetch_quota_exceeded
        assert world.stats.fetch_throttle_ms.count == 0
        await world.access.fetch(wanted(world))
        assert world.access.is_fetch_quota_exceeded
        assert (world.stats.fetch_throttle_ms.count, world.stats.fetch_throttle_ms.maximum > 0) == (1, True)

    reading(tmp_path, story, {"remote.log.manager.fetch.max.bytes.per.second": "5"})


def test_where_remote_storage_ends_the_local_log_goes_on_or_nothing_does(tmp_path: Path) -> None:
    """The last batch of the last remote segment was compacted away before the topic was tiered."""

    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(3)
        await world.move()
        _extend_the_first_segment_over_the_second(world)
        assert await world.access.fetch(wanted(world, 2)) == RemoteRecords(b"", None, 4)
        world.log.local_log_start_offset = 6  # what is between is nowhere
        with pytest.raises(OffsetOutOfRangeError, match="offset 4"):
            await world.access.fetch(wanted(world, 2))

    reading(tmp_path, story)


def _extend_the_first_segment_over_the_second(world: AccessWorld) -> None:
    first, second = world.remote.segments()
    cache = world.metadata.store._caches[T0]
    cache.update(update(second.segment_id.int, DELETING, partition=T0))
    cache.update(update(second.segment_id.int, DELETED, partition=T0))
    cache._segments[first.segment_id] = dataclasses.replace(first, end_offset=second.end_offset)


def test_25_timestamps_are_found(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        began = world.clock.now_ms() - 60_000
        for second in range(3):
            world.append(timestamp=began + 1000 * second)
        await world.move()
        partition = world.replicas.partition()
        assert await world.access.find_offset(partition, began + 1, 0) == (began + 1000, 2, 0)
        assert await world.access.find_offset(partition, began + 2000, 0) is None

    reading(tmp_path, story)


def test_a_timestamp_is_found_though_the_log_start_moves_before_it_is_its_turn(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world)
        partition = world.replicas.partition()
        answer = world.access.find_offset(partition, 0, 0)
        partition.increment_log_start(2, "retention")
        found = await answer
        assert found is not None and found.offset == 2

    reading(tmp_path, story)


def test_timestamps_of_records_whose_epochs_are_not_known_yet_are_asked_for_again(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(3)
        await world.move()
        world.log.leader_epochs.clear()
        with pytest.raises(ReplicaNotAvailableError, match="leader epochs"):
            await world.access.find_offset(world.replicas.partition(), 0, 0)

    reading(tmp_path, story)


@pytest.mark.parametrize("is_there", [True, False])
def test_the_state_of_a_follower_is_counted(tmp_path: Path, is_there: bool) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world)
        partition = world.replicas.partition()
        if is_there:
            state = await world.access.state_before(partition, 0, 3)
            assert (state.next_offset, state.leader_epochs) == (4, epoch_entries({0: 0}))
        else:
            with pytest.raises(RemoteStorageError):
                await world.access.state_before(partition, 5, 3)
        counts: RemoteTopicStats = world.counts
        assert (counts.build_aux_state_requests, counts.build_aux_state_errors) == (1, int(not is_there))

    reading(tmp_path, story)


def test_a_client_that_has_gone_frees_its_reader(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world)
        reads = [world.access.fetch(wanted(world)) for _ in range(2)]
        for each in reads:
            each.cancel()
        await settle()
        found = await world.access.fetch(wanted(world))
        assert values_of(found.records) == [b"first", b"second"]

    reading(tmp_path, story, {"remote.log.reader.threads": "1", "remote.log.reader.max.pending.tasks": "1"})
