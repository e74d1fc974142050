from collections.abc import Iterable

import pytest

from broker.common.identifiers import TopicIdPartition
from broker.server.topic_spec import WAL_METADATA_MESSAGE_BYTES
from broker.wal.objects.combined_segment import EVENT_SIZE_MAX
from broker.wal.objects.wal_slice import SliceReadError, WalSlice, build_slice
from broker.wal.upload.partition_uploads import LeaderTerm, PartitionUploads
from broker.wal.upload.queued_partition import AGES_MAX
from broker.wal.upload.upload_queue import ANNOUNCE_WITHIN_MS, CombinedObject, ObjectState, UploadLimits, UploadQueue
from tests.unit.wal.wal_world import BAR, FOO, batch, make_object, new_id

KIB = 1024


class Log:
    """Batches in segments; read like a UnifiedLog."""

    def __init__(self) -> None:
        self.segments: list[list[bytes]] = [[]]
        self.start_offset = 0
        self.end_offset = 0
        self.size = 0
        self.term: LeaderTerm | None = LeaderTerm(1, 0)

    def read(self, offset: int) -> bytes:
        position = 0
        for segment in self.segments:
            for index, each in enumerate(segment):
                position = int.from_bytes(each[:8], "big")
                if position + int.from_bytes(each[23:27], "big") >= offset:
                    return b"".join(segment[index:])
        raise SliceReadError(f"nothing at {offset}")


class Leader:
    """A queue, the logs it reads, and a clock."""

    def __init__(self, **limits: int) -> None:
        self.now_ms = 1000
        self.logs: dict[TopicIdPartition, Log] = {}
        self.queue = UploadQueue(UploadLimits(**limits), lambda partition: self.logs[partition].term)

    def add(self, partition: TopicIdPartition = FOO, high_watermark: int = 0) -> Log:
        log = self.logs.setdefault(partition, Log())
        self.queue.activate(
            partition,
            log_start_offset=log.start_offset,
            high_watermark=high_watermark,
            log_end_offset=log.end_offset,
            pending_bytes=0,
            now_ms=self.now_ms,
        )
        return log

    def append(self, partition: TopicIdPartition = FOO, count: int = 1, size: int = 100) -> None:
        log = self.logs[partition]
        assert log.term is not None
        value = bytes(max(0, size - 80))
        data = batch(log.end_offset, count, epoch=log.term.leader_epoch, value=value)
        log.segments[-1].append(data)
        log.end_offset += count
        log.size += len(data)
        self.queue.appended(partition, log.end_offset, len(data), self.now_ms)

    def make(self) -> CombinedObject | None:
        """Put an object together if it is due, and begin its upload."""
        making = self.queue.begin_object(self.now_ms)
        if making is None:
            return None
        while (read := self.queue.next_read(making)) is not None:
            try:
                built = build_slice(
                    read.partition,
                    new_id(),
                    read.reservation.token,
                    self.logs[read.partition].read(read.start_offset),
                    start_offset=read.start_offset,
                    upper_offset=read.upper_offset,
                    size_max=read.size_max,
                    room=read.room,
                )
            except SliceReadError as error:
                self.queue.read_failed(making, read, error)
            else:
                self.queue.filled(making, read, built)
        return making if self.queue.seal(making) else None

    def made(self) -> CombinedObject:
        self.now_ms += 100
        result = self.make()
        assert result is not None
        return result

    def store(self, each: CombinedObject) -> list[CombinedObject]:
        self.queue.stored(each, self.now_ms)
        return self.queue.announceable()

    def uploads(self, partition: TopicIdPartition = FOO) -> PartitionUploads:
        uploads = self.queue.uploads_of(partition)
        assert uploads is not None
        return uploads


def offsets(slices: Iterable[WalSlice], partition: TopicIdPartition = FOO) -> list[tuple[int, int]]:
    return [(each.start_offset, each.end_offset) for each in slices if each.partition == partition]


def partitions(count: int) -> list[TopicIdPartition]:
    return [FOO._replace(partition=index) for index in range(count)]


def test_an_idle_leader_asks_for_nothing() -> None:
    leader = Leader()
    leader.add()
    assert leader.queue.wait_ms(leader.now_ms) is None
    assert leader.queue.begin_object(leader.now_ms) is None


