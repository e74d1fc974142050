"""Stories about tiering that is switched off and on again, and about copies that are lost (KIP-950): real logs.

Whatever is deleted from remote storage meanwhile, and by whom: local retention never takes the only copy of a record.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.objectstore.failing_object_store import Fault
from broker.replication.offset_lookup import EARLIEST_TIMESTAMP, OffsetQuery, list_offset
from tests.unit.tiering.segment_world import DELETING, FINISHED, segment, update
from tests.unit.tiering.task_world import OTHER, T0, TaskWorld, check_remote, told

PAIR = (1, OTHER)
MINUTE_MS = 60_000
OTHERS = 77  # the number of a segment that another broker has copied


async def rounds(count: int = 1) -> None:
    """As long as the delay between two runs of a task is."""
    await asyncio.sleep(1.1 * count)


def switch_off(world: TaskWorld) -> None:
    world.configure(remote_storage_enable="false", remote_log_delete_on_disable="true")


def switch_on(world: TaskWorld) -> None:
    world.configure(remote_storage_enable="true", remote_log_delete_on_disable=None)


async def copied_by_another(world: TaskWorld) -> None:
    """The records of the first segment."""
    one = segment(OTHERS, 0, 1, partition=T0, max_timestamp_ms=world.clock.now_ms())
    await world.metadata.add_remote_log_segment_metadata(replace(one, broker_id=OTHER))
    await world.metadata.update_remote_log_segment_metadata(update(OTHERS, FINISHED, partition=T0))


def is_others_copy_there(world: TaskWorld) -> bool:
    return any(each.segment_id == UUID(int=OTHERS) and each.state is FINISHED for each in world.remote.segments())


# A removal, and brokers that lead later


@pytest.mark.parametrize("stays", [True, False])
def test_48_a_removal_ends_with_the_lead(tmp_path: Path, stays: bool) -> None:
    """The next leader may be told earlier than this broker that the topic is tiered again."""

    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(replicas=PAIR, isr=PAIR)
            world.append(4)
            world.log.update_high_watermark(8)
            await rounds()
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
            world.remote.bucket.failing.plan.down = Fault.SLOW_DOWN
            switch_off(world)
            await asyncio.sleep(30)
            assert T0 in world.remover
            await copied_by_another(world)
            replicas = PAIR if stays else (OTHER,)
            world.replicas.place(replicas=replicas, isr=replicas, leader=OTHER, leader_epoch=1)
            await rounds()
            assert T0 not in world.remover
            assert T0 not in world.metadata.store.partitions
            switch_on(world)
            world.remote.bucket.failing.plan.down = None
            world.metadata.on_partition_leadership_changes([T0], [])
            await asyncio.sleep(120)
            assert is_others_copy_there(world)

    told(tmp_path, story)


def test_48_a_removal_leaves_what_others_have_copied_since(tmp_path: Path) -> None:
    """This broker has not heard that another leads, and that the topic is tiered again."""

    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(replicas=PAIR, isr=PAIR)
            world.append(4)
            world.log.update_high_watermark(8)
            await rounds()
            world.remote.bucket.failing.plan.down = Fault.SLOW_DOWN
            switch_off(world)
            await asyncio.sleep(30)
            await copied_by_another(world)
            world.remote.bucket.failing.plan.down = None
            await asyncio.sleep(120)
            assert T0 not in world.remover
            assert world.remote.bucket.objects == {}
            world.metadata.on_partition_leadership_changes([T0], [])
            assert is_others_copy_there(world)

    told(tmp_path, story)


@pytest.mark.parametrize("is_in_both", [True, False])
def test_48_a_leader_elected_after_that_removes_what_is_left(tmp_path: Path, is_in_both: bool) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(replicas=PAIR, isr=PAIR)
            world.append(4)
            world.log.update_high_watermark(8)
            await rounds()
            if not is_in_both:
                world.log.maybe_increment_local_log_start_offset(4, "test")
            world.replicas.place(leader=OTHER, leader_epoch=1)
            switch_off(world)  # and the leader dies before it has removed, or told, anything
            await rounds(2)
            assert len([key for key in world.remote.bucket.objects if key.endswith(".log")]) == 3
            world.replicas.place(leader=1, leader_epoch=2, isr=(1,))
            earliest = list_offset(world.replicas.partition(), OffsetQuery(EARLIEST_TIMESTAMP, 9))
            assert earliest.offset == (0 if is_in_both else 4)
            await rounds(5)
            assert world.remote.bucket.objects == {}
            assert world.metadata.store.partitions == frozenset()
            asked = world.metadata.asked
            world.configure(retention_ms=MINUTE_MS)
            await rounds(5)
            assert world.metadata.asked == asked  # once for each time it leads

    told(tmp_path, story)


# Events on their way


@pytest.mark.parametrize("is_cut", [True, False])
def test_48_what_events_on_their_way_delete_is_not_taken_for_copied(tmp_path: Path, is_cut: bool) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(local_retention_ms=1)
            world.append(4)
            await rounds()
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
            world.metadata.hold_back()
            switch_off(world)
            await asyncio.sleep(0.05)
            switch_on(world)
            if is_cut:
                switch_off(world)
                switch_on(world)
            world.clock.jump(10_000)
            await rounds(5)
            world.expire_locally()
            assert world.log.local_log_start_offset == 0
            world.metadata.deliver()
            await rounds(5)
            assert T0 not in world.remover
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
            check_remote(world)
            world.expire_locally()
            assert world.log.local_log_start_offset == 6
            check_remote(world)

    told(tmp_path, story)


@pytest.mark.parametrize("then", ["moves", "is deleted", "is tiered no more"])
def test_48_who_waits_for_such_events_may_be_told_otherwise(tmp_path: Path, then: str) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(replicas=PAIR, isr=(1,))
            world.append(4)
            await rounds()
            world.metadata.hold_back()
            switch_off(world)
            await asyncio.sleep(0.05)
            switch_on(world)
            await rounds(2)
            begun = len(world.metadata.begun)
            if then == "moves":
                world.replicas.place(replicas=(OTHER,), isr=(OTHER,), leader=OTHER, leader_epoch=1)
            elif then == "is deleted":
                world.replicas.delete_topic()
            else:
                switch_off(world)
            world.metadata.deliver()
            await rounds(5)
            assert len(world.metadata.begun) == begun
            assert len(world.remover) == 0
            assert world.metadata.store.partitions == frozenset()
            if then != "moves":
                assert world.remote.bucket.objects == {}

    told(tmp_path, story)


async def copied(world: TaskWorld) -> list[UUID]:
    """What this broker has copied, which another one leads now."""
    world.topic(replicas=PAIR, isr=PAIR)
    world.log.update_high_watermark(0)
    world.append(4)
    world.log.update_high_watermark(8)
    await rounds(2)
    assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
    world.replicas.place(leader=OTHER, leader_epoch=1)
    return [each.segment_id for each in world.remote.segments()]


async def copied_and_tiered_again(world: TaskWorld) -> list[UUID]:
    """The same, of a topic that was tiered no more for a moment, of which nobody has told anything yet."""
    old = await copied(world)
    switch_off(world)
    await rounds()
    switch_on(world)
    return old


def lead(world: TaskWorld) -> None:
    world.replicas.place(leader=1, isr=PAIR, leader_epoch=2)
    world.log.update_high_watermark(8)


def delete_late(world: TaskWorld, segment_ids: Iterable[UUID]) -> None:
    """The events of a leader that was paused arrive."""
    for segment_id in segment_ids:
        world.metadata.store.apply(update(segment_id.int, DELETING, partition=T0))


@pytest.mark.parametrize("leads", ["while it is off", "afterwards"])
def test_48_what_an_old_leader_deletes_late_is_not_taken_for_copied(tmp_path: Path, leads: str) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            old = await copied(world)
            switch_off(world)
            await rounds()
            if leads == "while it is off":
                lead(world)
                assert T0 in world.remover  # which has told of nothing yet
            switch_on(world)
            world.configure(local_retention_bytes=1)
            if leads == "afterwards":
                await rounds(2)
                lead(world)
            for _ in range(3):
                world.expire_locally()
                await rounds()
            assert world.log.local_log_start_offset == 6
            delete_late(world, old)
            await rounds(3)
            assert world.log.log_start_offset == 0
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
            check_remote(world)

    told(tmp_path, story)


def test_48_a_follower_keeps_what_an_old_leader_may_still_delete(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            old = await copied_and_tiered_again(world)
            world.configure(local_retention_bytes=1)
            await copied_by_another(world)
            await rounds(5)
            world.expire_locally()
            assert (world.log.highest_remote_offset, world.log.local_log_start_offset) == (-1, 0)
            delete_late(world, old)
            await rounds(30)
            assert world.log.highest_remote_offset == 1  # of what the new leader has copied
            assert is_others_copy_there(world)
            world.expire_locally()
            assert world.log.local_log_start_offset == 2

    told(tmp_path, story)


def test_48_who_leads_after_that_leaves_what_the_leader_before_it_has_copied_since(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            old = await copied_and_tiered_again(world)
            await copied_by_another(world)
            await rounds(2)
            lead(world)
            await rounds(3)
            assert is_others_copy_there(world)
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
            assert not any(each.segment_id in old for each in world.remote.segments() if each.state is FINISHED)
            assert world.log.log_start_offset == 0

    told(tmp_path, story)


def test_48_who_leads_after_that_leaves_what_is_not_on_its_disk(tmp_path: Path) -> None:
    """The leader before it had lost its memory in a restart, and went by old copies; so it began above them."""

    async def story(world: TaskWorld) -> None:
        async with world.running():
            old = await copied_and_tiered_again(world)
            world.log.maybe_increment_local_log_start_offset(4, "restored from remote storage")
            lead(world)
            await rounds(3)
            assert world.log.log_start_offset == 0
            readable = [each.segment_id for each in world.remote.segments() if each.state is FINISHED]
            assert readable[:2] == old[:2] and old[2] not in readable
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
            check_remote(world)

    told(tmp_path, story)


@pytest.mark.parametrize("leads", [True, False])
def test_18_a_copy_that_is_lost_counts_no_more_in_the_same_moment(tmp_path: Path, leads: bool) -> None:
    """Whoever has begun to delete it: an old leader's event that comes late."""

    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(replicas=PAIR, isr=(1,), local_retention_ms=1)
            world.append(4)
            await rounds()
            if not leads:
                world.replicas.place(leader=OTHER, leader_epoch=1)
                await rounds()
            assert world.log.highest_remote_offset == 5
            second = world.remote.segments()[1]
            world.metadata.store.apply(replace(update(1, DELETING, partition=T0), segment_id=second.segment_id))
            assert world.log.highest_remote_offset == 1
            world.clock.jump(10_000)
            world.expire_locally()
            assert world.log.local_log_start_offset == 2
            await rounds(2)
            assert world.log.highest_remote_offset == (5 if leads else 1)
            check_remote(world)

    told(tmp_path, story)


