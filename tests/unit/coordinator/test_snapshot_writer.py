"""The log of a shard stays bounded, and a crash at any moment loses nothing."""

import asyncio

import pytest

from broker.common.errors import NotEnoughReplicasError
from broker.coordinator.snapshot_writer import CHECK_INTERVAL_SECONDS, SnapshotWriter
from tests.support.group_world import after, settle
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.coordinator.counting_shard import CountingShard, Entry
from tests.unit.coordinator.runtime_world import RuntimeWorld

BOUND = 4000
INTERVAL_MS = int(CHECK_INTERVAL_SECONDS * 1000)


def bounded(loop: SimLoop, **settings: str) -> RuntimeWorld:
    return RuntimeWorld(loop, log_bytes_max=BOUND, **settings)


def write(world: RuntimeWorld, count: int, keys: int = 5) -> None:
    for index in range(count):
        world.shard.context.append([Entry(f"k{index % keys}", f"{index}")])


async def active(world: RuntimeWorld, epoch: int = 1) -> RuntimeWorld:
    world.runtime.on_election(0, epoch)
    await settle()
    return world


def test_below_the_bound_nothing_happens() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(bounded(loop))
        write(world, 50)
        size_bytes = sum(map(len, world.log.batches))
        assert size_bytes <= BOUND
        await after(10 * INTERVAL_MS)
        assert world.log.log_start_offset == 0 and sum(map(len, world.log.batches)) == size_bytes

    simulate(story)


def test_above_the_bound_the_state_is_repeated_and_the_rest_goes() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(bounded(loop))
        write(world, 100)
        state = dict(world.shard.state)
        await after(INTERVAL_MS)
        assert world.log.log_start_offset == 100
        assert [(record.key, record.value) for record in world.log.records()] == [
            (key.encode(), value.encode()) for key, value in state.items()
        ]
        world.runtime.on_resignation(0, None)
        await active(world)
        assert world.shard.state == state

    simulate(story)


def test_the_log_stays_bounded_whatever_is_written() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(bounded(loop))
        largest = 0
        for _ in range(30):
            write(world, 40)
            await after(INTERVAL_MS)
            largest = max(largest, sum(map(len, world.log.batches)))
        assert world.log.log_start_offset > 1000
        assert largest < BOUND + 40 * 75 + 2 * 500  # what came between two checks, and two snapshots

    simulate(story)


def test_a_large_state_is_not_written_over_and_over() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(bounded(loop))
        world.shard.chunk_size = 100
        for index in range(200):
            world.shard.context.append([Entry(f"k{index}", "x" * 40)])
        await after(INTERVAL_MS)
        end_offset = world.log.log_end_offset
        assert (world.log.log_start_offset, end_offset) == (200, 400)
        assert sum(map(len, world.log.batches)) > BOUND
        write(world, 10, keys=10)
        await after(10 * INTERVAL_MS)
        assert world.log.log_end_offset == end_offset + 10
        write(world, 150, keys=10)
        await after(INTERVAL_MS)
        assert world.log.log_start_offset == end_offset + 160

    simulate(story)


@pytest.mark.parametrize("chunks", range(4))
def test_a_crash_in_the_middle_of_a_snapshot_loses_nothing(chunks: int) -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(bounded(loop))
        write(world, 100)
        state = dict(world.shard.state)
        written = 0

        def is_wanted() -> bool:
            nonlocal written
            written += 1
            return written <= chunks

        context = world.shard.context
        snapshots: SnapshotWriter[CountingShard] = SnapshotWriter(world.writer)
        await snapshots.write(context, is_wanted)
        assert world.log.log_start_offset == 0
        world.runtime.on_resignation(0, None)
        await active(world)
        assert world.shard.state == state

    simulate(story)


def test_changes_during_a_snapshot_are_kept() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(bounded(loop))
        write(world, 100)
        context = world.shard.context
        snapshots: SnapshotWriter[CountingShard] = SnapshotWriter(world.writer)
        writing = asyncio.create_task(snapshots.write(context, lambda: True))
        await asyncio.sleep(0)
        context.append([Entry("k0", "changed after it was repeated"), Entry("k4", None), Entry("new", "1")])
        context.append([Entry("k3", "changed before it was repeated")])
        await writing
        state = dict(world.shard.state)
        assert state["k0"] == "changed after it was repeated" and "k4" not in state and state["new"] == "1"
        assert world.log.log_start_offset == 100
        world.runtime.on_resignation(0, None)
        await active(world)
        assert world.shard.state == state

    simulate(story)


def test_nothing_goes_before_the_snapshot_is_committed() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(bounded(loop))
        write(world, 100)
        world.log.commits_at_once = False
        await after(INTERVAL_MS + 4000)
        assert world.log.log_end_offset == 105 and world.log.log_start_offset == 0
        world.log.commit()
        await settle()
        assert world.log.log_start_offset == 100

    simulate(story)


def test_a_snapshot_that_is_not_committed_is_not_repeated_at_once() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(bounded(loop))
        write(world, 100)
        world.log.commits_at_once = False
        await after(10 * INTERVAL_MS)
        assert world.log.log_end_offset == 105 and world.log.log_start_offset == 0

    simulate(story)


def test_a_refused_snapshot_is_tried_again() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(bounded(loop))
        write(world, 100)
        world.log.append_error = NotEnoughReplicasError("too few")
        await after(2 * INTERVAL_MS)
        assert world.log.log_end_offset == 100
        world.log.append_error = None
        await after(INTERVAL_MS)
        assert world.log.log_start_offset == 100

    simulate(story)


def test_what_the_shard_still_needs_stays() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(bounded(loop))
        write(world, 100)
        world.shard.keep_offset = 90
        await after(INTERVAL_MS)
        assert world.log.log_start_offset == 90

    simulate(story)


def test_a_log_that_is_too_long_when_it_is_loaded() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(bounded(loop))
        write(world, 100)
        world.runtime.on_resignation(0, None)
        await active(world, 2)
        await settle()
        assert world.log.log_start_offset == 100

    simulate(story)
