"""LeaderAppend: one call of `UnifiedLog.append_as_leader`, from checked batches to one write."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker.common.errors import KafkaError, RecordListTooLargeError, StorageFailure
from broker.common.identifiers import NO_TIMESTAMP
from broker.config.topic_config import TopicConfig
from broker.log.log_append import LogAppendResult
from broker.log.log_segment import NO_ROOM
from broker.log.producer_state_entry import BatchMetadata, ProducerAppendInfo
from broker.log.producer_state_manager import parse_marker
from broker.records.append_origin import AppendOrigin
from broker.records.compression import CompressionType
from broker.records.control_record import EndTransactionMarker
from broker.records.log_validator import LogValidator
from broker.records.record_batch import TIMESTAMP_TYPE_MASK, RecordBatch, TimestampType

if TYPE_CHECKING:
    from broker.log.unified_log import UnifiedLog


_CLIENT: Final = AppendOrigin.CLIENT  # Python 3.11 looks members of an enum up slowly
NOT_WRITTEN: Final = LogAppendResult()  # in the place of a result that is not known yet


class LeaderAppend:
    """One call of `append_as_leader`: batches are checked one by one, later ones seeing the sequences of earlier ones,
    and written together."""

    __slots__ = (
        "_infos",
        "_last_offset_max",
        "_leader_epoch",
        "_log",
        "_max_timestamp_max",
        "_next_offset",
        "_now_ms",
        "_origin",
        "_places",
        "_results",
        "_segment",
        "_size_left",
        "_staged",
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
        self._staged: list[RecordBatch] = []  # checked but not written
        self._places: list[int] = []  # of their results
        self._size_left = self._max_timestamp_max = self._last_offset_max = NO_ROOM  # nobody has looked
        self._infos: dict[int, ProducerAppendInfo] = {}
        self._results: list[LogAppendResult] = []

    def append(self, batches: Sequence[RecordBatch]) -> list[LogAppendResult]:
        """One result per batch.  Once the disk has refused, nothing more is tried."""
        results = self._results = [NOT_WRITTEN] * len(batches)
        try:
            for place, batch in enumerate(batches):
                try:
                    self._stage(place, batch)
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
                    self._expect_again(batches[place])
        return results

    def _expect_again(self, batch: RecordBatch) -> None:
        """An idempotent producer's refused batch has to come before those behind it, which may be on their way."""
        if batch.producer_id >= 0 and not batch.is_control and self._origin is AppendOrigin.CLIENT:
            self._log.producer_state_manager.expect_first(batch)

    def _stage(self, place: int, batch: RecordBatch) -> None:
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
                if self._origin is _CLIENT:
                    duplicate = info.find_duplicate(batch)
                    if duplicate is not None:
                        self._answer_duplicate(place, duplicate)
                        return
                info.check(batch)
        batch = self._validator.assign(batch, self._next_offset, self._leader_epoch, self._now_ms)
        if not self._has_room(batch):
            self._make_room(batch)
        self._staged.append(batch)
        self._places.append(place)
        self._size_left -= batch.size_bytes
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

    def _has_room(self, batch: RecordBatch) -> bool:
        """Whether the batch belongs into the active segment, behind what is staged."""
        return (
            batch.size_bytes <= self._size_left
            and batch.max_timestamp <= self._max_timestamp_max
            and batch.base_offset + batch.last_offset_delta <= self._last_offset_max
        )

    def _look_for_room(self) -> None:
        log = self._log
        room = self._segment.room(self._now_ms, log.segment_bytes, log.segment_ms)
        self._size_left, self._max_timestamp_max, self._last_offset_max = room

    def _make_room(self, batch: RecordBatch) -> None:
        """Roll, if the batch does not belong into the active segment once what is staged is written either."""
        unified_log = self._log
        if batch.size_bytes > unified_log.segment_bytes:
            raise RecordListTooLargeError(
                f"Message batch size is {batch.size_bytes} bytes in append to partition {unified_log.topic_partition}, "
                f"which exceeds the maximum configured segment size of {unified_log.segment_bytes}."
            )
        self._commit()
        self._look_for_room()
        if not self._has_room(batch):
            unified_log.roll_at(self._next_offset)
            self._segment = unified_log.segments.active
            self._look_for_room()

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
        log, infos, places = self._log, self._infos, self._places
        self._staged, self._places, self._infos, self._size_left = [], [], {}, NO_ROOM
        log.write([batch.buffer for batch in staged], self._next_offset)
        if self._leader_epoch > log.newest_epoch:
            log.maybe_assign_epoch_start_offset(self._leader_epoch, staged[0].base_offset)
        self._segment.accept(staged)
        results, log_start_offset = self._results, log.log_start_offset
        for place, batch in zip(places, staged, strict=True):
            base_offset = batch.base_offset
            last_offset = base_offset + batch.last_offset_delta
            log_append_time = batch.max_timestamp if batch.attributes & TIMESTAMP_TYPE_MASK else NO_TIMESTAMP
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
