"""The swap: one turn of the loop in which a new segment takes the place of others."""

import pytest

from broker.common.errors import StorageFailure
from broker.log.cleaner.cleaned_segment import CleanedSegment
from broker.log.cleaner.io_throttle import IoThrottle
from broker.log.cleaner.segment_swap import are_in_place, swap
from broker.log.log_segment import LogSegment
from broker.records.record_batch import RecordBatch
from tests.unit.log.cleaner.cleaner_world import CleanerWorld
from tests.unit.log.log_world import topic_config


async def prepared() -> tuple[CleanerWorld, LogSegment, list[LogSegment]]:
    """Three segments of two records, the last one active, and a new one for the first two, with two of the four."""
    world = CleanerWorld()
    for number in range(6):
        world.put((f"k{number}", "1"), producer_id=1, producer_epoch=0, base_sequence=number)
        if number in (1, 3):
            world.roll()
    throttle = IoThrottle(lambda: float("inf"))
    cleaned = await CleanedSegment.create(world.log, 0, world.environment, world.executor, throttle)
    await cleaned.write([RecordBatch.parse(bytes(batch.buffer)) for batch in world.batches()[1:4:2]])
    await cleaned.finish([], world.path(2, ".log"))
    return world, cleaned.segment, list(world.log.segments)[:2]


AFTER = [(1, "k1", "1"), (3, "k3", "1"), (4, "k4", "1"), (5, "k5", "1")]


async def test_the_new_segment_is_in_the_place_of_the_old_ones() -> None:
    world, cleaned, sources = await prepared()
    assert are_in_place(world.log, sources, 0)
    assert swap(world.log, cleaned, sources, world.environment)
    assert not are_in_place(world.log, sources, 0)
    assert world.log.segments.base_offsets == [0, 4]
    assert world.log.segments.first is cleaned
    assert world.entries() == AFTER
    assert cleaned.paths[0] == world.path(0, ".log")
    assert not world.files(".cleaned", ".swap")
    (paths, delay_ms) = world.housekeeping.deletions[-1]
    assert delay_ms == world.config.file_delete_delay_ms
    assert {path.name for path in paths} == {str(name) for name in world.files(".deleted")} | {f"{2:020d}.snapshot"}
    assert world.log.producer_state_manager.snapshot_offsets == (4,)
    assert world.log.local_log.unsynced_directory


async def test_changes_that_matter_are_seen() -> None:
    world, _, sources = await prepared()
    assert not are_in_place(world.log, sources, 1), "it was cut"
    world.log.truncate_to(3)
    assert not are_in_place(world.log, sources, 1), "not closed any more"
    world, _, sources = await prepared()
    world.log.maybe_increment_log_start_offset(2, "test")
    world.log.delete_old_segments()
    assert not are_in_place(world.log, sources, 0)
    assert are_in_place(world.log, sources[1:], 0)
    world.log.update_config(topic_config())
    assert not are_in_place(world.log, sources[1:], 0)
    world, _, sources = await prepared()
    world.log.close()
    assert not are_in_place(world.log, sources, 0)


async def test_a_disk_that_refuses_at_first_changes_nothing() -> None:
    world, cleaned, sources = await prepared()
    before = world.entries()
    world.disk.fail(world.path(0, ".index.cleaned"), "rename")
    with pytest.raises(StorageFailure):
        swap(world.log, cleaned, sources, world.environment)
    assert world.entries() == before
    assert are_in_place(world.log, sources, 0)


@pytest.mark.parametrize("name", ["00000000000000000000.log", "00000000000000000002.index"])
async def test_a_disk_that_refuses_later_leaves_the_rest_to_the_next_start(name: str) -> None:
    world, cleaned, sources = await prepared()
    world.disk.fail(world.directory / name, "rename")
    assert not swap(world.log, cleaned, sources, world.environment)
    assert world.entries() == AFTER, "from the file under its other name"
    assert world.files(".swap")
    assert world.metrics.storage_failures.value == 1
    world.disk.heal()
    world.log.flush()
    world.log.clean_offset = 0
    await world.checkpoint()
    world.restart(recovery_point=world.log.recovery_point)
    assert world.entries() == AFTER
    assert not world.files(".swap", ".deleted")
