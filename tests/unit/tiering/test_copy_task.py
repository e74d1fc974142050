import asyncio
import dataclasses
from pathlib import Path

import pytest

from broker.common.errors import ReplicaNotAvailableError, StorageFailure
from broker.objectstore.errors import Refused
from broker.records.record_batch import batches
from broker.tiering.copy_task import CustomMetadataTooLargeError
from broker.tiering.errors import RemoteStorageError

from .segment_world import DELETED, DELETING, FINISHED, STARTED, epoch_entries, update
from .task_world import OTHER, T0, TaskWorld, check_remote, told


def test_a_closed_segment_goes_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(2)
        await world.copy()
        (segment,) = world.remote.segments()
        assert (segment.start_offset, segment.end_offset, segment.state) == (0, 1, FINISHED)
        assert segment.broker_id == world.broker_id
        assert segment.max_timestamp_ms == world.clock.now_ms()
        assert segment.segment_leader_epochs == epoch_entries({0: 0})
        assert segment.is_txn_index_empty
        objects = world.remote.objects_of(segment.segment_id)
        assert objects.keys() == {"log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint"}
        assert objects["leader_epoch_checkpoint"] == b"0\n1\n0 0\n"
        assert [each.base_offset for each in batches(objects["log"])] == [0]
        check_remote(world)
        assert world.log.highest_remote_offset == 1
        assert (world.counts.copy_requests, world.counts.copy_errors) == (1, 0)
        assert world.counts.copy_bytes == segment.segment_size_in_bytes

    told(tmp_path, story)


