"""The in-sync replicas of one partition, and the proposals to change them (the ISR half of Kafka's Partition)."""

from typing import TYPE_CHECKING, Final

import structlog

from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_EPOCH, NO_OFFSET, TopicIdPartition
from broker.metadata.partition_registration import LeaderRecoveryState
from broker.replication.alter_partition_manager import (
    AlterPartitionAnswer,
    IsrMember,
    LeaderAndIsr,
    ProposedIsr,
)
from broker.replication.partition_context import PartitionContext
from broker.replication.partition_state import (
    CommittedPartitionState,
    PartitionState,
    PendingExpandIsr,
    PendingPartitionChange,
    PendingRecovery,
    PendingShrinkIsr,
)
from broker.replication.replica_state import ReplicaState

if TYPE_CHECKING:
    from broker.replication.partition import Partition

log = structlog.get_logger(__name__)

# The controller answered about a state that is no longer ours to propose: the next metadata decides.
ANSWERS_THAT_WAIT_FOR_METADATA: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    }
)
# Nothing changed at the controller: the committed ISR is still the truth.
ANSWERS_THAT_RESTORE_THE_COMMITTED_ISR: Final = frozenset(
    {ErrorCode.operation_not_attempted, ErrorCode.ineligible_replica}
)


class InSyncReplicas:
    """Owned by its partition.  One proposal at a time: while it is in flight nothing else is computed.

    Only the metadata and the controller's answers change what is committed.
    """

    __slots__ = ("_context", "_owes_recovery", "_partition", "state")

    def __init__(self, partition: "Partition", context: PartitionContext) -> None:
        self._partition = partition
        self._context = context
        self._owes_recovery = False  # the controller waits for our word after an unclean election
        self.state: PartitionState = CommittedPartitionState((), LeaderRecoveryState.RECOVERED)

    def decide(self, isr: tuple[int, ...], recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED) -> None:
        """The metadata says.  The answer to a proposal that is still in flight finds another state and is dropped.

        Here the state counts as recovered at once: there is nothing to recover but to go on.
        """
        before = self.state
        self._owes_recovery = recovery is LeaderRecoveryState.RECOVERING
        self.state = CommittedPartitionState(isr, LeaderRecoveryState.RECOVERED)
        if isinstance(before, CommittedPartitionState) or self._owes_recovery:
            return
        if set(before.proposed_isr) == set(isr):
            self._note_agreed(before)  # the metadata may come before the answer that says the same

    def maybe_tell_recovery(self) -> None:
        """Tell the controller that an unclean election has been dealt with.

        Kafka's leader tells it with its next change of the ISR; but the only member of an ISR may have none to
        propose for long, and until it is told the partition counts as recovering.
        """
        state = self.state
        if self._owes_recovery and self._partition.is_leader and isinstance(state, CommittedPartitionState):
            log.info(
                "leader_elected_uncleanly",
                partition=str(self._partition.topic_partition),
                epoch=self._partition.leader_epoch,
            )
            self._propose(PendingRecovery(state))

    def common_end(self, log_end_offset: int) -> int:
        """How far every replica has the log that counts for the high watermark; ours ends at `log_end_offset`."""
        end_offset = log_end_offset
        followers = self._partition.remote_replicas
        if followers:
            now_ms = self._context.monotonic_ms()
            lag_time_max_ms = self._context.config.current.replica_lag_time_max_ms
            maximal_isr = self.state.maximal_isr
            for broker_id, replica in followers.items():
                # Also wait for a replica that is about to join, or it could never catch up with a busy partition.
                if replica.log_end_offset < end_offset and (
                    broker_id in maximal_isr
                    or (replica.is_caught_up(log_end_offset, now_ms, lag_time_max_ms) and self.is_eligible(replica))
                ):
                    end_offset = replica.log_end_offset
        return end_offset

    def is_eligible(self, replica: ReplicaState) -> bool:
        """May be proposed: seen, alive, not leaving, and the incarnation that fetched is the registered one."""
        registration = self._context.metadata_cache.image.brokers.get(replica.broker_id)
        if registration is None or not registration.is_active or replica.log_end_offset == NO_OFFSET:
            return False
        return replica.broker_epoch in (NO_EPOCH, registration.epoch)

    def maybe_expand(self, replica: ReplicaState) -> None:
        """Propose a replica that has all committed records of this leader epoch."""
        state = self.state
        if isinstance(state, CommittedPartitionState) and replica.broker_id not in state.isr:
            is_in_sync = replica.log_end_offset >= max(
                self._partition.log.high_watermark, self._partition.leader_epoch_start_offset
            )
            if is_in_sync and self.is_eligible(replica):
                self._propose(PendingExpandIsr(replica.broker_id, state))

    def maybe_shrink(self) -> None:
        """Propose to drop members that have not been caught up for replica.lag.time.max.ms.  Called by a timer."""
        self.maybe_tell_recovery()
        state = self.state
        if not self._partition.is_leader or not isinstance(state, CommittedPartitionState):
            return
        out_of_sync = self._out_of_sync_replicas(state)
        if out_of_sync:
            log.info(
                "isr_shrinking",
                partition=str(self._partition.topic_partition),
                removed=out_of_sync,
                isr=state.isr,
                high_watermark=self._partition.log.high_watermark,
                log_end_offset=self._partition.log.log_end_offset,
            )
            self._propose(PendingShrinkIsr(out_of_sync, state))

    def _out_of_sync_replicas(self, state: CommittedPartitionState) -> tuple[int, ...]:
        now_ms = self._context.monotonic_ms()
        lag_time_max_ms = self._context.config.current.replica_lag_time_max_ms
        end_offset = self._partition.log.log_end_offset

        def is_in_sync(broker_id: int) -> bool:
            replica = self._partition.remote_replicas.get(broker_id)
            return replica is not None and replica.is_caught_up(end_offset, now_ms, lag_time_max_ms)

        others = (broker_id for broker_id in state.isr if broker_id != self._context.local_broker_id)
        return tuple(broker_id for broker_id in others if not is_in_sync(broker_id))

    def _propose(self, pending: PendingPartitionChange) -> None:
        self.state = pending
        proposal = ProposedIsr(
            leader_epoch=self._partition.leader_epoch,
            partition_epoch=self._partition.partition_epoch,
            isr=tuple(IsrMember(broker_id, self._known_broker_epoch(broker_id)) for broker_id in pending.proposed_isr),
            leader_recovery_state=pending.leader_recovery_state,
        )
        self._submit(pending, proposal)

    def _submit(self, pending: PendingPartitionChange, proposal: ProposedIsr) -> None:
        """The same words each time: they are about the processes that had the records when the change was decided on,
        and a member that has come back since, with less, is told apart by its broker epoch."""
        self._context.alter_partition_manager.submit(
            TopicIdPartition(self._partition.topic_id, *self._partition.topic_partition),
            proposal,
            lambda answer: self._on_alter_partition_answer(pending, proposal, answer),
        )

    def _known_broker_epoch(self, broker_id: int) -> int:
        if broker_id == self._context.local_broker_id:
            return self._context.broker_epoch()
        replica = self._partition.remote_replicas.get(broker_id)
        return NO_EPOCH if replica is None else replica.broker_epoch

    def _on_alter_partition_answer(
        self, pending: PendingPartitionChange, proposal: ProposedIsr, answer: AlterPartitionAnswer
    ) -> None:
        if self.state is not pending:
            return  # metadata arrived first
        if isinstance(answer, LeaderAndIsr):
            self._commit_isr(pending, answer)
            return
        self._context.isr_stats.failed_updates += 1
        log.info("isr_change_refused", partition=str(self._partition.topic_partition), error=answer.name)
        if answer in ANSWERS_THAT_RESTORE_THE_COMMITTED_ISR:
            self.state = pending.last_committed
            self._partition.on_isr_changed()
        elif answer not in ANSWERS_THAT_WAIT_FOR_METADATA:
            self._submit(pending, proposal)

    def _commit_isr(self, pending: PendingPartitionChange, answer: LeaderAndIsr) -> None:
        if (
            answer.leader_epoch != self._partition.leader_epoch
            or answer.partition_epoch < self._partition.partition_epoch
        ):
            self._context.isr_stats.failed_updates += 1
            return
        self.state = CommittedPartitionState(answer.isr, answer.leader_recovery_state)
        self._owes_recovery = answer.leader_recovery_state is LeaderRecoveryState.RECOVERING
        self._partition.partition_epoch = answer.partition_epoch
        self._note_agreed(pending)
        self._partition.on_isr_changed()

    def _note_agreed(self, agreed: PendingPartitionChange) -> None:
        log.info(
            self._count(agreed),
            partition=str(self._partition.topic_partition),
            previous_isr=agreed.isr,
            isr=self.state.isr,
        )

    def _count(self, agreed: PendingPartitionChange) -> str:
        stats = self._context.isr_stats
        if isinstance(agreed, PendingExpandIsr):
            stats.expands += 1
            return "isr_expanded"
        if isinstance(agreed, PendingShrinkIsr):
            stats.shrinks += 1
            return "isr_shrunk"
        return "leader_recovered"
