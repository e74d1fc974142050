"""When a partition speaks to its path through the bucket."""

import asyncio
from pathlib import Path

import pytest

from tests.support.builders import ReplicaWorld, batch, settle
from tests.support.recording_leader_wal import RecordingLeaderWal
from tests.support.sim_loop import SimLoop, simulate


def led_through_bucket(tmp_path: Path) -> tuple[ReplicaWorld, RecordingLeaderWal]:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2)
    world.create_topic(replicas=(1, 2))
    wal = RecordingLeaderWal()
    world.partition().leader_wal = wal
    return world, wal


def test_each_append_of_the_leader_is_told_with_its_bytes(tmp_path: Path) -> None:
    world, wal = led_through_bucket(tmp_path)
    world.append(batch("a"), batch("b"))
    world.append(batch("c"))
    assert wal.appended_bytes == [2 * len(batch("a")), len(batch("c"))]


def test_what_is_not_appended_is_not_told(tmp_path: Path) -> None:
    world, wal = led_through_bucket(tmp_path)
    world.append(batch("a", producer_id=7, producer_epoch=0, base_sequence=0))
    world.append(batch("a", producer_id=7, producer_epoch=0, base_sequence=0))
    assert wal.appended_bytes == [len(batch("a"))]


def test_who_waits_with_acks_all_is_told_of(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world, wal = led_through_bucket(tmp_path)
        place = world.partition().topic_partition
        await world.produce([(place, batch("a"))], acks=1)
        assert wal.awaited_count == 0
        produced = asyncio.ensure_future(world.produce([(place, batch("b"))], acks=-1))
        await settle()
        assert (wal.appended_bytes[1:], wal.awaited_count) == ([len(batch("b"))], 1)
        world.place(leader=2, leader_epoch=1)
        await produced

    simulate(story)


def test_a_log_start_moved_on_request_is_told(tmp_path: Path) -> None:
    world, wal = led_through_bucket(tmp_path)
    world.append(batch("a"), batch("b"))
    world.partition().followers.states.clear()
    world.partition().on_isr_changed()
    world.partition().delete_records_on_leader(1)
    world.partition().delete_records_on_leader(1)  # nothing moves
    assert wal.log_start_moves == 1


@pytest.mark.parametrize("how", ["follow", "delete"])
def test_losing_the_lead_ends_it(tmp_path: Path, how: str) -> None:
    world, _ = led_through_bucket(tmp_path)
    partition = world.partition()
    if how == "follow":
        world.place(leader=2, leader_epoch=1)
    else:
        world.delete_topic()
    assert partition.leader_wal is None


def test_leading_on_in_the_next_epoch_keeps_it(tmp_path: Path) -> None:
    world, wal = led_through_bucket(tmp_path)
    world.place(leader_epoch=1)
    assert world.partition().leader_wal is wal
