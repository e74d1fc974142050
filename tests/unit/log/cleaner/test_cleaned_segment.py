"""CleanedSegment: written beside the others, on the device when it is finished, gone when it is discarded."""

import pytest

from broker.common.errors import StorageFailure
from broker.log.cleaner.cleaned_segment import CleanedSegment
from broker.log.cleaner.io_throttle import IoThrottle
from broker.log.transaction_index import AbortedTransaction
from broker.records.record_batch import RecordBatch
from tests.unit.log.cleaner.cleaner_world import CleanerWorld
from tests.unit.log.log_world import NOW_MS


async def make(world: CleanerWorld, spent: list[int] | None = None) -> CleanedSegment:
    class Recorded(IoThrottle):
        async def spend(self, size: int) -> None:
            if spent is not None:
                spent.append(size)

    throttle = Recorded(lambda: 1.0)
    return await CleanedSegment.create(world.log, 0, world.environment, world.executor, throttle)


def filled() -> CleanerWorld:
    world = CleanerWorld(index_interval_bytes=0)
    for number in range(4):
        world.put(("k", str(number)), timestamp=NOW_MS + number)
    world.roll()
    return world


def copies(world: CleanerWorld) -> list[RecordBatch]:
    return [RecordBatch.parse(bytes(batch.buffer)) for batch in world.batches()]


async def test_it_has_the_indexes_of_what_is_written_and_survives_a_power_cut() -> None:
    world = filled()
    world.log.flush()
    spent: list[int] = []
    cleaned = await make(world, spent)
    found = copies(world)
    await cleaned.write(found[:1])
    await cleaned.write(found[2:])
    aborted = AbortedTransaction(9, 1, 3, 4)
    await cleaned.finish([aborted], world.path(0, ".log"))
    segment = cleaned.segment
    assert sum(spent) == segment.size_bytes == sum(batch.size_bytes for batch in (found[0], *found[2:]))
    assert segment.is_sealed
    assert segment.is_flushed
    world.disk.crash(world.chance)
    names = [str(name) for name in world.files(".cleaned")]
    assert names == [f"{0:020d}.{kind}.cleaned" for kind in ("index", "log", "timeindex", "txnindex")]
    assert world.disk.read(world.path(0, ".log.cleaned")) == b"".join(
        bytes(each.buffer) for each in (found[0], *found[2:])
    )
    assert segment.offset_index.entries()[-1].offset == 3
    assert segment.time_index.last_entry == (NOW_MS + 3, 3)
    assert segment.transaction_index.entries() == [aborted]


async def test_its_transaction_index_is_written_once() -> None:
    world = filled()
    cleaned = await make(world)
    writes = world.disk.operations["write"]
    await cleaned.finish([AbortedTransaction(9, 1, number, number) for number in range(2, 100)], world.path(0, ".log"))
    assert world.disk.operations["write"] == writes + 1


async def test_an_empty_one_is_as_old_as_what_it_replaces() -> None:
    world = filled()
    world.clock.ms += 1000
    cleaned = await make(world)
    await cleaned.finish([], world.path(0, ".log"))
    assert [str(name) for name in world.files(".cleaned")] == [f"{0:020d}.log.cleaned"]
    assert cleaned.segment.largest_timestamp == NOW_MS


async def test_leftovers_of_an_earlier_one_do_not_get_in() -> None:
    world = filled()
    first = await make(world)
    await first.write(copies(world))
    await first.finish([AbortedTransaction(9, 1, 3, 4)], world.path(0, ".log"))
    second = await make(world)
    await second.finish([], world.path(0, ".log"))
    assert [str(name) for name in world.files(".cleaned")] == [f"{0:020d}.log.cleaned"]
    assert world.disk.read(world.path(0, ".log.cleaned")) == b""


async def test_what_is_discarded_is_gone() -> None:
    world = filled()
    cleaned = await make(world)
    await cleaned.write(copies(world))
    await cleaned.finish([AbortedTransaction(9, 1, 3, 4)], world.path(0, ".log"))
    cleaned.discard()
    assert not world.files(".cleaned")


async def test_files_of_a_half_begun_swap_go_first() -> None:
    world = filled()
    cleaned = await make(world)
    await cleaned.write(copies(world))
    await cleaned.finish([], world.path(0, ".log"))
    world.disk.fail(world.path(0, ".index.cleaned"), "rename")
    with pytest.raises(StorageFailure):
        cleaned.segment.rename(".swap")
    world.disk.fail(world.path(0, ".log.swap"), "remove")
    cleaned.discard()
    assert world.files(".cleaned"), "or a start would take the rest for complete"


@pytest.mark.parametrize("operation", ["write", "sync", "create"])
async def test_what_the_disk_refuses_is_told(operation: str) -> None:
    world = filled()
    found = copies(world)
    world.disk.fail(world.directory, operation)
    with pytest.raises(StorageFailure):
        cleaned = await make(world)
        await cleaned.write(found)
        await cleaned.finish([], world.path(0, ".log"))
