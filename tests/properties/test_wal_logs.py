"""From a leader's log through objects to a follower's log: the same batches, epochs, producers and transactions."""

import random
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.file_records import read
from broker.log.transaction_index import AbortedTransaction
from broker.log.unified_log import UnifiedLog
from broker.wal.follow.append_plan import plan_append
from broker.wal.follow.lineage import Lineage
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.objects.combined_segment import read_object
from broker.wal.objects.object_ranges import plan_ranges
from broker.wal.objects.slice_verifier import verify_slice
from broker.wal.objects.wal_entry import entries_of
from broker.wal.objects.wal_slice import build_slice
from broker.wal.upload.partition_uploads import LeaderTerm
from broker.wal.upload.upload_queue import UploadLimits, UploadQueue
from tests.unit.log.log_world import LogWorld
from tests.unit.wal.wal_world import BUCKET, FOO, bytes_of, make_object, new_id


class Leader:
    """A log, and the queue that uploads it."""

    def __init__(self, segment_bytes: int, **limits: int) -> None:
        self.world = LogWorld(segment_bytes=segment_bytes, index_interval_bytes=200)
        self.epoch = 0
        self.now_ms = 0
        self.queue = UploadQueue(UploadLimits(min_bytes=1, **limits), lambda partition: LeaderTerm(self.epoch, 0))
        self.lead(0)

    def lead(self, epoch: int) -> None:
        log = self.world.log
        self.epoch = epoch
        log.maybe_assign_epoch_start_offset(epoch, log.log_end_offset)
        self.queue.activate(
            FOO,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            log_end_offset=log.log_end_offset,
            pending_bytes=0,
            now_ms=self.now_ms,
        )

    def appended(self) -> None:
        self.queue.appended(FOO, self.world.log.log_end_offset, 100, self.now_ms)

    def objects(self) -> list[bytes]:
        """Upload and announce all there is."""
        made: list[bytes] = []
        while True:
            self.now_ms += 100
            making = self.queue.begin_object(self.now_ms)
            if making is None:
                return made
            while (wanted := self.queue.next_read(making)) is not None:
                found = self.world.log.read(
                    wanted.start_offset, wanted.size_max, wanted.upper_offset, min_one_batch=True
                )
                assert found.file_slice is not None
                built = build_slice(
                    FOO,
                    new_id(),
                    wanted.reservation.token,
                    bytes(read(found.file_slice)),
                    start_offset=wanted.start_offset,
                    upper_offset=wanted.upper_offset,
                    size_max=wanted.size_max,
                    room=wanted.room,
                )
                self.queue.filled(making, wanted, built)
            assert self.queue.seal(making)
            made.append(bytes_of(make_object(making.slices, key=f"wal/{len(made)}-{self.epoch}-{self.now_ms}")))
            self.queue.stored(making, self.now_ms)
            assert self.queue.announceable() == [making]
            self.queue.acknowledged(making)


class Follower:
    """A log that gets everything from the objects."""

    def __init__(self) -> None:
        self.world = LogWorld(segment_bytes=1500)
        self.map = WalIntervalMap(BUCKET, 1 << 40, lambda bucket: True)
        self.bytes: dict[str, bytes] = {}

    def hear_of(self, objects: Iterable[bytes]) -> None:
        for content in objects:
            metadata = read_object(content)
            self.bytes[metadata.object_key] = content
            for entry in entries_of(metadata):
                self.map.add(entry)

    def catch_up(self, leader: Leader) -> None:
        log = self.world.log
        lineage = Lineage(leader.epoch)
        lineage.agree(0)
        for epoch in range(leader.epoch):
            lineage.answered(epoch, leader.world.log.end_offset_for_epoch(epoch), leader.epoch)
        while slices := self.map.plan(lineage, 0).slices:
            before = log.log_end_offset
            for each_range in plan_ranges([each.entry for each in slices]):
                answer = self.bytes[each_range.object_key][each_range.start : each_range.end]
                for entry in each_range.entries:
                    plan = plan_append(
                        verify_slice(entry, each_range.bytes_of(entry, answer)),
                        log_end_offset=log.log_end_offset,
                        valid_until=self.map.valid_until(entry, lineage, log.log_end_offset),
                        is_log_empty=log.log_end_offset == log.log_start_offset,
                    )
                    for batch in plan.batches:
                        log.append_as_follower(batch.buffer, leader.epoch)
            self.map.log_moved(log.log_end_offset, 0)
            assert log.log_end_offset > before


