"""SimFileSystem: the FileSystem port in memory, with what real disks do to those who trust them.

`crash` is a power cut: bytes that were not synced may be lost, torn or out of order, names that were not synced with
their directory may be missing or old.  A full disk (`budget_bytes`) and failing paths (`fail`) are refusals that the
caller sees.  Model of what survives: a file's size changes in order and its bytes in sectors; the names of a directory
change in order, as in a journal.
"""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

from broker.common.buffers import Buffer
from broker.common.chance import Chance
from broker.common.errors import StorageFailure

SECTOR = 512


class _Write:
    """One unsynced change of a file: bytes at a position, or (data None) a cut to `position`."""

    __slots__ = ("data", "position")

    def __init__(self, position: int, data: bytes | None) -> None:
        self.position = position
        self.data = data


class _Inode:
    __slots__ = ("content", "durable", "modified_ms", "pending")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        self.pending: list[_Write] = []
        self.modified_ms = 0

    def sync(self) -> None:
        durable = bytearray(self.durable)
        for write in self.pending:
            _apply(durable, write)
        self.durable = bytes(durable)
        self.pending.clear()


class _Directory:
    """Names of files (inodes) and directories."""

    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        self.pending: list[dict[str, _Inode | _Directory]] = []  # the names after each unsynced change

    def changed(self) -> None:
        self.pending.append(dict(self.names))

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.pending.clear()


class SimFile:
    """An open file: keeps working when its name is gone, fails when closed or when the power was cut."""

    def __init__(self, file_system: "SimFileSystem", path: Path, inode: _Inode) -> None:
        self._file_system = file_system
        self._path = path
        self._inode = inode
        self._generation = file_system.generation
        self._is_open = True
        file_system.open_files += 1

    @property
    def path(self) -> Path:
        return self._path

    def size(self) -> int:
        self._check()
        return len(self._inode.content)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        self._check()
        data = b"".join(bytes(buffer) for buffer in buffers)
        self._file_system.count("write", self._path)
        content = self._inode.content
        growth = max(0, position + len(data) - len(content))
        room = self._file_system.room()
        short = room is not None and growth > room
        if short:  # like a disk: what fits is written, then the refusal comes
            assert room is not None
            data = data[: max(0, len(data) - (growth - room))]
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
        if data:
            self._inode.pending.append(_Write(position, data))
        self._inode.modified_ms = self._file_system.now_ms()
        if short:
            raise StorageFailure(f"{self._path}: no space left on device") from OSError(errno.ENOSPC, "full")
        return len(data)

    def read_at(self, position: int, size: int) -> bytes:
        self._check()
        return bytes(self._inode.content[position : position + size])

    def read_cached_at(self, position: int, size: int) -> bytes | None:
        self._check()
        data = bytes(self._inode.content[position : position + size])
        return data if len(data) == size and self._file_system.is_cached else None

    def truncate(self, size: int) -> None:
        self._check()
        self._file_system.count("truncate", self._path)
        content = self._inode.content
        if size < len(content):
            del content[size:]
        else:
            content.extend(bytes(size - len(content)))
        self._inode.pending.append(_Write(size, None))
        self._inode.modified_ms = self._file_system.now_ms()

    def sync(self) -> None:
        self._check()
        try:
            self._file_system.count("sync", self._path)
        except StorageFailure:
            self._inode.pending.clear()  # clean, says Linux: the next sync succeeds, and the device never gets them
            raise
        self._inode.sync()

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._file_system.open_files -= 1

    def _check(self) -> None:
        if not self._is_open or self._generation != self._file_system.generation:
            raise StorageFailure(f"{self._path} is closed")


class SimLock:
    def __init__(self, file_system: "SimFileSystem", path: Path) -> None:
        self._file_system = file_system
        self._path = path

    def release(self) -> None:
        self._file_system.locks.pop(self._path, None)


