"""LeaderAppend: one call of `UnifiedLog.append_as_leader`, from checked batches to one write."""

from typing import TYPE_CHECKING

from broker.common.buffers import MutableBuffer
from broker.common.errors import KafkaError, RecordListTooLargeError, StorageFailure
from broker.config.topic_config import TopicConfig
from broker.log.log_append import LogAppendResult
from broker.log.producer_state_entry import ProducerAppendInfo
from broker.log.producer_state_manager import parse_marker
from broker.records.append_origin import AppendOrigin
from broker.records.compression import CompressionType
from broker.records.control_record import EndTransactionMarker
from broker.records.log_validator import LogValidator
from broker.records.record_batch import TIMESTAMP_TYPE_MASK, RecordBatch, TimestampType

if TYPE_CHECKING:
    from broker.log.unified_log import UnifiedLog


class LeaderAppend:
    """One call of `append_as_leader`: batches are checked one by one, later ones seeing the sequences of earlier ones,
    and written together."""

    __slots__ = (
        "_failure",
        "_infos",
        "_leader_epoch",
        "_log",
        "_next_offset",
        "_now_ms",
        "_origin",
        "_staged",
        "_staged_size",
        "results",
    )

    def __init__(self, unified_log: "UnifiedLog", leader_epoch: int, origin: AppendOrigin, now_ms: int) -> None:
        self._log = unified_log
        self._leader_epoch = leader_epoch
        self._origin = origin
        self._now_ms = now_ms
        self._next_offset = unified_log.log_end_offset
        self._staged: list[tuple[LogAppendResult, RecordBatch]] = []
        self._staged_size = 0
        self._infos: dict[int, ProducerAppendInfo] = {}
        self._failure: StorageFailure | None = None
        self.results: list[LogAppendResult] = []

    def stage(self, buffer: MutableBuffer) -> None:
        result = LogAppendResult()
        self.results.append(result)
        if self._failure is not None:
            result.error = self._failure
            return
        try:
            self._stage(buffer, result)
        except StorageFailure as failure:
            self._failure = result.error = failure
            self._log.count_storage_failure()
        except KafkaError as error:
            result.error = error

    def _stage(self, buffer: MutableBuffer, result: LogAppendResult) -> None:
        unified_log = self._log
        batch = RecordBatch.parse(buffer)
        unified_log.validator.check_batch(batch, self._origin)
        info: ProducerAppendInfo | None = None
        marker: EndTransactionMarker | None = None
        if batch.producer_id >= 0:
            if batch.is_control:
                marker = parse_marker(batch)
                self.commit_or_raise()  # a marker is written alone, so that transactions end in the order of the log
                if marker is not None:
                    info = self._info(batch)
                    info.check_marker(batch.producer_epoch, marker.coordinator_epoch)
            else:
                info = self._info(batch)
                if self._is_duplicate(info, batch, result):
                    return
                info.check(batch)
        batch = unified_log.validator.assign(buffer, batch, self._next_offset, self._leader_epoch, self._now_ms)
        self._make_room(batch)
        self._staged.append((result, batch))
        self._staged_size += batch.size_bytes
        self._next_offset += batch.last_offset_delta + 1
        if info is not None:
            self._record_producer(batch, marker)

    def _is_duplicate(self, info: ProducerAppendInfo, batch: RecordBatch, result: LogAppendResult) -> bool:
        if self._origin is not AppendOrigin.CLIENT:
            return False
        duplicate = info.find_duplicate(batch)
        if duplicate is None:
            return False
        self.commit_or_raise()  # what it duplicates may be staged, and could still fail
        result.is_duplicate = True
        result.base_offset = duplicate.first_offset
        result.last_offset = duplicate.last_offset
        result.log_append_time = duplicate.timestamp if self._log.config.is_log_append_time else -1
        result.log_start_offset = self._log.log_start_offset
        return True

    def _make_room(self, batch: RecordBatch) -> None:
        """Roll when the batch does not belong into the active segment any more."""
        unified_log = self._log
        size, last_offset = batch.size_bytes, batch.base_offset + batch.last_offset_delta
        if size > unified_log.segment_bytes:
            raise RecordListTooLargeError(
                f"Message batch size is {size} bytes in append to partition {unified_log.topic_partition}, which "
                f"exceeds the maximum configured segment size of {unified_log.segment_bytes}."
            )
        if unified_log.should_roll(self._staged_size + size, batch.max_timestamp, last_offset, self._now_ms):
            self.commit_or_raise()
            if unified_log.should_roll(size, batch.max_timestamp, last_offset, self._now_ms):
                unified_log.roll_at(self._next_offset)

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
        self.commit_or_raise()

    def _info(self, batch: RecordBatch) -> ProducerAppendInfo:
        info = self._infos.get(batch.producer_id)
        if info is None:
            info = self._log.producer_state_manager.prepare_update(batch.producer_id, self._origin)
            self._infos[batch.producer_id] = info
        return info

    def commit_or_raise(self) -> None:
        if self._staged:
            staged, infos = self._staged, self._infos
            self._staged, self._staged_size, self._infos = [], 0, {}
            try:
                self._log.write([batch.buffer for _, batch in staged], self._next_offset)
            except StorageFailure as failure:
                for result, _ in staged:
                    result.error = failure
                raise
            self._accept(staged)
            self._log.accept_leader_batches(infos, self._next_offset)

    def _accept(self, staged: list[tuple[LogAppendResult, RecordBatch]]) -> None:
        log = self._log
        if self._leader_epoch > log.newest_epoch:
            log.maybe_assign_epoch_start_offset(self._leader_epoch, staged[0][1].base_offset)
        accept = log.segments.active.accept
        log_start_offset = log.log_start_offset
        for result, batch in staged:
            result.base_offset = base_offset = batch.base_offset
            result.last_offset = last_offset = base_offset + batch.last_offset_delta
            accept(base_offset, last_offset, batch.max_timestamp, batch.size_bytes)
            if batch.attributes & TIMESTAMP_TYPE_MASK:
                result.log_append_time = batch.log_append_time
            result.log_start_offset = log_start_offset
            result.record_count = batch.record_count
            result.size_bytes = batch.size_bytes

    def commit(self) -> None:
        try:
            self.commit_or_raise()
        except StorageFailure:
            self._log.count_storage_failure()


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
