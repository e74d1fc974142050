"""DiskReserve: space kept back so that a node can start, and be asked for help, when its disk is full.

A start writes a little: a new epoch, a registration, checkpoints.  On a full disk it could not, and an operator could
not even delete a topic.  So a file of a fixed size is given up at the start and taken back before clients return.
"""

from pathlib import Path
from typing import Final

import structlog

from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem

log = structlog.get_logger(__name__)

RESERVE_FILE: Final = ".reserve"  # a dot in front: no data of anybody
RESERVE_BYTES: Final = 1 << 20
_CHUNK: Final = b"space kept back for the next start on a full disk\n" * 1024


class DiskReserve:
    """The reserve of one data directory; the caller holds the directory's lock."""

    def __init__(self, file_system: FileSystem, directory: Path) -> None:
        self._file_system = file_system
        self._path = directory / RESERVE_FILE

    def release(self) -> None:
        """Give the space to whoever starts.  StorageFailure."""
        self._file_system.remove(self._path)

    def restore(self) -> None:
        """Take it back, or as much as there is."""
        try:
            file = self._file_system.open(self._path, create=True)
            try:
                for position in range(0, RESERVE_BYTES, len(_CHUNK)):
                    file.write_at(position, [_CHUNK[: RESERVE_BYTES - position]])
            finally:
                file.close()
        except StorageFailure as failure:
            log.warning("disk_reserve_incomplete", path=str(self._path), error=str(failure))
