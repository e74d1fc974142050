"""LogDirectory: what belongs to a log directory as a whole: clean-shutdown marker and checkpoints."""

import json
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Final

import structlog

from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem, read_file, write_file_atomically
from broker.common.identifiers import NO_EPOCH, TopicPartition
from broker.log.log_file_names import (
    DELETE_DIRECTORY_SUFFIX,
    REMOTE_INDEX_CACHE_DIRECTORY,
    is_cluster_metadata,
    parse_log_directory,
)
from broker.log.offset_checkpoint_file import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    OffsetCheckpointFile,
)

log = structlog.get_logger(__name__)

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"


class Checkpoint:
    """One checkpoint file, rewritten only when its content changed."""

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        self._file_system = file_system
        self._file = OffsetCheckpointFile(file_system, path)
        self._content: bytes | None = None
        self.is_lost = False  # the file was not there, or damaged, when it was read

    def read(self) -> dict[TopicPartition, int]:
        """A damaged file counts as empty: every one of these offsets is a short cut, or a lower bound."""
        try:
            self.is_lost = not self._file_system.exists(self._file.path)
            return self._file.read()
        except StorageFailure as failure:
            log.warning("checkpoint_unreadable", path=str(self._file.path), error=str(failure))
            self.is_lost = True
            return {}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file durably, unless it says that already.  Waits for the device, and takes ten milliseconds
        for ten thousand partitions: for the disk executor, one at a time.  StorageFailure."""
        content = self._file.encode(offsets)
        if content != self._content:
            self._file.write_content(content)
            self._content = content


class LogDirectory:
    """Everything here waits for the disk and is used at start and stop only; the node holds the directory's lock."""

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        self._file_system = file_system
        self.path = path
        self.recovery_points = Checkpoint(file_system, path / RECOVERY_POINT_CHECKPOINT)
        self.log_start_offsets = Checkpoint(file_system, path / LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = Checkpoint(file_system, path / REPLICATION_OFFSET_CHECKPOINT)
        self.cleaner_offsets = Checkpoint(file_system, path / CLEANER_OFFSET_CHECKPOINT)

    def take_clean_shutdown_marker(self) -> int | None:
        """The broker epoch of the last stop if it was clean, -1 when the marker does not tell; None after a crash.

        The marker is gone, durably, before anything is opened.
        """
        marker = self.path / CLEAN_SHUTDOWN_FILE
        try:
            content = read_file(self._file_system, marker)
        except FileNotFoundError:
            return None
        self._file_system.remove(marker)
        self._file_system.sync_directory(self.path)
        try:
            return int(json.loads(content)["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            return NO_EPOCH

    def write_clean_shutdown_marker(self, broker_epoch: int) -> None:
        """Last act of a clean stop: everything else is on the device."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        write_file_atomically(self._file_system, self.path / CLEAN_SHUTDOWN_FILE, content.encode())

    def subdirectories(self) -> list[str]:
        names = self._file_system.list_directory(self.path)
        return [name for name in names if self._file_system.is_directory(self.path / name)]

    def sort_out(self) -> tuple[list[TopicPartition], list[Path]]:
        """The partitions whose logs are here, and the directories that were set aside for deletion.  StorageFailure
        when there are other directories.

        Where no log is yet the cleaner's checkpoint is made: it is missed from then on, see `may_have_holes`."""
        partitions, deleted = [], []
        for name in self.subdirectories():
            if name == REMOTE_INDEX_CACHE_DIRECTORY or is_cluster_metadata(name):
                continue
            parsed = parse_log_directory(name)
            if parsed is None:
                raise StorageFailure(
                    f"Found directory {self.path / name}, which is not in the form of topic-partition or "
                    "topic-partition.uniqueId-delete. Kafka's log directories (and children) should only contain "
                    "Kafka topic data."
                )
            if parsed.suffix == DELETE_DIRECTORY_SUFFIX:
                deleted.append(self.path / name)
            elif parsed.suffix:
                log.warning("directory_set_aside_left_alone", directory=name)
            else:
                partitions.append(parsed.topic_partition)
        if not partitions and self.cleaner_offsets.is_lost:
            self.cleaner_offsets.write({})
        return partitions, deleted

    def may_have_holes(self, topic_partition: TopicPartition, cleaner_offsets: Container[TopicPartition]) -> bool:
        """Whether a log may have been compacted, and what is missing between its segments need not be lost.  When the
        checkpoint of cleaners is lost itself, each may: better a hole than what comes after it."""
        return topic_partition in cleaner_offsets or self.cleaner_offsets.is_lost
