"""LeaderAppend: one call of `UnifiedLog.append_as_leader`, from checked batches to one write."""

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker.common.buffers import MutableBuffer
from broker.common.errors import KafkaError, RecordListTooLargeError, StorageFailure
from broker.common.identifiers import NO_TIMESTAMP
from broker.config.topic_config import TopicConfig
from broker.log.log_append import LogAppendResult
from broker.log.producer_state_entry import BatchMetadata, ProducerAppendInfo
from broker.log.producer_state_manager import parse_marker
from broker.records.append_origin import AppendOrigin
from broker.records.compression import CompressionType
from broker.records.control_record import EndTransactionMarker
from broker.records.log_validator import LogValidator
from broker.records.record_batch import TIMESTAMP_TYPE_MASK, RecordBatch, TimestampType

if TYPE_CHECKING:
    from broker.log.unified_log import UnifiedLog


NOT_WRITTEN: Final = LogAppendResult()  # in the place of a result that is not known yet


class LeaderAppend:
    """One call of `append_as_leader`: batches are checked one by one, later ones seeing the sequences of earlier ones,
    and written together."""

    __slots__ = (
        "_infos",
        "_leader_epoch",
        "_log",
        "_next_offset",
        "_now_ms",
        "_origin",
        "_results",
        "_segment",
        "_staged",
        "_staged_size",
        "_validator",
    )

    def __init__(self, unified_log: "UnifiedLog", leader_epoch: int, origin: AppendOrigin, now_ms: int) -> None:
        self._log = unified_log
        self._validator = unified_log.validator
        self._segment = unified_log.segments.active
        self._leader_epoch = leader_epoch
        self._origin = origin
        self._now_ms = now_ms
        self._next_offset = unified_log.log_end_offset
        self._staged: list[tuple[int, RecordBatch]] = []  # checked but not written, with the place of their results
        self._staged_size = 0
        self._infos: dict[int, ProducerAppendInfo] = {}
        self._results: list[LogAppendResult] = []

    def append(self, buffers: Sequence[MutableBuffer]) -> list[LogAppendResult]:
        """One result per batch.  Once the disk has refused, nothing more is tried."""
        results = self._results = [NOT_WRITTEN] * len(buffers)
        try:
            for place, buffer in enumerate(buffers):
                try:
                    self._stage(place, buffer)
                except StorageFailure:
                    raise
                except KafkaError as error:
                    results[place] = LogAppendResult(error)
            self._commit()
        except StorageFailure as failure:
            self._log.count_storage_failure()
            for place, result in enumerate(results):
                if result is NOT_WRITTEN:
                    results[place] = LogAppendResult(failure)
                    self._expect_again(buffers[place])
        return results

    def _expect_again(self, buffer: MutableBuffer) -> None:
        """An idempotent producer's refused batch has to come before those behind it, which may be on their way."""
        with contextlib.suppress(KafkaError):
            batch = RecordBatch.parse(buffer)
            if batch.producer_id >= 0 and not batch.is_control and self._origin is AppendOrigin.CLIENT:
                self._log.producer_state_manager.expect_first(batch)

    def _stage(self, place: int, buffer: MutableBuffer) -> None:
        batch = RecordBatch.parse(buffer)
        self._validator.check_batch(batch, self._origin)
        info: ProducerAppendInfo | None = None
        marker: EndTransactionMarker | None = None
        if batch.producer_id >= 0:
            if batch.is_control:
                marker = parse_marker(batch)
                self._commit()  # a marker is written alone, so that transactions end in the order of the log
                if marker is not None:
                    info = self._info(batch)
                    info.check_marker(batch.producer_epoch, marker.coordinator_epoch)
            else:
                info = self._info(batch)
                if self._origin is AppendOrigin.CLIENT:
                    duplicate = info.find_duplicate(batch)
                    if duplicate is not None:
                        self._answer_duplicate(place, duplicate)
                        return
                info.check(batch)
        batch = self._validator.assign(buffer, batch, self._next_offset, self._leader_epoch, self._now_ms)
        self._make_room(batch)
        self._staged.append((place, batch))
        self._staged_size += batch.size_bytes
        self._next_offset += batch.last_offset_delta + 1
        if info is not None:
            self._record_producer(batch, marker)

    def _answer_duplicate(self, place: int, duplicate: BatchMetadata) -> None:
        self._commit()  # what it duplicates may be staged, and could still fail
        self._results[place] = LogAppendResult(
            None,
            duplicate.first_offset,
            duplicate.last_offset,
            duplicate.timestamp if self._log.config.is_log_append_time else NO_TIMESTAMP,
            self._log.log_start_offset,
            is_duplicate=True,
        )

    def _make_room(self, batch: RecordBatch) -> None:
        """Roll when the batch does not belong into the active segment any more."""
        unified_log = self._log
        size, last_offset = batch.size_bytes, batch.base_offset + batch.last_offset_delta
        segment_bytes, segment_ms = unified_log.segment_bytes, unified_log.segment_ms
        if size > segment_bytes:
            raise RecordListTooLargeError(
                f"Message batch size is {size} bytes in append to partition {unified_log.topic_partition}, which "
                f"exceeds the maximum configured segment size of {segment_bytes}."
            )
        should_roll = self._segment.should_roll
        timestamp, now_ms = batch.max_timestamp, self._now_ms
        if should_roll(self._staged_size + size, timestamp, last_offset, now_ms, segment_bytes, segment_ms):
            self._commit()
            if should_roll(size, timestamp, last_offset, now_ms, segment_bytes, segment_ms):
                unified_log.roll_at(self._next_offset)
                self._segment = unified_log.segments.active

    def _record_producer(self, batch: RecordBatch, marker: EndTransactionMarker | None) -> None:
        info = self._info(batch)  # another one than was checked, if making room has committed that
        if marker is None:
            info.append(batch, batch.base_offset, batch.max_timestamp)
            return
        info.append_marker(
            batch.producer_epoch,
            marker.coordinator_epoch,
            batch.last_offset,
            batch.max_timestamp,
            is_abort=not marker.is_commit,
        )
        self._commit()

    def _info(self, batch: RecordBatch) -> ProducerAppendInfo:
        info = self._infos.get(batch.producer_id)
        if info is None:
            info = self._log.producer_state_manager.prepare_update(batch.producer_id, self._origin)
            self._infos[batch.producer_id] = info
        return info

    def _commit(self) -> None:
        """Write what is staged.  StorageFailure: nothing of it is written."""
        staged = self._staged
        if not staged:
            return
        log, infos = self._log, self._infos
        self._staged, self._staged_size, self._infos = [], 0, {}
        log.write([batch.buffer for _, batch in staged], self._next_offset)
        if self._leader_epoch > log.newest_epoch:
            log.maybe_assign_epoch_start_offset(self._leader_epoch, staged[0][1].base_offset)
        accept, results, log_start_offset = self._segment.accept, self._results, log.log_start_offset
        for place, batch in staged:
            base_offset = batch.base_offset
            last_offset = base_offset + batch.last_offset_delta
            accept(base_offset, last_offset, batch.max_timestamp, batch.size_bytes)
            log_append_time = batch.log_append_time if batch.attributes & TIMESTAMP_TYPE_MASK else NO_TIMESTAMP
            results[place] = LogAppendResult(None, base_offset, last_offset, log_append_time, log_start_offset)
        log.accept_leader_batches(infos, self._next_offset)


def make_validator(config: TopicConfig, name: str) -> LogValidator:
    """The rules of a topic, for messages that name it `name`."""
    codec = config.compression
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return LogValidator(
        topic=name,
        compression_type=None if codec == "producer" else CompressionType.of(codec),
        compression_level=levels.get(codec),
        compact=config.is_compact,
        timestamp_type=TimestampType.of(config.message_timestamp_type),
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        message_size_max=config.max_message_bytes,
    )
