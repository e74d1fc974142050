"""The names of the objects that make up a remote segment (the layout of Kafka's LocalTieredStorage, below a prefix)."""

import re
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from broker.common.identifiers import TopicIdPartition, uuid_from_text, uuid_to_text
from broker.log.log_file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_file_name,
)
from broker.objectstore.object_keys import SEGMENT_BYTES_MAX, check_prefix
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata

DEFAULT_PREFIX: Final = "tiered"

_UUID: Final = "[A-Za-z0-9_-]{22}"
_FOLDER: Final = re.compile(rf"[^/]*-(?P<partition>\d+)-(?P<topic_id>{_UUID})")
_FILE: Final = re.compile(rf"(?P<base_offset>\d{{20}})-(?P<segment_id>{_UUID})(?P<kind>\.[a-z_]+)")


class ObjectKind(StrEnum):
    """The objects of one segment, by the ends of their names; the transaction index may be missing."""

    LOG = LOG_SUFFIX
    OFFSET_INDEX = INDEX_SUFFIX
    TIME_INDEX = TIME_INDEX_SUFFIX
    TRANSACTION_INDEX = TXN_INDEX_SUFFIX
    PRODUCER_SNAPSHOT = SNAPSHOT_SUFFIX
    LEADER_EPOCHS = ".leader_epoch_checkpoint"


class ParsedName(NamedTuple):
    """What an object's name tells.  Not the topic's name, which may be cut: a topic's id is all its own."""

    topic_id: UUID
    partition: int
    base_offset: int
    segment_id: UUID
    kind: ObjectKind


class ObjectNames:
    """`{prefix}/{cluster}/{topic}-{partition}-{topic id}/{base offset}-{segment id}{kind}`.

    The topic's id keeps a re-created topic apart, the segment's id each attempt to copy; clusters may share a bucket.
    """

    def __init__(self, cluster_id: str, prefix: str = DEFAULT_PREFIX) -> None:
        """`prefix` without "/" at its ends, or empty; ValueError when a key cannot begin with it."""
        self.cluster_prefix = check_prefix(f"{prefix}/{cluster_id}/" if prefix else f"{cluster_id}/")
        """What the names of this cluster's objects begin with, and nobody else's; ends in "/"."""

    def partition_prefix(self, partition: TopicIdPartition) -> str:
        """What the names of a partition's objects begin with; ends in "/"."""
        return f"{self.cluster_prefix}{_folder(partition)}/"

    def name(self, segment: RemoteLogSegmentMetadata, kind: ObjectKind) -> str:
        tail = f"-{uuid_to_text(segment.segment_id)}{kind}"
        return self.partition_prefix(segment.partition) + offset_file_name(segment.start_offset, tail)

    def is_name(self, name: str) -> bool:
        """Whether `name` made it."""
        try:
            self.parse(name)
        except ValueError:
            return False
        return True

    def parse_folder(self, prefix: str) -> tuple[UUID, int]:
        """Topic id and partition of a `partition_prefix`; ValueError for what is none of this cluster's."""
        match = _FOLDER.fullmatch(prefix.removeprefix(self.cluster_prefix).removesuffix("/"))
        if not prefix.startswith(self.cluster_prefix) or not prefix.endswith("/") or match is None:
            raise ValueError(f"{prefix!r} is not what the names of a remote segment's objects begin with")
        return uuid_from_text(match["topic_id"]), int(match["partition"])

    def parse(self, name: str) -> ParsedName:
        """The inverse of `name`; ValueError for what no object of this cluster is named."""
        folder, slash, file = name.rpartition("/")
        in_file = _FILE.fullmatch(file)
        if in_file is None:
            raise ValueError(f"{name!r} is not the name of a remote segment's object")
        topic_id, partition = self.parse_folder(folder + slash)
        return ParsedName(
            topic_id=topic_id,
            partition=partition,
            base_offset=int(in_file["base_offset"]),
            segment_id=uuid_from_text(in_file["segment_id"]),
            kind=ObjectKind(in_file["kind"]),
        )


def _folder(partition: TopicIdPartition) -> str:
    """Topics may have longer names than a directory, and may begin with a dot, which no key does."""
    tail = f"-{partition.partition}-{uuid_to_text(partition.topic_id)}"
    topic = partition.topic[: SEGMENT_BYTES_MAX - len(tail)]
    return f"_{topic[1:]}{tail}" if topic.startswith(".") else topic + tail
