"""Whatever happens to uploads and leaderships: what is announced is the log, in order and without a gap."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.common.identifiers import TopicIdPartition
from broker.wal.objects.wal_slice import WalSlice
from broker.wal.upload.partition_uploads import LeaderTerm
from broker.wal.upload.upload_queue import CombinedObject, ObjectState
from tests.unit.wal.upload.test_upload_queue import Leader, Log
from tests.unit.wal.wal_world import BAR, FOO

PARTITIONS = st.sampled_from([FOO, BAR])


class Uploads(RuleBasedStateMachine):
    """One leader, two partitions, objects that finish when they like."""

    def __init__(self) -> None:
        super().__init__()
        self.leader = Leader(max_bytes=4000, partition_max_bytes=1500, min_bytes=1, inflight_max=3)
        for partition in (FOO, BAR):
            self.leader.add(partition)
        self.on_their_way: list[tuple[CombinedObject, list[WalSlice]]] = []
        self.given_up: list[CombinedObject] = []
        self.announced: list[tuple[TopicIdPartition, int, int, int]] = []  # partition, epoch, start, next
        self.acknowledged: list[tuple[TopicIdPartition, int, int, int]] = []
        self.restarted: set[tuple[TopicIdPartition, int, int]] = set()

    @rule(partition=PARTITIONS, count=st.integers(1, 4), size=st.sampled_from([90, 300, 2000, 6000]))
    def append(self, partition: TopicIdPartition, count: int, size: int) -> None:
        self.leader.append(partition, count, size)

    @rule(partition=PARTITIONS)
    def roll(self, partition: TopicIdPartition) -> None:
        self.leader.logs[partition].segments.append([])

    @rule(partition=PARTITIONS)
    def make(self, partition: TopicIdPartition) -> None:
        self.leader.append(partition)
        self.leader.now_ms += 100
        made = self.leader.make()
        if made is not None:
            self.on_their_way.append((made, list(made.slices)))

    @precondition(lambda self: self.on_their_way)
    @rule(data=st.data())
    def move_on(self, data: st.DataObject) -> None:
        """One object is stored, fails, or is acknowledged."""
        moving, slices = data.draw(st.sampled_from(self.on_their_way))
        if data.draw(st.integers(0, 5)) == 0:
            self.leader.queue.failed(moving, self.leader.now_ms)
            self.on_their_way.remove((moving, slices))
            self.given_up.append(moving)
        elif moving.state is ObjectState.UPLOADING:
            self.leader.queue.stored(moving, self.leader.now_ms)
        elif moving.state is ObjectState.ANNOUNCING:
            for each in slices:
                if moving.reservations[each.slice_id].is_current:
                    self.acknowledged.append(self._row(each))
            self.leader.queue.acknowledged(moving)
            self.on_their_way.remove((moving, slices))
        self._announce_what_may_be()

    @precondition(lambda self: self.given_up)
    @rule()
    def finish_late(self) -> None:
        """What was given up had succeeded after all."""
        self.leader.queue.acknowledged(self.given_up.pop())

    @rule(partition=PARTITIONS, keep=st.integers(0, 3), rarely=st.integers(0, 3))
    def lead_again(self, partition: TopicIdPartition, keep: int, rarely: int) -> None:
        """Deposed, truncated as a follower, elected again; uploads finish before the queue hears of it."""
        if rarely:
            return
        log = self.leader.logs[partition]
        assert log.term is not None
        log.term = LeaderTerm(log.term.leader_epoch + 2, log.term.truncation_generation + 1)
        del log.segments[-1][keep:]
        log.end_offset = self._end_of(log)
        for each, _ in self.on_their_way:
            self.leader.queue.stored(each, self.leader.now_ms)
        self._announce_what_may_be()
        self.leader.add(partition, high_watermark=min(log.end_offset, 2))

    @rule(partition=PARTITIONS, rarely=st.integers(0, 3))
    def pause(self, partition: TopicIdPartition, rarely: int) -> None:
        if rarely:
            return
        log = self.leader.logs[partition]
        assert log.term is not None
        self.leader.queue.restart_at(partition, log.end_offset)
        self.restarted.add((partition, log.term.leader_epoch, log.end_offset))

    def _announce_what_may_be(self) -> None:
        for ready in self.leader.queue.announceable():
            self._announce(ready)

    def _announce(self, ready: CombinedObject) -> None:
        (slices,) = [slices for each, slices in self.on_their_way if each is ready]
        for each in slices:
            if each.slice_id not in ready.current_slice_ids:
                continue
            row = self._row(each)
            partition, epoch, start, _ = row
            log = self.leader.logs[partition]
            assert log.term is not None and epoch == log.term.leader_epoch
            assert bytes(each.records) in b"".join(b"".join(segment) for segment in log.segments)
            earlier = [other[3] for other in self.announced if other[:2] == (partition, epoch)]
            begun = max(earlier, default=self.leader.uploads(partition).wal_start)
            assert start <= begun or (partition, epoch, start) in self.restarted
            self.announced.append(row)

    @staticmethod
    def _row(each: WalSlice) -> tuple[TopicIdPartition, int, int, int]:
        return each.partition, each.token.leader_epoch, each.start_offset, each.end_offset + 1

    @staticmethod
    def _end_of(log: Log) -> int:
        last = next((each for segment in reversed(log.segments) for each in reversed(segment)), None)
        return 0 if last is None else int.from_bytes(last[:8], "big") + int.from_bytes(last[23:27], "big") + 1

    @invariant()
    def what_counts_as_uploaded_was_acknowledged(self) -> None:
        for partition in (FOO, BAR):
            uploads = self.leader.uploads(partition)
            assert uploads.wal_start <= uploads.wal_next <= uploads.wal_reserved
            assert uploads.wal_reserved <= self.leader.logs[partition].end_offset
            there = {
                offset
                for row in self.acknowledged
                if row[:2] == (partition, uploads.term.leader_epoch)
                for offset in range(row[2], row[3])
            }
            assert set(range(uploads.wal_start, uploads.wal_next)) <= there

    @invariant()
    def nothing_that_waits_is_forgotten(self) -> None:
        queue = self.leader.queue
        for partition in (FOO, BAR):
            uploads = self.leader.uploads(partition)
            if uploads.wal_reserved < self.leader.logs[partition].end_offset and queue.uploading_count < 3:
                assert queue.wait_ms(self.leader.now_ms) is not None

    def teardown(self) -> None:
        """Left alone, everything gets there."""
        for moving, _ in self.on_their_way:
            self.leader.queue.failed(moving, self.leader.now_ms)
        for _ in range(200):
            self.leader.now_ms += 100
            made = self.leader.make()
            if made is None:
                break
            assert self.leader.store(made) == [made]
            self.leader.queue.acknowledged(made)
        for partition in (FOO, BAR):
            assert self.leader.uploads(partition).wal_next == self.leader.logs[partition].end_offset


TestUploads = Uploads.TestCase
TestUploads.settings = settings(max_examples=60, stateful_step_count=40)
