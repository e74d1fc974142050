"""DirectoryFiles: objects as files, in functions that run in a thread and share nothing but the directory."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from crc32c import crc32c

from broker.common.buffers import Buffer
from broker.objectstore.errors import BucketNotFound, Corrupt, NotFound, PreconditionFailed, Refused
from broker.objectstore.objects import FolderPage, ListPage, ObjectHead, ObjectInfo

TEMPORARY: Final = ".tmp"  # no key begins with a dot
READ_BYTES: Final = 1 << 20
ABANDONED_SECONDS: Final = 24 * 3600  # a write that old has no writer any more
MAKE_FOLDER_ATTEMPTS: Final = 10  # others may remove a folder as fast as it is made, but not for ever


class DirectoryFiles:
    """The directory must be there: a bucket is made by whoever runs the cluster, and a missing mount is no bucket."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._temporary = directory / TEMPORARY

    def put(self, key: str, body: Buffer, write_id: str) -> None:
        with self._written(write_id, body) as temporary:
            self._into_place(temporary, key, replace=True)

    def put_if_absent(self, key: str, body: Buffer, write_id: str) -> None:
        with self._written(write_id, body) as temporary:
            try:
                self._into_place(temporary, key, replace=False)
            except FileExistsError:
                # On a network file system the answer to a link that was made may be lost, and then it exists.
                if os.stat(temporary).st_nlink < 2:
                    raise PreconditionFailed(f"{self._directory}: {key} is there already") from None

    def get_range(self, key: str, position: int, size_bytes: int) -> bytes:
        with self._opened(key) as descriptor:
            data = os.pread(descriptor, size_bytes, position)
            while len(data) < size_bytes:  # one pread returns at most 2 GiB
                more = os.pread(descriptor, size_bytes - len(data), position + len(data))
                if not more:
                    raise Corrupt(
                        f"{self._directory}: {key} has {os.fstat(descriptor).st_size} bytes, "
                        f"asked for {size_bytes} at {position}"
                    )
                data += more
            return data

    def head(self, key: str, checksum: bool) -> ObjectHead:
        with self._opened(key) as descriptor:
            stat = os.fstat(descriptor)
            crc = None
            if checksum:
                crc = 0
                while piece := os.read(descriptor, READ_BYTES):
                    crc = crc32c(piece, crc)
            return ObjectHead(stat.st_size, stat.st_mtime_ns // 1_000_000, crc)

    def list_page(self, prefix: str, continuation: str | None, page_size: int) -> ListPage:
        """In the order of path segments; `continuation` is the last key of the page before."""
        after = tuple(continuation.split("/")) if continuation else ()
        path = tuple(prefix.rstrip("/").split("/")) if prefix else ()
        objects = list(islice(self._walk(path, after), page_size))
        if not objects and not self._directory.is_dir():
            raise BucketNotFound(f"{self._directory} is not a directory")
        return ListPage(objects, objects[-1].key if len(objects) == page_size else None)

    def folder_page(self, prefix: str, continuation: str | None, page_size: int) -> FolderPage:
        """In the order of their keys; `continuation` is the last folder of the page before."""
        folder = self._directory / prefix
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            names = []
        if not names and not self._directory.is_dir():
            raise BucketNotFound(f"{self._directory} is not a directory")
        folders = sorted(f"{prefix}{name}/" for name in names)
        rest = [each for each in folders if continuation is None or each > continuation]
        page = rest[:page_size]
        return FolderPage(page, page[-1] if len(rest) > page_size else None)

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            path = self._directory / key
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
            self._remove_empty_folders(path.parent)

    def probe(self) -> None:
        """Whether one could write here."""
        self._make_temporary()
        if not os.access(self._temporary, os.W_OK | os.X_OK):
            raise PermissionError(f"{self._temporary} cannot be written")

    def start_upload(self, upload_id: str) -> None:
        os.close(self._create(upload_id))

    def upload_part(self, upload_id: str, position: int, body: Buffer) -> None:
        try:
            descriptor = os.open(self._temporary_file(upload_id), os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFound(f"{self._directory}: no upload {upload_id}") from None
        try:
            _write_all(descriptor, body, position)
        finally:
            os.close(descriptor)

    def complete_upload(self, upload_id: str, key: str, size_bytes: int) -> None:
        temporary = self._temporary_file(upload_id)
        try:
            have = temporary.stat().st_size
        except FileNotFoundError:
            raise NotFound(f"{self._directory}: no upload {upload_id}") from None
        if have != size_bytes:
            raise Refused(f"{self._directory}: parts of {key} are missing: {have} bytes of {size_bytes}")
        self._into_place(temporary, key, replace=True)

    def abort_upload(self, upload_id: str) -> None:
        self._temporary_file(upload_id).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _written(self, write_id: str, body: Buffer) -> Iterator[Path]:
        """A file outside of what is listed; it is gone afterwards, or has its name."""
        temporary = self._temporary_file(write_id)
        descriptor = self._create(write_id)
        try:
            try:
                _write_all(descriptor, body, 0)
            finally:
                os.close(descriptor)
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)

    def _into_place(self, temporary: Path, key: str, *, replace: bool) -> None:
        target = self._directory / key
        for attempt in range(MAKE_FOLDER_ATTEMPTS):
            self._make_folder(target.parent, key)
            try:
                if replace:
                    os.rename(temporary, target)
                else:
                    os.link(temporary, target)
                return
            except FileNotFoundError:
                if attempt == MAKE_FOLDER_ATTEMPTS - 1:
                    raise
            except IsADirectoryError:
                raise Refused(f"{self._directory}: {key} is a folder") from None

    def _make_folder(self, folder: Path, key: str) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise Refused(f"{self._directory}: {key} is below another object") from None

    def _walk(self, folder: tuple[str, ...], after: tuple[str, ...]) -> Iterator[ObjectInfo]:
        """Files below `folder` whose path comes after `after`."""
        try:
            with os.scandir(self._directory.joinpath(*folder)) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in found:
            path = (*folder, entry.name)
            if entry.name.startswith(".") or path < after[: len(path)]:
                continue
            if entry.is_dir():
                yield from self._walk(path, after)
            elif path > after and entry.is_file():
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    stat = entry.stat()
                    yield ObjectInfo("/".join(path), stat.st_size, stat.st_mtime_ns // 1_000_000)

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        try:
            descriptor = os.open(self._directory / key, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            if not self._directory.is_dir():
                raise BucketNotFound(f"{self._directory} is not a directory") from None
            raise NotFound(f"{self._directory}: there is no {key}") from None
        try:
            if os.path.isdir(descriptor):
                raise NotFound(f"{self._directory}: {key} is a folder")
            yield descriptor
        finally:
            os.close(descriptor)

    def _create(self, write_id: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(self._temporary_file(write_id), flags, 0o644)
        except FileNotFoundError:
            self._make_temporary()
            return os.open(self._temporary_file(write_id), flags, 0o644)

    def _make_temporary(self) -> None:
        try:
            self._temporary.mkdir(exist_ok=True)
        except (FileNotFoundError, NotADirectoryError):
            raise BucketNotFound(f"{self._directory} is not a directory") from None
        self._remove_abandoned()

    def _remove_abandoned(self) -> None:
        """What a writer that died left: told by the file system's own clock."""
        os.utime(self._temporary)
        now = self._temporary.stat().st_mtime
        for name in sorted(os.scandir(self._temporary), key=lambda entry: entry.name):
            with contextlib.suppress(FileNotFoundError):
                if now - name.stat().st_mtime > ABANDONED_SECONDS:
                    os.unlink(name)

    def _remove_empty_folders(self, folder: Path) -> None:
        while folder != self._directory:
            try:
                folder.rmdir()
            except OSError:
                return  # not empty, or gone
            folder = folder.parent

    def _temporary_file(self, write_id: str) -> Path:
        assert "/" not in write_id and write_id, write_id
        return self._temporary / write_id


def _write_all(descriptor: int, body: Buffer, position: int) -> None:
    rest = memoryview(body)
    while rest:
        written = os.pwrite(descriptor, rest, position)
        rest, position = rest[written:], position + written
