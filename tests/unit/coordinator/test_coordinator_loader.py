from typing import Any

import pytest

from broker.coordinator.shard_state import ShardState
from broker.records.control_record import (
    ControlRecordType,
    EndTransactionMarker,
    control_batch,
    end_transaction_marker_batch,
)
from broker.records.memory_records_builder import records_batch
from tests.support.group_world import settle
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.coordinator.runtime_world import RuntimeWorld


async def loaded(world: RuntimeWorld) -> RuntimeWorld:
    world.runtime.on_election(0, 1)
    for _ in range(20):
        await settle()
    return world


def test_the_last_record_of_a_key_counts_also_when_it_is_not_committed() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.log.append(records_batch((1, b"a", b"1"), (1, b"b", b"1")))
        world.log.commits_at_once = False
        world.log.append(records_batch((1, b"a", b"2"), (1, b"b", None)))
        await loaded(world)
        assert world.shard.state == {"a": "2"}
        assert (world.shard.committed_offset, world.shard.context.last_written_offset) == (2, 4)
        world.log.commit()
        assert world.shard.committed_offset == 4

    simulate(story)


@pytest.mark.parametrize("buffer_size", ["1", "200", "100000"])
def test_any_size_of_reads_gives_the_same_state(buffer_size: str) -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop, offsets_load_buffer_size=buffer_size)
        for index in range(300):
            world.log.append(records_batch((1, b"k%d" % index, b"v"), (1, b"l%d" % index, b"w")))
        await loaded(world)
        assert len(world.shard.state) == 600

    simulate(story)


def test_a_load_gives_way_to_others() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        for index in range(3000):
            world.log.append(records_batch((1, b"k%d" % index, b"v")))
        world.runtime.on_election(0, 1)
        turns = 0
        while world.runtime.is_loading:
            turns += 1
            await settle_once()
        assert turns >= 3000 // 500
        assert len(world.shard.state) == 3000

    async def settle_once() -> None:
        import asyncio

        await asyncio.sleep(0)

    simulate(story)


def test_transactions_end_with_their_markers() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        for producer_id, value in ((1, b"committed"), (2, b"aborted"), (3, b"open")):
            world.log.append(
                records_batch(
                    (1, b"k%d" % producer_id, value),
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=0,
                    is_transactional=True,
                )
            )
        for producer_id, kind in ((1, ControlRecordType.COMMIT), (2, ControlRecordType.ABORT)):
            world.log.append(
                end_transaction_marker_batch(
                    EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=1
                )
            )
        await loaded(world)
        assert world.shard.state == {"k1": "committed"}
        assert list(world.shard.pending) == [3]

    simulate(story)


def test_other_control_records_mean_nothing() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.log.append(control_batch([(ControlRecordType.LEADER_CHANGE, b"whatever")], timestamp=1))
        world.log.append(records_batch((1, b"a", b"1")))
        await loaded(world)
        assert world.shard.state == {"a": "1"}

    simulate(story)


def test_unknown_kinds_of_records_are_skipped() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.log.append(records_batch((1, b"?", b"from the future"), (1, b"a", b"1")))
        await loaded(world)
        assert world.shard.state == {"a": "1"}

    simulate(story)


@pytest.mark.parametrize("key", [b"!", None, b"\xff"])
def test_a_record_that_makes_no_sense_fails_the_load(key: bytes | None) -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.log.append(records_batch((1, key, b"1")))
        await loaded(world)
        assert world.runtime.count(ShardState.FAILED) == 1

    simulate(story)


def test_a_corrupt_batch_fails_the_load() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.log.append(records_batch((1, b"a", b"1")))
        broken = bytearray(world.log.batches[0])
        broken[-1] ^= 1
        world.log.batches[0] = bytes(broken)
        await loaded(world)
        assert world.runtime.count(ShardState.FAILED) == 1

    simulate(story)


def test_records_below_the_log_start_do_not_count() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.log.append(records_batch((1, b"a", b"1"), (1, b"b", b"1")))
        world.log.log_start_offset = 1
        await loaded(world)
        assert world.shard.state == {"b": "1"}

    simulate(story)


def test_the_size_of_reads_is_a_setting() -> None:
    async def story(loop: SimLoop) -> None:
        counts = []
        for size in ("500", "100000"):
            world = RuntimeWorld(loop, offsets_load_buffer_size=size)
            for index in range(50):
                world.log.append(records_batch((1, b"k%d" % index, b"v")))
            reads = []
            read = world.writer.read

            async def note_and_read(topic_partition: Any, offset: int, size_max: int) -> Any:
                reads.append(size_max)  # noqa: B023
                return await read(topic_partition, offset, size_max)  # noqa: B023

            world.writer.read = note_and_read  # type: ignore[method-assign]
            await loaded(world)
            assert set(reads) == {int(size)}
            counts.append(len(reads))
        assert counts[0] > counts[1] == 1

    simulate(story)
