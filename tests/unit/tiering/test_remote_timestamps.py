from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import ReplicaNotAvailableError
from broker.log.log_segment import TimestampAndOffset
from broker.tiering.remote_timestamps import find_remote_offset
from tests.support.builders import batch
from tests.support.sim_loop import SimLoop, simulate

from .access_world import AccessWorld, reading
from .segment_world import DELETING, FINISHED, segment, update
from .task_world import T0, Remote


async def find(world: AccessWorld, timestamp: int, starting_offset: int = 0) -> TimestampAndOffset | None:
    return await find_remote_offset(
        world.metadata, world.access._reader, world.replicas.partition(), timestamp, starting_offset
    )


async def tiered(world: AccessWorld) -> int:
    """Records of one, two, .. seconds after the result, two of each; 0 to 5 have left the disk, 6 and 7 have not."""
    world.tiered_topic()
    began = world.clock.now_ms() - 60_000
    for second in range(1, 5):
        world.append(timestamp=began + 1000 * second)
    await world.move()
    assert world.log.local_log_start_offset == 6
    return began


def test_25_the_first_record_of_a_timestamp(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        began = await tiered(world)
        for timestamp, expected in ((0, (1000, 0)), (1000, (1000, 0)), (1001, (2000, 2)), (3000, (3000, 4))):
            assert await find(world, began + timestamp) == (began + expected[0], expected[1], 0)
        assert await find(world, began + 3001) is None
        assert await find(world, 0, starting_offset=3) == (began + 2000, 3, 0)
        assert await find(world, 0, starting_offset=6) is None

    reading(tmp_path, story)


def test_25_every_epoch_is_looked_through(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        began = world.clock.now_ms() - 60_000
        for second in range(1, 5):
            world.replicas.place(leader_epoch=2 * second)
            world.append(timestamp=began + 1000 * second)
        await world.move()
        assert await find(world, began + 1000) == (began + 1000, 0, 2)
        assert await find(world, began + 2500) == (began + 3000, 4, 6)
        assert await find(world, began + 2500, starting_offset=5) == (began + 3000, 5, 6)

    reading(tmp_path, story)


def test_26_what_is_on_this_disk_as_well_is_not_asked(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        began = await tiered(world)
        world.append(timestamp=began + 5000)
        await world.copy()
        assert world.remote.ranges()[-1] == (6, 7)
        assert await find(world, began + 4000) is None
        assert world.indexes.downloads == 0

    reading(tmp_path, story)


def test_26_nor_when_the_log_starts_within_it(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        began = await tiered(world)
        world.append(timestamp=began + 5000)
        await world.copy()
        world.replicas.partition().delete_records_on_leader(7)
        assert await find(world, began, starting_offset=7) is None
        assert world.indexes.downloads == 0

    reading(tmp_path, story)


def test_a_segment_whose_last_records_are_newer_is_looked_through_and_passed(tmp_path: Path) -> None:
    """Timestamps need not ascend: the newest of the segment is before the offset that is asked from."""

    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        now = world.clock.now_ms() - 60_000
        world.write(batch("a", timestamp=now + 9000), batch("b", timestamp=now), batch("c", timestamp=now + 9000))
        world.append(timestamp=now)
        await world.move()
        assert await find(world, now + 5000, starting_offset=1) == (now + 9000, 2, 0)

    reading(tmp_path, story)


def test_a_segment_that_is_being_deleted_is_not_read(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        began = await tiered(world)
        first = world.remote.segments()[0]
        await world.metadata.update_remote_log_segment_metadata(update(first.segment_id.int, DELETING, partition=T0))
        assert await find(world, began) == (began + 2000, 2, 0)

    reading(tmp_path, story)


def test_44_segments_of_another_log_are_not_looked_through(tmp_path: Path) -> None:
    """This log goes on in epoch 1 at offset 2; another one went on in epoch 0."""

    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        began = world.clock.now_ms() - 60_000
        world.append(timestamp=began + 1000)
        world.replicas.place(leader_epoch=1)
        for second in range(2, 5):
            world.append(timestamp=began + 1000 * second)
        await world.move()
        stale = segment(77, 2, 90, {0: 2}, partition=T0, max_timestamp_ms=began + 9000)
        await world.metadata.add_remote_log_segment_metadata(stale)
        await world.metadata.update_remote_log_segment_metadata(update(77, FINISHED, partition=T0))
        assert await find(world, began + 3000) == (began + 3000, 4, 1)
        assert await find(world, began + 9000) is None

    reading(tmp_path, story)


def test_44_what_a_segment_has_of_this_log_is_looked_through_and_no_more(tmp_path: Path) -> None:
    """Broker 2 has copied [0-5] of epoch 0 in one segment.  Broker 1 had 0 to 3 of it when it was elected, and goes on
    in epoch 1; of its own segments [2-4] is the first one copied: 0 and 1 are in the old one alone."""

    async def run(loop: SimLoop) -> None:
        remote = Remote()
        old = AccessWorld(tmp_path / "old", loop, broker_id=2, remote=remote)
        new = AccessWorld(tmp_path / "new", loop, broker_id=1, remote=remote)
        began = new.clock.now_ms() - 60_000
        async with remote.storage.running(), new.reading():
            old.topic(replicas=(1, 2), isr=(2,), leader=2, internal_segment_bytes=10_000)
            new.topic(replicas=(1, 2), isr=(2,), leader=2, internal_segment_bytes=10_000, local_retention_bytes=1)
            for second in range(4):
                old.replicas.append(batch(f"{second}", timestamp=began + 1000 * second))
                if second in (1, 3):
                    new.replicate(old)
                if second == 1:
                    new.log.roll()
            for second in (4, 5):  # which broker 1 never gets
                old.replicas.append(batch("lost", timestamp=began + 1000 * second + 10))
            old.log.roll()
            await old.copy()
            new.replicas.place(leader=1, isr=(1,), leader_epoch=1)
            for second in (4, 9):
                new.replicas.append(batch(f"{second}", timestamp=began + 1000 * second + 20))
                new.log.roll()
            await new.move()
            assert remote.ranges() == [(0, 5), (2, 4), (5, 5)]
            for timestamp, expected in (
                (0, (0, 0, 0)),
                (1000, (1000, 1, 0)),
                (1001, (2000, 2, 0)),
                (3000, (3000, 3, 0)),
                (3001, (4020, 4, 1)),  # 4010 and 5010 are of another log
            ):
                found = (began + expected[0], *expected[1:])
                assert await find(new, began + timestamp) == found, timestamp
            assert await find(new, began + 4021) is None  # 5010 neither; 5 is on this disk

    simulate(run)


def test_a_log_start_that_moves_before_it_is_looked_for_hides_nothing_above_it(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        began = await tiered(world)
        world.replicas.partition().increment_log_start(2, "retention")
        assert await find(world, began + 2000, starting_offset=0) == (began + 2000, 2, 0)
        assert await find(world, began, starting_offset=0) == (began + 2000, 2, 0)
        assert await find(world, began + 4000, starting_offset=0) is None
        world.replicas.partition().increment_log_start(6, "retention")
        assert await find(world, began + 2000, starting_offset=0) is None  # the local log has all there is

    reading(tmp_path, story)


def test_a_log_start_that_moves_into_a_segment_while_an_earlier_one_is_read_hides_nothing_above_it(
    tmp_path: Path,
) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic(internal_segment_bytes=10_000)
        now = world.clock.now_ms() - 60_000
        world.replicas.append(batch("before what is asked about", timestamp=now + 9000))
        world.replicas.append(batch("too old", timestamp=now))
        world.log.roll()
        world.append(timestamp=now + 5000)
        world.log.roll()
        world.append()
        await world.move()
        find_in = world.access._reader.find_offset_by_timestamp

        async def find_in_first(*arguments: Any) -> TimestampAndOffset | None:
            found = await find_in(*arguments)
            world.replicas.partition().increment_log_start(3, "retention")
            return found

        world.access._reader.find_offset_by_timestamp = find_in_first  # type: ignore[method-assign]
        assert world.remote.ranges() == [(0, 1), (2, 3)]
        assert await find(world, now + 5000, starting_offset=1) == (now + 5000, 3, 0)

    reading(tmp_path, story)


def test_what_is_not_known_is_not_nothing(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(3)
        with pytest.raises(ReplicaNotAvailableError):
            await find(world, 0)
        world.log.leader_epochs.clear()
        assert await find(world, 0) is None  # nobody knows whose records they would be

    reading(tmp_path, story)
