"""Stories about copies to remote storage, and about their expiration (KIP-405): real logs, a bucket that fails.

The numbers are those of the behaviours the specification of tiered storage lists.
"""

import asyncio
import contextlib
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import OsFileSystem
from broker.objectstore.errors import Refused
from broker.objectstore.failing_object_store import Fault
from broker.objectstore.objects import PartSizes
from broker.records.append_origin import AppendOrigin
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.replication.partition import Partition
from broker.tiering.errors import RemoteStorageError
from broker.tiering.local_tiered_storage import LocalTieredStorage
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_storage_manager import LogSegmentData
from broker.tiering.segment_lineage import SegmentLineage
from tests.support.builders import batch, broker_config, parsed
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.tiering.segment_world import DELETED, DELETING, FINISHED, STARTED, epoch_entries, segment, update
from tests.unit.tiering.storage_world import context, settings
from tests.unit.tiering.task_world import OTHER, SETTINGS, T0, Remote, TaskWorld, check_remote, told

PAIR = (1, OTHER)
HOUR_MS = 3_600_000


async def rounds(count: int = 1) -> None:
    """As long as the delay between two runs of a task is."""
    await asyncio.sleep(1.1 * count)


def produced(world: TaskWorld, *, producer_id: int, sequence: int) -> None:
    """A batch of a transaction."""
    world.replicas.append(
        batch(
            "first",
            "second",
            timestamp=world.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
    )


def ended(world: TaskWorld, *, producer_id: int, commit: bool) -> None:
    """The transaction's marker."""
    marker = end_transaction_marker_batch(
        EndTransactionMarker(ControlRecordType.COMMIT if commit else ControlRecordType.ABORT, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=world.clock.now_ms(),
    )
    results = world.replicas.partition().append_records_to_leader(parsed(marker), AppendOrigin.COORDINATOR)
    assert all(result.error is None for result in results)


def fetched(partition: Partition, offset: int, log_end_offset: int) -> None:
    """The follower has everything below `offset`."""
    partition.update_follower_fetch_state(
        OTHER, fetch_offset=offset, log_start_offset=0, leader_log_end_offset=log_end_offset, replica_epoch=10 + OTHER
    )


# What is copied


def test_10_closed_segments_are_copied_and_the_active_one_never(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(3)
            await rounds(5)
            assert world.remote.ranges() == [(0, 1), (2, 3)]
            assert [each.start_offset for each in world.metadata.begun] == [0, 2]
            check_remote(world)

    told(tmp_path, story)


@pytest.mark.parametrize("commit", [True, False])
def test_11_what_a_transaction_may_still_take_back_is_not_copied(tmp_path: Path, commit: bool) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(1)
            produced(world, producer_id=7, sequence=0)
            world.append(2)
            assert world.log.last_stable_offset == 2
            await rounds(3)
            assert world.remote.ranges() == [(0, 1)]
            ended(world, producer_id=7, commit=commit)
            world.append(1)
            await rounds(2)
            assert world.remote.ranges()[:3] == [(0, 1), (2, 3), (4, 5)]
            assert any("txnindex" in key for key in world.remote.bucket.objects) is not commit
            check_remote(world)

    told(tmp_path, story)


def test_12_what_is_not_replicated_is_not_copied(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            partition = world.topic(replicas=PAIR, isr=PAIR)
            world.append(4)
            await rounds(3)
            assert world.metadata.begun == []
            fetched(partition, 3, 8)
            assert world.log.high_watermark == 3
            await rounds(2)
            assert world.remote.ranges() == [(0, 1)]
            fetched(partition, 8, 8)
            await rounds(2)
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]

    told(tmp_path, story)


def test_13_a_copy_is_told_before_its_first_byte_and_after_its_last(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic(local_retention_ms=1)
        world.append(2)
        copying = asyncio.ensure_future(world.copy())
        world.steps.told["tell FINISHED"] = copying.cancel  # the process ends
        with contextlib.suppress(asyncio.CancelledError):
            await copying
        passed = [each for each in world.steps.passed if each.startswith(("tell", "told", "put"))]
        assert passed[:2] == ["tell STARTED", "told STARTED"]
        assert passed[-2:] == ["put log", "tell FINISHED"]
        assert world.remote.ranges(STARTED) == [(0, 1)]
        world.clock.jump(HOUR_MS)
        world.expire_locally()
        assert world.log.local_log_start_offset == 0
        await world.copy()
        world.expire_locally()
        assert world.log.local_log_start_offset == 2
        assert world.log.log_start_offset == 0

    told(tmp_path, story)


def test_14_a_put_that_fails_leaves_nothing_and_is_done_again_under_another_id(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(2)
            world.steps.fail("put log", Refused("no"))
            await asyncio.sleep(0.5)
            assert world.remote.bucket.objects == {}
            assert world.metadata.states == [STARTED, DELETING, DELETED]
            assert world.counts.copy_errors == 1
            assert world.log.highest_remote_offset == -1
            await rounds()
            first, second = world.metadata.begun
            assert first.segment_id != second.segment_id
            assert world.remote.ranges() == [(0, 1)]
            assert (world.counts.copy_requests, world.counts.copy_errors) == (2, 1)

    told(tmp_path, story)


def test_15_too_much_custom_metadata_stops_the_copies(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.remote.storage.custom_metadata = b"m" * 129
        async with world.running():
            world.topic()
            world.append(4)
            await rounds(5)
            assert world.remote.bucket.objects == {}
            assert world.metadata.states == [STARTED, DELETING, DELETED]
            assert world.counts.copy_errors == 1

    told(tmp_path, story)


def test_16_the_quota_delays_the_second_segment_and_a_higher_one_lets_it_go(tmp_path: Path) -> None:
    slow = {"remote.log.manager.copy.max.bytes.per.second": "1"}

    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(3)
            await asyncio.sleep(10)
            assert world.remote.ranges() == [(0, 1)]
            assert [each.start_offset for each in world.metadata.begun] == [0]
            world.replicas.config.update(broker_config({**SETTINGS, "log.dirs": str(tmp_path)}))
            await asyncio.sleep(1.1)
            assert world.remote.ranges() == [(0, 1), (2, 3)]
            assert world.stats.copy_throttle_ms.count == 1
            assert 10_000 <= world.stats.copy_throttle_ms.maximum <= 11_000

    told(tmp_path, story, slow)


def test_9_nothing_is_copied_before_everything_is_known(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.metadata.on_partition_leadership_changes = lambda leaders, followers: None  # type: ignore[method-assign]
        async with world.running():
            world.topic()
            world.append(3)
            await rounds(3)
            assert world.metadata.begun == []
            assert world.remote.bucket.objects == {}
            assert world.counts.copy_errors == 0
            world.metadata.store.assign([T0])
            world.metadata.store.mark_initialized(T0)
            await rounds()
            assert world.remote.ranges() == [(0, 1), (2, 3)]

    told(tmp_path, story)


# Local retention


def test_18_local_retention_never_deletes_what_was_not_copied(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.remote.bucket.failing.plan.down = Fault.BLACK_HOLE
            world.topic(local_retention_ms=60_000, retention_ms=24 * HOUR_MS, local_retention_bytes=1)
            for _ in range(10):
                world.append(2)
                await asyncio.sleep(60)
                world.expire_locally()
                check_remote(world)
            assert world.log.local_log_start_offset == 0
            assert world.counts.copy_errors > 5
            assert world.gauges.copy_lag_segments >= 19
            world.remote.bucket.failing.plan.down = None
            await asyncio.sleep(600)
            world.expire_locally()
            check_remote(world)
            assert world.log.log_start_offset == 0
            assert world.log.local_log_start_offset >= 38

    told(tmp_path, story, {"remote.log.manager.task.interval.ms": "30000"})


def test_19_an_idle_topic_leaves_the_disk_wholly(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(local_retention_ms=60_000)
            world.append(3)
            await rounds()
            world.clock.jump(61_000)
            for _ in range(3):
                world.expire_locally()
                await rounds()
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
            assert (world.log.local_log_start_offset, world.log.size_bytes) == (6, 0)
            assert world.log.log_start_offset == 0
            check_remote(world)

    told(tmp_path, story)


# Remote retention


def test_20_what_is_old_is_deleted_after_the_log_start_has_moved(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(retention_ms=60_000, local_retention_ms=1000)
            world.append(3)
            await rounds()
            starts: list[int] = []
            for step in ("tell DELETING", "delete"):
                world.steps.told[step] = lambda: starts.append(world.log.log_start_offset)
            world.clock.jump(57_000)
            await rounds()
            assert starts == []
            world.clock.jump(3000)
            await rounds(2)
            assert starts == [4, 4]
            assert world.remote.bucket.objects == {}
            assert world.log.log_start_offset == 4

    told(tmp_path, story)


def test_21_size_retention_takes_whole_segments_and_never_more_than_the_limit(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(5)
        size = world.log.segments.first.size_bytes
        world.steps.fail("tell FINISHED", RemoteStorageError("no"))
        with pytest.raises(RemoteStorageError):
            await world.copy()  # a copy that was never finished counts for nothing
        await world.copy()
        for limit, start in ((5 * size, 0), (5 * size - 1, 0), (4 * size + 1, 0), (4 * size, 2), (2 * size + 1, 4)):
            world.configure(retention_bytes=limit)
            await world.expire()
            assert world.log.log_start_offset == start, limit
        assert world.remote.ranges() == [(4, 5), (6, 7)]
        check_remote(world)

    told(tmp_path, story)


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_22_what_is_in_both_tiers_counts_once(tmp_path: Path, is_on_disk: bool) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        world.append(5)
        await world.copy()
        size = world.log.segments.first.size_bytes
        if not is_on_disk:
            world.configure(local_retention_ms=HOUR_MS // 2)
            world.clock.jump(HOUR_MS)
            world.append(1)
            world.expire_locally()
            assert world.log.local_log_start_offset == 8
        total = 5 * size if is_on_disk else 6 * size
        world.configure(retention_bytes=total)
        await world.expire()
        assert world.log.log_start_offset == 0
        world.configure(retention_bytes=total - size)
        await world.expire()
        assert world.log.log_start_offset == 2

    told(tmp_path, story)


def test_23_what_delete_records_cuts_off_goes_when_all_of_a_segment_is_cut_off(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(3)
            await rounds()
            world.log.maybe_increment_log_start_offset(3, "DeleteRecords")
            await rounds(2)
            assert world.remote.ranges() == [(2, 3)]
            assert world.log.log_start_offset == 3
            check_remote(world)

    told(tmp_path, story)


# Leaders that change


class Two:
    """Brokers 1 and 2 with a replica each, and one bucket."""

    def __init__(self, directory: Path, loop: SimLoop) -> None:
        self.remote = Remote()
        self.first = TaskWorld(directory, loop, remote=self.remote)
        self.second = TaskWorld(directory, loop, broker_id=OTHER, remote=self.remote)

    def topic(self, **configs: object) -> None:
        """Led by broker 1; settings that end in `_of_second` are broker 2's alone."""
        shared = {key: value for key, value in configs.items() if not key.endswith("_of_second")}
        own = {key.removesuffix("_of_second"): value for key, value in configs.items() if key.endswith("_of_second")}
        self.first.topic(replicas=PAIR, isr=(1,), leader=1, **shared)
        self.second.topic(replicas=PAIR, isr=(1,), leader=1, **{**shared, **own})

    def elect(self, leader: int, leader_epoch: int) -> None:
        for world in (self.first, self.second):
            world.replicas.place(leader=leader, leader_epoch=leader_epoch, isr=(leader,))

    def replicate(self) -> None:
        self.second.replicate(self.first)


def told_of_two(directory: Path, story: Callable[[Two], Awaitable[None]]) -> None:
    async def run(loop: SimLoop) -> None:
        two = Two(directory, loop)
        async with two.remote.storage.running():
            await story(two)

    simulate(run)


def test_42_a_new_leader_goes_on_where_the_old_one_was(tmp_path: Path) -> None:
    async def story(two: Two) -> None:
        two.topic()
        two.first.append(4)
        two.replicate()
        await two.first.copy()
        two.elect(OTHER, 1)
        two.second.append(3)
        await two.second.copy()
        assert two.remote.ranges() == [(start, start + 1) for start in range(0, 12, 2)]
        assert len(two.remote.metadata.begun) == 6
        assert two.second.log.highest_remote_offset == 11
        check_remote(two.second)

    told_of_two(tmp_path, story)


def test_42_segments_that_are_cut_otherwise_leave_no_gap(tmp_path: Path) -> None:
    async def story(two: Two) -> None:
        two.topic(internal_segment_bytes_of_second=250)  # two batches
        two.first.append(4)
        two.replicate()
        await two.first.copy()
        assert two.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
        two.elect(OTHER, 1)
        two.second.append(3)
        assert two.second.log.segments.base_offsets == [0, 4, 8, 12]
        await two.second.copy()
        assert two.remote.ranges() == [(0, 1), (2, 3), (4, 5), (4, 7), (8, 11)]
        check_remote(two.second)
        assert two.second.log.highest_remote_offset == 11

    told_of_two(tmp_path, story)


def test_42_what_the_old_leader_left_unfinished_is_copied_by_the_new_one(tmp_path: Path) -> None:
    async def story(two: Two) -> None:
        two.topic(retention_ms=HOUR_MS)
        two.first.append(3)
        two.replicate()
        copying = asyncio.ensure_future(two.first.copy())
        two.remote.steps.told["told STARTED"] = copying.cancel
        with contextlib.suppress(asyncio.CancelledError):
            await copying
        two.elect(OTHER, 1)
        two.second.append(1)
        await two.second.copy()
        assert two.remote.ranges(STARTED) == [(0, 1)]
        assert two.remote.ranges() == [(0, 1), (2, 3), (4, 5)]
        for world in (two.first, two.second):
            world.clock.jump(2 * HOUR_MS)
        await two.second.expire()
        assert two.remote.segments() == []
        assert two.remote.bucket.objects == {}

    told_of_two(tmp_path, story)


@pytest.mark.parametrize(
    ("segment_bytes", "late", "copied"),
    [
        (150, 0, [(0, 1), (0, 1), (2, 3), (4, 5)]),  # cut alike
        (300, 0, [(0, 1), (0, 5)]),  # the late one begins with the longer one
        (300, 2, [(0, 1), (0, 5), (2, 3)]),  # in the middle of it
        (300, 4, [(0, 1), (0, 5), (2, 3), (4, 5)]),  # or ends with it
    ],
)
def test_45_an_old_leader_that_finishes_late_is_harmless(
    tmp_path: Path, segment_bytes: int, late: int, copied: list[tuple[int, int]]
) -> None:
    """It is paused in a copy; its successor copies the same records, cut as it has them, and they leave its disk.  The
    copy that is finished then hides nothing, and goes with its records."""

    async def story(two: Two) -> None:
        two.topic(retention_ms=2 * HOUR_MS, local_retention_ms=1, internal_segment_bytes_of_second=segment_bytes)
        two.first.append(4)
        two.replicate()
        began, may_go = asyncio.Event(), asyncio.Event()
        copy = two.remote.storage.copy_log_segment_data

        async def copy_late(told_of: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
            custom = await copy(told_of, data)
            if told_of.start_offset == late and told_of.broker_id == two.first.broker_id:
                began.set()
                await may_go.wait()
            return custom

        two.remote.storage.copy_log_segment_data = copy_late  # type: ignore[method-assign]
        copying = asyncio.ensure_future(two.first.copy())
        await began.wait()
        two.second.replicas.place(leader=OTHER, leader_epoch=1, isr=(OTHER,))  # the first has not heard of it
        two.second.append(2)
        two.second.clock.jump(HOUR_MS)
        await two.second.copy()
        two.second.expire_locally()
        may_go.set()
        await copying
        assert [each for each in two.remote.ranges() if each[1] < 6] == copied
        assert two.second.log.local_log_start_offset >= 6
        check_remote(two.second)
        lookup = two.remote.metadata.store.remote_log_segment_metadata
        assert all(lookup(T0, 0, offset) is not None for offset in range(6))
        two.second.clock.jump(2 * HOUR_MS)
        await two.second.expire()
        assert two.remote.bucket.objects == {}

    told_of_two(tmp_path, story)


LINEAGE: Final = {0: 0, 1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 7: 70}


@pytest.mark.parametrize(
    ("epochs", "end", "is_within"),
    [
        ({1: 15, 2: 20, 3: 30}, 35, True),
        ({1: 15}, 19, True),
        ({0: 0}, 5, True),
        ({7: 70}, 75, True),
        ({1: 15, 2: 20}, 29, True),
        ({5: 55, 6: 60, 7: 70}, 85, False),
        ({1: 15, 2: 20, 4: 40}, 45, False),
        ({7: 70}, 95, False),
        ({7: 70}, 90, False),
        ({1: 5, 2: 20}, 25, False),
        ({1: 15, 2: 20}, 35, False),
    ],
)
def test_43_what_is_not_of_this_log_neither_counts_nor_expires(
    tmp_path: Path, epochs: dict[int, int], end: int, is_within: bool
) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic(leader_epoch=0, retention_ms=HOUR_MS)
        for epoch in range(8):
            if epoch in LINEAGE:
                world.replicas.place(leader_epoch=epoch)
                world.append(5 if epoch not in (5, 7) else 10)
        assert (world.log.leader_epochs.entries, world.log.log_end_offset) == (epoch_entries(LINEAGE), 90)
        one = segment(1, min(epochs.values()), end, epochs, partition=T0, max_timestamp_ms=0)
        assert (one in SegmentLineage(world.log.leader_epochs.entries, 90)) is is_within
        world.tiered()
        await world.metadata.add_remote_log_segment_metadata(one)
        await world.metadata.update_remote_log_segment_metadata(update(1, FINISHED, partition=T0))
        await world.expire()
        assert (world.remote.segments() == []) is is_within
        assert world.log.log_start_offset == (end + 1 if is_within else 0)

    told(tmp_path, story)


def test_44_after_an_unclean_election_what_is_of_no_log_is_neither_read_nor_kept(tmp_path: Path) -> None:
    async def story(two: Two) -> None:
        two.topic()
        two.first.append(3)
        two.replicate()
        two.first.append(3)  # which the other one never gets
        await two.first.copy()
        assert two.remote.ranges() == [(start, start + 1) for start in range(0, 10, 2)]
        two.elect(OTHER, 1)
        two.second.append(3)
        await two.second.copy()
        lookup = two.remote.metadata.store.remote_log_segment_metadata
        ours = lookup(T0, 1, 6)
        assert ours is not None and ours.broker_id == OTHER
        assert two.second.log.leader_epochs.entries == epoch_entries({0: 0, 1: 6})
        assert [each for each in two.remote.segments() if each.start_offset in (6, 8) and each is not ours]
        check_remote(two.second)
        await two.second.expire()
        assert (6, 7) in [(each.start_offset, each.end_offset) for each in two.remote.segments() if each.broker_id == 1]
        two.second.log.maybe_increment_log_start_offset(6, "test")
        await two.second.expire()
        assert {each.broker_id for each in two.remote.segments()} == {OTHER}
        check_remote(two.second)

    told_of_two(tmp_path, story)


def test_45_a_longer_copy_takes_over_from_a_shorter_one(tmp_path: Path) -> None:
    async def story(two: Two) -> None:
        two.topic(internal_segment_bytes_of_second=250)
        two.first.append(4)
        two.replicate()
        await two.first.copy()
        two.elect(OTHER, 1)
        two.second.log.highest_remote_offset = -1
        two.second.append(2)
        await two.second.copy()
        lookup = two.remote.metadata.store.remote_log_segment_metadata
        found = [lookup(T0, 0, offset) for offset in (3, 4, 5, 6)]
        assert [each and (each.start_offset, each.end_offset) for each in found] == [(2, 3), (4, 7), (4, 7), (4, 7)]
        assert (4, 5) in two.remote.ranges()  # listed, until its records go

    told_of_two(tmp_path, story)


# Settings that change


def test_47_copies_can_be_disabled_and_enabled_again(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(retention_ms=HOUR_MS)
            world.append(3)
            await rounds()
            world.configure(remote_log_copy_disable="true")
            world.append(3)
            await rounds(3)
            assert world.remote.ranges() == [(0, 1), (2, 3)]
            world.log.maybe_increment_log_start_offset(2, "DeleteRecords")
            await rounds(2)
            assert world.remote.ranges() == [(2, 3)]
            world.configure(remote_log_copy_disable="false")
            await rounds()
            assert world.remote.ranges() == [(2, 3), (4, 5), (6, 7), (8, 9)]
            check_remote(world)

    told(tmp_path, story)


def test_48_a_topic_that_is_tiered_no_more_starts_on_its_disk_and_leaves_nothing(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(local_retention_ms=60_000)
            world.append(2)
            await rounds()
            world.clock.jump(61_000)
            world.append(2)
            world.expire_locally()
            local_start = world.log.local_log_start_offset
            assert local_start == 2
            world.configure(remote_storage_enable="false", remote_log_delete_on_disable="true")
            await rounds(3)
            assert world.remote.bucket.objects == {}
            assert world.log.log_start_offset == local_start
            assert world.log.size_bytes > 0

    told(tmp_path, story)


def test_48_what_is_enabled_again_is_not_taken_for_copied(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic()
            world.append(4)
            await rounds()
            world.configure(remote_storage_enable="false", remote_log_delete_on_disable="true")
            await rounds(3)
            assert world.remote.bucket.objects == {}
            # Another process would read of all that was copied once, and of its deletion.
            for told_of in world.metadata.begun:
                world.metadata.store.assign([T0])
                world.metadata.store.apply(told_of)
                for state in (FINISHED, DELETING, DELETED):
                    gone = update(1, state, partition=T0)
                    world.metadata.store.apply(type(gone)(T0, told_of.segment_id, 1, 0, gone.state))
            world.remote.bucket.failing.plan.down = Fault.SLOW_DOWN
            world.configure(remote_storage_enable="true", local_retention_ms=1)
            world.clock.jump(HOUR_MS)
            await rounds(3)
            world.expire_locally()
            assert world.log.local_log_start_offset == 0
            check_remote(world)
            world.remote.bucket.failing.plan.down = None
            await asyncio.sleep(30)
            assert world.remote.ranges()[:3] == [(0, 1), (2, 3), (4, 5)]
            check_remote(world)

    told(tmp_path, story)


def test_49_what_was_there_before_is_copied_as_well(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        async with world.running():
            world.topic(remote_storage_enable="false")
            world.append(5)
            await rounds()
            world.configure(remote_storage_enable="true")
            await rounds()
            assert world.remote.ranges() == [(0, 1), (2, 3), (4, 5), (6, 7)]
            check_remote(world)

    told(tmp_path, story)


# Memory


@contextlib.contextmanager
def traced() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


async def test_no_segment_is_ever_in_memory_as_a_whole(tmp_path: Path) -> None:
    world = TaskWorld(tmp_path / "brokers", asyncio.get_running_loop())  # type: ignore[arg-type]
    (tmp_path / "bucket").mkdir()
    made_of = settings(bucket=f"file://{tmp_path / 'bucket'}", part_sizes=PartSizes(256 << 10, parallel=2))
    storage = LocalTieredStorage(context(None, OsFileSystem(), disk=InlineDiskExecutor(), storage_settings=made_of))
    object.__setattr__(world.context, "storage", storage)
    world.topic(internal_segment_bytes=16 << 20)
    for _ in range(40):
        world.replicas.append(batch(b"v" * (900 << 10), timestamp=world.clock.now_ms()))
    closed = world.log.segments.first.size_bytes
    assert closed > 15 << 20
    async with storage.running():
        task = world.copy_task()
        with traced():
            await task.run()
            _, peak = tracemalloc.get_traced_memory()
    assert world.remote.ranges()[0][0] == 0
    assert len(world.remote.ranges()) == 2
    assert peak < closed // 4
    assert sum(path.stat().st_size for path in (tmp_path / "bucket").rglob("*.log")) > 30 << 20
