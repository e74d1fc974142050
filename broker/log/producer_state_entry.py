"""ProducerStateEntry and ProducerAppendInfo: what a partition knows of one producer, and what an append would change.

Rules of KIP-98 and KIP-360 (Kafka: ProducerStateEntry, ProducerAppendInfo).
"""

import functools
from typing import Final, NamedTuple

import structlog

from broker.common.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from broker.common.identifiers import NO_EPOCH, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP
from broker.records.append_origin import AppendOrigin
from broker.records.record_batch import RecordBatch
from broker.records.sequence import SEQUENCE_MAX, decrement_sequence

log = structlog.get_logger(__name__)

BATCHES_MAX: Final = 5  # the Java producer keeps at most 5 requests in flight; a retry is one of them


class BatchMetadata(NamedTuple):
    """One appended batch, to recognise when it is sent again."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


_make_batch: Final = functools.partial(tuple.__new__, BatchMetadata)  # a fraction of what the class's call costs


class TxnMetadata(NamedTuple):
    """A transaction of this partition; `last_offset` is its marker's once it is completed."""

    producer_id: int
    first_offset: int
    last_offset: int | None = None


class CompletedTxn(NamedTuple):
    """A transaction whose marker is being appended at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerStateEntry:
    """One producer: its epoch, its last batches, its open transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = NO_EPOCH
        self.last_timestamp = NO_TIMESTAMP
        self.current_txn_first_offset: int | None = None
        self.batches: list[BatchMetadata] = []  # oldest first, at most BATCHES_MAX, all of producer_epoch

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def update_epoch(self, epoch: int) -> None:
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            self.batches.clear()

    def add_batch(self, batch: BatchMetadata) -> None:
        if len(self.batches) == BATCHES_MAX:
            del self.batches[0]
        self.batches.append(batch)


