import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.common.errors import OffsetOutOfRangeError, ReplicaNotAvailableError
from broker.objectstore.errors import Refused
from broker.objectstore.failing_object_store import Fault
from broker.tiering.errors import RemoteStorageError

from .segment_world import DELETED, DELETING, FINISHED, STARTED
from .task_world import OTHER, T0, TaskWorld, check_remote, fetch_of_a_follower, told


async def copied(world: TaskWorld, segments: int, **configs: object) -> int:
    """A log with so many copied segments and an active one; the size of one."""
    world.topic(**configs)
    world.append(segments + 1)
    await world.copy()
    assert len(world.remote.segments()) == segments
    return world.log.segments.first.size_bytes


def test_what_is_old_goes_and_the_log_starts_after_it(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic(retention_ms=60_000)
        world.append(2)
        world.clock.jump(50_000)
        world.append(2)
        await world.copy()
        world.clock.jump(20_000)
        starts: list[int] = []
        world.steps.told["tell DELETING"] = lambda: starts.append(world.log.log_start_offset)
        world.steps.told["delete"] = lambda: starts.append(world.log.log_start_offset)
        await world.expire()
        assert starts == [4, 4]  # before the first deletion
        assert world.remote.ranges() == [(4, 5)]
        assert {int(key.rsplit("/")[-1][:20]) for key in world.remote.bucket.objects} == {4}
        assert world.metadata.states[-4:] == [DELETING, DELETED, DELETING, DELETED]
        assert (world.counts.delete_requests, world.counts.delete_errors) == (2, 0)
        check_remote(world)

    told(tmp_path, story)


def test_a_follower_that_waits_for_records_hears_of_the_log_start(tmp_path: Path) -> None:
    """Else it would keep what its leader has done with for as long as nobody writes."""

    async def story(world: TaskWorld) -> None:
        size = await copied(world, 4)
        answered = fetch_of_a_follower(world)
        await world.expire()
        assert (world.log.log_start_offset, answered) == (0, [])
        world.configure(retention_bytes=3 * size)
        answered.clear()
        await world.expire()
        assert world.log.log_start_offset == 4
        assert len(answered) == 1

    told(tmp_path, story)


def test_what_is_too_much_goes_and_nothing_counts_twice(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        size = await copied(world, 4)
        world.configure(retention_bytes=5 * size)  # all of it, the active segment included
        await world.expire()
        assert world.log.log_start_offset == 0
        world.configure(retention_bytes=3 * size)
        await world.expire()
        assert world.log.log_start_offset == 4
        assert world.remote.ranges() == [(4, 5), (6, 7)]

    told(tmp_path, story)


def test_what_is_in_both_tiers_is_known_before_the_first_copy_of_a_new_leader(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        size = await copied(world, 4)
        world.configure(retention_bytes=5 * size)
        world.log.highest_remote_offset = -1  # a restart
        await world.expire()
        assert world.log.log_start_offset == 0
        assert world.log.highest_remote_offset == 7

    told(tmp_path, story)


def test_what_was_deleted_from_the_front_goes(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        await copied(world, 3)
        world.log.maybe_increment_log_start_offset(3, "DeleteRecords")
        await world.expire()
        assert world.remote.ranges() == [(2, 3), (4, 5)]
        assert world.log.log_start_offset == 3

    told(tmp_path, story)


def test_a_log_start_above_the_high_watermark_is_refused_and_nothing_is_deleted(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        await copied(world, 3, retention_ms=1000)
        world.clock.jump(10_000)
        world.log.high_watermark = 2  # of a leader that does not know better yet
        with pytest.raises(OffsetOutOfRangeError):
            await world.expire()
        assert len(world.remote.ranges()) == 3
        world.log.update_high_watermark(8)
        await world.expire()
        assert world.remote.segments() == []

    told(tmp_path, story)


def test_what_cannot_be_deleted_stays_begun_and_the_others_go(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        size = await copied(world, 3, retention_ms=1000)
        world.clock.jump(10_000)
        world.steps.fail("delete", Refused("no"))
        with pytest.raises(RemoteStorageError):
            await world.expire()
        assert [segment.state for segment in world.remote.segments()] == [DELETING]
        assert (world.counts.delete_requests, world.counts.delete_errors) == (3, 1)
        assert (world.gauges.delete_lag_bytes, world.gauges.delete_lag_segments) == (size, 1)
        told_before = len(world.metadata.states)
        await world.expire()
        assert world.remote.segments() == []
        assert world.metadata.states[told_before:] == [DELETED]
        assert (world.gauges.delete_lag_bytes, world.gauges.delete_lag_segments) == (0, 0)
        assert world.remote.bucket.objects == {}

    told(tmp_path, story)


def test_a_bucket_that_is_down_is_not_asked_for_everything(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        await copied(world, 12, retention_ms=1000)
        world.clock.jump(10_000)
        world.remote.bucket.failing.plan.down = Fault.RESET
        for run in (1, 2, 3):
            with pytest.raises(RemoteStorageError):
                await world.expire()
            assert world.counts.delete_errors == 5 * run
        begun = [segment.start_offset for segment in world.remote.segments() if segment.state is DELETING]
        assert len(begun) == 12  # those not tried before go first
        assert world.gauges.delete_lag_segments == 12
        world.remote.bucket.failing.plan.down = None
        await asyncio.sleep(60)
        await world.expire()
        assert world.remote.segments() == []

    told(tmp_path, story)


def test_segments_that_cannot_be_deleted_are_in_nobodys_way(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        await copied(world, 20, retention_ms=1000)
        world.clock.jump(10_000)
        delete = world.remote.bucket.inner.delete_many

        async def delete_every_other(keys: Sequence[str]) -> None:
            if int(keys[0].rsplit("/")[-1][:20]) % 4:
                raise Refused("not this one")
            await delete(keys)

        world.remote.bucket.inner.delete_many = delete_every_other  # type: ignore[method-assign]
        with pytest.raises(RemoteStorageError, match="not this one"):
            await world.expire()
        assert [segment.start_offset for segment in world.remote.segments()] == list(range(2, 40, 4))

    told(tmp_path, story)


@pytest.mark.parametrize("step", ["tell DELETING", "told DELETING", "tell DELETED", "told DELETED"])
def test_what_cannot_be_told_ends_the_run(tmp_path: Path, step: str) -> None:
    async def story(world: TaskWorld) -> None:
        await copied(world, 3, retention_ms=1000)
        world.clock.jump(10_000)
        world.steps.fail(step, RemoteStorageError("nobody hears"))
        with pytest.raises(RemoteStorageError):
            await world.expire()
        assert world.counts.delete_errors == 1
        assert len(world.remote.segments()) >= 2
        await world.expire()
        assert world.remote.segments() == []
        assert world.remote.bucket.objects == {}

    told(tmp_path, story)


def test_what_is_being_copied_stays(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic(retention_ms=1000)
        world.append(3)
        tiered = world.tiered()
        world.clock.jump(10_000)
        runs: list[object] = []

        async def expire() -> None:
            await world.expiration_task(tiered).run()
            runs.append([segment.state for segment in world.remote.segments()])

        copying = world.copy_task(tiered)
        put = world.remote.bucket.inner.put

        async def put_and_expire(key: str, body: bytes) -> None:
            await put(key, body)
            if key.endswith(".log") and not runs:
                await expire()

        world.remote.bucket.inner.put = put_and_expire  # type: ignore[method-assign, assignment]
        await copying.run()
        assert runs == [[STARTED]]
        await expire()
        assert runs == [[STARTED], []]

    told(tmp_path, story)


def test_a_copy_that_was_never_finished_goes_with_its_records(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic(retention_ms=60_000)
        world.append(2)
        world.steps.fail("tell FINISHED", RemoteStorageError("no"))
        with pytest.raises(RemoteStorageError):
            await world.copy()
        await world.copy()
        assert [segment.state for segment in world.remote.segments()] == [STARTED, FINISHED]
        await world.expire()
        assert len(world.remote.segments()) == 2
        world.clock.jump(61_000)
        await world.expire()
        assert world.remote.segments() == []
        assert world.remote.bucket.objects == {}

    told(tmp_path, story)


def test_the_gauges_tell_what_there_is(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        size = await copied(world, 3)
        await world.expire()
        assert (world.gauges.metadata_count, world.gauges.size_bytes) == (3, 3 * size)
        world.log.maybe_increment_log_start_offset(6, "test")
        await world.expire()
        await world.expire()
        assert (world.gauges.metadata_count, world.gauges.size_bytes) == (0, 0)
        assert world.gauges.size_computation_ms >= 0

    told(tmp_path, story)


def test_who_does_not_lead_deletes_nothing(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        await copied(world, 3, replicas=(1, OTHER), isr=(1,), retention_ms=1000)
        world.clock.jump(10_000)
        task = world.expiration_task()
        world.steps.told["list"] = lambda: world.replicas.place(leader=OTHER, leader_epoch=1)
        await task.run()  # the lead is lost while it looks
        assert len(world.remote.ranges()) == 3
        passed = len(world.steps.passed)
        await task.run()
        assert len(world.steps.passed) == passed

    told(tmp_path, story)


def test_who_loses_the_lead_stops_after_what_is_under_way(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        await copied(world, 3, replicas=(1, OTHER), isr=(1,), retention_ms=1000)
        world.clock.jump(10_000)
        world.steps.told["delete"] = lambda: world.replicas.place(leader=OTHER, leader_epoch=1)
        await world.expire()
        assert len(world.remote.segments()) == 2

    told(tmp_path, story)


def test_while_not_everything_is_known_nothing_is_deleted(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        await copied(world, 2, retention_ms=1000)
        world.clock.jump(10_000)
        task = world.expiration_task()
        world.metadata.on_stop_partitions([T0])
        with pytest.raises(ReplicaNotAvailableError):
            await task.run()
        assert world.log.log_start_offset == 0

    told(tmp_path, story)