# Metadata that is lost


def test_18_what_is_still_on_the_disk_is_copied_again_when_the_metadata_is_lost(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(local_retention_ms=MINUTE_MS)
            world.append(4)
            await rounds()
            assert world.log.highest_remote_offset == 5
            world.metadata.lose(T0)
            assert world.log.highest_remote_offset == -1
            world.append(2)
            await rounds(3)
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
            world.clock.jump(MINUTE_MS + 1000)
            world.expire_locally()
            assert world.log.local_log_start_offset == 10
            check_remote(world)

    told(tmp_path, story)


def test_18_what_is_lost_while_the_disk_is_away_is_copied_when_it_is_back(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            partition = world.topic(local_retention_ms=MINUTE_MS)
            world.append(4)
            await rounds()
            local = world.log
            partition.stop(ErrorCode.kafka_storage_error, is_deleted=False)
            world.configure(retention_ms=10 * MINUTE_MS)
            world.metadata.lose(T0)
            partition.local_log, partition.is_leader, partition.is_offline = local, True, False
            await rounds(3)
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
            check_remote(world)

    told(tmp_path, story)


def test_18_a_log_begins_with_its_disk_when_the_metadata_of_all_that_is_remote_is_lost(tmp_path: Path) -> None:
    """Else consumers would be sent to an offset that nobody can read, and sent there again."""

    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(local_retention_bytes=1)
            world.append(4)
            await rounds(2)
            world.expire_locally()
            assert (world.log.log_start_offset, world.log.local_log_start_offset) == (0, 6)
            world.metadata.lose(T0)
            await rounds(2)
            earliest = list_offset(world.replicas.partition(), OffsetQuery(EARLIEST_TIMESTAMP, 9))
            assert earliest.offset == world.log.log_start_offset == 6
            check_remote(world)

    told(tmp_path, story)
