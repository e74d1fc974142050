"""A disk loses, or damages, what it had noted of a tiered log: the records that only remote storage has stay (KIP-405).

Batches on the disk say their own epochs again; those of older records are with the segments in the bucket.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.common.errors import NO_ERROR, ErrorCode
from broker.log.log_loader import load_log
from broker.log.unified_log import UnifiedLog
from broker.objectstore.failing_object_store import Fault
from broker.records.record_batch import batches
from broker.tiering.errors import RemoteStorageError
from tests.unit.tiering.access_world import AccessWorld, reading
from tests.unit.tiering.segment_world import FINISHED, epoch_entries, segment, update
from tests.unit.tiering.task_world import OTHER, T0, TaskWorld, check_remote

PAIR = (1, OTHER)
EPOCHS = epoch_entries({0: 0, 3: 4, 5: 8})
REMOTE = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)]


def nothing(path: Path) -> None: ...


def overwrite(path: Path) -> None:
    path.write_bytes(b"what is this")


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = pytest.mark.parametrize("damage", [overwrite, empty, Path.unlink])


def restart(
    world: TaskWorld, damage: Callable[[Path], object], log_start_offset: int = 0, *, clean: bool = True
) -> UnifiedLog:
    """The process ends, the file of the epochs is damaged, and the process is back, with what the checkpoints say."""
    replica, before = world.replicas.partition(), world.log
    plan = before.prepare_close()
    if plan is not None:
        plan.run()
        before.complete_flush(plan)
    before.close()
    damage(before.leader_epochs.path)
    source = world.replicas.logs
    loaded = load_log(
        source.environment,
        before.directory,
        before.topic_partition,
        before.config,
        recovery_point=before.recovery_point,
        log_start_offset=log_start_offset,
        had_clean_shutdown=clean,
    )
    replica.local_log = source.logs[before.topic_partition] = loaded.log
    loaded.log.update_high_watermark(before.high_watermark)
    return loaded.log


async def tiered(world: AccessWorld, *, leader: int = 1, isr: tuple[int, ...] = (1,)) -> None:
    """Records of three epochs; those from 8 on are of the last one, and those from 12 on are on this disk alone."""
    world.tiered_topic(replicas=PAIR, isr=(1,))
    for epoch in (0, 3, 5):
        world.replicas.place(leader_epoch=epoch)
        world.append(2)
    world.append(1)
    await world.move()
    assert world.remote.ranges() == REMOTE
    assert world.log.leader_epochs.entries == EPOCHS
    assert (world.log.local_log_start_offset, world.log.log_end_offset) == (12, 14)
    if leader != 1:
        world.replicas.place(leader=leader, isr=isr, leader_epoch=6)


async def readable(world: AccessWorld, start: int = 0) -> None:
    """Each record from `start` to the log end, by fetches of a consumer."""
    offset = start
    while offset < world.log.log_end_offset:
        result = await world.fetch_one(offset)
        assert result.error is NO_ERROR, (offset, result.error)
        found = list(batches(bytes(result.records)))
        assert found and found[0].base_offset == offset
        offset = found[-1].next_offset


async def rounds(count: int = 2) -> None:
    await asyncio.sleep(1.1 * count)


@DAMAGES
@pytest.mark.parametrize("clean", [True, False])
def test_51_a_leader_finds_the_epochs_of_its_remote_records_again(
    tmp_path: Path, damage: Callable[[Path], object], clean: bool
) -> None:
    """It may be the only replica."""

    async def story(world: AccessWorld) -> None:
        await tiered(world)
        restart(world, damage, clean=clean)
        assert world.log.leader_epochs.entries == epoch_entries({5: 12})
        async with world.running():
            world.replicas.place(leader_epoch=6)
            await rounds()
            assert (world.log.log_start_offset, world.log.local_log_start_offset) == (0, 12)
            assert world.log.leader_epochs.entries[:3] == EPOCHS
            assert world.remote.ranges() == REMOTE
            world.append(1)
            await rounds()
            assert world.remote.ranges() == [*REMOTE, (12, 13)]
            await readable(world)
            check_remote(world)
        assert restart(world, nothing).leader_epochs.entries[:3] == EPOCHS  # they are in the file again

    reading(tmp_path, story)


@DAMAGES
def test_a_follower_finds_them_before_it_leads(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world, leader=OTHER, isr=PAIR)
        restart(world, damage)
        async with world.running():
            world.replicas.place(leader_epoch=7)
            await rounds()
            assert world.log.leader_epochs.entries == EPOCHS
            await readable(world)
            world.replicas.place(leader=1, isr=(1,), leader_epoch=8)
            await rounds()
            assert (world.log.log_start_offset, world.remote.ranges()) == (0, REMOTE)
            await readable(world)

    reading(tmp_path, story)


@DAMAGES
def test_who_leads_while_the_bucket_is_away_deletes_nothing_and_says_that_it_will_be_back(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world, leader=OTHER, isr=PAIR)
        restart(world, damage)
        world.remote.bucket.failing.plan.down = Fault.RESET
        async with world.running():
            world.replicas.place(leader=1, isr=(1,), leader_epoch=7)
            world.append(2)
            await rounds(3)
            assert (world.log.log_start_offset, world.remote.ranges()) == (0, REMOTE)
            assert world.metadata.states.count(FINISHED) == len(REMOTE)  # nor is anything copied without its history
            result = await world.fetch_one(0)
            assert result.error is ErrorCode.replica_not_available
            world.remote.bucket.failing.plan.down = None
            await asyncio.sleep(60)
            assert world.log.log_start_offset == 0
            await readable(world)
            assert world.remote.ranges() == [*REMOTE, (12, 13), (14, 15)]
            check_remote(world)

    reading(tmp_path, story)


def test_records_of_two_logs_that_nothing_tells_apart_are_kept(tmp_path: Path) -> None:
    """Nothing of the local epoch is remote, and two leaders wrote the record before it: an unclean election."""

    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(3)
        await world.move()
        world.replicas.place(leader_epoch=5)
        await world.metadata.add_remote_log_segment_metadata(segment(1, 2, 9, {2: 2}, partition=T0))
        await world.metadata.update_remote_log_segment_metadata(update(1, FINISHED, partition=T0))
        restart(world, overwrite)
        world.log.leader_epochs.clear()
        world.log.leader_epochs.assign(5, 4)
        before = world.remote.ranges()
        for task in (world.copy_task(), world.expiration_task()):
            with pytest.raises(RemoteStorageError, match="which of its segments are of this log"):
                await task.run()
        assert (world.log.log_start_offset, world.remote.ranges()) == (0, before)
        world.log.maybe_increment_log_start_offset(4, "DeleteRecords")  # somebody gives them up
        await world.expire()
        assert world.remote.ranges() == []

    reading(tmp_path, story)


def test_a_log_start_that_is_lost_as_well_is_where_remote_storage_begins(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world)
        world.log.maybe_increment_log_start_offset(4, "DeleteRecords")
        await world.expire()
        assert world.remote.ranges() == REMOTE[2:]
        restart(world, overwrite)
        assert world.log.log_start_offset == 0
        async with world.running():
            world.replicas.place(leader_epoch=6)
            await rounds()
            assert (world.log.log_start_offset, world.remote.ranges()) == (4, REMOTE[2:])
            await readable(world, 4)

    reading(tmp_path, story)


@pytest.mark.parametrize("is_copy_disabled", [False, True])
def test_a_log_start_that_is_lost_in_a_crash_is_found_whether_or_not_it_is_copied(
    tmp_path: Path, is_copy_disabled: bool
) -> None:
    async def story(world: AccessWorld) -> None:
        await tiered(world)
        if is_copy_disabled:
            world.configure(local_retention_bytes=None, remote_log_copy_disable="true")
        world.log.maybe_increment_log_start_offset(6, "DeleteRecords")
        await world.expire()
        assert world.remote.ranges() == REMOTE[3:]
        restart(world, nothing, log_start_offset=0)  # kill -9 before the checkpoint was written
        async with world.running():
            world.replicas.place(leader_epoch=6)
            await rounds()
            assert world.log.log_start_offset == 6
            await readable(world, 6)

    reading(tmp_path, story)