def play(leader: Leader, steps: Iterable[tuple[str, int]]) -> list[bytes]:
    """The objects of it, all uploaded at the end."""
    objects: list[bytes] = []
    sequences = {7: 0, 8: 0}
    for what, number in steps:
        producer = 7 + number % 2
        if what == "batch":
            leader.world.append(number, epoch=leader.epoch, size=30 * number, replicated=False)
        elif what == "transaction":
            keywords = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            leader.world.append(number, epoch=leader.epoch, replicated=False, is_transactional=True, **keywords)
            sequences[producer] += number
        elif what == "marker" and sequences[producer]:
            leader.world.marker(producer, commit=number > 2, epoch=leader.epoch, replicated=False)
        elif what == "elect":
            leader.lead(leader.epoch + number)
        elif what == "upload":
            objects += leader.objects()
        leader.appended()
    return objects + leader.objects()


def aborted(log: UnifiedLog) -> list[AbortedTransaction]:
    """All the transaction index has."""
    return [each for segment in log.segments for each in segment.collect_aborted(0, log.log_end_offset).transactions]


APPENDS = st.lists(
    st.tuples(
        st.sampled_from(["batch", "batch", "batch", "transaction", "marker", "elect", "upload"]), st.integers(1, 4)
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60)
@given(APPENDS, st.sampled_from([700, 1500, 1 << 20]), st.sampled_from([300, 1000, 131_072]))
def test_7_a_followers_log_has_the_leaders_batches(
    steps: list[tuple[str, int]], segment_bytes: int, partition_max_bytes: int
) -> None:
    leader = Leader(segment_bytes, partition_max_bytes=partition_max_bytes, max_bytes=6000)
    objects = play(leader, steps)
    follower = Follower()

    follower.hear_of(reversed(objects))
    follower.catch_up(leader)
    one, other = leader.world.log, follower.world.log
    assert other.log_end_offset == one.log_end_offset
    assert [bytes(batch.buffer) for batch in follower.world.batches()] == [
        bytes(batch.buffer) for batch in leader.world.batches()
    ]
    with_records = {batch.partition_leader_epoch for batch in leader.world.batches()}
    assert list(other.leader_epochs.entries) == [
        each for each in one.leader_epochs.entries if each.epoch in with_records
    ]
    assert other.active_producers() == one.active_producers()
    assert aborted(other) == aborted(one)


def test_7_ten_thousand_batches_and_the_indexes_and_snapshots_of_a_follower_that_restarts() -> None:
    chance = random.Random(1176)
    kinds = ["batch"] * 30 + ["transaction"] * 40 + ["marker"] * 28 + ["upload", "elect"]
    steps = [(chance.choice(kinds), chance.randint(1, 4)) for _ in range(11_000)]
    leader = Leader(100_000, partition_max_bytes=131_072, max_bytes=524_288)
    objects = play(leader, steps)
    follower = Follower()
    follower.hear_of(objects)
    follower.catch_up(leader)
    one = leader.world.log
    written = [bytes(batch.buffer) for batch in leader.world.batches()]
    assert len(written) > 10_000 and len(aborted(one)) > 500 and len(list(follower.world.log.segments)) > 100
    for is_clean in (True, False):  # a kill: all is found again from the first batch on
        log = follower.world.log
        log.update_high_watermark(log.log_end_offset)
        other = follower.world.reload(clean=is_clean, recovery_point=log.log_end_offset if is_clean else 0)
        assert [bytes(batch.buffer) for batch in follower.world.batches()] == written
        assert (aborted(other), other.active_producers()) == (aborted(one), one.active_producers())
        for offset in range(0, one.log_end_offset, 997):  # by the offset index
            assert follower.world.batches(offset)[0].base_offset == leader.world.batches(offset)[0].base_offset


def test_12_a_transaction_is_replicated_while_it_is_open_and_its_abort_is_known_after_that() -> None:
    leader = Leader(1 << 20, partition_max_bytes=131_072, max_bytes=524_288)
    follower = Follower()
    follower.hear_of(play(leader, [("batch", 1), ("transaction", 1), ("batch", 2)]))
    follower.catch_up(leader)
    log = follower.world.log
    assert log.log_end_offset == leader.world.log.log_end_offset == 4
    assert aborted(log) == [] and log.last_stable_offset == 0
    log.update_high_watermark(4)
    assert log.last_stable_offset == 1  # the transaction is open

    leader.world.marker(8, commit=False, replicated=False)
    follower.hear_of(play(leader, [("batch", 1)]))
    follower.catch_up(leader)
    log.update_high_watermark(6)
    assert aborted(log) == aborted(leader.world.log) and len(aborted(log)) == 1
    assert log.last_stable_offset == 6
