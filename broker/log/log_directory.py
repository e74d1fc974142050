"""LogDirectory: what belongs to a log directory as a whole: its clean-shutdown marker, and which logs are in it."""

import json
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

log = structlog.get_logger(__name__)

CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"


class LogDirectory:
    """Everything here waits for the disk and is used at start and stop only; the node holds the directory's lock."""

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        self._file_system = file_system
        self.path = path

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
        when there are other directories."""
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
        return partitions, deleted