def test_it_is_told_before_and_after(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(2)
        await world.copy()
        passed = [step for step in world.steps.passed if step.startswith(("told", "put"))]
        assert passed[0] == "told STARTED"
        assert passed[-2:] == ["put log", "told FINISHED"]

    told(tmp_path, story)


def test_what_is_found_out_once_is_kept(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(2)
        task = world.copy_task()
        await task.run()
        passed = len(world.steps.passed)
        await task.run()
        assert world.steps.passed[passed:] == ["highest"]
        world.append(1)
        await task.run()
        assert "list epoch" not in world.steps.passed[passed:]
        assert world.remote.ranges() == [(0, 1), (2, 3)]

    told(tmp_path, story)


def test_a_copy_that_is_deleted_at_once_is_not_made_again_before_the_next_run(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(3)
        tiered = world.tiered()
        world.metadata.watch_losses(lambda partition, lost: tiered.lose(lost))

        def delete() -> None:
            begun = world.metadata.begun[-1].segment_id
            world.metadata.store.apply(dataclasses.replace(update(1, DELETING, partition=T0), segment_id=begun))

        world.steps.told["told FINISHED"] = delete
        task = world.copy_task(tiered)
        await task.run()
        assert (len(world.metadata.begun), world.log.highest_remote_offset) == (1, -1)
        await task.run()
        assert world.remote.ranges() == [(0, 1), (2, 3)]
        check_remote(world)

    told(tmp_path, story)


def test_a_new_task_copies_nothing_twice(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(4)
        await world.copy()
        world.append(1)
        await world.copy()
        assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5), (6, 7)]
        assert len(world.metadata.begun) == 4

    told(tmp_path, story)


def test_while_not_everything_is_known_nothing_is_copied(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(2)
        task = world.copy_task()
        world.metadata.on_stop_partitions([T0])
        with pytest.raises(ReplicaNotAvailableError):
            await task.run()
        assert world.remote.bucket.objects == {}
        assert world.counts.copy_errors == 0

    told(tmp_path, story)


def test_a_log_that_is_not_led_here_or_has_no_disk_is_left_alone(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        partition = world.topic(replicas=(1, OTHER), isr=(1, OTHER))
        world.append(2)
        task = world.copy_task()
        world.replicas.place(leader=OTHER, leader_epoch=1)
        await task.run()
        partition.local_log = None
        await task.run()
        assert world.steps.passed == []

    told(tmp_path, story)


def test_the_log_start_is_raised_to_where_remote_storage_begins(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(4)
        await world.copy()
        world.log.maybe_increment_log_start_offset(2, "test")
        await world.expire()  # deletes the first remote segment
        assert world.remote.ranges() == [(2, 3), (4, 5)]
        world.log.maybe_increment_local_log_start_offset(4, "test")
        world.log.log_start_offset, world.log.highest_remote_offset = 0, -1  # a restart, and the checkpoint is lost
        await world.copy()
        assert world.log.log_start_offset == 2
        assert world.log.highest_remote_offset == 5
        assert len(world.metadata.begun) == 3  # nothing twice

    told(tmp_path, story)


def test_who_loses_the_lead_meanwhile_leaves_the_log_start_alone(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic(replicas=(1, OTHER), isr=(1,))
        world.append(4)
        await world.copy()
        world.log.maybe_increment_log_start_offset(2, "test")
        await world.expire()
        world.log.maybe_increment_local_log_start_offset(4, "test")
        world.log.log_start_offset = 0
        world.steps.told["list epoch"] = lambda: world.replicas.place(leader=OTHER, leader_epoch=1)
        await world.copy()
        assert world.log.log_start_offset == 0

    told(tmp_path, story)


def test_a_log_that_was_cut_is_looked_at_anew(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic(replicas=(1, OTHER), isr=(1,))
        world.append(3)
        task = world.copy_task()
        await task.run()
        assert world.remote.ranges() == [(0, 1), (2, 3)]
        world.replicas.place(leader=OTHER, leader_epoch=1)
        world.log.truncate_to(2)
        world.replicas.place(leader=1, leader_epoch=2)
        world.append(2)
        await task.run()
        assert world.remote.ranges() == [(0, 1), (2, 3), (2, 3)]
        check_remote(world)

    told(tmp_path, story)


def test_a_hole_is_filled_from_the_disk(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(4)
        await world.copy()
        first = world.remote.segments()[0]
        for state in (DELETING, DELETED):
            told_of = dataclasses.replace(update(1, state, partition=T0), segment_id=first.segment_id)
            await world.metadata.update_remote_log_segment_metadata(told_of)
        world.log.highest_remote_offset = -1  # a restart
        await world.copy()
        assert world.log.log_start_offset == 0
        assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
        check_remote(world)

    told(tmp_path, story)


def test_without_a_producer_snapshot_nothing_is_told(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(2)
        world.log.producer_state_manager.remove_snapshot(2)
        task = world.copy_task()
        for errors in (1, 2):
            with pytest.raises(StorageFailure):
                await task.run()
            assert world.counts.copy_errors == errors
        assert world.metadata.begun == []

    told(tmp_path, story)


def test_an_index_the_disk_would_not_take_is_written_before(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic(index_interval_bytes=0)
        world.append(2)
        segment = world.log.segments.first
        assert segment.time_index.is_written
        segment.time_index._written = 0  # as after a full disk
        segment.time_index.path.write_bytes(b"")
        await world.copy()
        (copied,) = world.remote.segments()
        assert len(world.remote.objects_of(copied.segment_id)["timeindex"]) == 12

    told(tmp_path, story)


def test_leftovers_that_cannot_be_deleted_stay_for_expiration(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(2)
        world.steps.fail("put log", Refused("no"))
        world.steps.fail("delete", Refused("no"))
        with pytest.raises(RemoteStorageError, match="no"):
            await world.copy()
        (segment,) = world.remote.segments()
        assert segment.state is DELETING
        assert world.remote.objects_of(segment.segment_id)
        assert (world.counts.copy_errors, world.counts.delete_errors) == (1, 1)
        await world.expire()
        assert world.remote.bucket.objects == {}

    told(tmp_path, story)


def test_a_finish_that_comes_late_is_not_copied_again(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(2)
        task = world.copy_task()
        world.steps.fail("told FINISHED", RemoteStorageError("nobody has seen it yet"))
        with pytest.raises(RemoteStorageError):
            await task.run()
        await task.run()
        assert world.remote.ranges() == [(0, 1)]
        assert len(world.metadata.begun) == 1
        assert world.log.highest_remote_offset == 1

    told(tmp_path, story)


def test_what_is_being_copied_is_known_before_it_is_told(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(2)
        tiered = world.tiered()
        seen: list[int] = []
        for step in ("tell STARTED", "put index", "tell FINISHED"):
            world.steps.told[step] = lambda: seen.append(len(tiered.being_copied))
        await world.copy_task(tiered).run()
        assert seen == [1, 1, 1]
        assert tiered.being_copied == set()
        world.append(1)
        world.steps.fail("tell STARTED", RemoteStorageError("no"))
        with pytest.raises(RemoteStorageError):
            await world.copy_task(tiered).run()
        assert tiered.being_copied == set()

    told(tmp_path, story)


@pytest.mark.parametrize(("size", "is_fine"), [(128, True), (129, False)])
def test_custom_metadata_has_its_limit(tmp_path: Path, size: int, is_fine: bool) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(3)
        world.remote.storage.custom_metadata = b"m" * size
        task = world.copy_task()
        if is_fine:
            await task.run()
            assert [segment.custom_metadata for segment in world.remote.segments()] == [b"m" * size] * 2
            return
        with pytest.raises(CustomMetadataTooLargeError):
            await task.run()
        assert world.remote.bucket.objects == {}
        assert world.metadata.states == [STARTED, DELETING, DELETED]
        assert world.counts.copy_errors == 1
        world.remote.storage.custom_metadata = None
        await task.run()
        assert task.has_given_up
        assert len(world.metadata.begun) == 1

    told(tmp_path, story)


def test_the_limit_of_custom_metadata_is_a_setting(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(2)
        world.remote.storage.custom_metadata = b"mm"
        with pytest.raises(CustomMetadataTooLargeError):
            await world.copy()

    told(tmp_path, story, {"remote.log.metadata.custom.metadata.max.bytes": "1"})


def test_the_lag_is_shown_as_it_grows_and_shrinks(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(4)
        size = world.log.segments.first.size_bytes
        task = world.copy_task()
        lags: list[tuple[int, int]] = []

        def note() -> None:
            lags.append((world.gauges.copy_lag_bytes, world.gauges.copy_lag_segments))

        world.steps.told["tell STARTED"] = note
        world.steps.fail("put log", Refused("no"))
        with pytest.raises(RemoteStorageError):
            await task.run()
        assert lags == [(3 * size, 3)]
        world.append(1)
        world.steps.told["tell STARTED"] = note
        await task.run()
        assert lags == [(3 * size, 3), (4 * size, 4)]
        assert (world.gauges.copy_lag_bytes, world.gauges.copy_lag_segments) == (0, 0)

    told(tmp_path, story)


def test_epochs_and_the_past_of_a_segment_go_with_it(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic(internal_segment_bytes=250)  # two batches
        world.append(3)
        world.replicas.place(leader_epoch=3)
        world.append(2)
        world.replicas.place(leader_epoch=7)
        world.append(2)
        assert world.log.leader_epochs.entries == epoch_entries({0: 0, 3: 6, 7: 10})
        await world.copy()
        segments = world.remote.segments()
        assert [segment.segment_leader_epochs for segment in segments] == [
            epoch_entries({0: 0}),
            epoch_entries({0: 4, 3: 6}),
            epoch_entries({3: 8, 7: 10}),
        ]
        pasts = [world.remote.objects_of(each.segment_id)["leader_epoch_checkpoint"] for each in segments]
        assert pasts == [b"0\n1\n0 0\n", b"0\n2\n0 0\n3 6\n", b"0\n3\n0 0\n3 6\n7 10\n"]

    told(tmp_path, story)


def test_who_loses_the_lead_while_the_quota_holds_a_copy_back_tells_nothing(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic(replicas=(1, OTHER), isr=(1,))
        world.append(2)
        world.context.copy_quota.record(1_000_000)
        task = asyncio.ensure_future(world.copy_task().run())
        await asyncio.sleep(5)
        world.replicas.place(leader=OTHER, leader_epoch=1)
        await task
        assert world.metadata.begun == []

    told(tmp_path, story, {"remote.log.manager.copy.max.bytes.per.second": "1000"})


def test_a_log_that_changes_while_the_quota_holds_a_copy_back_is_looked_at_again(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(4)
        world.context.copy_quota.record(1_000_000)
        task = asyncio.ensure_future(world.copy_task().run())
        await asyncio.sleep(5)
        world.log.maybe_increment_log_start_offset(2, "test")
        await task
        assert world.remote.ranges() == [(2, 3), (4, 5)]

    told(tmp_path, story, {"remote.log.manager.copy.max.bytes.per.second": "1000"})
