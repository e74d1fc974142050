"""How far a follower has come with a partition whose records it takes from the bucket (KIP-1176)."""

from collections.abc import Callable, Sequence

from broker.common.errors import NotLeaderOrFollowerError
from broker.common.identifiers import NO_OFFSET
from broker.records.record_batch import RecordBatch
from broker.replication.bucket_follower import MakeBucketFollower
from broker.replication.follower_replica import FollowerReplica
from broker.replication.leader_endpoint import FollowerFetch
from broker.replication.partition_fetch_state import PartitionFetchState
from broker.replication.remote_log import RemoteLogState
from broker.replication.topic_stats import ReplicationPath

Moved = Callable[["BucketFetchState"], None]


class BucketFetchState(PartitionFetchState):
    """The log moves in two ways here: by what the leader answers, and by appends from the bucket in between.

    An append overtakes the request under way, whose answer still counts: its high watermark and log start are those
    of the same leader for a log that has only grown with that leader's records.  Kafka drops such an answer, and with
    appends every few milliseconds no high watermark would ever arrive.
    """

    __slots__ = (
        "_moved",
        "_overtaken",
        "follower",
        "is_agreed",
        "is_served_by_leader",
        "leader_high_watermark",
    )

    def __init__(self, replica: FollowerReplica, make_follower: MakeBucketFollower) -> None:
        """StorageFailure or NotLeaderOrFollowerError when there is no log to append to."""
        super().__init__(replica)
        self.is_agreed = False  # the handshake: the leader of this epoch has answered for our log end
        self.is_served_by_leader = False  # the last answer brought records (fallback)
        self.leader_high_watermark = NO_OFFSET  # as last told in this epoch; -1 before
        self._overtaken: FollowerFetch | None = None
        self._moved: Moved | None = None
        self.follower = make_follower(self)

    def tell_moves_to(self, moved: Moved) -> None:
        """Call `moved` after each append, and when the handshake has to be repeated."""
        self._moved = moved

    @property
    def is_in_sync(self) -> bool:
        """Also while the leader sends no records: the throttle of followers (KIP-73) is about those alone."""
        return not self.is_served_by_leader or super().is_in_sync

    @property
    def is_settled(self) -> bool:
        """Whether the leader has committed what is here, and has nothing else for us but through the bucket."""
        return self.leader_high_watermark == self.fetch_offset and not self.is_served_by_leader

    def request(self, max_bytes: int) -> FollowerFetch:
        self._overtaken = None  # one fetch at a time: there is none under way when the next one is made
        return super().request(max_bytes)

    def awaits(self, request: FollowerFetch) -> bool:
        """Also true of the request under way when nothing but appends from the bucket came between."""
        if self._overtaken is request:
            return not self.is_truncating and self.replica.is_valid
        return super().awaits(request)

    def append(
        self, batches: Sequence[RecordBatch], restart_at: int | None = None, *, sender_id: int | None = None
    ) -> int:
        """Append batches from the bucket, the first of which begins at the log end; returns the new log end.

        `restart_at`: the log is empty, and begins at that lower offset, where the first batch is; its log start stays.
        Batches of an epoch above ours, and those behind them, are left out.  `sender_id` is the broker that uploaded
        them, by default the leader.  The fetcher tells the leader at once.

        NotLeaderOrFollowerError when this state no longer holds, or the log is being cut or reset; else as
        `UnifiedLog.append_as_follower`, and UnexpectedAppendOffsetError also for a gap.
        """
        if self.is_resetting or self.is_truncating:
            raise NotLeaderOrFollowerError(f"{self.topic_partition} is being brought into the leader's range")
        replica = self.replica
        overtaken = self._request or self._overtaken
        appended = replica.append_batches(batches, restart_at)
        self.continue_at_end()
        self._overtaken = overtaken
        local = replica.log
        replica.update_offsets(max(self.leader_high_watermark, local.high_watermark), local.log_start_offset)
        if self.lag is not None:
            self.lag = max(0, self.leader_high_watermark - self.fetch_offset)
        partition = replica.partition
        partition.topic_stats.count_received(
            ReplicationPath.WAL, partition.leader_id if sender_id is None else sender_id, appended.valid_bytes
        )
        self._tell()
        return self.fetch_offset

    def answered(self, request: FollowerFetch, leader_log_start_offset: int) -> None:
        """The leader's offsets for `request` are applied: see `BucketFollower.answered`."""
        self.is_agreed |= request.fetch_offset == self.fetch_offset
        self.follower.answered(request, leader_log_start_offset)

    def continue_at_end(self) -> None:
        super().continue_at_end()
        self._overtaken = None

    def truncate_to(self, offset: int) -> None:
        super().truncate_to(offset)
        self._begin_anew()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        super().truncate_fully_and_start_at(offset)
        self._begin_anew()

    def restore_from_remote(self, found: RemoteLogState, log_start_offset: int) -> None:
        super().restore_from_remote(found, log_start_offset)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.is_agreed = False
        self.follower.truncated()
        self._tell()

    def _tell(self) -> None:
        if self._moved is not None:
            self._moved(self)

    def begin_reset(self) -> None:
        """From this moment nothing is appended from the bucket: the place found must not be that of an older log."""
        super().begin_reset()
        self.is_agreed = False
        self.follower.begin_reset()
        self._tell()

    def end_reset(self) -> None:
        super().end_reset()
        self.follower.end_reset()

    def stop(self) -> None:
        super().stop()
        self._overtaken = None
        self.follower.stop()
