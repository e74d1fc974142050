from pathlib import Path

import pytest

from broker.common.errors import ReplicaNotAvailableError
from broker.tiering.remote_log_start import RemoteLogStart
from broker.tiering.tiered_partition import LogView

from .access_world import AccessWorld, reading
from .segment_world import DELETING, epoch_entries, update
from .task_world import T0


async def moved(world: AccessWorld, log_start_offset: int = 0) -> tuple[RemoteLogStart, LogView]:
    """Records 0 to 7 are in the bucket alone."""
    world.tiered_topic()
    world.append(5)
    world.log.maybe_increment_log_start_offset(log_start_offset, "test")
    await world.move()
    partition = world.tiered()
    view = partition.look(as_leader=True)
    assert view is not None and view.log.local_log_start_offset == 8
    return RemoteLogStart(partition, world.context), view


async def expired(world: AccessWorld, log_start_offset: int) -> None:
    world.log.maybe_increment_log_start_offset(log_start_offset, "test")
    await world.expire()
    world.log.log_start_offset = 0  # as after a crash
    world.log.leader_epochs.prepend(epoch_entries({0: 0}))


@pytest.mark.parametrize(("expired_below", "start"), [(0, 0), (4, 4), (5, 4), (8, 8)])
def test_a_log_starts_where_remote_storage_does_or_with_its_disk(
    tmp_path: Path, expired_below: int, start: int
) -> None:
    async def story(world: AccessWorld) -> None:
        log_start, view = await moved(world)
        await expired(world, expired_below)
        await log_start.settle(view)
        assert world.log.log_start_offset == start

    reading(tmp_path, story)


def test_it_is_found_out_once_unless_the_log_changes(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        log_start, view = await moved(world)
        await log_start.settle(view)
        passed = len(world.steps.passed)
        await log_start.settle(view)
        assert len(world.steps.passed) == passed
        world.log.truncate_to(8)
        again = world.tiered().look(as_leader=True)
        assert again is not None
        await log_start.settle(again)
        assert len(world.steps.passed) > passed

    reading(tmp_path, story)


def test_it_is_found_out_again_when_remote_storage_has_lost_something(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        log_start, view = await moved(world)
        await log_start.settle(view)
        assert world.log.log_start_offset == 0
        first = world.remote.segments()[0]
        await world.metadata.update_remote_log_segment_metadata(update(first.segment_id.int, DELETING, partition=T0))
        log_start._partition.lose(first)
        await log_start.settle(view)
        assert world.log.log_start_offset == 2
        world.metadata.lose(T0)
        log_start._partition.lose(None)
        await log_start.settle(view)
        assert world.log.log_start_offset == world.log.local_log_start_offset == 8

    reading(tmp_path, story)


def test_what_could_not_be_found_out_is_asked_again(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        log_start, view = await moved(world)
        await expired(world, 4)
        world.metadata.on_stop_partitions([T0])
        with pytest.raises(ReplicaNotAvailableError):
            await log_start.settle(view)
        assert world.log.log_start_offset == 0
        world.metadata.on_partition_leadership_changes([T0], [])
        await log_start.settle(view)
        assert world.log.log_start_offset == 4

    reading(tmp_path, story)


def test_it_does_not_start_below_the_epochs_that_anybody_knows(tmp_path: Path) -> None:
    """Records were deleted from the front of a segment before that was copied."""

    async def story(world: AccessWorld) -> None:
        log_start, view = await moved(world, 1)
        assert world.remote.ranges()[0] == (0, 1)
        world.log.log_start_offset = 0
        await log_start.settle(view)
        assert world.log.log_start_offset == 1

    reading(tmp_path, story)
