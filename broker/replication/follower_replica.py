"""What a fetcher may do to a partition that follows (the follower half of Kafka's Partition)."""

from collections.abc import Sequence

from broker.common.buffers import Buffer
from broker.common.errors import NotLeaderOrFollowerError
from broker.common.identifiers import NO_OFFSET
from broker.log.log_append import LogAppendInfo, UnexpectedAppendOffsetError
from broker.log.unified_log import UnifiedLog
from broker.records.record_batch import RecordBatch
from broker.replication.partition import Partition
from broker.replication.remote_log import RemoteLogState


class FollowerReplica:
    """A permission for one leader epoch: with the next one every call is refused, and so it is on a leader.

    A leader never truncates: within an epoch, an offset once given to a record means that record for ever.
    """

    __slots__ = ("leader_epoch", "partition")

    def __init__(self, partition: Partition, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch

    @property
    def is_valid(self) -> bool:
        partition = self.partition
        return not partition.is_leader and partition.leader_epoch == self.leader_epoch

    @property
    def log(self) -> UnifiedLog:
        """NotLeaderOrFollowerError when the permission has ended, StorageFailure while the log is offline."""
        if not self.is_valid:
            raise NotLeaderOrFollowerError(
                f"{self.partition.topic_partition} does not follow in epoch {self.leader_epoch} any more"
            )
        return self.partition.log

    def append(self, records: Buffer, leader_log_start_offset: int = NO_OFFSET) -> LogAppendInfo:
        """Append the leader's bytes, which came with its log start offset.  KafkaError as `append_as_follower`."""
        local = self.log
        try:
            info = local.append_as_follower(records, self.leader_epoch)
        except UnexpectedAppendOffsetError as error:
            end_offset = local.log_end_offset
            is_all_deleted = end_offset in (local.log_start_offset, leader_log_start_offset)
            if not is_all_deleted or not error.first_offset < end_offset <= error.last_offset:
                raise
            # The leader's log starts within a batch (DeleteRecords) and ours ends there: the whole batch is taken,
            # and the start offset that came with it hides its beginning again.
            local.truncate_fully_and_start_at(error.first_offset)
            info = local.append_as_follower(records, self.leader_epoch)
        return info

    def append_batches(self, batches: Sequence[RecordBatch], restart_at: int | None = None) -> LogAppendInfo:
        """Append batches of the leader's log that begin at the end of ours.  KafkaError as `append_as_follower`;
        UnexpectedAppendOffsetError also for a gap before them.

        `restart_at`: there is no record, and the first batch begins below the log start (DeleteRecords) and holds it.
        """
        local = self.log
        end_offset = local.log_end_offset if restart_at is None else restart_at
        if batches and batches[0].base_offset != end_offset:
            raise UnexpectedAppendOffsetError(batches[0].base_offset, batches[-1].last_offset, end_offset)
        if restart_at is None:
            return local.append_batches_as_follower(batches, self.leader_epoch)
        kept = local.log_start_offset
        if local.log_end_offset != kept or not restart_at < kept <= batches[-1].last_offset:
            raise UnexpectedAppendOffsetError(restart_at, batches[-1].last_offset, local.log_end_offset)
        local.truncate_fully_and_start_at(restart_at)
        info = local.append_batches_as_follower(batches, self.leader_epoch)
        local.update_high_watermark(kept)
        local.maybe_increment_log_start_offset(kept, "what was deleted stays deleted")
        return info

    def update_offsets(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over the leader's offsets as far as this log goes; the high watermark may go back.

        OffsetOutOfRangeError when the log would start above the high watermark.
        """
        local = self.log
        before = local.high_watermark
        now = local.update_high_watermark(high_watermark)
        try:
            # Both, and then the listeners: between the two, who reads here would see what the leader has deleted.
            has_start_moved = local.maybe_increment_log_start_offset(log_start_offset, "leader offset incremented")
        finally:
            if now != before:
                self.partition.on_high_watermark_followed(now)
        if has_start_moved:
            self.partition.on_followed_log_changed()

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on, and epochs that begin there.  StorageFailure."""
        if self.log.truncate_to(offset):
            self.partition.on_followed_log_changed()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and begin at `offset`.  StorageFailure."""
        self.log.truncate_fully_and_start_at(offset)
        self.partition.on_followed_log_changed()

    def restore_from_remote(self, found: RemoteLogState, log_start_offset: int) -> None:
        """Drop everything and begin behind what is in remote storage; the log, both tiers, starts at
        `log_start_offset`.  StorageFailure."""
        self.log.restore_from_remote(found.next_offset, log_start_offset, found.leader_epochs, found.producer_snapshot)
        self.partition.on_followed_log_changed()