def test_15_a_lone_record_leaves_within_linger_and_tick() -> None:
    leader = Leader()
    leader.add()
    leader.append()
    assert leader.queue.wait_ms(leader.now_ms) == 20
    leader.now_ms += 19
    assert leader.queue.begin_object(leader.now_ms) is None
    leader.now_ms += 1
    made = leader.make()
    assert made is not None and offsets(made.slices) == [(0, 0)]
    assert leader.queue.wait_ms(leader.now_ms) is None


def test_enough_bytes_leave_with_the_next_tick_and_many_at_once() -> None:
    leader = Leader(min_bytes=1000, max_bytes=20_000)
    leader.add()
    leader.append(size=1200)
    assert leader.make() is not None
    leader.append(size=1200)
    assert leader.queue.wait_ms(leader.now_ms) == 10
    leader.now_ms += 4
    assert leader.queue.wait_ms(leader.now_ms) == 6
    leader.append(size=500)
    assert leader.queue.wait_ms(leader.now_ms) == 6
    leader.append(size=20_000)
    assert leader.queue.wait_ms(leader.now_ms) == 0  # the size triggers, not the tick


def test_too_few_bytes_wait_for_the_longer_of_linger_and_tick() -> None:
    leader = Leader(interval_ms=50, linger_ms=20)
    leader.add()
    leader.append()
    leader.now_ms += 20
    assert leader.make() is not None
    leader.append()
    assert leader.queue.wait_ms(leader.now_ms) == 50


def test_13_whole_batches_of_at_least_three_partitions_in_one_object() -> None:
    leader = Leader()
    three = partitions(3)
    for partition in three:
        leader.add(partition)
        leader.append(partition, 2)
        leader.append(partition, 3)
    made = leader.made()
    assert [offsets(made.slices, partition) for partition in three] == [[(0, 4)]] * 3
    combined = make_object(made.slices)
    assert len(combined.metadata.slices) == 3
    assert combined.size <= made.size


def test_14_objects_stay_below_their_limit() -> None:
    leader = Leader(max_bytes=64 * KIB, partition_max_bytes=16 * KIB)
    many = partitions(5)
    for partition in many:
        leader.add(partition)
        for _ in range(20):
            leader.append(partition, size=5000)
    sizes = []
    while (made := leader.make()) is not None:
        combined = make_object(made.slices)
        sizes.append(combined.size)
        assert combined.size <= 64 * KIB
        assert all(each.size <= 16 * KIB for each in made.slices)
        for ready in leader.store(made):
            leader.queue.acknowledged(ready)
        leader.now_ms += 100
    assert len(sizes) <= 10 and min(sizes[:-1]) > 48 * KIB
    assert all(leader.uploads(partition).wal_next == 20 for partition in many)


def test_14_a_batch_larger_than_an_object_travels_alone() -> None:
    leader = Leader()
    leader.add(FOO)
    leader.add(BAR)
    leader.append(BAR)
    leader.append(FOO, size=1024 * KIB)
    leader.append(BAR)
    first, second = leader.made(), leader.made()
    assert offsets(first.slices, BAR) == [(0, 1)] and offsets(first.slices) == []
    assert offsets(second.slices) == [(0, 0)] and offsets(second.slices, BAR) == []
    assert len(second.slices) == 1


def test_an_event_stays_within_what_the_metadata_topic_takes_however_large_objects_may_be() -> None:
    leader = Leader(max_bytes=16 * KIB * KIB)
    many = [FOO._replace(topic="f" * 249, partition=index) for index in range(2000)]
    for partition in many:
        leader.add(partition)
        leader.append(partition)
    first, second = leader.made(), leader.made()
    assert len(first.slices) > 1300 and len(first.slices) + len(second.slices) == 2000
    event = make_object(first.slices).event
    assert len(event) <= EVENT_SIZE_MAX
    assert 4 * EVENT_SIZE_MAX <= WAL_METADATA_MESSAGE_BYTES


def test_a_batch_larger_than_the_partition_cap_comes_alone_in_its_slice() -> None:
    leader = Leader(partition_max_bytes=1000)
    leader.add()
    for size in (300, 5000, 300):
        leader.append(size=size)
    assert offsets(leader.made().slices) == [(0, 0), (1, 1), (2, 2)]


