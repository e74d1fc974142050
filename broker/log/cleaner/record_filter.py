"""RecordFilter: what of a batch stays when its log is compacted (Kafka: Cleaner.cleanInto, MemoryRecords.filterTo)."""

from collections.abc import Iterable

from broker.common.buffers import Buffer
from broker.common.errors import InvalidRecordError
from broker.config.value_types import INT64_MAX
from broker.log.cleaner.cleaned_transactions import CleanedTransactions
from broker.log.cleaner.last_batches import LastBatches
from broker.log.cleaner.offset_map import OffsetMap
from broker.records.memory_records_builder import MemoryRecordsBuilder, empty_batch
from broker.records.record import Record
from broker.records.record_batch import RecordBatch


class RetainedBatch:
    """What stays of one batch: its records are `take`n, all of them and in order, unless it says that it
    `drops_records`; then one of `original`, `builder` and `empty` has the outcome, and none of them if it is gone.
    """

    __slots__ = (
        "_filter",
        "_has_tombstone",
        "_is_spent_marker",
        "_is_whole",
        "_keeps_empty",
        "_next_offset",
        "batch",
        "drops_records",
        "kept",
    )

    def __init__(
        self,
        record_filter: "RecordFilter",
        batch: RecordBatch,
        *,
        drops_records: bool,
        keeps_empty: bool,
        is_spent_marker: bool,
    ) -> None:
        self._filter = record_filter
        self._keeps_empty = keeps_empty
        self._is_spent_marker = is_spent_marker
        self._has_tombstone = False
        self._is_whole = not drops_records
        self._next_offset = batch.base_offset
        self.batch = batch
        self.drops_records = drops_records
        self.kept: list[Record] = []

    def take(self, records: Iterable[Record]) -> None:
        """InvalidRecordError when their offsets are not increasing, or not the batch's."""
        keeps, last_offset = self._filter.keeps, self.batch.last_offset
        for record in records:
            if not self._next_offset <= record.offset <= last_offset:
                raise InvalidRecordError(f"{self.batch}: offset {record.offset} of a record is out of order")
            self._next_offset = record.offset + 1
            if keeps(self.batch, record):
                self.kept.append(record)
                if record.value is None:
                    self._has_tombstone = True
            else:
                self._is_whole = False

    @property
    def _needs_horizon(self) -> bool:
        return (self._has_tombstone or self._is_spent_marker) and not self.batch.has_delete_horizon

    def original(self) -> Buffer | None:
        """The batch as it is, when nothing of it is lost or new."""
        if self.kept:
            return self.batch.buffer if self._is_whole and not self._needs_horizon else None
        return self.batch.buffer if self._keeps_empty and self.batch.record_count == 0 else None

    def builder(self) -> MemoryRecordsBuilder | None:
        """To be given the `kept` records, when only some stay, or when they are given a time to go."""
        if not self.kept or self.original() is not None:
            return None
        batch = self.batch
        return MemoryRecordsBuilder(
            batch.base_offset,
            compression=batch.compression,
            timestamp_type=batch.timestamp_type,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            partition_leader_epoch=batch.partition_leader_epoch,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
            log_append_time=batch.max_timestamp,
            delete_horizon_ms=self._filter.delete_horizon_ms if self._needs_horizon else batch.delete_horizon_ms,
        )

    def empty(self) -> Buffer | None:
        """The batch without its records, when only its producer, its sequence or its last offset is still wanted."""
        batch = self.batch
        if self.kept or not self._keeps_empty or batch.record_count == 0:
            return None
        return empty_batch(
            batch.base_offset,
            batch.last_offset,
            max_timestamp=batch.max_timestamp,
            timestamp_type=batch.timestamp_type,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            partition_leader_epoch=batch.partition_leader_epoch,
            is_transactional=batch.is_transactional,
            is_control=batch.is_control,
        )


class RecordFilter:
    """The rules of one pass.

    The last batch of each producer stays, empty if need be, so that its sequence survives a recovery.  `last_batches`
    are as of a moment the device has reached: those that came since may be lost in a crash.  So does the batch that
    ends the compacted part: who follows sees where it ends.
    """

    def __init__(
        self,
        offset_map: OffsetMap,
        transactions: CleanedTransactions,
        last_batches: LastBatches,
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offset_map = offset_map
        self._transactions = transactions
        self._last_batches = last_batches
        self._now_ms = now_ms
        self.delete_horizon_ms = min(now_ms + delete_retention_ms, INT64_MAX)  # for ever, if so configured

    def begin(self, batch: RecordBatch) -> RetainedBatch | None:
        """What may stay of the next batch of the log; None when it is gone, whatever is in it."""
        is_spent_marker = False
        if batch.is_control:
            is_spent_marker = self._transactions.saw_control(batch)
            drops_records = is_spent_marker and self._is_past_horizon(batch)
        else:
            drops_records = self._transactions.saw_batch(batch)
        keeps_empty = batch.next_offset == self._offset_map.latest_offset + 1 or self._is_last_of_producer(batch)
        if drops_records and not keeps_empty:
            return None
        return RetainedBatch(
            self, batch, drops_records=drops_records, keeps_empty=keeps_empty, is_spent_marker=is_spent_marker
        )

    def keeps(self, batch: RecordBatch, record: Record) -> bool:
        """A record without a key is never the newest of one: a topic has some from before it was compacted."""
        if record.offset > self._offset_map.latest_offset or batch.is_control:
            return True
        key = record.key
        if key is None or record.offset < self._offset_map.newest_offset(key):
            return False
        return record.value is not None or not self._is_past_horizon(batch)

    def _is_past_horizon(self, batch: RecordBatch) -> bool:
        horizon_ms = batch.delete_horizon_ms
        return horizon_ms is not None and horizon_ms <= self._now_ms

    def _is_last_of_producer(self, batch: RecordBatch) -> bool:
        last = self._last_batches.get(batch.producer_id) if batch.has_producer_id else None
        if last is None:
            return False
        if last.last_offset is not None:
            return batch.last_offset == last.last_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch
