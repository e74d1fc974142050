"""Group commit: the small appends of one turn of the event loop become one write per partition.

Kafka writes each batch by itself; a Python call per write would cost more than the write.  All requests that the
loop reads from its sockets in one turn are staged, then each partition is written once and all are answered.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from broker.common.errors import ErrorCode
from broker.records.append_origin import AppendOrigin
from broker.records.record_batch import RecordBatch
from broker.replication.action_queue import ActionQueue
from broker.replication.append_request import AppendRequest
from broker.replication.partition import Partition

log = structlog.get_logger(__name__)

STAGED_BATCH_BYTES_MAX: Final = 65_536  # a larger batch is written at once: the copy would cost more than the write
ACKS_ALL: Final = -1

Staged = tuple[RecordBatch, AppendRequest, int]


class GroupCommit:
    """Stages batches, in order per partition, and commits them at the end of the turn.

    Leadership, fencing and min.insync.replicas are looked at when a batch is written, in the same breath as the write.
    """

    def __init__(self, actions: ActionQueue, is_fenced: Callable[[], bool] = lambda: False) -> None:
        self._actions = actions
        self._is_fenced = is_fenced
        self._dirty: list[Partition] = []

    def append(self, partition: Partition, batch: RecordBatch, request: AppendRequest, index: int) -> None:
        """Write `batch` this turn and put the outcome into result `index` of `request`."""
        staged = partition.staged
        if staged and staged[0][1].origin is not request.origin:
            self.commit_partition(partition)  # one append is of one origin
            staged = partition.staged
        if batch.size_bytes > STAGED_BATCH_BYTES_MAX:
            staged.append((batch, request, index))
            self.commit_partition(partition)
            return
        if not staged:
            if not self._dirty:
                asyncio.get_running_loop().call_soon(self.commit)
            self._dirty.append(partition)
        staged.append((batch, request, index))

    def commit(self) -> None:
        """Write everything staged, then answer whoever that satisfies."""
        dirty, self._dirty = self._dirty, []
        for partition in dirty:
            self.commit_partition(partition)
        self._actions.run()

    def commit_partition(self, partition: Partition) -> None:
        """Write what is staged for one partition; later stages of this turn follow in the next write."""
        staged: list[Staged] = partition.staged
        if not staged:
            return
        partition.staged = []
        origin = staged[0][1].origin
        if not partition.is_leader:
            error = ErrorCode.kafka_storage_error if partition.is_offline else ErrorCode.not_leader_or_follower
            _refuse(partition, staged, error)
            return
        if origin is AppendOrigin.CLIENT and self._is_fenced():
            _refuse(partition, staged, ErrorCode.not_leader_or_follower)
            return
        if partition.is_under_min_isr:
            too_safe = [each for each in staged if each[1].required_acks == ACKS_ALL]
            staged = [each for each in staged if each[1].required_acks != ACKS_ALL]
            _refuse(partition, too_safe, ErrorCode.not_enough_replicas)
            if not staged:
                return
        _append(partition, staged, origin)


def _refuse(partition: Partition, staged: Sequence[Staged], error: ErrorCode) -> None:
    for _, request, index in staged:
        request.refuse_one(index, partition.topic_partition, error)


def _append(partition: Partition, staged: Sequence[Staged], origin: AppendOrigin) -> None:
    """One append, each request being told its own outcome."""
    try:
        results = partition.append_records_to_leader([batch for batch, _, _ in staged], origin)
    except AssertionError:
        raise  # a broken invariant halts the broker
    except Exception:  # a defect answers the requests that met it; the other partitions of the turn go on
        log.exception("append_failed", partition=str(partition.topic_partition), batches=len(staged))
        _refuse(partition, staged, ErrorCode.unknown_server_error)
        return
    for (batch, request, index), result in zip(staged, results, strict=True):
        request.complete_one(index, result, partition, batch.size_bytes)