def test_16_nobody_starves_among_two_hundred_partitions() -> None:
    leader = Leader(max_bytes=32 * KIB, partition_max_bytes=4 * KIB)
    many = partitions(200)
    for partition in many:
        leader.add(partition)
    busy = many[:3]
    for partition in many:
        leader.append(partition, size=1000)
    waited: dict[TopicIdPartition, int] = {}
    for turn in range(12):
        for partition in busy:
            for _ in range(8):
                leader.append(partition, size=1000)
        made = leader.made()
        for each in made.slices:
            waited.setdefault(each.partition, turn)
        for ready in leader.store(made):
            leader.queue.acknowledged(ready)
    assert len(waited) == 200
    assert max(waited.values()) <= 10  # 200 slices of 1 KiB, some 28 in an object, busy ones cut at 4 KiB
    assert [waited[partition] for partition in many] == sorted(waited[partition] for partition in many)


def test_17_a_segment_that_rolled_gives_two_slices() -> None:
    leader = Leader()
    log = leader.add()
    leader.append(count=2)
    log.segments.append([])
    leader.append(count=3)
    assert offsets(leader.made().slices) == [(0, 1), (2, 4)]


def test_18_four_uploads_that_finish_in_any_order_are_announced_in_order() -> None:
    leader = Leader()
    leader.add()
    objects = []
    for _ in range(4):
        leader.append()
        objects.append(leader.made())
    leader.append()
    assert leader.queue.wait_ms(leader.now_ms + 1000) is None  # four are on their way
    first, second, third, fourth = objects
    assert leader.store(fourth) == [] and leader.store(second) == []
    assert leader.store(first) == [first, second]  # the topic keeps their order
    assert leader.store(third) == [third, fourth]
    leader.queue.acknowledged(second)  # nothing counts before what it follows
    leader.queue.acknowledged(fourth)
    assert leader.uploads().wal_next == 0
    leader.queue.acknowledged(first)
    assert leader.uploads().wal_next == 2
    leader.queue.acknowledged(third)
    assert (leader.uploads().wal_start, leader.uploads().wal_next, leader.uploads().wal_reserved) == (0, 4, 4)


def test_what_was_acknowledged_behind_a_range_that_is_given_up_is_read_again() -> None:
    leader = Leader()
    leader.add()
    leader.append()
    first = leader.made()
    leader.append()
    second = leader.made()
    leader.store(first), leader.store(second)
    leader.queue.acknowledged(second)
    leader.queue.failed(first, leader.now_ms)
    assert (leader.uploads().wal_next, leader.uploads().wal_reserved) == (0, 0)
    assert leader.uploads().has_pending is False


def test_objects_without_common_partitions_do_not_wait_for_each_other() -> None:
    leader = Leader()
    leader.add(FOO)
    leader.add(BAR)
    leader.append(FOO)
    first = leader.made()
    leader.append(BAR)
    second = leader.made()
    assert leader.store(second) == [second]
    leader.queue.acknowledged(second)
    assert leader.store(first) == [first]


def test_20_a_failed_upload_takes_the_later_slices_with_it() -> None:
    leader = Leader()
    leader.add(FOO)
    leader.add(BAR)
    leader.append(FOO)
    first = leader.made()
    leader.append(FOO)
    leader.append(BAR)
    second = leader.made()
    leader.queue.failed(first, leader.now_ms)
    assert (leader.uploads().wal_next, leader.uploads().wal_reserved) == (0, 0)
    assert leader.store(second) == [second]
    announced = {second.reservations[slice_id].partition for slice_id in second.current_slice_ids}
    assert announced == {BAR}
    leader.queue.acknowledged(second)
    assert (leader.uploads().wal_next, leader.uploads(BAR).wal_next) == (0, 1)
    again = leader.made()
    assert offsets(again.slices) == [(0, 1)]  # sliced anew, larger
    leader.store(again)
    leader.queue.acknowledged(again)
    assert leader.uploads().wal_next == 2


