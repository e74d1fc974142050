"""Whatever is written, compacted, cut and interrupted, in any order and at any step of the disk: who reads the log has
the newest value of each key, every record where it was appended, and nothing that was aborted.

`WHERRY_SEEDS` sets the number of stories (default 100).
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.common.chance import Chance
from broker.common.errors import StorageFailure
from broker.log.cleaner.offset_map import ENTRY_BYTES
from broker.log.file_records import read
from broker.log.producer_state_manager import parse_marker
from broker.records.compression import CompressionType
from broker.records.record_batch import RecordBatch, batches
from tests.support.sim_disk import SimFileSystem
from tests.unit.log.cleaner.cleaner_world import CleanerWorld, table

SEEDS = int(os.environ.get("WHERRY_SEEDS", "100"))
RETENTION_MS = 500
TRANSACTIONAL = (7, 8)
IDEMPOTENT = (1, 2)


class PowerCut(BaseException):
    """Nothing that handles failures of the disk may catch it."""


class StoppingDisk(SimFileSystem):
    """Stops for good after so many operations, until it is started again."""

    left: int | None = None

    def count(self, operation: str, path: Path) -> None:
        if self.left is not None:
            if self.left == 0:
                raise PowerCut
            self.left -= 1
        super().count(operation, path)


class Written(NamedTuple):
    """A record as it was appended."""

    offset: int
    key: str
    value: str | None
    producer_id: int
    at_ms: int


class Story:
    """One log and all that was ever appended to it and not lost."""

    def __init__(self, seed: int, *, flush: bool) -> None:
        self.chance = Chance(seed)
        disk = StoppingDisk()
        self.world = CleanerWorld(
            file_system=disk,
            broker={
                "log_cleaner_dedupe_buffer_size": ENTRY_BYTES * (1 + self.chance.below(12)),
                "log_cleaner_io_buffer_load_factor": 1,
            },
            segment_bytes=500 + self.chance.below(800),
            index_interval_bytes=self.chance.below(300),
            delete_retention_ms=RETENTION_MS,
            **({"flush_messages": 1} if flush else {}),
        )
        disk.now_ms = self.world.clock.now_ms
        self.disk = disk
        self.is_flushing = flush
        self.written: list[Written] = []
        self.batch_starts: list[int] = []
        self.markers: dict[int, tuple[int, bool]] = {}  # offset: producer, whether it commits
        self.sequences: dict[int, int] = {}
        self.cleaned_below = 0
        self.recovery_point = 0
        self.flushed = 0
        self.passes = 0
        self.crashes_in_passes = 0

    @property
    def log_end(self) -> int:
        return self.world.log.log_end_offset

    def run(self, steps: int) -> None:
        with asyncio.Runner() as self.runner:
            for _ in range(steps):
                self.step()
                self.flush_rolled()
                self.check()
            self.clean_all()
            self.check()
            self.crash()
            self.check()

    def step(self) -> None:
        self.world.clock.ms += self.chance.below(60)
        kind = self.chance.below(30)
        if kind < 17:
            self.append()
        elif kind < 18:
            self.world.log.roll()
        elif kind < 20:
            self.replicate()
        elif kind < 24:
            self.clean()
        elif kind < 26:
            self.crash_in_a_pass()
        elif kind < 27:
            self.truncate()
        elif kind < 28:
            self.recovery_point = self.world.log.recovery_point
        elif kind < 29:
            self.crash()
        else:
            self.stop_cleanly()

    def flush_rolled(self) -> None:
        """As the owner of the logs does when a segment is closed."""
        if self.world.housekeeping.flushes:
            self.world.housekeeping.flushes.clear()
            self.runner.run(self.world.flush(self.world.log, self.world.log.segments.active.base_offset))
            self.flushed = max(self.flushed, self.world.log.segments.active.base_offset)

    # -- what happens ----------------------------------------------------------------------------------------------

    def append(self) -> None:
        world = self.world
        producer_id = (*IDEMPOTENT, *TRANSACTIONAL, -1, -1)[self.chance.below(6)]
        is_transactional = producer_id in TRANSACTIONAL
        if is_transactional and self.chance.below(2) == 0:
            self.end_transaction(producer_id)
            return
        entries = [self.entry() for _ in range(1 + self.chance.below(4))]
        keywords = {}
        if producer_id > 0:
            keywords = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": self.next_sequence(producer_id),
                "is_transactional": is_transactional,
            }
        high_watermark = world.log.high_watermark
        codec = (CompressionType.NONE, CompressionType.GZIP)[self.chance.below(2)]
        base_offset = world.put(*entries, compression=codec, **keywords)
        self.appended(high_watermark)
        self.batch_starts.append(base_offset)
        for number, (key, value) in enumerate(entries):
            self.written.append(Written(base_offset + number, key, value, producer_id, world.clock.ms))
        if producer_id > 0:
            self.sequences[producer_id] = self.sequences.get(producer_id, 0) + len(entries)

    def next_sequence(self, producer_id: int) -> int:
        known = self.world.log.producer_state_manager.last_entry(producer_id)
        if known is None or not known.batches:
            return self.sequences.get(producer_id, 0)
        return known.last_sequence + 1

    def entry(self) -> tuple[str, str | None]:
        key = f"k{self.chance.below(6)}" + "x" * (20 * self.chance.below(2))
        return key, None if self.chance.below(4) == 0 else str(len(self.written)) + "v" * self.chance.below(60)

    def end_transaction(self, producer_id: int) -> None:
        entry = self.world.log.producer_state_manager.last_entry(producer_id)
        if entry is None or entry.current_txn_first_offset is None:
            return
        commit = self.chance.below(2) == 0
        high_watermark = self.world.log.high_watermark
        offset = self.world.marker(producer_id, commit=commit, replicated=False)
        self.appended(high_watermark)
        self.batch_starts.append(offset)
        self.markers[offset] = (producer_id, commit)

    def appended(self, high_watermark: int) -> None:
        """The helpers replicate at once; some of it is only here for a while."""
        self.world.log.update_high_watermark(self.log_end if self.chance.below(4) else high_watermark)
        if self.is_flushing:
            self.flushed = self.log_end

    def replicate(self) -> None:
        self.world.log.update_high_watermark(self.log_end)

    def clean(self) -> bool:
        end_offset = self.world.target().end_offset
        has_cleaned = self.runner.run(self.world.clean())
        self.cleaned_below = max(self.cleaned_below, end_offset)
        self.flushed = max(self.flushed, self.log_end if has_cleaned else 0)
        self.passes += has_cleaned
        return has_cleaned

    def clean_all(self) -> None:
        self.replicate()
        self.world.log.roll()
        self.flush_rolled()
        while self.clean():
            pass
        target = self.world.target()
        assert target.first_dirty_offset == target.end_offset, "every pass gets somewhere"
        keys = [record.key for record in self.world.records() if record.offset < target.end_offset]
        assert len(keys) == len(set(keys)), "once is enough"

    def crash_in_a_pass(self) -> None:
        end_offset = self.world.target().end_offset
        self.disk.left = self.chance.below(70)
        try:
            if self.runner.run(self.world.clean()):
                self.passes += 1
        except PowerCut:
            self.crashes_in_passes += 1
        self.disk.left = None
        self.cleaned_below = max(self.cleaned_below, end_offset)
        self.crash()

    def crash(self) -> None:
        if self.chance.below(2):
            self.disk.crash(self.chance)
        else:
            self.disk.kill()
        self.restarted(clean=False)
        self.recovery_point = min(self.recovery_point, self.world.log.recovery_point)

    def stop_cleanly(self) -> None:
        self.world.close()
        self.flushed = self.recovery_point = self.log_end
        self.restarted(clean=True)

    def restarted(self, *, clean: bool) -> None:
        """Alone in sync, as it were: which ends of transactions were not replicated is not known after a restart."""
        log = self.world.restart(clean=clean, close=False, recovery_point=self.recovery_point)
        assert log.log_end_offset >= self.flushed, "what the device has comes back"
        self.lost(log.log_end_offset)
        self.replicate()

    def truncate(self) -> None:
        """As a follower does: never below the high watermark.  What it cuts does not come back here: after a power cut
        it may, and is cut again."""
        log = self.world.log
        starts = [start for start in self.batch_starts if start >= log.high_watermark]
        if starts:
            log.truncate_to(starts[self.chance.below(len(starts))])
            self.disk.sync_everything()
            self.lost(log.log_end_offset)
            self.flushed = min(self.flushed, log.log_end_offset)
            self.recovery_point = min(self.recovery_point, log.recovery_point)
            self.runner.run(self.world.checkpoint())

    def lost(self, end_offset: int) -> None:
        self.batch_starts = [start for start in self.batch_starts if start < end_offset]
        self.markers = {offset: marker for offset, marker in self.markers.items() if offset < end_offset}
        self.sequences = {}
        self.written = [each for each in self.written if each.offset < end_offset]
        for each in self.written:
            if each.producer_id > 0:
                self.sequences[each.producer_id] = self.sequences.get(each.producer_id, 0) + 1

    # -- what must be so -------------------------------------------------------------------------------------------

    def check(self) -> None:
        world = self.world
        stable = world.log.last_stable_offset
        committed = [each for each in self.written if each.offset < stable and not self.is_aborted(each)]
        consumed = list(self.consume(world.log.log_start_offset))
        assert table(consumed) == table((each.offset, each.key, each.value) for each in committed)
        known = {each.offset: (each.offset, each.key, each.value) for each in committed}
        offsets = [offset for offset, _, _ in consumed]
        assert offsets == sorted(set(offsets))
        assert all(known.get(entry[0]) == entry for entry in consumed), "each is what was appended there"
        kept = set(offsets)
        assert all(each.offset in kept for each in committed if each.offset >= self.cleaned_below)
        newest = {each.key: each for each in committed}
        young = [each for each in newest.values() if each.value is None and world.clock.ms - each.at_ms < RETENTION_MS]
        assert all(each.offset in kept for each in young), "tombstones stay for a while"
        start = self.chance.below(self.log_end + 1)
        assert [entry for entry in consumed if entry[0] >= start] == [
            entry for entry in self.consume(start) if entry[0] >= start
        ]
        self.check_producers()
        self.check_segments()

    def check_producers(self) -> None:
        """Without a flush, the last batch of a producer may be lost, and those before it compacted away by then."""
        known = self.world.log.producer_state_manager.producers
        sequences = {each: entry.last_sequence + 1 for each, entry in known.items() if entry.batches}
        if self.is_flushing:
            assert sequences == self.sequences
        assert all(sequence <= self.sequences[each] for each, sequence in sequences.items())

    def check_segments(self) -> None:
        world = self.world
        names = world.names()
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        bases = world.log.segments.base_offsets
        assert [int(name[:20]) for name in names if name.endswith(".log")] == bases
        for segment, end in zip(world.log.segments, [*bases[1:], self.log_end], strict=True):
            positions = {each.position: each for each in segment.records.batch_positions(0)}
            found = [(each.base_offset, each.last_offset) for each in positions.values()]
            assert all(segment.base_offset <= first <= last < end for first, last in found)
            assert all(
                positions[entry.position].last_offset == entry.offset for entry in segment.offset_index.entries()
            )

    def is_aborted(self, each: Written) -> bool:
        if each.producer_id not in TRANSACTIONAL:
            return False
        ends = [offset for offset, (pid, _) in self.markers.items() if pid == each.producer_id and offset > each.offset]
        return bool(ends) and not self.markers[min(ends)][1]

    def consume(self, offset: int) -> Iterator[tuple[int, str | None, str | None]]:
        """As a consumer with read_committed does, fetch by fetch."""
        log = self.world.log
        stable = log.last_stable_offset
        while offset < stable:
            answer = log.read(offset, 400, stable, min_one_batch=True, with_aborted=True)
            if answer.file_slice is None:
                return
            found = list(batches(bytes(read(answer.file_slice))))
            assert found, f"nothing whole at {offset}"
            ahead = sorted(answer.aborted_transactions or (), key=lambda each: each.first_offset)
            aborted: set[int] = set()
            for batch in found:
                while ahead and ahead[0].first_offset <= batch.last_offset:
                    aborted.add(ahead.pop(0).producer_id)
                yield from _delivered(batch, aborted)
            offset = found[-1].next_offset


def _delivered(batch: RecordBatch, aborted: set[int]) -> Iterator[tuple[int, str | None, str | None]]:
    assert batch.is_crc_valid()
    if batch.is_control:
        marker = parse_marker(batch)
        if marker is not None and not marker.is_commit:
            aborted.discard(batch.producer_id)
    elif not (batch.is_transactional and batch.producer_id in aborted):
        for record in batch.records():
            key, value = record.key, record.value
            yield record.offset, None if key is None else key.decode(), None if value is None else value.decode()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_newest_value_of_each_key_survives_everything(seed: int) -> None:
    Story(seed, flush=True).run(60)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_without_flush_a_power_cut_leaves_a_compacted_prefix(seed: int) -> None:
    Story(100_000 + seed, flush=False).run(60)


def test_the_stories_have_passes_and_crashes_in_them() -> None:
    stories = [Story(seed, flush=True) for seed in range(20)]
    for story in stories:
        story.run(60)
    assert sum(story.passes for story in stories) > 100
    assert sum(story.crashes_in_passes for story in stories) > 20


def test_a_full_disk_now_and_then_costs_nothing() -> None:
    for seed in range(10):
        story = Story(seed, flush=True)
        with asyncio.Runner() as story.runner:
            for _ in range(60):
                story.disk.budget_bytes = None
                story.step()
                story.disk.budget_bytes = story.disk.used_bytes() + story.chance.below(400)
                try:
                    story.clean()
                except StorageFailure as failure:
                    raise AssertionError from failure
                story.check()
                story.disk.budget_bytes = None
