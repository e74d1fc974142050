"""TransactionIndex: the aborted transactions whose marker is in a segment (Kafka's `.txnindex` files)."""

import contextlib
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem, read_file
from broker.log.abstract_index import CorruptIndexError

_ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """`last_offset` is the ABORT marker's; `last_stable_offset` is the one just after that marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedTransactions(NamedTuple):
    """What one segment adds to a read; `is_complete`: later segments cannot add more."""

    transactions: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex:
    """Entries in order of their markers.  The file appears with the first abort; most segments have none.

    Appends write the file at once: an abort is rare, and its entry must not be lost when the segment is trusted.
    """

    __slots__ = ("_entries", "_file_system", "_is_written", "base_offset", "path")

    def __init__(self, file_system: FileSystem, path: Path, base_offset: int, *, exists: bool = False) -> None:
        self._file_system = file_system
        self.path = path
        self.base_offset = base_offset
        self._entries: list[AbortedTransaction] | None = None if exists else []
        self._is_written = True

    @property
    def is_loaded(self) -> bool:
        return self._entries is not None

    @property
    def is_written(self) -> bool:
        return self._is_written

    @property
    def is_empty(self) -> bool:
        return not self.entries()

    def entries(self) -> list[AbortedTransaction]:
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def append(self, transaction: AbortedTransaction) -> None:
        """Add the transaction whose ABORT marker was just written to this segment.  Never fails: an entry the disk
        refused is kept in memory and written by the next `write`."""
        self.extend((transaction,))
        with contextlib.suppress(StorageFailure):  # flush, roll or close tries again and reports
            self.write()

    def extend(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add some, in order; the next `write` writes them."""
        entries = self.entries()
        for each in transactions:
            assert not entries or each.last_offset > entries[-1].last_offset, f"{self.path}: {each} goes back"
            entries.append(each)
            self._is_written = False

    def write(self) -> None:
        """Bring the file up to the entries in memory, without waiting for the device."""
        if self._is_written or self._entries is None:
            return
        if not self._entries:
            self._file_system.remove(self.path)
        else:
            content = b"".join(_ENTRY.pack(VERSION, *entry) for entry in self._entries)
            file = self._file_system.open(self.path, create=True)
            try:
                file.write_at(0, [content])
                file.truncate(len(content))
            finally:
                file.close()
        self._is_written = True

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> AbortedTransactions:
        """The aborted transactions that touch [fetch_offset, upper_bound_offset)."""
        found: list[AbortedTransaction] = []
        for entry in self.entries():
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound_offset:
                return AbortedTransactions(found, True)
        return AbortedTransactions(found, False)

    def truncate_to(self, offset: int) -> None:
        """Cut at the first entry whose marker is at or above `offset`."""
        entries = self.entries()
        for slot, entry in enumerate(entries):
            if entry.last_offset >= offset:
                del entries[slot:]
                self._is_written = False
                return

    def reset(self) -> None:
        """Back to empty: the segment is about to be recovered."""
        self._is_written = False
        self._entries = []

    def unload(self) -> None:
        """Forget the entries of a segment nobody has read for long."""
        if self._is_written and self._entries:
            self._entries = None

    def sanity_check(self) -> None:
        """CorruptIndexError when an entry cannot belong to this segment."""
        for entry in self.entries():
            if entry.last_offset < self.base_offset:
                raise CorruptIndexError(f"{self.path}: marker {entry.last_offset} is below base {self.base_offset}")

    def _load(self) -> list[AbortedTransaction]:
        try:
            data = read_file(self._file_system, self.path)
        except FileNotFoundError:
            return []
        entries = []
        for start in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
            version, *fields = _ENTRY.unpack_from(data, start)
            if version > VERSION:
                raise CorruptIndexError(f"{self.path}: version {version} of an entry is unknown")
            entries.append(AbortedTransaction(*fields))
        return entries