def test_released_bytes_are_due_at_once() -> None:
    leader = Leader()
    leader.add()
    leader.append()
    leader.now_ms += 20
    made = leader.make()
    assert made is not None
    leader.queue.failed(made, leader.now_ms)
    assert leader.queue.pending_bytes > 0
    assert leader.queue.oldest_wait_ms(leader.now_ms) == 20
    assert leader.queue.wait_ms(leader.now_ms) == 10  # the tick


def test_19_a_retry_is_not_the_queues_business() -> None:
    """Until the upload has succeeded or failed for good, its range is given to nobody else."""
    leader = Leader()
    leader.add()
    leader.append()
    made = leader.made()
    assert leader.queue.wait_ms(leader.now_ms + 1000) is None
    leader.append()
    assert offsets(leader.made().slices) == [(1, 1)]
    assert offsets(made.slices) == [(0, 0)]


def test_21_after_the_leadership_nothing_is_announced() -> None:
    leader = Leader()
    log = leader.add()
    leader.append()
    made = leader.made()
    log.term = None
    assert leader.store(made) == []
    assert made.state is ObjectState.DONE  # an orphan
    assert leader.queue.uploads_of(FOO) is None
    assert leader.queue.wait_ms(leader.now_ms + 1000) is None


def test_21_announcing_is_repeated_until_it_is_given_up() -> None:
    leader = Leader()
    leader.add()
    leader.append()
    made = leader.made()
    assert leader.store(made) == [made]
    assert leader.queue.announceable() == []
    leader.now_ms += ANNOUNCE_WITHIN_MS - 1
    assert leader.queue.abandon_overdue(leader.now_ms) == []


def test_h3_bytes_of_another_term_are_not_announced() -> None:
    """Led in epoch 0, bytes read; truncated as a follower; led again in epoch 2 at the same offsets."""
    leader = Leader()
    log = leader.add()
    log.term = LeaderTerm(0, 0)
    leader.add()
    leader.append()
    made = leader.made()
    log.segments, log.end_offset = [[]], 0
    log.term = LeaderTerm(2, 1)
    leader.add()
    leader.append()  # the log end is as before
    assert leader.store(made) == []
    assert made.state is ObjectState.DONE
    again = leader.made()
    assert [each.token.leader_epoch for each in again.slices] == [2]
    assert leader.store(again) == [again]


@pytest.mark.parametrize("term", [LeaderTerm(2, 0), LeaderTerm(1, 1)])
def test_h3_both_epoch_and_truncations_count(term: LeaderTerm) -> None:
    leader = Leader()
    log = leader.add()
    leader.append()
    made = leader.made()
    log.term = term  # the queue has not been told yet
    assert leader.store(made) == []
    assert leader.queue.uploads_of(FOO) is None


def test_h3_a_range_that_was_reserved_before_the_change_is_not_filled_after_it() -> None:
    leader = Leader()
    log = leader.add()
    leader.append()
    leader.now_ms += 20
    making = leader.queue.begin_object(leader.now_ms)
    assert making is not None
    read = leader.queue.next_read(making)
    assert read is not None and read.reservation.token == (1, 0, 1)
    data = log.read(0)
    log.term = LeaderTerm(3, 1)
    leader.add()
    built = build_slice(
        FOO, new_id(), read.reservation.token, data, start_offset=0, upper_offset=1, size_max=1000, room=None
    )
    leader.queue.filled(making, read, built)
    assert not leader.queue.seal(making)
    assert making.slices == []


def test_a_partition_that_is_no_longer_led_is_not_read() -> None:
    leader = Leader()
    log = leader.add(FOO)
    leader.add(BAR)
    leader.append(FOO)
    leader.append(BAR)
    log.term = None
    assert [each.partition for each in leader.made().slices] == [BAR]


def test_h12_uploads_begin_at_the_high_watermark() -> None:
    """A new leader's log ends at 6, its high watermark is 2: followers may lack 2 to 5."""
    leader = Leader()
    log = leader.add()
    for _ in range(3):
        leader.append(count=2)
    log.term = LeaderTerm(2, 0)
    leader.add(high_watermark=3)  # within a batch
    uploads = leader.uploads()
    assert (uploads.wal_start, uploads.wal_next) == (3, 3)
    made = leader.made()
    assert offsets(made.slices) == [(2, 5)]
    assert [each.leader_epochs for each in made.slices] == [((1, 2),)]
    assert [each.token.leader_epoch for each in made.slices] == [2]  # live slices of the new leader's epoch
    assert (uploads.wal_start, uploads.wal_next) == (2, 2)
    leader.append()
    assert offsets(leader.made().slices) == [(6, 6)]


