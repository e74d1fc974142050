"""What the appends and reads of a log answer, and the errors only followers see."""

from typing import NamedTuple

from broker.common.errors import KafkaError
from broker.common.identifiers import NO_EPOCH, NO_OFFSET, NO_TIMESTAMP
from broker.log.file_records import FileSlice
from broker.log.transaction_index import AbortedTransaction
from broker.records.log_validator import RecordError, RecordValidationError


class LogAppendResult:
    """The fate of one batch.  With an error nothing of it is in the log and the offsets are -1."""

    __slots__ = ("base_offset", "error", "is_duplicate", "last_offset", "log_append_time", "log_start_offset")

    def __init__(
        self,
        error: KafkaError | None = None,
        base_offset: int = NO_OFFSET,
        last_offset: int = NO_OFFSET,
        log_append_time: int = NO_TIMESTAMP,
        log_start_offset: int = NO_OFFSET,
        *,
        is_duplicate: bool = False,
    ) -> None:
        self.error = error
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.is_duplicate = is_duplicate

    @property
    def record_errors(self) -> tuple[RecordError, ...]:
        """Which records made the batch unacceptable (KIP-467)."""
        return self.error.record_errors if isinstance(self.error, RecordValidationError) else ()

    def __repr__(self) -> str:
        if self.error is not None:
            return f"LogAppendResult({self.error!r})"
        return f"LogAppendResult({self.base_offset}..{self.last_offset}, duplicate={self.is_duplicate})"


class LogAppendInfo(NamedTuple):
    """What a follower appended; -1 and 0 when there was no whole batch."""

    first_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    last_leader_epoch: int = NO_EPOCH
    record_count: int = 0
    valid_bytes: int = 0


class LogRead:
    """Where the wanted batches are.  No `file_slice`: nothing there yet, or not within the size asked for."""

    __slots__ = ("aborted_transactions", "fetch_offset", "file_slice", "first_entry_incomplete")

    def __init__(
        self,
        fetch_offset: int,
        file_slice: FileSlice | None = None,
        aborted_transactions: tuple[AbortedTransaction, ...] | None = None,
        *,
        first_entry_incomplete: bool = False,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.file_slice = file_slice
        self.aborted_transactions = aborted_transactions
        self.first_entry_incomplete = first_entry_incomplete  # there is a batch, but larger than the size asked for

    @property
    def size_bytes(self) -> int:
        return 0 if self.file_slice is None else self.file_slice.size


class ActiveProducer(NamedTuple):
    """One row of DescribeProducers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int  # -1: no open transaction


class OffsetsOutOfOrderError(KafkaError):
    """Batches from a leader whose offsets do not increase."""


class UnexpectedAppendOffsetError(KafkaError):
    """Batches from a leader that start below the log end offset."""

    def __init__(self, first_offset: int, last_offset: int, log_end_offset: int) -> None:
        super().__init__(
            f"Unexpected offset in append: batches {first_offset}..{last_offset}, the log ends at {log_end_offset}"
        )
        self.first_offset = first_offset
        self.last_offset = last_offset
