"""Names of files and directories of a log: twenty digits and a suffix (Kafka: LogFileUtils, LocalLog)."""

import re
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from broker.common.identifiers import CLUSTER_METADATA_TOPIC, TopicPartition

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TEMPORARY_SUFFIX: Final = ".tmp"

DELETE_DIRECTORY_SUFFIX: Final = "-delete"
FUTURE_DIRECTORY_SUFFIX: Final = "-future"
STRAY_DIRECTORY_SUFFIX: Final = "-stray"
REMOTE_INDEX_CACHE_DIRECTORY: Final = "remote-log-index-cache"

FILE_NAME_MAX: Final = 255

_ASIDE: Final = re.compile(r"^(?P<topic>\S+)-(?P<partition>\d+)\.[0-9a-z]{32}(?P<kind>-delete|-future|-stray)$")
_PARTITION: Final = re.compile(r"^(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)$")


class LogDirectoryName(NamedTuple):
    """What a directory inside a log directory is: the log of a partition, or one set aside (`suffix`)."""

    topic_partition: TopicPartition
    suffix: str  # "" or one of the three above


def offset_file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def offset_of_file(name: str) -> int:
    """The number in front of a file's first dot; ValueError when there is none."""
    return int(name.partition(".")[0])


def parse_log_directory(name: str) -> LogDirectoryName | None:
    """None for a name no log has."""
    match = _ASIDE.match(name)
    if match:
        return LogDirectoryName(TopicPartition(match["topic"], int(match["partition"])), match["kind"])
    match = _PARTITION.match(name)
    return LogDirectoryName(TopicPartition(match["topic"], int(match["partition"])), "") if match else None


def directory_set_aside(topic_partition: TopicPartition, unique: UUID, suffix: str) -> str:
    """`<topic>-<partition>.<32 hex digits><suffix>`, the topic cut so that a file system takes the name."""
    tail = f"-{topic_partition.partition}.{unique.hex}{suffix}"
    return topic_partition.topic[: FILE_NAME_MAX - len(tail)] + tail


def is_cluster_metadata(name: str) -> bool:
    """The metadata log lives among the others, but the controller owns it."""
    return name == f"{CLUSTER_METADATA_TOPIC}-0"


def segment_paths(directory: Path, base_offset: int, suffix: str = "") -> tuple[Path, Path, Path, Path]:
    """The log file, offset index, time index and transaction index of a segment."""
    return (
        directory / offset_file_name(base_offset, LOG_SUFFIX + suffix),
        directory / offset_file_name(base_offset, INDEX_SUFFIX + suffix),
        directory / offset_file_name(base_offset, TIME_INDEX_SUFFIX + suffix),
        directory / offset_file_name(base_offset, TXN_INDEX_SUFFIX + suffix),
    )
