import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicIdPartition
from broker.objectstore.errors import Refused
from broker.objectstore.failing_object_store import Fault
from broker.tiering.remote_log_manager import RemoteLogManager
from tests.support.builders import topic_uuid

from .segment_world import DELETING, FINISHED, update
from .task_world import OTHER, T0, TaskWorld, check_remote, fetch_of_a_follower, told

PAIR = (1, OTHER)


async def rounds(count: int = 1) -> None:
    """As long as the delay between two runs of a task is."""
    await asyncio.sleep(1.1 * count)


# Leading and following


def test_a_leader_copies_and_expires(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(retention_ms=60_000)
            world.append(3)
            await rounds()
            assert world.remote.ranges() == [(0, 1), (2, 3)]
            world.append(1)
            await rounds()
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
            assert world.manager.highest_remote_offset(T0) == 5
            world.clock.jump(61_000)
            await rounds(2)
            assert world.remote.bucket.objects == {}
            check_remote(world)

    told(tmp_path, story)


def test_the_first_run_is_at_once(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(2)
        async with world.running():
            world.replicas.place(leader_epoch=1)
            await asyncio.sleep(0.5)
            assert world.remote.ranges() == [(0, 1)]

    told(tmp_path, story, {"remote.log.manager.task.interval.ms": "3600000"})


def test_a_follower_only_learns_what_was_copied(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(replicas=PAIR, isr=PAIR)
            world.append(3)
            world.replicas.place(leader=OTHER, leader_epoch=1)
            await rounds(2)
            assert world.metadata.begun == []
            assert world.stats.partitions == {}
            assert world.manager.highest_remote_offset(T0) == -1
            world.replicas.place(leader=1, leader_epoch=2, isr=(1,))
            await rounds()
            assert world.remote.ranges() == [(0, 1), (2, 3)]
            world.replicas.place(leader=OTHER, leader_epoch=3)
            world.log.highest_remote_offset = -1
            await rounds()
            assert world.manager.highest_remote_offset(T0) == 3
            assert world.stats.partitions == {}  # gauges are the leader's

    told(tmp_path, story)


def test_who_loses_the_lead_gives_up_the_copy_under_way(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(replicas=PAIR, isr=(1,))
            world.append(2)
            world.steps.told["put log"] = lambda: world.replicas.place(leader=OTHER, leader_epoch=1)
            await rounds()
            assert world.remote.ranges() == []
            assert not any(key.endswith(".log") for key in world.remote.bucket.objects)
            assert world.counts.copy_errors == 0

    told(tmp_path, story)


def test_another_leader_epoch_is_no_reason_to_begin_anew(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(2)
            world.steps.told["put log"] = lambda: world.replicas.place(leader_epoch=1)
            await asyncio.sleep(0.5)
            assert world.remote.ranges() == [(0, 1)]
            assert len(world.metadata.begun) == 1

    told(tmp_path, story)


def test_the_metadata_manager_hears_of_all_at_once(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        heard: list[tuple[int, int]] = []
        world.metadata.on_partition_leadership_changes = (  # type: ignore[method-assign]
            lambda leaders, followers: heard.append((len(leaders), len(followers)))
        )
        async with world.running():
            world.topic("many", partitions=7)
            world.topic("followed", partitions=3, replicas=PAIR, leader=OTHER)
            world.replicas.place("many", 3, leader_epoch=1)  # nothing new
            assert heard == [(7, 0), (0, 3)]

    told(tmp_path, story)


def test_what_is_not_tiered_is_none_of_its_business(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(remote_storage_enable="false")
            world.append(3)
            await rounds()
            assert world.steps.passed == []
            assert world.metadata.store.partitions == frozenset()
            assert world.manager.highest_remote_offset(T0) == -1

    told(tmp_path, story)


def test_so_many_copy_at_once_as_the_setting_says(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        most = 0

        class Busy(type(world.stats)):  # type: ignore[misc]
            def __setattr__(self, name: str, value: object) -> None:
                nonlocal most
                if name == "copy_tasks_busy":
                    most = max(most, int(value))  # type: ignore[call-overload]
                super().__setattr__(name, value)

        world.stats.__class__ = Busy
        async with world.running():
            assert world.stats.copy_tasks_max == 2
            world.topic(partitions=6)
            for partition in range(6):
                world.append(2, partition=partition)
            await rounds(3)
            assert len(world.metadata.begun) == 6
            assert most == 2

    told(tmp_path, story, {"remote.log.manager.copier.thread.pool.size": "2"})


def test_so_many_expire_at_once_as_the_setting_says(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(partitions=6, retention_ms=60_000)
            for partition in range(6):
                world.append(2, partition=partition)
            await rounds(3)
            world.clock.jump(61_000)
            deleting = most = 0
            delete = world.remote.bucket.inner.delete_many

            async def delete_slowly(keys: Sequence[str]) -> None:
                nonlocal deleting, most
                deleting += 1
                most = max(most, deleting)
                await asyncio.sleep(1)
                await delete(keys)
                deleting -= 1

            world.remote.bucket.inner.delete_many = delete_slowly  # type: ignore[method-assign]
            await rounds(10)
            assert world.remote.bucket.objects == {}
            assert most == 3

    told(tmp_path, story, {"remote.log.manager.expiration.thread.pool.size": "3"})


def test_how_long_tasks_rest_is_a_setting(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(2)
            await asyncio.sleep(10)
            world.append(1)
            await asyncio.sleep(40)
            assert world.remote.ranges() == [(0, 1)]
            await asyncio.sleep(20)
            assert world.remote.ranges() == [(0, 1), (2, 3)]

    told(tmp_path, story, {"remote.log.manager.task.interval.ms": "60000"})


def test_a_bucket_that_is_down_is_tried_again_and_again(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.remote.bucket.failing.plan.down = Fault.SLOW_DOWN
            world.topic()
            world.append(2)
            await asyncio.sleep(60)
            assert world.counts.copy_errors > 2
            assert world.gauges.copy_lag_segments == 1
            world.remote.bucket.failing.plan.down = None
            await asyncio.sleep(20)
            assert world.remote.ranges() == [(0, 1)]
            check_remote(world)

    told(tmp_path, story)


def test_custom_metadata_that_is_too_large_stops_copies_until_the_next_leader_epoch(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.remote.storage.custom_metadata = b"m" * 129
        async with world.running():
            world.topic()
            world.append(2)
            await rounds(5)
            assert len(world.metadata.begun) == 1
            world.remote.storage.custom_metadata = b""
            world.replicas.place(isr=(1,))  # a change, and no other leader epoch
            await rounds(2)
            assert len(world.metadata.begun) == 1
            world.replicas.place(leader_epoch=1)
            await rounds()
            assert world.remote.ranges() == [(0, 1)]

    told(tmp_path, story)


# Settings


def test_copies_can_be_disabled_and_expiration_goes_on(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(retention_ms=60_000)
            world.append(3)
            await rounds()
            world.configure(remote_log_copy_disable="true")
            world.append(2)
            await rounds(2)
            assert world.remote.ranges() == [(0, 1), (2, 3)]
            assert (world.gauges.copy_lag_bytes, world.gauges.copy_lag_segments) == (0, 0)
            world.configure(remote_log_copy_disable="false")
            await rounds()
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5), (6, 7)]
            world.configure(remote_log_copy_disable="true")
            world.clock.jump(61_000)
            await rounds(2)
            assert world.remote.segments() == []

    told(tmp_path, story)


def test_disabled_copies_zero_the_lag_and_give_up_the_one_under_way(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(4)
            lag: list[int] = []
            world.steps.told["put log"] = lambda: (
                lag.append(world.gauges.copy_lag_segments),
                world.configure(remote_log_copy_disable="true"),
            )
            await rounds()
            assert lag == [3]
            assert world.gauges.copy_lag_segments == 0
            assert world.remote.ranges() == []

    told(tmp_path, story)


def test_a_topic_may_be_tiered_later(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(remote_storage_enable="false")
            world.append(4)
            await rounds()
            world.configure(remote_storage_enable="true")
            await rounds()
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]

    told(tmp_path, story)


def test_a_topic_that_is_tiered_no_more_keeps_what_is_on_its_disk(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(4)
            await rounds()
            world.log.maybe_increment_local_log_start_offset(4, "test")
            starts: list[int] = []
            world.steps.told["delete"] = lambda: starts.append(world.log.log_start_offset)
            answered = fetch_of_a_follower(world)
            world.configure(remote_storage_enable="false", remote_log_delete_on_disable="true")
            assert world.log.log_start_offset == 4
            assert len(answered) == 1  # at once: followers begin there as well
            await rounds(3)
            assert starts == [4]  # before anything was deleted
            assert world.remote.bucket.objects == {}
            assert world.metadata.store.partitions == frozenset()  # after all of it was told
            assert world.stats.partitions == {}
            world.append(1)
            await rounds()
            assert len(world.metadata.begun) == 3

    told(tmp_path, story)


def test_a_follower_of_a_topic_that_is_tiered_no_more_deletes_nothing(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(replicas=PAIR, isr=(1,))
            world.append(3)
            await rounds()
            world.replicas.place(leader=OTHER, leader_epoch=1)
            world.configure(remote_storage_enable="false", remote_log_delete_on_disable="true")
            await rounds(2)
            assert world.metadata.store.partitions == {T0}  # until the leader has told of all of it
            for each in world.remote.segments():
                world.metadata.store.apply(update(each.segment_id.int, DELETING, partition=T0))
            await rounds(10)
            assert "delete" not in world.steps.passed
            assert world.log.log_start_offset == 0
            assert world.metadata.store.partitions == frozenset()
            asked = world.metadata.asked
            world.configure(retention_ms=DAY)
            await rounds(2)
            assert world.metadata.asked == asked  # once

    told(tmp_path, story)


@pytest.mark.parametrize("knows_high_watermark", [True, False])
def test_a_leader_elected_after_that_finishes_what_the_one_before_it_did_not(
    tmp_path: Path, knows_high_watermark: bool
) -> None:
    """Else the log would begin with what nobody can read, and what is remote would stay."""

    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(replicas=PAIR, isr=(1,))
            world.append(4)
            await rounds()
            world.log.maybe_increment_local_log_start_offset(4, "test")
            world.replicas.place(leader=OTHER, leader_epoch=1)
            world.configure(remote_storage_enable="false", remote_log_delete_on_disable="true")
            await rounds(2)
            assert world.log.log_start_offset == 0
            if not knows_high_watermark:
                world.log.high_watermark = 2
            world.replicas.place(leader=1, isr=(1, OTHER), leader_epoch=2)
            assert world.log.log_start_offset == (4 if knows_high_watermark else 0)
            world.log.update_high_watermark(8)
            await rounds(3)
            assert world.log.log_start_offset == 4
            assert world.remote.bucket.objects == {}
            assert world.metadata.store.partitions == frozenset()

    told(tmp_path, story)


def test_without_permission_to_delete_remote_data_stays(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(3)
            await rounds()
            world.configure(remote_storage_enable="false")
            await rounds(2)
            assert "delete" not in world.steps.passed
            assert world.log.log_start_offset == 0
            assert world.metadata.store.partitions == frozenset()

    told(tmp_path, story)


def test_tiering_that_is_enabled_again_while_its_data_is_removed_keeps_what_is_new(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(4)
            await rounds()
            world.remote.bucket.failing.plan.down = Fault.SLOW_DOWN
            world.configure(remote_storage_enable="false", remote_log_delete_on_disable="true")
            await asyncio.sleep(30)
            assert T0 in world.remover
            world.configure(remote_storage_enable="true")
            await rounds()
            assert T0 not in world.remover
            world.remote.bucket.failing.plan.down = None
            await asyncio.sleep(30)
            assert world.metadata.store.partitions == {T0}
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
            check_remote(world)

    told(tmp_path, story)


def test_tiering_that_is_enabled_again_copies_again_what_was_removed(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(4)
            await rounds()
            world.configure(remote_storage_enable="false", remote_log_delete_on_disable="true")
            await rounds(3)
            assert world.remote.bucket.objects == {}
            world.configure(remote_storage_enable="true")
            assert world.manager.highest_remote_offset(T0) == -1
            await rounds()
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
            check_remote(world)

    told(tmp_path, story)


def test_a_log_start_that_cannot_move_yet_keeps_remote_data_until_it_can(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(4)
            await rounds()
            world.log.maybe_increment_local_log_start_offset(4, "test")
            world.log.high_watermark = 2  # of a leader that does not know better yet
            world.configure(remote_storage_enable="false", remote_log_delete_on_disable="true")
            await rounds(3)
            assert len(world.remote.ranges()) == 3
            world.log.update_high_watermark(8)
            await rounds(3)
            assert world.log.log_start_offset == 4
            assert world.remote.bucket.objects == {}

    told(tmp_path, story)


# Going


def test_the_leader_of_a_deleted_topic_deletes_what_is_remote(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(4)
            await rounds()
            world.replicas.delete_topic()
            assert world.metadata.store.partitions == {T0}  # until it is told
            await rounds(3)
            assert world.remote.bucket.objects == {}
            assert world.metadata.store.partitions == frozenset()
            assert world.stats.partitions == {}
            assert world.stats.topics == {}

    told(tmp_path, story)


def test_a_follower_of_a_deleted_topic_leaves_that_to_the_leader(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(replicas=PAIR, isr=(1,))
            world.append(4)
            await rounds()
            world.replicas.place(leader=OTHER, leader_epoch=1)
            world.replicas.delete_topic()
            await rounds(3)
            assert "delete" not in world.steps.passed
            assert world.metadata.store.partitions == frozenset()

    told(tmp_path, story)


def test_a_replica_that_moves_away_leaves_its_remote_data(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(4)
            await rounds()
            passed = len(world.steps.passed)
            world.replicas.place(replicas=(OTHER,), isr=(OTHER,), leader=OTHER, leader_epoch=1)
            await rounds(3)
            assert len(world.steps.passed) == passed
            assert len([key for key in world.remote.bucket.objects if key.endswith(".log")]) == 3
            assert world.metadata.store.partitions == frozenset()
            assert world.manager.highest_remote_offset(T0) == -1

    told(tmp_path, story)


def test_a_topic_that_is_created_again_is_another(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(3)
            await rounds()
            world.remote.bucket.failing.plan.down = Fault.SLOW_DOWN
            world.replicas.delete_topic()
            await asyncio.sleep(5)
            world.replicas.create_topic(
                incarnation=1, configs={"remote.storage.enable": "true", "internal.segment.bytes": "150"}
            )
            world.remote.bucket.failing.plan.down = None
            world.append(3)
            again = TopicIdPartition(topic_uuid("t", 1), "t", 0)
            await asyncio.sleep(60)
            assert world.remote.ranges(partition=again) == [(0, 1), (2, 3)]
            assert len([key for key in world.remote.bucket.objects if key.endswith(".log")]) == 2
            assert world.metadata.store.partitions == {again}

    told(tmp_path, story)


# Disks


def test_a_log_whose_directory_failed_is_skipped_and_comes_back(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            partition = world.topic()
            world.append(2)
            await rounds()
            local = world.log
            partition.stop(ErrorCode.kafka_storage_error, is_deleted=False)
            passed = len(world.steps.passed)
            await rounds(3)
            assert len(world.steps.passed) == passed
            assert world.manager.highest_remote_offset(T0) == -1
            partition.local_log, partition.is_leader, partition.is_offline = local, True, False
            world.append(1)
            await rounds(2)
            assert world.remote.ranges() == [(0, 1), (2, 3)]

    told(tmp_path, story)


def test_a_log_that_is_not_there_when_it_is_placed_begins_when_it_is(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            partition = world.topic()
            world.append(3)
            await rounds()
            assert world.stats.partitions.keys() == {T0.topic_partition}
            local = world.log
            partition.stop(ErrorCode.kafka_storage_error, is_deleted=False)
            world.configure(retention_ms=DAY)  # something is told of it meanwhile
            assert world.stats.partitions == {}
            await rounds(3)
            partition.local_log, partition.is_leader, partition.is_offline = local, True, False
            world.append(1)
            await rounds(2)
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]

    told(tmp_path, story)


DAY = 86_400_000


# Ending


@pytest.mark.parametrize("step", ["tell STARTED", "put log", "tell FINISHED"])
def test_a_broker_that_ends_gives_up_and_the_next_one_goes_on(tmp_path: Path, step: str) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(4)
        stopped = asyncio.Event()
        async with world.running():
            world.steps.told[step] = stopped.set
            world.replicas.place(leader_epoch=1)
            await stopped.wait()
        told_of = len(world.metadata.states)
        await asyncio.sleep(100)
        assert len(world.metadata.states) == told_of
        world.manager = _another(world)
        async with world.running():
            world.replicas.place(leader_epoch=2)
            await rounds(2)
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
            check_remote(world)

    told(tmp_path, story)


def test_a_broker_that_starts_again_copies_nothing_twice(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(4)
            await rounds()
        world.log.highest_remote_offset = -1
        world.manager = _another(world)
        async with world.running():
            world.replicas.place(leader_epoch=1)
            world.append(1)
            await rounds()
        assert [segment.start_offset for segment in world.metadata.begun] == [0, 2, 4, 6]
        assert [segment.state for segment in world.remote.segments()] == [FINISHED] * 4

    told(tmp_path, story)


def _another(world: TaskWorld) -> RemoteLogManager:
    return RemoteLogManager(
        local_broker_id=world.broker_id,
        config=world.replicas.config,
        hosted=world.replicas.replicas.hosted_partition,
        metadata=world.metadata,
        storage=world.remote.storage,
        remover=world.remover,
        copy_quota=world.context.copy_quota,
        stats=world.stats,
        clock=world.clock,
        chance=world.chance,
    )


def test_a_deletion_that_fails_is_tried_until_it_is_done(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(2)
            await rounds()
            world.steps.fail("delete", Refused("no"))
            world.replicas.delete_topic()
            await asyncio.sleep(30)
            assert world.remote.bucket.objects == {}
            assert world.metadata.store.partitions == frozenset()

    told(tmp_path, story)
