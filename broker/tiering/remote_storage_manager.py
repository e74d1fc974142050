"""RemoteStorageManager: where segments are copied to (KIP-405's interface of that name), and who chooses one."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from broker.config.named_class import named_class
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from broker.tiering.remote_storage_context import RemoteStorageContext

SHORT_NAMES: Final = {
    "LocalTieredStorage": "broker.tiering.local_tiered_storage.LocalTieredStorage",
    "S3RemoteStorageManager": "broker.tiering.s3_remote_storage_manager.S3RemoteStorageManager",
}
CLASS_NAME: Final = "remote.log.storage.manager.class.name"


class IndexType(Enum):
    """What is stored beside the log of a segment (Kafka: RemoteStorageManager.IndexType)."""

    OFFSET = auto()
    TIMESTAMP = auto()
    PRODUCER_SNAPSHOT = auto()
    TRANSACTION = auto()
    LEADER_EPOCH = auto()


@dataclass(frozen=True, slots=True)
class LogSegmentData:
    """The files of a closed segment (Kafka's class of that name); they must not change while they are copied.

    `producer_snapshot_index` is the one at the next segment's base offset; `leader_epoch_index` has all epochs of the
    log below that offset, as a checkpoint file has them.
    """

    log_segment: Path
    offset_index: Path
    time_index: Path
    transaction_index: Path | None
    producer_snapshot_index: Path
    leader_epoch_index: bytes


class RemoteStorageManager(ABC):
    """Copies, reads and deletes remote segments.  A class of one's own is made with a `RemoteStorageContext` alone.

    Methods raise `RemoteStorageError`; `RemoteResourceNotFoundError` where an object is asked for that is not there.
    """

    @abstractmethod
    async def copy_log_segment_data(self, segment: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes | None:
        """Store all of a segment; the result is told to everyone as its custom metadata.

        The log becomes visible last, so a log that is there has its indexes.  Again for the same segment replaces what
        is there.  After an error a part of it may be there: `delete_log_segment_data`.
        """

    @abstractmethod
    def fetch_log_segment(
        self, segment: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> AsyncIterator[bytes]:
        """The log's bytes from `start_position` to `end_position`, inclusive, or to its end, piece by piece: never
        more than one piece is in memory.  Nothing when it begins after the end."""

    @abstractmethod
    async def fetch_index(self, segment: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """A whole index.  A segment without aborted transactions may have no TRANSACTION index: not found."""

    @abstractmethod
    async def delete_log_segment_data(self, segment: RemoteLogSegmentMetadata) -> None:
        """Delete all of a segment; what is not there is fine.  After an error some may be gone: again."""

    @abstractmethod
    def running(self) -> AbstractAsyncContextManager[object]:
        """Connects, without asking anything, and lets go at the end.  ConfigError."""


class PartitionDirectory(NamedTuple):
    """Where one partition of this cluster is stored; `name` is the storage's own for it."""

    name: str
    topic_id: UUID
    partition: int


@runtime_checkable
class StoresDirectories(Protocol):
    """What a remote storage manager can do whose storage tells what is in it: then `RemoteLogSweeper` finds what was
    left behind.  Not a part of KIP-405."""

    async def partition_directories(self) -> Sequence[PartitionDirectory]:
        """All of this cluster, each once, in no order; what has another form is left out, and what is empty may be
        among them.  RemoteStorageError."""

    async def newest_ms(self, directory: PartitionDirectory) -> int | None:
        """When the newest object of its segments was stored; None when there is none.  RemoteStorageError."""

    async def delete_partition_directory(self, directory: PartitionDirectory) -> int:
        """Delete all segments in it; how many objects that were.  After an error some may be gone: again.

        RemoteStorageError.
        """


def make_remote_storage_manager(context: RemoteStorageContext) -> RemoteStorageManager:
    """The one that `remote.log.storage.manager.class.name` names: by a short name or a dotted path.

    ConfigError when there is none of that name, or it cannot work with the settings it has.
    """
    found = named_class(CLASS_NAME, context.settings.class_name, SHORT_NAMES, RemoteStorageManager)  # type: ignore[type-abstract]
    return found(context)  # type: ignore[call-arg]  # what the ABC asks of its classes
