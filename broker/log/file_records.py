"""FileRecords: the `.log` file of a segment, and FileSlice: a range of it on its way to a reader."""

import contextlib
import functools
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from broker.common.buffers import Buffer
from broker.common.errors import CorruptMessageError, StorageFailure
from broker.common.file_system import File, FileSystem
from broker.records.record_batch import HEADER_UP_TO_MAGIC_SIZE, LOG_OVERHEAD, RecordBatch

_HEADER: Final = struct.Struct(">qiibIhi")  # base offset .. last offset delta
_BASE_OFFSET: Final = struct.Struct(">q")
_LENGTH_MIN: Final = 14  # LegacyRecord.RECORD_OVERHEAD_V0: below it, no format fits
SCAN_BYTES: Final = 256 * 1024  # read at once when every batch is wanted
LOCATE_BYTES: Final = 4352  # one index interval (4096) and the headers at its ends


class OpenFile:
    """An open file that closes when nobody refers to it: neither its segment nor a read under way.

    So a segment may be evicted, rolled or deleted while a thread still reads from it.
    """

    __slots__ = ("_file", "close", "read_at", "read_cached_at", "sync", "truncate", "write_at")

    def __init__(self, file: File) -> None:
        self._file = file
        self.read_at = file.read_at
        self.read_cached_at = file.read_cached_at
        self.write_at = file.write_at
        self.truncate = file.truncate
        self.sync = file.sync
        self.close = file.close

    @property
    def path(self) -> Path:
        return self._file.path

    def size(self) -> int:
        return self._file.size()

    def __del__(self) -> None:
        self._file.close()


class FileSlice:
    """A range of a log file that holds whole batches.  It keeps the file open."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: OpenFile, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path}, position={self.position}, size={self.size})"


def read_cached(file_slice: FileSlice) -> Buffer | None:
    """The bytes if the page cache has them all, else None: then `read` them in a thread."""
    return file_slice.file.read_cached_at(file_slice.position, file_slice.size)


def read(file_slice: FileSlice) -> Buffer:
    """The bytes, waiting for the disk: for the disk executor.  Short when the file was cut meanwhile."""
    return file_slice.file.read_at(file_slice.position, file_slice.size)


class BatchPosition(NamedTuple):
    """What locating needs of a batch header."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int


_make_position: Final = functools.partial(tuple.__new__, BatchPosition)  # a fraction of what the class's call costs


