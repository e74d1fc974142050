"""LeaderEpochFileCache: at which offset each leader epoch began: `leader-epoch-checkpoint` (KIP-101, KIP-279)."""

import threading
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from broker.common.file_system import FileSystem, read_file, write_file_atomically
from broker.common.identifiers import NO_EPOCH, NO_OFFSET
from broker.log.offset_checkpoint_file import CheckpointFormatError, decode_checkpoint, encode_checkpoint

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"


class EpochEntry(NamedTuple):
    """The first offset a leader wrote in its epoch."""

    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """The last known epoch at or below the one asked for, and the offset after its last record."""

    epoch: int
    end_offset: int


UNDEFINED: Final = EpochEndOffset(NO_EPOCH, NO_OFFSET)


class LeaderEpochFileCache:
    """Entries ascending in epoch and in start offset.

    Changes are made in memory; the file follows, durably, before a flush moves the recovery point past them (and
    with the periodic checkpoints).  That is enough: recovery reads the epochs of every batch at or above the recovery
    point again.  Kafka flushes the file on each new epoch instead, which would hold the event loop.

    What the log start leaves behind stays in the file until the device knows the log start: one that goes back in a
    crash finds its epochs, also those of records that only remote storage has.
    """

    def __init__(self, file_system: FileSystem, directory: Path) -> None:
        self._file_system = file_system
        self._path = directory / LEADER_EPOCH_CHECKPOINT
        self._entries: list[EpochEntry] = []
        self._kept: list[EpochEntry] = []  # for the file: as the entries, from the log start on that the device knows
        self._changes = 0
        self._written_changes = 0
        self._offered: tuple[int, tuple[EpochEntry, ...]] = (0, ())  # the newest `pending_write`
        self._written_entries: tuple[EpochEntry, ...] | None = ()  # None: not known for sure
        self._file_lock = threading.Lock()  # the loop and a thread may both flush; the older one must not win
        self._file_changes = 0  # what the file has; guarded by the lock

    @classmethod
    def load(cls, file_system: FileSystem, directory: Path) -> "LeaderEpochFileCache":
        """CheckpointFormatError when the file is damaged; a missing one is empty."""
        cache = cls(file_system, directory)
        try:
            content = read_file(file_system, cache._path)
        except FileNotFoundError:
            return cache
        for epoch, start_offset in decode_checkpoint(cache._path, content, 2):
            try:
                _insert(cache._entries, int(epoch), int(start_offset))
            except ValueError as error:
                raise CheckpointFormatError(f"{cache._path}: {error}") from error
        cache._kept = cache._entries[:]
        cache._written_entries = cache.entries
        return cache

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        return self._entries[-1].epoch if self._entries else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Records of `epoch` start at `start_offset`.  Old news is ignored."""
        if _insert(self._entries, epoch, start_offset):
            _insert(self._kept, epoch, start_offset)
            self._changes += 1

    def recovered(self, epoch: int, offset: int) -> None:
        """A batch of `epoch` was found at `offset`: newer ones that began up to there were cut, and that is not in the
        file.  Batches are read in order."""
        if epoch < 0:
            return  # the batch does not tell
        slot = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if slot < len(self._entries) and self._entries[slot].start_offset <= offset:
            self.truncate_from_end(self._entries[slot].start_offset)
        if not self._entries or epoch > self._entries[-1].epoch:
            self.assign(epoch, offset)

    def prepend(self, earlier: Sequence[EpochEntry]) -> None:
        """What is known elsewhere of the log below the first entry; none of a newer epoch than that."""
        self._entries = _joined(earlier, self._entries)
        self._kept = _joined(earlier, self._kept)
        self._changes += 1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where `epoch` ended, as OffsetForLeaderEpoch answers it; `UNDEFINED` when the epoch is not known."""
        entries = self._entries
        if epoch == NO_EPOCH or not entries:
            return UNDEFINED
        if epoch == entries[-1].epoch:
            return EpochEndOffset(epoch, log_end_offset)
        slot = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        if slot == len(entries):
            return UNDEFINED
        if slot == 0:
            return EpochEndOffset(epoch, entries[0].start_offset)
        return EpochEndOffset(entries[slot - 1].epoch, entries[slot].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that wrote `offset`, by the start offsets known."""
        slot = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[slot - 1].epoch if slot else None

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: epochs that start there or later are gone."""
        _cut_end(self._entries, end_offset)
        if _cut_end(self._kept, end_offset):
            self._changes += 1

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: the epoch that holds it starts there, older ones are gone."""
        _cut_start(self._entries, start_offset)

    def log_start_is_durable(self, start_offset: int) -> None:
        """After a crash the log does not start below `start_offset` again."""
        if _cut_start(self._kept, start_offset):
            self._changes += 1

    def clear(self) -> None:
        self._entries.clear()
        if self._kept:
            self._kept.clear()
            self._changes += 1

    @property
    def is_written(self) -> bool:
        return self._changes == self._written_changes

    def is_written_below(self, log_end_offset: int) -> bool:
        """Whether the file tells the epochs of all records below `log_end_offset`.

        An epoch without a record may be forgotten: nobody has anything of it, and the next leader begins another.
        So ten thousand idle partitions do not write ten thousand files each time their leader starts.
        """
        if self.is_written or self._written_entries is None:
            return self.is_written
        written = [entry for entry in self._written_entries if entry.start_offset < log_end_offset]
        return written == [entry for entry in self._kept if entry.start_offset < log_end_offset]

    def pending_write(self) -> tuple[int, bytes] | None:
        """What the file lacks, as (change number, content); None when it is current."""
        if self.is_written:
            return None
        self._offered = (self._changes, tuple(self._kept))
        return self._changes, self.encode()

    def write_content(self, change: int, content: bytes) -> None:
        """Replace the file durably with a `pending_write`.  Waits for the device: a thread may run it."""
        with self._file_lock:
            if change > self._file_changes:
                write_file_atomically(self._file_system, self._path, content)
                self._file_changes = change

    def written(self, change: int) -> None:
        """`write_content` of that change number has returned."""
        if change > self._written_changes:
            self._written_changes = change
            offered_change, entries = self._offered
            self._written_entries = entries if offered_change == change else None

    def write(self) -> None:
        """Both steps at once, waiting for the device."""
        pending = self.pending_write()
        if pending is not None:
            self.write_content(*pending)
            self.written(pending[0])

    def encode(self) -> bytes:
        return encode_checkpoint([f"{epoch} {start_offset}" for epoch, start_offset in self._kept])

    @property
    def path(self) -> Path:
        return self._path

    def moved_to(self, directory: Path) -> None:
        self._path = directory / LEADER_EPOCH_CHECKPOINT


def _insert(entries: list[EpochEntry], epoch: int, start_offset: int) -> bool:
    """Returns whether that is news.  ValueError for what is no epoch or no offset."""
    if epoch < 0 or start_offset < 0:
        raise ValueError(f"epoch {epoch} from offset {start_offset}: neither may be negative")
    if entries and entries[-1].epoch == epoch and start_offset >= entries[-1].start_offset:
        return False
    while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
        entries.pop()
    entries.append(EpochEntry(epoch, start_offset))
    return True


def _joined(earlier: Sequence[EpochEntry], entries: list[EpochEntry]) -> list[EpochEntry]:
    """The first of `entries` began earlier than it says when the last one before it is of the same epoch."""
    if not entries:
        return list(earlier)
    first, *others = entries
    before = [entry for entry in earlier if entry.start_offset < first.start_offset]
    assert not before or before[-1].epoch <= first.epoch, f"{before} before {first}"
    return before + (others if before and before[-1].epoch == first.epoch else entries)


def _cut_end(entries: list[EpochEntry], end_offset: int) -> bool:
    """Returns whether anything was cut."""
    count = len(entries)
    while entries and entries[-1].start_offset >= end_offset:
        entries.pop()
    return len(entries) < count


def _cut_start(entries: list[EpochEntry], start_offset: int) -> bool:
    """Returns whether anything was cut."""
    if not entries or entries[0].start_offset >= start_offset:
        return False
    slot = bisect_right(entries, start_offset, key=lambda entry: entry.start_offset)
    entries[:slot] = [EpochEntry(entries[slot - 1].epoch, start_offset)]
    return True
