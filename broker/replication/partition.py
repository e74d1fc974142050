"""One replica of a partition on this broker: its role, its ISR and its high watermark (Kafka's Partition).

Everything here is a plain `def` that runs to completion, so Kafka's lock around leader and ISR changes has no twin.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from broker.common.errors import (
    ErrorCode,
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    StorageFailure,
    UnknownLeaderEpochError,
)
from broker.common.identifiers import NEVER_REMOTE_WAL_TOPICS, NO_BROKER, NO_EPOCH, NO_OFFSET, TopicPartition
from broker.log.log_append import LogAppendResult
from broker.log.unified_log import UnifiedLog
from broker.metadata.partition_registration import LeaderRecoveryState, PartitionRegistration
from broker.records.append_origin import AppendOrigin
from broker.records.record_batch import RecordBatch
from broker.replication.fetch_params import FetchIsolation, FetchPartition
from broker.replication.followers import Followers
from broker.replication.in_sync_replicas import InSyncReplicas
from broker.replication.leader_wal import LeaderWal
from broker.replication.partition_context import FetchWatcher, PartitionContext, PartitionListener
from broker.replication.partition_state import PartitionState
from broker.replication.replica_state import ReplicaState
from broker.replication.topic_stats import TopicStats
from broker.replication.waiting_appends import WaitingAppends

if TYPE_CHECKING:
    from broker.replication.append_request import AppendRequest
    from broker.replication.delayed_produce import DelayedProduce

log = structlog.get_logger(__name__)


class Partition:
    """Created when the metadata first places a replica here, dropped when it leaves.

    Only this object moves the high watermark of a log it leads, and only the controller's answers and the metadata
    change its committed ISR.
    """

    __slots__ = (
        "_consumer_watches",
        "_context",
        "_follower_watches",
        "_in_sync",
        "_leader_wal",
        "_listeners",
        "adding_replicas",
        "append_seconds",
        "delete_records_waiting",
        "expired_remote_list_offsets",
        "followers",
        "is_leader",
        "is_offline",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "local_log",
        "partition_epoch",
        "removing_replicas",
        "replicas",
        "staged",
        "topic_id",
        "topic_partition",
        "topic_stats",
        "waiting_appends",
    )

    def __init__(
        self, topic_partition: TopicPartition, topic_id: UUID, context: PartitionContext, topic_stats: TopicStats
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.topic_stats = topic_stats
        self._context = context
        self.local_log: UnifiedLog | None = None
        self.is_offline = False
        self.is_leader = False
        self.leader_id = NO_BROKER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.leader_epoch_start_offset = NO_OFFSET  # our log end offset when this leader epoch began; -1 on followers
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()
        self._in_sync = InSyncReplicas(self, context)
        self.followers = Followers(self, context)
        self._leader_wal: LeaderWal | None = None
        self.append_seconds = 0.0  # of the last append; taken while there is a path through the bucket
        self.staged: list[tuple[RecordBatch, AppendRequest, int]] = []  # by GroupCommit, for one turn
        self.delete_records_waiting = 0
        self.expired_remote_list_offsets = 0  # timestamps that remote storage had no answer about in time
        self.waiting_appends = WaitingAppends()
        self._consumer_watches: dict[FetchPartition, FetchWatcher] = {}
        self._follower_watches: dict[FetchPartition, FetchWatcher] = {}
        self._listeners: dict[PartitionListener, None] = {}

    # What the partition is

    @property
    def log(self) -> UnifiedLog:
        """The local log; StorageFailure while its directory is offline."""
        if self.local_log is None:
            raise StorageFailure(f"The log of {self.topic_partition} is not available")
        return self.local_log

    @property
    def is_through_bucket(self) -> bool:
        """Whether followers take the records of this partition from a bucket (KIP-1176); as the settings are now."""
        local = self.local_log
        return (
            local is not None
            and local.config.remote_wal_enable
            and self._context.config.current.remote_wal_storage_system_enable
            and local.config.is_delete
            and not local.config.is_compact
            and self.topic_partition.topic not in NEVER_REMOTE_WAL_TOPICS
        )

    @property
    def leader_wal(self) -> LeaderWal | None:
        """The path through the bucket while we lead and it is in use; who opens it sets it, losing the lead ends it."""
        return self._leader_wal

    @leader_wal.setter
    def leader_wal(self, leader_wal: LeaderWal | None) -> None:
        self._leader_wal = leader_wal
        self._notify(self._follower_watches)  # they get something else from us than before

    @property
    def remote_replicas(self) -> dict[int, ReplicaState]:
        """What we know of our followers by broker id; empty unless we lead."""
        return self.followers.states

    @property
    def isr(self) -> tuple[int, ...]:
        return self._in_sync.state.isr

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self._in_sync.state.maximal_isr

    @property
    def state(self) -> PartitionState:
        return self._in_sync.state

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas, but never more than there are replicas (KIP-966)."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        in_sync = len(self._in_sync.state.isr)
        return in_sync < len(self.replicas) and self.is_leader and in_sync < self.effective_min_isr

    @property
    def is_at_min_isr(self) -> bool:
        return self.is_leader and len(self._in_sync.state.isr) == self.effective_min_isr

    @property
    def is_under_replicated(self) -> bool:
        return self.is_leader and len(self.replicas) - len(self.adding_replicas) > len(self._in_sync.state.isr)

    @property
    def is_reassigning(self) -> bool:
        return self.is_leader and bool(self.adding_replicas or self.removing_replicas)

    @property
    def last_stable_offset_lag(self) -> int:
        """How far open transactions hold read_committed consumers back; 0 on followers, as Kafka reports it."""
        local = self.local_log
        return 0 if local is None or not self.is_leader else local.high_watermark - local.last_stable_offset

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Fence a client with other metadata than ours; -1 skips the check."""
        error = self.leader_epoch_error(current_leader_epoch)
        if error is ErrorCode.fenced_leader_epoch:
            raise FencedLeaderEpochError(
                f"Leader epoch {current_leader_epoch} of {self.topic_partition} is older than {self.leader_epoch}"
            )
        if error is ErrorCode.unknown_leader_epoch:
            raise UnknownLeaderEpochError(
                f"Leader epoch {current_leader_epoch} of {self.topic_partition} is newer than {self.leader_epoch}"
            )

    def leader_epoch_error(self, current_leader_epoch: int) -> ErrorCode | None:
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return None
        if current_leader_epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def leader_log(self, current_leader_epoch: int = NO_EPOCH, *, must_lead: bool = True) -> UnifiedLog:
        """The log of a partition we lead in the epoch the client knows (Kafka's localLogWithEpochOrThrow)."""
        local = self.log
        self.check_leader_epoch(current_leader_epoch)
        if must_lead and not self.is_leader:
            raise NotLeaderOrFollowerError(f"Broker is not the leader of {self.topic_partition}")
        return local

    def fetch_limit(self, isolation: FetchIsolation) -> int:
        """The offset a reader must not pass."""
        local = self.log
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return local.high_watermark
        if isolation is FetchIsolation.TXN_COMMITTED:
            return local.last_stable_offset
        return local.log_end_offset

    # Becoming leader or follower

    def make_leader(self, registration: PartitionRegistration) -> bool:
        """Lead from now on; returns whether we did not before.  StorageFailure when there is no log."""
        if registration.partition_epoch < self.partition_epoch:
            self._log_stale(registration)
            return False
        local = self._open_log()
        is_known = self.is_leader and registration.partition_epoch == self.partition_epoch
        if not (is_known and self.state.is_inflight):
            # What only repeats an answer of the controller ends no proposal made since: Kafka drops it, and could then
            # commit without a replica that the controller has let in meanwhile.
            self._update_assignment(
                registration, registration.isr, LeaderRecoveryState(registration.leader_recovery_state)
            )
        self.followers.place(self.replicas)
        was_leader = self.is_leader
        if registration.leader_epoch > self.leader_epoch:
            self._begin_leader_epoch(local, registration)
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.leader_id = self._context.local_broker_id
        self.is_leader = True
        self._advance_high_watermark(local)
        self._notify_watches()
        self._in_sync.maybe_tell_recovery()
        return not was_leader

    def _begin_leader_epoch(self, local: UnifiedLog, registration: PartitionRegistration) -> None:
        end_offset = local.log_end_offset
        self.leader_epoch_start_offset = end_offset
        local.maybe_assign_epoch_start_offset(registration.leader_epoch, end_offset)
        self.followers.begin_leader_epoch(registration.isr)

    def make_follower(self, registration: PartitionRegistration) -> bool:
        """Follow from now on; returns whether the leader epoch is new, so that fetching must begin anew."""
        if registration.partition_epoch < self.partition_epoch:
            self._log_stale(registration)
            return False
        local = self._open_log()
        was_leader = self.is_leader
        is_new_epoch = registration.leader_epoch > self.leader_epoch
        if is_new_epoch:
            # An epoch we began and wrote nothing in would hide from the next leader that our log has diverged.
            local.truncate_to(local.log_end_offset)
        self.is_leader = False
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.leader_epoch_start_offset = NO_OFFSET
        self._update_assignment(registration, ())
        self.followers.forget()
        self._leader_wal = None
        self.waiting_appends.fail_all(ErrorCode.not_leader_or_follower)
        self._notify_watches()
        if was_leader:
            for listener in list(self._listeners):
                listener.on_becoming_follower(self.topic_partition)
            if self.delete_records_waiting:
                self._context.on_delete_records_progress(self)
        return is_new_epoch

    def stop(self, error: ErrorCode, *, is_deleted: bool) -> None:
        """No longer hosted here (or its directory failed): whoever waits for it is told."""
        self.is_leader = False
        self.is_offline = not is_deleted
        self.local_log = None
        self._in_sync.decide(())  # an answer that is still to come is about nothing that is here
        self.followers.forget()
        self._leader_wal = None
        self.waiting_appends.fail_all(error)
        watches = {**self._consumer_watches, **self._follower_watches}
        self._consumer_watches, self._follower_watches = {}, {}
        for request, watcher in watches.items():
            request.hosted = None
            watcher.on_partition_changed(request)
        listeners, self._listeners = self._listeners, {}
        for listener in listeners:
            listener.on_deleted(self.topic_partition)
        if self.delete_records_waiting:
            self._context.on_delete_records_progress(self)

    def _open_log(self) -> UnifiedLog:
        if self.local_log is None:
            self.local_log = self._context.create_log(self.topic_partition, self.topic_id)
            self.is_offline = False
        return self.local_log

    def _update_assignment(
        self,
        registration: PartitionRegistration,
        isr: tuple[int, ...],
        recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED,
    ) -> None:
        self.replicas = registration.replicas
        self.adding_replicas = registration.adding_replicas
        self.removing_replicas = registration.removing_replicas
        self._in_sync.decide(isr, recovery)

    def _log_stale(self, registration: PartitionRegistration) -> None:
        log.info(
            "stale_partition_metadata_ignored",
            partition=str(self.topic_partition),
            partition_epoch=registration.partition_epoch,
            known_partition_epoch=self.partition_epoch,
        )

    # Appending, and the high watermark

    def append_records_to_leader(
        self, batches: Sequence[RecordBatch], origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> list[LogAppendResult]:
        """Append batches in order and advance the high watermark; one result per batch, errors among them.

        The caller has checked that we lead, and for acks=all that there are enough replicas.
        """
        local = self.log
        end_offset = local.log_end_offset
        began = time.perf_counter() if self._leader_wal is not None else 0.0
        results = local.append_as_leader(batches, self.leader_epoch, origin=origin)
        if local.log_end_offset != end_offset:
            self._advance_high_watermark(local)
            if self._follower_watches:
                self._notify(self._follower_watches)
            if self._leader_wal is not None:
                self.append_seconds = time.perf_counter() - began
                self._leader_wal.appended(
                    sum(
                        batch.size_bytes
                        for batch, result in zip(batches, results, strict=True)
                        if result.error is None and not result.is_duplicate
                    )
                )
        return results

    def park_append(self, required_offset: int, operation: "DelayedProduce", index: int) -> None:
        """An acks=all request waits for the high watermark to be there; see `WaitingAppends.add`."""
        self.waiting_appends.add(required_offset, operation, index)
        if self._leader_wal is not None:
            self._leader_wal.awaited()

    def _advance_high_watermark(self, local: UnifiedLog) -> bool:
        """Move the high watermark to what every replica that counts has; returns whether it moved."""
        state = self._in_sync.state
        in_sync = len(state.isr)
        if in_sync < len(self.replicas) and in_sync < self.effective_min_isr:
            return False  # KIP-966: what fewer than min.insync.replicas have is not committed
        new = self._in_sync.common_end(local.log_end_offset)
        if new <= local.high_watermark:
            return False
        local.update_high_watermark(new)
        self._on_high_watermark_moved(new)
        return True

    def _on_high_watermark_moved(self, high_watermark: int) -> None:
        if self.waiting_appends:
            self.waiting_appends.complete_up_to(high_watermark, self._error_after_append())
        if self._consumer_watches or self._follower_watches:
            self._notify_watches()
        if self._listeners:
            for listener in tuple(self._listeners):
                listener.on_high_watermark_updated(self.topic_partition, high_watermark)
        if self.delete_records_waiting:
            self._context.on_delete_records_progress(self)

    def on_high_watermark_followed(self, high_watermark: int) -> None:
        """The leader's high watermark has moved ours, forward or back."""
        self._notify_watches()
        for listener in tuple(self._listeners):
            listener.on_high_watermark_updated(self.topic_partition, high_watermark)

    def on_followed_log_changed(self) -> None:
        """The log was cut at its end or its start as the leader said: who reads here looks again."""
        self._notify_watches()

    def _error_after_append(self) -> ErrorCode:
        is_enough = len(self._in_sync.state.maximal_isr) >= self.effective_min_isr
        return ErrorCode.none if is_enough else ErrorCode.not_enough_replicas_after_append

    # Who watches

    def watch_fetch(self, request: FetchPartition, watcher: FetchWatcher, *, is_from_follower: bool) -> None:
        """Call `watcher.on_partition_changed(request)` when a read could answer something else than before."""
        (self._follower_watches if is_from_follower else self._consumer_watches)[request] = watcher

    def unwatch_fetch(self, request: FetchPartition) -> None:
        self._consumer_watches.pop(request, None)
        self._follower_watches.pop(request, None)

    def _notify_watches(self) -> None:
        self._notify(self._consumer_watches)
        self._notify(self._follower_watches)

    @staticmethod
    def _notify(watches: dict[FetchPartition, FetchWatcher]) -> None:
        for request, watcher in tuple(watches.items()):
            watcher.on_partition_changed(request)

    def add_listener(self, listener: PartitionListener) -> None:
        self._listeners[listener] = None

    def remove_listener(self, listener: PartitionListener) -> None:
        self._listeners.pop(listener, None)

    # Followers and the ISR

    def update_follower_fetch_state(
        self,
        replica_id: int,
        *,
        fetch_offset: int,
        log_start_offset: int,
        leader_log_end_offset: int,
        replica_epoch: int,
    ) -> None:
        """A follower's fetch tells what it has; `leader_log_end_offset` is from before that fetch was read."""
        replica = self.remote_replicas[replica_id]
        previous_end_offset, previous_start_offset = replica.log_end_offset, replica.log_start_offset
        replica.update_fetch_state(
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            leader_log_end_offset=leader_log_end_offset,
            now_ms=self._context.monotonic_ms(),
            broker_epoch=replica_epoch,
            is_mark_pinned=self._leader_wal is not None,
        )
        self._in_sync.maybe_expand(replica)
        moved = previous_end_offset != fetch_offset and self._advance_high_watermark(self.log)
        if self.delete_records_waiting and not moved and previous_start_offset != log_start_offset:
            self._context.on_delete_records_progress(self)

    def maybe_shrink_isr(self) -> None:
        """Propose to drop lagging members.  Called by a timer."""
        self._in_sync.maybe_shrink()

    def on_isr_changed(self) -> None:
        """The committed ISR is another one: what it has in common may be more."""
        self._advance_high_watermark(self.log)

    # Deleting records

    @property
    def low_watermark(self) -> int:
        """The least log start offset of all alive replicas: what is below it is gone everywhere."""
        return self.followers.low_watermark(self.log.log_start_offset)

    def delete_records_on_leader(self, offset: int) -> int:
        """Move the log start offset up to `offset` (-1: the high watermark); returns the offset asked for in fact."""
        local = self.leader_log()
        wanted = local.high_watermark if offset == NO_OFFSET else offset
        if wanted < 0 or wanted > local.high_watermark:
            raise OffsetOutOfRangeError(
                f"Offset {offset} of {self.topic_partition} is not within its high watermark {local.high_watermark}"
            )
        self.increment_log_start(wanted, "client delete records request")
        return wanted

    def increment_log_start(self, offset: int, reason: str) -> None:
        """Move the log start offset up to `offset`, and tell who waits for records: followers move theirs as well, also
        when nothing is written.  As `UnifiedLog.maybe_increment_log_start_offset`."""
        if self.log.maybe_increment_log_start_offset(offset, reason):
            if self._leader_wal:
                self._leader_wal.log_start_moved()
            self._notify_watches()

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"Partition({self.topic_partition}, {role}, epoch={self.leader_epoch}, isr={self.isr})"
