"""RemoteLogMetadataManager: where it is kept which remote segments there are (KIP-405's interface of that name)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager

from broker.common.identifiers import TopicIdPartition
from broker.tiering.remote_log_segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from broker.tiering.remote_partition_metadata_store import OnLost


class RemoteLogMetadataManager(ABC):
    """Segments of the partitions that this broker leads or follows.

    What changes something returns when this broker sees the change itself; RemoteStorageError when that is not known
    in time: the change may have happened, and may be asked for again.  A process that ends meanwhile leaves it open.
    It is raised at once for a partition of which no replica is here.

    Questions raise ReplicaNotAvailableError while not everything is known of the partition: ask again later, and
    take nothing for granted; for "not yet known" is not "not there".
    """

    @abstractmethod
    async def add_remote_log_segment_metadata(self, segment: RemoteLogSegmentMetadata) -> None:
        """A copy begins: the segment is in COPY_SEGMENT_STARTED, else ValueError."""

    @abstractmethod
    async def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        """A segment changes its state, to any but COPY_SEGMENT_STARTED, else ValueError."""

    @abstractmethod
    async def put_remote_partition_delete_metadata(self, deletion: RemotePartitionDeleteMetadata) -> None:
        """The deletion of a partition gets on."""

    @abstractmethod
    async def remote_log_segment_metadata(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """The segment in COPY_SEGMENT_FINISHED to read the record of `offset` from, which was written in `epoch`."""

    @abstractmethod
    async def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        """The highest offset of `epoch` that was ever copied."""

    @abstractmethod
    async def list_remote_log_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        """Segments in any state but DELETE_SEGMENT_FINISHED: those with records of `epoch`, in order of their start
        offsets; or all of the partition, in no order."""

    @abstractmethod
    async def remote_log_size(self, partition: TopicIdPartition, epoch: int) -> int:
        """The bytes of all segments listed for `epoch`; a segment of two epochs counts in both."""

    @abstractmethod
    def on_partition_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        """These are led, and followed, by this broker now.  Twice is harmless."""

    @abstractmethod
    def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        """This broker has no replica of these any more."""

    @abstractmethod
    def watch_losses(self, on_lost: OnLost) -> None:
        """Tell from now on, in the turn of the event loop in which no question is answered with it any more, of each
        segment that leaves COPY_SEGMENT_FINISHED; and when all that is known of a partition is forgotten.

        Local retention goes by this: what it takes for copied can be read at that moment.
        """

    @abstractmethod
    def is_ready(self, partition: TopicIdPartition) -> bool:
        """Whether questions about it are answered now."""

    @abstractmethod
    def running(self) -> AbstractAsyncContextManager[object]:
        """Its tasks, within this."""
