"""LogDirectory: what belongs to a log directory as a whole: lock, clean-shutdown marker, checkpoints."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from broker.common.errors import StorageFailure
from broker.common.file_system import FileLock, FileSystem, write_file_atomically
from broker.common.identifiers import TopicPartition
from broker.log.offset_checkpoint_file import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    OffsetCheckpointFile,
)

log = structlog.get_logger(__name__)

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
LOCK_FILE: Final = ".lock"


class Checkpoint:
    """One checkpoint file, rewritten only when its content changed."""

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        self._file = OffsetCheckpointFile(file_system, path)
        self._content: bytes | None = None

    def read(self) -> dict[TopicPartition, int]:
        """A damaged file counts as empty: every one of these offsets is a short cut, or a lower bound."""
        try:
            return self._file.read()
        except StorageFailure as failure:
            log.warning("checkpoint_unreadable", path=str(self._file.path), error=str(failure))
            return {}

    def encode(self, offsets: Mapping[TopicPartition, int]) -> bytes | None:
        """The new content; None when the file has it already."""
        content = self._file.encode(offsets)
        return None if content == self._content else content

    def write_content(self, content: bytes) -> None:
        """Replace the file durably.  Waits for the device: for the disk executor.  StorageFailure."""
        self._file.write_content(content)

    def written(self, content: bytes) -> None:
        self._content = content


class LogDirectory:
    """Locked from `lock` to `release`.  Everything here waits for the disk and is used at start and stop only."""

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        self._file_system = file_system
        self.path = path
        self._lock: FileLock | None = None
        self.recovery_points = Checkpoint(file_system, path / RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = Checkpoint(file_system, path / LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = Checkpoint(file_system, path / REPLICATION_OFFSET_CHECKPOINT)

    def lock(self) -> None:
        """StorageFailure when another process has it."""
        self._file_system.make_directories(self.path)
        self._lock = self._file_system.lock(self.path / LOCK_FILE)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def take_clean_shutdown_marker(self) -> bool:
        """Whether the last stop was clean; the marker is gone, durably, before anything is opened."""
        marker = self.path / CLEAN_SHUTDOWN_FILE
        if not self._file_system.exists(marker):
            return False
        self._file_system.remove(marker)
        self._file_system.sync_directory(self.path)
        return True

    def write_clean_shutdown_marker(self, broker_epoch: int) -> None:
        """Last act of a clean stop: everything else is on the device."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        write_file_atomically(self._file_system, self.path / CLEAN_SHUTDOWN_FILE, content.encode())

    def subdirectories(self) -> list[str]:
        names = self._file_system.list_directory(self.path)
        return [name for name in names if self._file_system.is_directory(self.path / name)]