class ProducerAppendInfo:
    """The changes one append makes to one producer: checked and collected first, applied after the write."""

    __slots__ = (
        "batches",
        "completed",
        "coordinator_epoch",
        "current_txn_first_offset",
        "entry",
        "expected_first",
        "is_changed",
        "last_timestamp",
        "origin",
        "producer_epoch",
        "producer_id",
        "started",
    )

    def __init__(
        self,
        producer_id: int,
        entry: ProducerStateEntry | None,
        origin: AppendOrigin,
        expected_first: tuple[int, int] | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.entry = entry
        self.expected_first = expected_first  # epoch and sequence an unknown producer has to begin with, if not any
        self.origin = origin
        self.is_changed = False
        self.batches: list[BatchMetadata] = []  # of producer_epoch, not yet in the entry
        self.started: list[TxnMetadata] = []
        self.completed: list[CompletedTxn] = []
        if entry is None:
            self.producer_epoch = NO_PRODUCER_EPOCH
            self.coordinator_epoch = NO_EPOCH
            self.last_timestamp = NO_TIMESTAMP
            self.current_txn_first_offset: int | None = None
        else:
            self.producer_epoch = entry.producer_epoch
            self.coordinator_epoch = entry.coordinator_epoch
            self.last_timestamp = entry.last_timestamp
            self.current_txn_first_offset = entry.current_txn_first_offset

    def find_duplicate(self, batch: RecordBatch) -> BatchMetadata | None:
        """The remembered batch that has exactly these sequences."""
        if batch.producer_epoch != self.producer_epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for known in self.batches:
            if known.last_sequence == last and known.first_sequence == first:
                return known
        if self.entry is not None and self.entry.producer_epoch == self.producer_epoch:
            for known in self.entry.batches:
                if known.last_sequence == last and known.first_sequence == first:
                    return known
        return None

    def check(self, batch: RecordBatch) -> None:
        """Whether a data batch may follow.  Changes nothing.

        InvalidProducerEpochError, OutOfOrderSequenceNumberError, InvalidTxnStateError.
        """
        origin = self.origin
        if origin is AppendOrigin.REPLICATION:
            return
        self._check_epoch(batch.producer_epoch)
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(batch.producer_epoch, batch.base_sequence)
        if self.current_txn_first_offset is not None and not batch.is_transactional:
            raise InvalidTxnStateError(
                f"Expected transactional write from producer {self.producer_id} "
                f"(a transaction is open since offset {self.current_txn_first_offset})"
            )

    def append(self, batch: RecordBatch, first_offset: int, timestamp: int) -> None:
        """A data batch that passed `check` and will start at `first_offset`."""
        self.is_changed = True
        if batch.producer_epoch != self.producer_epoch:
            self.producer_epoch = batch.producer_epoch
            self.batches.clear()
        delta = batch.last_offset_delta
        self.batches.append(_make_batch((batch.last_sequence, first_offset + delta, delta, timestamp)))
        self.last_timestamp = timestamp
        if batch.is_transactional and self.current_txn_first_offset is None:
            self.current_txn_first_offset = first_offset
            self.started.append(TxnMetadata(self.producer_id, first_offset))

    def check_marker(self, producer_epoch: int, coordinator_epoch: int) -> None:
        """Whether a marker may follow.  InvalidProducerEpochError, TransactionCoordinatorFencedError."""
        if self.origin is not AppendOrigin.REPLICATION:
            self._check_epoch(producer_epoch)
        if self.coordinator_epoch > coordinator_epoch:
            message = (
                f"Invalid coordinator epoch {coordinator_epoch} for producer {self.producer_id}, "
                f"the current one is {self.coordinator_epoch}"
            )
            if self.origin is not AppendOrigin.REPLICATION:
                raise TransactionCoordinatorFencedError(message)
            log.info("marker_of_older_coordinator", detail=message)

    def append_marker(
        self, producer_epoch: int, coordinator_epoch: int, offset: int, timestamp: int, *, is_abort: bool
    ) -> None:
        """A COMMIT or ABORT marker that passed `check_marker` and will be at `offset`."""
        self.is_changed = True
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()
        if self.current_txn_first_offset is not None:
            self.completed.append(CompletedTxn(self.producer_id, self.current_txn_first_offset, offset, is_abort))
        self.current_txn_first_offset = None
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = timestamp

    def apply_to(self, entry: ProducerStateEntry) -> None:
        entry.update_epoch(self.producer_epoch)
        for batch in self.batches:
            entry.add_batch(batch)
        entry.coordinator_epoch = self.coordinator_epoch
        entry.current_txn_first_offset = self.current_txn_first_offset
        entry.last_timestamp = self.last_timestamp

    def _check_epoch(self, producer_epoch: int) -> None:
        if producer_epoch < self.producer_epoch:
            raise InvalidProducerEpochError(
                f"Epoch of producer {self.producer_id} is {producer_epoch}, "
                f"which is smaller than the last seen epoch {self.producer_epoch}"
            )

    def _check_sequence(self, producer_epoch: int, first_sequence: int) -> None:
        if self.producer_epoch == NO_PRODUCER_EPOCH:
            # Nothing is known of it, perhaps because its records are deleted: any sequence is accepted, unless the disk
            # has refused an earlier one.
            if self.expected_first not in (None, (producer_epoch, first_sequence)):
                self._check_expected(producer_epoch, first_sequence)
            return
        if producer_epoch != self.producer_epoch:
            if first_sequence != 0:
                raise OutOfOrderSequenceNumberError(
                    f"Invalid sequence number for new epoch of producer {self.producer_id}: "
                    f"{producer_epoch} (request epoch), {first_sequence} (seq. number), "
                    f"{self.producer_epoch} (current producer epoch)"
                )
            return
        last = self._last_sequence()
        if first_sequence != last + 1 and not (first_sequence == 0 and last == SEQUENCE_MAX):
            raise OutOfOrderSequenceNumberError(
                f"Out of order sequence number for producer {self.producer_id}: "
                f"{first_sequence} (incoming seq. number), {last} (current end sequence number)"
            )

    def _check_expected(self, producer_epoch: int, first_sequence: int) -> None:
        assert self.expected_first is not None
        epoch, sequence = self.expected_first
        if epoch == producer_epoch:
            raise OutOfOrderSequenceNumberError(
                f"Out of order sequence number for producer {self.producer_id}: "
                f"{first_sequence} (incoming seq. number), {sequence} could not be written before"
            )

    def _last_sequence(self) -> int:
        if self.batches:
            return self.batches[-1].last_sequence
        if self.entry is not None and self.entry.producer_epoch == self.producer_epoch:
            return self.entry.last_sequence
        return NO_SEQUENCE