def test_h12_or_at_the_log_start_when_that_is_higher() -> None:
    leader = Leader()
    log = leader.add()
    for _ in range(4):
        leader.append()
    log.start_offset = 3
    leader.add(high_watermark=1)
    assert offsets(leader.made().slices) == [(3, 3)]


def test_h14_a_late_announcement_of_a_released_slice_moves_nothing() -> None:
    leader = Leader()
    leader.add()
    leader.append()
    first = leader.made()
    assert leader.store(first) == [first]
    leader.queue.failed(first, leader.now_ms)  # the outcome of its announcement is unknown
    leader.append()
    second = leader.made()
    leader.queue.acknowledged(first)  # it had arrived after all
    assert leader.uploads().wal_next == 0
    assert leader.store(second) == [second]
    leader.queue.acknowledged(second)
    assert leader.uploads().wal_next == 2


def test_h15_after_a_pause_another_run_begins() -> None:
    leader = Leader()
    leader.add()
    leader.append()
    lost = leader.made()
    for _ in range(3):
        leader.append()
    leader.queue.restart_at(FOO, 3)
    assert not lost.current_slice_ids
    made = leader.made()
    assert offsets(made.slices) == [(3, 3)]
    assert leader.store(made) == [made]
    leader.queue.acknowledged(made)
    assert (leader.uploads().wal_start, leader.uploads().wal_next) == (3, 4)


def test_h15_a_deleted_range_is_released_and_read_again_behind() -> None:
    leader = Leader()
    log = leader.add()
    for _ in range(4):
        leader.append()
    log.start_offset = 2
    del log.segments[0][:2]
    leader.now_ms += 100
    assert leader.make() is None
    assert offsets(leader.made().slices) == [(2, 3)]
    assert leader.uploads().wal_start == 2


def test_h15_deleting_everything_that_waits_leaves_nothing_to_do() -> None:
    leader = Leader()
    leader.add()
    leader.append()
    leader.queue.log_start_moved(FOO, 1)
    assert leader.queue.wait_ms(leader.now_ms) is None
    assert leader.queue.pending_bytes == 0


def test_h16_what_is_not_announced_within_five_minutes_is_given_up() -> None:
    """The sweep may take the object for an orphan later, so it must not be announced any more by then."""
    leader = Leader()
    leader.add()
    leader.append()
    stuck = leader.made()
    assert leader.store(stuck) == [stuck]
    leader.append()
    waiting = leader.made()
    leader.store(waiting)
    leader.now_ms += ANNOUNCE_WITHIN_MS
    assert leader.queue.abandon_overdue(leader.now_ms) == [stuck, waiting]
    assert stuck.state is waiting.state is ObjectState.DONE
    assert not stuck.current_slice_ids and not waiting.current_slice_ids
    assert offsets(leader.made().slices) == [(0, 1)]


def test_57_memory_is_bounded_while_the_bucket_or_the_topic_stalls() -> None:
    leader = Leader()
    leader.add()
    for _ in range(4):
        leader.append()
        leader.made()
    leader.append()
    assert leader.queue.wait_ms(leader.now_ms + 1000) is None
    assert leader.queue.uploading_count == 4
    stalled = Leader()
    stalled.add()
    count = 0
    while True:  # every upload succeeds, no announcement is acknowledged
        stalled.append()
        stalled.now_ms += 100
        made = stalled.make()
        if made is None:
            break
        count += 1
        stalled.store(made)
        assert made.slices == []  # the bytes are let go
    assert count == 16


def test_a_partition_deleted_while_its_object_is_on_its_way() -> None:
    leader = Leader()
    leader.add(FOO)
    leader.add(BAR)
    leader.append(FOO)
    leader.append(BAR)
    made = leader.made()
    leader.queue.deactivate(FOO)
    assert leader.store(made) == [made]
    assert {made.reservations[each].partition for each in made.current_slice_ids} == {BAR}
    leader.queue.acknowledged(made)
    leader.queue.failed(made, leader.now_ms)
    assert leader.uploads(BAR).wal_next == 1


