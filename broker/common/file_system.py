"""The FileSystem port: files and directories as the log needs them, synchronous on purpose.

It is used both in the loop (page-cache writes, warm reads) and inside the disk executor (fsync, cold reads).
Foreign exceptions stop here: `OSError` becomes `StorageFailure`, except "not found" where a caller can act on it.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from broker.common.buffers import Buffer
from broker.common.errors import StorageFailure
from broker.common.read_buffers import ReadBuffers

WRITE_VECTOR_MAX = 1000  # below IOV_MAX (1024)


class File(Protocol):
    """An open file.  Positions and sizes are bytes."""

    @property
    def path(self) -> Path: ...

    def size(self) -> int:
        """The file's length now, as the file system knows it."""

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        """Write all buffers, one after the other; returns the bytes written.  StorageFailure when any is missing."""

    def read_at(self, position: int, size: int) -> bytes | bytearray:
        """Up to `size` bytes; short only at the end of the file.  May wait for the disk."""

    def read_cached_at(self, position: int, size: int) -> Buffer | None:
        """The same if it needs no disk (page cache), else None: the caller then hops to a thread.  Exactly `size`
        bytes.  For the event loop only."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Flush the file's bytes to the device (fdatasync)."""

    def close(self) -> None: ...


class FileSystem(Protocol):
    """Directories are `Path`s; every listing is sorted, so runs repeat."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError when missing and not `create`."""

    def exists(self, path: Path) -> bool: ...
    def size(self, path: Path) -> int: ...
    def modified_ms(self, path: Path) -> int: ...
    def set_modified_ms(self, path: Path, modified_ms: int) -> None: ...
    def list_directory(self, path: Path) -> list[str]: ...
    def is_directory(self, path: Path) -> bool: ...
    def make_directories(self, path: Path) -> None: ...
    def rename(self, source: Path, target: Path) -> None:
        """Atomic replace; not durable until `sync_directory` of the parent."""

    def remove(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""

    def remove_tree(self, path: Path) -> None: ...
    def sync_directory(self, path: Path) -> None: ...
    def lock(self, path: Path) -> "FileLock":
        """Take an exclusive lock or raise StorageFailure when another process holds it."""


class FileLock(Protocol):
    def release(self) -> None: ...


@contextlib.contextmanager
def _storage_failures(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageFailure(f"{path}: {error.strerror or error}") from error


class OsFile:
    """A file of the operating system, by descriptor."""

    __slots__ = ("_descriptor", "_path", "_read_buffers")

    def __init__(self, path: Path, descriptor: int, read_buffers: ReadBuffers) -> None:
        self._path = path
        self._descriptor = descriptor
        self._read_buffers = read_buffers

    @property
    def path(self) -> Path:
        return self._path

    def size(self) -> int:
        with _storage_failures(self._path):
            return os.fstat(self._descriptor).st_size

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        try:
            if len(buffers) == 1:
                expected = len(buffers[0])
                written = os.pwrite(self._descriptor, buffers[0], position)
                if written == expected:
                    return written
                return written + self._write_rest(position + written, memoryview(buffers[0])[written:])
            written = 0
            for start in range(0, len(buffers), WRITE_VECTOR_MAX):
                part = buffers[start : start + WRITE_VECTOR_MAX]
                expected = sum(map(len, part))
                done = os.pwritev(self._descriptor, part, position + written)
                if done != expected:
                    rest = memoryview(b"".join(part))[done:]
                    done += self._write_rest(position + written + done, rest)
                written += done
            return written
        except OSError as error:
            raise StorageFailure(f"{self._path}: {error.strerror or error}") from error

    def _write_rest(self, position: int, rest: memoryview) -> int:
        total = 0
        while rest:
            done = os.pwrite(self._descriptor, rest, position + total)
            if done == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            total += done
            rest = rest[done:]
        return total

    def read_at(self, position: int, size: int) -> bytes | bytearray:
        with _storage_failures(self._path):
            data = os.pread(self._descriptor, size, position)
            if len(data) == size or not data:
                return data
            parts = [data]
            have = len(data)
            while have < size:  # one pread returns at most 2 GiB, and a signal can shorten it
                data = os.pread(self._descriptor, size - have, position + have)
                if not data:
                    break
                parts.append(data)
                have += len(data)
            return b"".join(parts)

    def read_cached_at(self, position: int, size: int) -> Buffer | None:
        buffer = self._read_buffers.lend(size)
        try:
            if os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT) == size:
                return buffer
        except OSError:  # EAGAIN: not cached.  EOPNOTSUPP: a file system without the flag.
            pass
        return None

    def truncate(self, size: int) -> None:
        with _storage_failures(self._path):
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        if self._descriptor < 0:  # closed under a thread's feet; Python has no OSError for it
            raise StorageFailure(f"{self._path}: {os.strerror(errno.EBADF)}")
        with _storage_failures(self._path):
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OsFileLock:
    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


class OsFileSystem:
    """The real disk."""

    def __init__(self) -> None:
        self._read_buffers = ReadBuffers()

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        with _storage_failures(path):
            flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
            return OsFile(path, os.open(path, flags, 0o644), self._read_buffers)

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        with _storage_failures(path):
            return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        with _storage_failures(path):
            return path.stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        with _storage_failures(path):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def list_directory(self, path: Path) -> list[str]:
        with _storage_failures(path):
            return sorted(os.listdir(path))  # noqa: TID251  sorted here, once, for everyone

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def make_directories(self, path: Path) -> None:
        with _storage_failures(path):
            path.mkdir(parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        with _storage_failures(source):
            os.replace(source, target)

    def remove(self, path: Path) -> None:
        with _storage_failures(path):
            path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        with _storage_failures(path), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_directory(self, path: Path) -> None:
        with _storage_failures(path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def lock(self, path: Path) -> OsFileLock:
        with _storage_failures(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(descriptor)
                raise StorageFailure(f"{path} is locked: another broker runs on this directory") from error
            return OsFileLock(path, descriptor)


def read_file(file_system: FileSystem, path: Path) -> bytes:
    """The whole of a small file; FileNotFoundError when missing."""
    file = file_system.open(path)
    try:
        return bytes(file.read_at(0, file.size()))
    finally:
        file.close()


def write_file_atomically(file_system: FileSystem, path: Path, content: bytes) -> None:
    """Replace a small file so that a crash leaves the old or the new content, never a mix.

    Kafka's recipe: write `<name>.tmp`, flush it, rename over, flush the directory.
    """
    temporary = path.with_name(path.name + ".tmp")
    file = file_system.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(0, [content])
        file.sync()
    finally:
        file.close()
    file_system.rename(temporary, path)
    file_system.sync_directory(path.parent)