class FileRecords:
    """The batches of one segment.  `size_bytes` is where the next batch goes: what is beyond it does not exist.

    The descriptor is opened at first use; `release` gives it back.
    """

    __slots__ = ("_file", "_file_system", "_is_tail_dirty", "path", "size_bytes")

    def __init__(self, file_system: FileSystem, path: Path, size_bytes: int) -> None:
        self._file_system = file_system
        self.path = path
        self.size_bytes = size_bytes
        self._file: OpenFile | None = None
        self._is_tail_dirty = False

    @classmethod
    def create(cls, file_system: FileSystem, path: Path) -> "FileRecords":
        """Make an empty file, replacing one of that name.  StorageFailure."""
        records = cls(file_system, path, 0)
        records._file = OpenFile(file_system.open(path, create=True))
        if records._file.size():  # a new file needs no truncation, which costs a journal entry
            records._file.truncate(0)
        return records

    @property
    def is_open(self) -> bool:
        return self._file is not None

    @property
    def file(self) -> OpenFile:
        if self._file is None:
            try:
                self._file = OpenFile(self._file_system.open(self.path))
            except FileNotFoundError as error:
                raise StorageFailure(f"{self.path} is gone") from error
        return self._file

    def release(self) -> None:
        """Give the descriptor back; a read under way keeps its own hold."""
        self._file = None

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Put bytes after the end without moving it: `advance` accepts them, `abandon` cuts them off again.

        StorageFailure: nothing was accepted and the file is cut back; where even that fails, it is cut before the
        next write.
        """
        if self._is_tail_dirty:
            self._cut_tail()
        try:
            (self._file or self.file).write_at(self.size_bytes, buffers)
        except StorageFailure:
            self.abandon()
            raise

    def advance(self, size: int) -> None:
        """The last `size` bytes written now belong to the log."""
        self.size_bytes += size

    def abandon(self) -> None:
        """Cut off what was written but not accepted."""
        self._is_tail_dirty = True
        with contextlib.suppress(StorageFailure):  # `write` tries again before it writes anything
            self._cut_tail()

    def truncate_to(self, position: int) -> None:
        assert position <= self.size_bytes, f"{self.path}: cut at {position} of {self.size_bytes}"
        self.file.truncate(position)
        self.size_bytes = position

    def sync(self) -> None:
        self.file.sync()

    def slice(self, position: int, size: int) -> FileSlice:
        return FileSlice(self._file or self.file, position, size)

    def base_offset_at(self, position: int) -> int:
        """Of the batch that begins there."""
        base_offset: int = _BASE_OFFSET.unpack_from(self._read_near(position, _BASE_OFFSET.size))[0]
        return base_offset

    def find(self, offset: int, position: int) -> int | None:
        """Where the first batch begins, from `position` on, that has `offset` or a later one."""
        for batch_position, _, _, last_offset, _ in self.batch_positions(position):
            if last_offset >= offset:
                return batch_position
        return None

    def batch_positions(self, position: int, end: int | None = None) -> Iterator[BatchPosition]:
        """The headers of the whole batches from `position`, a batch start, up to `end` (default: all)."""
        end = self.size_bytes if end is None else min(end, self.size_bytes)
        chunk: Buffer = b""
        chunk_start = position
        while position + HEADER_UP_TO_MAGIC_SIZE < end:
            at = position - chunk_start
            if at + _HEADER.size > len(chunk):
                chunk_start, at = position, 0
                chunk = self._read_near(position, min(LOCATE_BYTES, end - position))
                if len(chunk) < _HEADER.size:
                    return
            base_offset, length, leader_epoch, _, _, _, last_offset_delta = _HEADER.unpack_from(chunk, at)
            size = length + LOG_OVERHEAD
            if length < _LENGTH_MIN:
                raise CorruptMessageError(f"{self.path}: a batch at position {position} claims {size} bytes")
            if position + size > end:
                return
            yield _make_position((position, size, base_offset, base_offset + last_offset_delta, leader_epoch))
            position += size

    def batches(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, RecordBatch]]:
        """The whole batches from `position` on with their positions; ends at a partial one.

        CorruptMessageError where no batch can be.  The CRC is not checked.  `end` may be beyond `size_bytes`.
        """
        end = self.size_bytes if end is None else end
        chunk = memoryview(b"")
        chunk_start = position
        while position + HEADER_UP_TO_MAGIC_SIZE < end:
            at = position - chunk_start
            if at + LOG_OVERHEAD > len(chunk):
                chunk_start, at = position, 0
                chunk = memoryview(self.file.read_at(position, min(SCAN_BYTES, end - position)))
                if len(chunk) < HEADER_UP_TO_MAGIC_SIZE:
                    return
            size = int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True) + LOG_OVERHEAD
            if size < _LENGTH_MIN + LOG_OVERHEAD:
                raise CorruptMessageError(f"{self.path}: a batch at position {position} claims {size} bytes")
            if position + size > end:
                return
            if at + size > len(chunk):
                chunk_start, at = position, 0
                chunk = memoryview(self.file.read_at(position, min(max(SCAN_BYTES, size), end - position)))
                if len(chunk) < size:
                    return
            yield position, RecordBatch.parse(chunk[at : at + size])
            position += size

    def _read_near(self, position: int, size: int) -> Buffer:
        cached = self.file.read_cached_at(position, size)
        return cached if cached is not None else self.file.read_at(position, size)

    def _cut_tail(self) -> None:
        self.file.truncate(self.size_bytes)
        self._is_tail_dirty = False
