"""Whatever slices come, in whatever order: a follower's log is the leader's, without a gap and as far as they reach."""

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.common.identifiers import TopicIdPartition
from broker.log.leader_epoch_file_cache import EpochEndOffset, EpochEntry
from broker.records.record_batch import batches
from broker.wal.follow.append_plan import plan_append
from broker.wal.follow.lineage import Lineage
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.objects.combined_segment import read_object
from broker.wal.objects.object_ranges import plan_ranges
from broker.wal.objects.slice_verifier import CorruptSliceError, verify_slice
from broker.wal.objects.wal_entry import WalEntry, entries_of
from tests.unit.wal.wal_world import BAR, BUCKET, FOO, batch, bytes_of, make_object, make_slice

LEADER_EPOCH = 5


@dataclass(frozen=True)
class Piece:
    """One batch of a log."""

    base: int
    count: int
    epoch: int
    data: bytes

    @property
    def end(self) -> int:
        return self.base + self.count


class History:
    """The log of the leader of epoch 5, and the logs of those who were wrong about theirs."""

    def __init__(self, data: st.DataObject) -> None:
        self.lineage_log = self._grow(data, [], [1, 2, 4, 5], b"right")
        self.foreign_logs = [self._fork(data, epochs) for epochs in ([1], [2], [3], [1, 3], [3, 4], [6])]

    def _grow(self, data: st.DataObject, log: list[Piece], epochs: list[int], value: bytes) -> list[Piece]:
        grown = list(log)
        for epoch in epochs:
            for count in data.draw(st.lists(st.integers(1, 3), max_size=4)):
                base = grown[-1].end if grown else 0
                grown.append(Piece(base, count, epoch, batch(base, count, epoch=epoch, value=value)))
        return grown

    def _fork(self, data: st.DataObject, epochs: list[int]) -> list[Piece]:
        """Somebody who had the log up to the end of an epoch, or a part of it, and went on alone.

        Who goes on in an epoch that the lineage has was its leader, so he had all of what it has of that epoch.
        """
        earlier = [piece for piece in self.lineage_log if piece.epoch < epochs[0]]
        mine = [piece for piece in self.lineage_log if piece.epoch == epochs[0]]
        if not mine:
            later = any(piece.epoch > epochs[0] for piece in self.lineage_log)
            earlier = earlier[: data.draw(st.integers(0, len(earlier)))] if later else earlier
        elif len(epochs) > 1:
            epochs = [epochs[0]]
        return self._grow(data, earlier + mine, [each for each in epochs if each in (1, 2, 3, 6)], b"wrong")

    def slices(self, data: st.DataObject) -> list[tuple[WalEntry, bytes]]:
        """Ranges of any of the logs, under any epoch their leader may have had."""
        found: list[tuple[WalEntry, bytes]] = []
        for log in (self.lineage_log, self.lineage_log, *self.foreign_logs):
            for _ in range(data.draw(st.integers(0, 3)) if log else 0):
                first = data.draw(st.integers(0, len(log) - 1))
                last = data.draw(st.integers(first, len(log) - 1))
                found.append(self._slice(data, log, first, last))
        return found

    def _slice(self, data: st.DataObject, log: list[Piece], first: int, last: int) -> tuple[WalEntry, bytes]:
        chosen = log[first : last + 1]
        publisher = chosen[-1].epoch
        if log is self.lineage_log:
            publisher = data.draw(st.sampled_from([each for each in (1, 2, 4, 5) if each >= publisher]))
        records = b"".join(piece.data for piece in chosen)
        combined = make_object([make_slice(records, start=chosen[0].base, leader_epoch=publisher)])
        (entry,) = entries_of(combined.metadata, data.draw(st.integers(0, 9)))
        return entry, records

    def answer(self, epoch: int) -> EpochEndOffset:
        """OffsetsForLeaderEpoch, as the leader answers it to a replica."""
        starts: dict[int, int] = {}
        for piece in self.lineage_log:
            starts.setdefault(piece.epoch, piece.base)
        starts.setdefault(LEADER_EPOCH, self.end)
        known = sorted(starts)
        below = [each for each in known if each <= epoch]
        if not below:
            return EpochEndOffset(-1, -1)
        above = [each for each in known if each > epoch]
        return EpochEndOffset(below[-1], starts[above[0]] if above else self.end)

    @property
    def end(self) -> int:
        return self.lineage_log[-1].end if self.lineage_log else 0

    def reach(self, slices: list[tuple[WalEntry, bytes]]) -> int:
        """Up to where the batches of the lineage are in one of the slices of nobody from the future."""
        there = {
            bytes(found.buffer)
            for entry, records in slices
            if entry.leader_epoch <= LEADER_EPOCH
            for found in batches(records)
        }
        end = 0
        for piece in self.lineage_log:
            if piece.data not in there:
                break
            end = piece.end
        return end


