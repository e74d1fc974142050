"""DiskReserve: a little room that is given back when the disk is full, so that the cluster can still be told things.

A full disk refuses data, which is a broker's every-day trouble; but a controller that cannot write a registration keeps
the broker from starting at all, and with it the deletes and the retention that would make room.
"""

from pathlib import Path
from typing import Final

import structlog

from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem

RESERVE_BYTES: Final = 1 << 20  # one start of a broker with ten thousand partitions, and room
_BLOCK: Final = bytes(1 << 16)

log = structlog.get_logger(__name__)


class DiskReserve:
    """A file of zeros: real blocks, not a hole.  `ensure` runs in a thread, `release` anywhere."""

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        self._file_system = file_system
        self._path = path

    def ensure(self) -> bool:
        """Take the room if it is not taken; False when the disk has none to spare."""
        if self._file_system.exists(self._path) and self._file_system.size(self._path) == RESERVE_BYTES:
            return True
        try:
            file = self._file_system.open(self._path, create=True)
            try:
                for position in range(0, RESERVE_BYTES, len(_BLOCK)):
                    file.write_at(position, [_BLOCK])
                file.sync()
            finally:
                file.close()
        except StorageFailure:
            self._file_system.remove(self._path)  # what it has taken so far is what others lack
            return False
        return True

    def release(self) -> bool:
        """Give the room back; False when there was none."""
        if not self._file_system.exists(self._path):
            return False
        self._file_system.remove(self._path)
        log.warning("metadata_reserve_released", size_bytes=RESERVE_BYTES)
        return True
