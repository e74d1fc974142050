"""What the offset index and the time index share: entries in memory, written to their file in blocks.

Kafka maps a preallocated file; here the arrays are the index and the file is their durable copy, so it never has a
tail of zeros.  Kafka reads such files as they are (AbstractIndex takes every whole entry up to the file's length).
No descriptor stays open: a file is opened for each block of `BLOCK_ENTRIES`, or when the owner asks.
"""

import contextlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Final

from broker.common.buffers import Buffer
from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem

BLOCK_ENTRIES: Final = 512  # 4 or 6 KiB a write: rare enough to be free, small enough to lose little
RELATIVE_OFFSET_MAX: Final = 2_147_483_647


class CorruptIndexError(Exception):
    """An index file that cannot be trusted; its segment is recovered (Kafka: CorruptIndexException)."""


class AbstractIndex(ABC):
    """One index file of one segment.

    Life cycle: made empty or over an existing file, loaded at first use, appended to while its segment is active,
    `write`n at roll, flush and close, `unload`ed when the segment has not been read for long.
    """

    __slots__ = (
        "_file_system",
        "_has_file",
        "_loaded",
        "_must_truncate",
        "_written",
        "base_offset",
        "count",
        "entries_max",
        "path",
    )

    ENTRY_SIZE: ClassVar[int]

    def __init__(self, file_system: FileSystem, path: Path, base_offset: int, size_max: int, *, exists: bool) -> None:
        self._file_system = file_system
        self.path = path
        self.base_offset = base_offset
        self.entries_max = size_max // self.ENTRY_SIZE
        self._loaded = not exists
        self._has_file = exists
        self.count = 0  # entries in memory; 0 while not loaded, `entry_count` loads
        self._written = 0  # entries the file is known to hold; _written <= count once loaded
        self._must_truncate = False  # the file may be longer than what is in memory

    @property
    def entry_count(self) -> int:
        if not self._loaded:
            self.load()
        return self.count

    @property
    def is_loaded(self) -> bool:
        return self._loaded

    @property
    def has_file(self) -> bool:
        return self._has_file

    @property
    def is_written(self) -> bool:
        """Whether the file holds exactly the entries in memory."""
        return self._written == self.count and not self._must_truncate and self._has_file

    @property
    def size_bytes(self) -> int:
        """Of all entries; those that are not loaded are not read for it.  StorageFailure."""
        if self._loaded:
            return self.count * self.ENTRY_SIZE
        try:
            return self._file_system.size(self.path)
        except FileNotFoundError:
            return 0

    @property
    def memory_bytes(self) -> int:
        return self.count * self.ENTRY_SIZE if self._loaded else 0

    def load(self, *, strict: bool = False) -> None:
        """Read the file; missing means empty.  Part of an entry at its end is left out, as fewer entries only make a
        look-up longer; with `strict` it is a CorruptIndexError."""
        data = self._read_file() if self._has_file else b""
        partial = len(data) % self.ENTRY_SIZE
        if partial and strict:
            raise CorruptIndexError(f"{self.path}: {len(data)} bytes is no multiple of {self.ENTRY_SIZE}")
        self._decode(data[: len(data) - partial])
        self._written = self.count
        self._must_truncate = len(data) != self.count * self.ENTRY_SIZE
        self._loaded = True

    def _read_file(self) -> Buffer:
        try:
            file = self._file_system.open(self.path)
        except FileNotFoundError:
            return b""
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def unload(self) -> None:
        """Forget the entries; refused silently while the file lacks some of them."""
        if self._loaded and self.is_written:
            self._clear()
            self.count = 0
            self._written = 0
            self._loaded = False

    def reset(self) -> None:
        """Back to empty: the segment is about to be recovered."""
        self._clear()
        self._loaded = True
        self.count = 0
        self._written = 0
        self._must_truncate = True

    def write(self) -> None:
        """Bring the file up to the entries in memory, without waiting for the device.  StorageFailure, and nothing
        is lost: the next call tries again."""
        if not self._loaded or self.is_written:
            return
        file = self._file_system.open(self.path, create=True)
        try:
            if self._written < self.count:
                try:
                    file.write_at(self._written * self.ENTRY_SIZE, [self._encode(self._written, self.count)])
                except StorageFailure:
                    self._must_truncate = True
                    raise
                self._written = self.count
            if self._must_truncate:
                if file.size() > self.count * self.ENTRY_SIZE:
                    file.truncate(self.count * self.ENTRY_SIZE)
                self._must_truncate = False
        finally:
            file.close()
        self._has_file = True

    def _appended(self) -> None:
        self.count += 1
        if self.count - self._written >= BLOCK_ENTRIES and self.count % BLOCK_ENTRIES == 0:
            with contextlib.suppress(StorageFailure):  # kept in memory; flush, roll or close tries again and reports
                self.write()

    def _keep(self, count: int) -> None:
        """Drop the entries from `count` on."""
        if count < self.count:
            self._drop_from(count)
            self.count = count
            if self._written > count:
                self._written = count
                self._must_truncate = True

    @abstractmethod
    def _decode(self, data: Buffer) -> None:
        """Fill the arrays and `count` from a file's bytes, leaving out a tail of zeros."""

    @abstractmethod
    def _encode(self, start: int, end: int) -> bytes: ...

    @abstractmethod
    def _clear(self) -> None: ...

    @abstractmethod
    def _drop_from(self, count: int) -> None: ...