class SimFileSystem:
    """A disk in memory.  Not for use by several threads."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.now_ms = now_ms
        self.budget_bytes: int | None = None  # bytes the files may take together; None: no limit
        self.is_cached = True  # False: every read has to wait
        self.generation = 0  # files opened before a crash are dead after it
        self.open_files = 0
        self.locks: dict[Path, None] = {}
        self.operations: dict[str, int] = {}
        self._root = _Directory()
        self._failing: dict[Path, frozenset[str]] = {}

    # -- faults ----------------------------------------------------------------------------------------------------

    def fail(self, path: Path, *operations: str) -> None:
        """Refuse operations (write, truncate, sync, open, create, rename, remove, mkdir) on that path and below."""
        self._failing[path] = frozenset(operations)

    def heal(self) -> None:
        self._failing.clear()
        self.budget_bytes = None

    def erase(self) -> None:
        """Another disk, an empty one, in its place."""
        self._root = _Directory()

    def used_bytes(self) -> int:
        return _used(self._root)

    def room(self) -> int | None:
        return None if self.budget_bytes is None else max(0, self.budget_bytes - self.used_bytes())

    def crash(self, chance: Chance) -> None:
        """Cut the power: what is on the device afterwards is the durable state and a chance part of the rest."""
        self.generation += 1
        self.open_files = 0
        self.locks.clear()
        self._failing.clear()
        _crash_directory(self._root, chance, {})

    def kill(self) -> None:
        """The process is gone and the machine is not: what was written stays, synced or not."""
        self.generation += 1
        self.open_files = 0
        self.locks.clear()

    def count(self, operation: str, path: Path) -> None:
        """Account for an operation, or refuse it."""
        self.operations[operation] = self.operations.get(operation, 0) + 1
        for failing, operations in self._failing.items():
            if operation in operations and (path == failing or failing in path.parents):
                raise StorageFailure(f"{path}: {operation} refused") from OSError(errno.EIO, "refused")

    # -- the port --------------------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False) -> SimFile:
        self.count("open", path)
        directory = self._directory(path.parent)
        if directory is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path.parent))
        inode = directory.names.get(path.name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
            self.count("create", path)
            inode = _Inode()
            inode.modified_ms = self.now_ms()
            directory.names[path.name] = inode
            directory.changed()
        if isinstance(inode, _Directory):
            raise StorageFailure(f"{path} is a directory")
        return SimFile(self, path, inode)

    def exists(self, path: Path) -> bool:
        return self._node(path) is not None

    def size(self, path: Path) -> int:
        return len(self._inode(path).content)

    def modified_ms(self, path: Path) -> int:
        return self._inode(path).modified_ms

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        self._inode(path).modified_ms = modified_ms

    def list_directory(self, path: Path) -> list[str]:
        return sorted(self._existing_directory(path).names)

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._node(path), _Directory)

    def make_directories(self, path: Path) -> None:
        directory = self._root
        for part in path.parts:
            node = directory.names.get(part)
            if node is None:
                self.count("mkdir", path)
                node = _Directory()
                directory.names[part] = node
                directory.changed()
            assert isinstance(node, _Directory), f"{path}: {part} is a file"
            directory = node

    def rename(self, source: Path, target: Path) -> None:
        self.count("rename", source)
        from_directory, to_directory = self._existing_directory(source.parent), self._existing_directory(target.parent)
        node = from_directory.names.pop(source.name, None)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(source))
        to_directory.names[target.name] = node
        from_directory.changed()
        if to_directory is not from_directory:
            to_directory.changed()

    def remove(self, path: Path) -> None:
        self.count("remove", path)
        directory = self._directory(path.parent)
        if directory is not None and directory.names.pop(path.name, None) is not None:
            directory.changed()

    def remove_tree(self, path: Path) -> None:
        self.remove(path)

    def sync_directory(self, path: Path) -> None:
        self.count("sync", path)
        self._existing_directory(path).sync()

    def lock(self, path: Path) -> SimLock:
        if path in self.locks:
            raise StorageFailure(f"{path} is locked: another broker runs on this directory")
        self.open(path, create=True).close()
        self.locks[path] = None
        return SimLock(self, path)

    # -- for tests -------------------------------------------------------------------------------------------------

    def read(self, path: Path) -> bytes:
        """The bytes of a file as a process sees them now."""
        return bytes(self._inode(path).content)

    def overwrite(self, path: Path, content: bytes) -> None:
        """Put bytes on the device behind everyone's back."""
        inode = self._inode(path)
        inode.content = bytearray(content)
        inode.durable = content
        inode.pending.clear()

    def sync_everything(self) -> None:
        """What the operating system does by itself now and then."""
        _sync(self._root)

    def _node(self, path: PurePath) -> "_Inode | _Directory | None":
        node: _Inode | _Directory | None = self._root
        for part in path.parts:
            if not isinstance(node, _Directory):
                return None
            node = node.names.get(part)
        return node

    def _directory(self, path: PurePath) -> _Directory | None:
        node = self._node(path)
        return node if isinstance(node, _Directory) else None

    def _existing_directory(self, path: PurePath) -> _Directory:
        directory = self._directory(path)
        if directory is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        return directory

    def _inode(self, path: PurePath) -> _Inode:
        node = self._node(path)
        if not isinstance(node, _Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return node


def _used(node: "_Inode | _Directory") -> int:
    if isinstance(node, _Inode):
        return len(node.content)
    return sum(_used(child) for child in node.names.values())


def _sync(node: "_Inode | _Directory") -> None:
    if isinstance(node, _Inode):
        node.durable = bytes(node.content)
        node.pending.clear()
        return
    node.sync()
    for child in node.names.values():
        _sync(child)


def _crash_directory(directory: _Directory, chance: Chance, seen: dict[int, None]) -> None:
    """A directory keeps a prefix of its unsynced changes; what is below it is treated likewise."""
    survived = chance.below(len(directory.pending) + 1)
    directory.names = dict(directory.pending[survived - 1]) if survived else dict(directory.durable)
    directory.sync()
    for node in directory.names.values():
        if id(node) in seen:
            continue
        seen[id(node)] = None
        if isinstance(node, _Directory):
            _crash_directory(node, chance, seen)
        else:
            _crash_file(node, chance)


def _crash_file(inode: _Inode, chance: Chance) -> None:
    fate = chance.below(4)
    if fate == 1:  # the operating system had written everything
        inode.sync()
    content = bytearray(inode.durable)
    if fate == 2:  # a prefix of the changes, the last one torn anywhere
        survived = chance.below(len(inode.pending) + 1)
        for number, write in enumerate(inode.pending[: survived + 1]):
            if number < survived:
                _apply(content, write)
            elif write.data is not None:
                _apply(content, _Write(write.position, write.data[: chance.below(len(write.data) + 1)]))
    elif fate == 3:  # sizes are journalled in order, sectors are written in any
        survived = chance.below(len(inode.pending) + 1)
        for write in inode.pending[:survived]:
            if write.data is None:
                _apply(content, write)
            else:
                _apply_sectors(content, write, chance)
    inode.content = content
    inode.durable = bytes(content)
    inode.pending.clear()


def _apply(content: bytearray, write: _Write) -> None:
    if write.data is None:
        if write.position < len(content):
            del content[write.position :]
        else:
            content.extend(bytes(write.position - len(content)))
        return
    if write.position > len(content):
        content.extend(bytes(write.position - len(content)))
    content[write.position : write.position + len(write.data)] = write.data


def _apply_sectors(content: bytearray, write: _Write, chance: Chance) -> None:
    assert write.data is not None
    end = write.position + len(write.data)
    if end > len(content):
        content.extend(bytes(end - len(content)))
    start = write.position
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        if chance.below(2):
            content[start:stop] = write.data[start - write.position : stop - write.position]
        start = stop
