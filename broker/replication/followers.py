"""What the leader of a partition knows of its other replicas (the remote half of Kafka's Partition)."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_EPOCH
from broker.replication.partition_context import PartitionContext
from broker.replication.replica_state import ReplicaState
from broker.replication.topic_stats import ReplicationPath

if TYPE_CHECKING:
    from broker.replication.partition import Partition


class Followers:
    """Owned by its partition; `states` is empty unless that leads."""

    __slots__ = ("_context", "_partition", "states")

    def __init__(self, partition: "Partition", context: PartitionContext) -> None:
        self._partition = partition
        self._context = context
        self.states: dict[int, ReplicaState] = {}

    def place(self, replicas: Collection[int]) -> None:
        """The replicas are these: what is known of those that stay is kept."""
        local_broker_id = self._context.local_broker_id
        known = self.states
        self.states = {each: known.get(each) or ReplicaState(each) for each in replicas if each != local_broker_id}

    def forget(self) -> None:
        """We do not lead any more."""
        self.states = {}

    def begin_leader_epoch(self, isr: Collection[int]) -> None:
        now_ms = self._context.monotonic_ms()
        for broker_id, replica in self.states.items():
            replica.reset(now_ms=now_ms, is_in_sync=broker_id in isr)

    def fetch_error(self, replica_id: int, replica_epoch: int, current_leader_epoch: int) -> ErrorCode | None:
        """Why a follower may not fetch: not a replica (yet), or another incarnation of the broker than registered."""
        if replica_id not in self.states:
            # Metadata lags during a reassignment: with the epoch it retries, without it refreshes first.
            return ErrorCode.not_leader_or_follower if current_leader_epoch < 0 else ErrorCode.unknown_leader_epoch
        if replica_epoch != NO_EPOCH:
            # Kafka refuses older epochs only and remembers what it is told.  But once a newer incarnation, whose log
            # may be shorter, has fetched, the older must not count, and only the metadata can tell which epochs exist:
            # who is ahead of ours asks again.
            registration = self._context.metadata_cache.image.brokers.get(replica_id)
            if registration is None or registration.epoch != replica_epoch:
                return ErrorCode.not_leader_or_follower
        return None

    def note_idle(self, replica_id: int, last_fetch_time_ms: int) -> None:
        """A follower whose session found nothing new here was caught up when it last asked."""
        replica = self.states.get(replica_id)
        if replica is not None:
            replica.note_idle(last_fetch_time_ms)

    def low_watermark(self, log_start_offset: int) -> int:
        """The least log start offset of all alive replicas, ours being `log_start_offset`."""
        brokers = self._context.metadata_cache.image.brokers
        low = log_start_offset
        for broker_id, replica in self.states.items():
            registration = brokers.get(broker_id)
            if registration is not None and not registration.fenced:
                low = min(low, replica.log_start_offset)
        return low

    def holds_back(self, replica_id: int) -> bool:
        """Whether a follower that is not in sync gets no records for now (KIP-73)."""
        throttle = self._context.leader_throttle
        return (
            throttle.covers(
                self._partition.topic_partition.partition,
                self._partition.log.config.leader_replication_throttled_replicas,
            )
            and replica_id not in self._partition.isr
            and throttle.is_exceeded
        )

    def count_sent(self, replica_id: int, size_bytes: int) -> None:
        """Count what is about to be sent; the throttle counts in-sync followers of its replicas too, as in Kafka."""
        partition = self._partition
        wal = partition.leader_wal
        if wal is None:
            path = ReplicationPath.FETCH
        else:
            path = ReplicationPath.FALLBACK
            wal.count_fallback(replica_id, size_bytes)
        partition.topic_stats.count_sent(path, replica_id, size_bytes)
        local, throttle = partition.local_log, self._context.leader_throttle
        if local is not None and throttle.covers(
            partition.topic_partition.partition, local.config.leader_replication_throttled_replicas
        ):
            throttle.record(size_bytes)