class Follower:
    """Appends what the map plans, as the real one does."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.map = WalIntervalMap(BUCKET, 1 << 40, lambda bucket: True)
        self.lineage = Lineage(LEADER_EPOCH)
        self.lineage.agree(0)
        self.records: dict[WalEntry, bytes] = {}
        self.log = b""
        self.end = 0
        self.high_watermark = 1 << 40  # of the leader

    def told(self, entry: WalEntry, records: bytes) -> None:
        self.map.add(entry)
        self.records[entry] = records

    def catch_up(self) -> None:
        for _ in range(200):  # more rounds than there are slices: each one appends, drops or asks
            plan = self.map.plan(self.lineage, 0)
            for epoch in plan.epochs_to_ask:
                self.lineage.answered(epoch, self.history.answer(epoch), LEADER_EPOCH)
            for each in plan.slices:
                self.append(each.entry)
            if not plan.slices and not plan.epochs_to_ask:
                return
        raise AssertionError(f"no end at {self.end}")

    def append(self, entry: WalEntry) -> None:
        try:
            found = verify_slice(entry, self.records[entry])
        except CorruptSliceError:
            self.map.drop(entry)
            return
        valid_until = self.map.valid_until(entry, self.lineage, self.end)
        plan = plan_append(found, log_end_offset=self.end, valid_until=valid_until, is_log_empty=False)
        for each in plan.batches:
            assert each.base_offset == self.end
            self.log += bytes(each.buffer)
            self.end = each.next_offset
        self.map.log_moved(self.end, min(self.end, self.high_watermark))


@settings(max_examples=100)
@given(data=st.data())
def test_any_slices_in_any_order_give_the_lineages_log(data: st.DataObject) -> None:
    history = History(data)
    slices = history.slices(data)
    order = data.draw(st.permutations(slices + slices[: data.draw(st.integers(0, len(slices)))]))
    follower = Follower(history)
    damaged = [index for index in range(len(order)) if data.draw(st.integers(0, 9)) == 0]
    for index, (entry, records) in enumerate(order):
        if index in damaged:
            wrong = records[:-1] + bytes([records[-1] ^ 1])
            follower.told(replace(entry, slice_id=entry.combined_segment_id), wrong)
        follower.told(entry, records)
        if data.draw(st.booleans()):
            follower.catch_up()
    follower.catch_up()
    assert follower.end == history.reach(slices)
    assert follower.log == b"".join(piece.data for piece in history.lineage_log if piece.end <= follower.end)


@settings(max_examples=60)
@given(data=st.data())
def test_a_truncated_follower_finds_what_it_needs_again(data: st.DataObject) -> None:
    """The high watermark lags; the log end goes back to it and beyond, and the metadata is read again when asked."""
    history = History(data)
    slices = history.slices(data)
    follower = Follower(history)
    follower.high_watermark = data.draw(st.integers(0, 20))
    for entry, records in slices:
        follower.told(entry, records)
    follower.catch_up()
    reached = follower.end
    boundaries = [0, *(piece.end for piece in history.lineage_log if piece.end <= reached)]
    cut = data.draw(st.sampled_from(boundaries))
    follower.end = cut
    follower.log = b"".join(piece.data for piece in history.lineage_log if piece.end <= cut)
    follower.map.log_moved(cut, data.draw(st.integers(0, cut)))
    if cut >= min(follower.high_watermark, reached):  # the usual case: nothing committed is cut
        assert not follower.map.needs_reseek
    if follower.map.needs_reseek:
        follower.map.reseek_began()
        for entry, records in data.draw(st.permutations(slices)):
            follower.told(entry, records)
    follower.catch_up()
    assert follower.end == reached


@settings(max_examples=60)
@given(data=st.data())
def test_objects_come_apart_as_they_were_put_together(data: st.DataObject) -> None:
    partitions = [FOO, BAR, *(FOO._replace(partition=number) for number in range(3, 6))]
    slices = []
    for partition in partitions:
        start = data.draw(st.integers(0, 1 << 40))
        for _ in range(data.draw(st.integers(0, 2))):
            records = b""
            first = start
            for epoch in sorted(data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=4))):
                count = data.draw(st.integers(1, 3))
                records += batch(start, count, epoch=epoch, value=data.draw(st.binary(max_size=50)))
                start += count
            slices.append(make_slice(records, start=first, partition=partition, leader_epoch=7))
    if not slices:
        return
    followers: dict[TopicIdPartition, tuple[int, ...]] = {
        partition: tuple(data.draw(st.permutations([2, 3]))[: data.draw(st.integers(1, 2))]) for partition in partitions
    }
    combined = make_object(slices, followers)
    content = bytes_of(combined)
    assert read_object(content) == combined.metadata
    entries = entries_of(combined.metadata)
    order = [
        (tuple(sorted(followers[each.partition])), each.partition.topic_id.bytes, each.partition.partition)
        for each in entries
    ]
    assert order == sorted(order)
    by_id = {each.slice_id: each for each in slices}
    for wanted in (entries, entries[::2]):
        for each_range in plan_ranges(wanted, gap_max=data.draw(st.integers(0, 500))):
            answer = content[each_range.start : each_range.end]
            for entry in each_range.entries:
                found = verify_slice(entry, each_range.bytes_of(entry, answer))
                assert b"".join(bytes(each.buffer) for each in found) == bytes(by_id[entry.slice_id].records)
                assert entry.leader_epochs[0] == EpochEntry(found[0].partition_leader_epoch, entry.start_offset)
        if wanted:
            assert len(plan_ranges(wanted, gap_max=1 << 30)) == 1