def test_the_age_of_what_waits_is_that_of_its_oldest_record_also_under_steady_load() -> None:
    leader = Leader(max_bytes=4000, min_bytes=1)
    leader.add()
    began_ms = leader.now_ms
    for _ in range(100):
        leader.append(size=1500)  # more than an object takes: something always waits
        leader.now_ms += 10
        leader.append(size=1500)
        made = leader.make()
        assert made is not None
        assert leader.store(made) == [made]
        leader.queue.acknowledged(made)
    assert leader.now_ms - began_ms == 1000
    since_ms = leader.queue.unannounced_since_ms(FOO)
    assert since_ms is not None and began_ms < since_ms < leader.now_ms
    assert leader.queue.oldest_wait_ms(leader.now_ms) == leader.now_ms - since_ms
    log, first = leader.logs[FOO], leader.uploads().wal_next
    assert leader.now_ms - since_ms == 10 * ((log.end_offset - first) // 2)  # two batches each 10 ms


def test_what_is_on_its_way_and_what_is_given_back_is_as_old_as_it_was() -> None:
    leader = Leader()
    leader.add()
    assert (leader.queue.unannounced_since_ms(FOO), leader.queue.unannounced_bytes(FOO)) == (None, 0)
    leader.append(size=200)
    appended_ms = leader.now_ms
    first = leader.made()
    leader.append(size=300)
    assert leader.queue.unannounced_since_ms(FOO) == appended_ms
    assert leader.queue.unannounced_bytes(FOO) == leader.logs[FOO].size
    leader.queue.failed(first, leader.now_ms)
    assert leader.queue.unannounced_since_ms(FOO) == appended_ms
    assert leader.queue.oldest_wait_ms(leader.now_ms) == 100
    again = leader.made()
    leader.store(again)
    leader.queue.acknowledged(again)
    assert leader.queue.unannounced_since_ms(FOO) is None
    assert leader.queue.unannounced_since_ms(BAR) is None


def test_few_ages_are_kept_of_what_waits_for_long() -> None:
    leader = Leader()
    leader.add()
    leader.queue.limits = UploadLimits(max_bytes=200)
    for _ in range(1000):
        leader.append(size=100)
        leader.now_ms += 20
    assert len(leader.queue._partitions[FOO].ages) == AGES_MAX


def test_a_partition_that_cannot_be_read_waits_alone() -> None:
    leader = Leader()
    leader.add()
    leader.add(BAR)
    leader.append()
    leader.append(BAR)
    leader.now_ms += 100
    making = leader.queue.begin_object(leader.now_ms)
    assert making is not None
    read = leader.queue.next_read(making)
    assert read is not None and read.partition == FOO
    leader.queue.read_failed(making, read, SliceReadError("disk"), hold_until_ms=leader.now_ms + 1000)
    read = leader.queue.next_read(making)
    assert read is not None and read.partition == BAR
    leader.queue.filled(making, read, None)
    assert not leader.queue.seal(making)
    assert leader.queue.has_objects is False
    assert list(leader.queue.dirty) == [BAR]
    assert leader.queue.wait_ms(leader.now_ms) == 10  # BAR's turn
    made = leader.made()
    assert {each.partition for each in made.slices} == {BAR}
    leader.append()  # does not end the pause
    assert leader.queue.wait_ms(leader.now_ms) == 900
    leader.now_ms += 900
    made = leader.made()
    assert offsets(made.slices) == [(0, 1)]
    leader.queue.deactivate(FOO)
    assert leader.queue.wait_ms(leader.now_ms) is None


def test_objects_are_held_until_nothing_is_to_come_of_them() -> None:
    leader = Leader()
    leader.add()
    leader.append()
    made = leader.made()
    assert (leader.queue.holds(made), leader.queue.has_objects, leader.queue.objects) == (True, True, [made])
    leader.store(made)
    leader.queue.acknowledged(made)
    assert (leader.queue.holds(made), leader.queue.has_objects, leader.queue.objects) == (False, False, [])
    leader.append()
    leader.now_ms += 100
    making = leader.queue.begin_object(leader.now_ms)
    assert making is not None and leader.queue.is_making
    assert leader.queue.objects == [making]
