"""LeaderAppend: every refusal by its code, duplicates, coalescing, a full disk."""

from typing import Any

from broker.common.errors import ErrorCode, StorageFailure
from broker.records.append_origin import AppendOrigin
from broker.records.compression import CompressionType
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.records.record_batch import RecordBatch, TimestampType, set_crc
from tests.support.builders import parsed
from tests.unit.log.log_world import NOW_MS, LogWorld


def idempotent(
    world: LogWorld, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 1, **more: Any
) -> Any:
    return world.batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **more)


def codes(world: LogWorld, *batches: bytearray, **how: Any) -> list[ErrorCode | int]:
    """The base offset of each batch, or its error."""
    results = world.log.append_as_leader(parsed(*batches), 0, **how)
    world.log.update_high_watermark(world.log.log_end_offset)
    return [result.base_offset if result.error is None else result.error.code for result in results]


def patched(batch: bytearray, position: int, data: bytes) -> bytearray:
    batch[position : position + len(data)] = data
    set_crc(batch)
    return batch


def refused_batches(world: LogWorld) -> list[tuple[bytearray, ErrorCode]]:
    corrupt = world.batch()
    corrupt[-1] ^= 1
    return [
        (corrupt, ErrorCode.corrupt_message),
        (world.batch(base_offset=3), ErrorCode.invalid_record),
        (world.batch(size=600), ErrorCode.message_too_large),
        (world.batch(size=400), ErrorCode.record_list_too_large),
        (patched(world.batch(2), 23, b"\0\0\0\5"), ErrorCode.invalid_record),
        (patched(world.batch(2), 57, b"\0\0\0\0"), ErrorCode.invalid_record),
        (world.batch(is_control=True), ErrorCode.invalid_record),
        (world.batch(producer_id=1, producer_epoch=0), ErrorCode.invalid_record),
        (world.batch(timestamp=NOW_MS - 1001), ErrorCode.invalid_timestamp),
        (world.batch(timestamp=NOW_MS + 3_600_001), ErrorCode.invalid_timestamp),
        (idempotent(world, 0, epoch=4, producer_id=50), ErrorCode.invalid_producer_epoch),
        (idempotent(world, 3, epoch=6, producer_id=50), ErrorCode.out_of_order_sequence_number),
    ]


def test_24_each_refusal_has_its_code_and_writes_nothing() -> None:
    world = LogWorld(max_message_bytes=500, segment_bytes=400, message_timestamp_before_max_ms=1000)
    world.marker(50, commit=True, producer_epoch=5, coordinator_epoch=9)
    size, end = world.log.size_bytes, world.log.log_end_offset
    refusals = refused_batches(world)
    for batch, code in refusals:
        assert codes(world, batch) == [code]
    assert (world.log.size_bytes, world.log.log_end_offset) == (size, end)
    refusals = refused_batches(world)
    assert codes(world, *[batch for batch, _ in refusals]) == [code for _, code in refusals]
    assert world.disk.size(world.path(0, ".log")) == size


def test_24_markers_of_an_older_coordinator() -> None:
    world = LogWorld()
    world.marker(50, commit=True, coordinator_epoch=9)
    batch = end_transaction_marker_batch(
        EndTransactionMarker(ControlRecordType.ABORT, 8), producer_id=50, producer_epoch=0, timestamp=NOW_MS
    )
    assert codes(world, batch, origin=AppendOrigin.COORDINATOR) == [ErrorCode.transaction_coordinator_fenced]
    assert world.log.log_end_offset == 1


def test_24_a_plain_batch_in_an_open_transaction() -> None:
    world = LogWorld()
    assert codes(world, idempotent(world, 0, is_transactional=True), idempotent(world, 1)) == [
        0,
        ErrorCode.invalid_txn_state,
    ]


def test_24_keyless_records_on_compacted_topics() -> None:
    world = LogWorld(compact=True)
    (result,) = world.log.append_as_leader(parsed(world.batch(3, key=None)), 0)
    assert result.error is not None
    assert result.error.code is ErrorCode.invalid_record
    assert [each.batch_index for each in result.record_errors] == [0, 1, 2]
    assert codes(world, world.batch(2)) == [0]


def test_log_append_time_is_the_brokers() -> None:
    world = LogWorld(message_timestamp_type="LogAppendTime")
    world.clock.ms += 5
    (result,) = world.log.append_as_leader(parsed(world.batch(timestamp=1)), 0)
    assert result.log_append_time == NOW_MS + 5
    (batch,) = world.batches()
    assert (batch.max_timestamp, batch.timestamp_type) == (NOW_MS + 5, TimestampType.LOG_APPEND_TIME)
    assert batch.is_crc_valid()
    (plain,) = LogWorld().log.append_as_leader(parsed(world.batch()), 0)
    assert plain.log_append_time == -1


def test_compression_type_recompresses_and_producer_keeps() -> None:
    world = LogWorld(compression_type="lz4", max_message_bytes=2000)
    (result,) = world.log.append_as_leader(parsed(world.batch(5, size=100)), 3)
    (batch,) = world.batches()
    assert batch.compression is CompressionType.LZ4
    assert (batch.partition_leader_epoch, result.last_offset) == (3, batch.last_offset) == (3, 4)
    assert [record.offset for record in batch.records()] == [0, 1, 2, 3, 4]
    keep = LogWorld()
    keep.log.append_as_leader(parsed(keep.batch(5, compression=CompressionType.GZIP)), 0)
    assert keep.batches()[0].compression is CompressionType.GZIP


def test_25_duplicates_answer_their_first_offsets() -> None:
    world = LogWorld()
    for number in range(6):
        world.append(producer_id=1, producer_epoch=0, base_sequence=number)
    results = world.log.append_as_leader(parsed(*(idempotent(world, number) for number in range(1, 6))), 0)
    assert [(result.base_offset, result.last_offset, result.is_duplicate) for result in results] == [
        (number, number, True) for number in range(1, 6)
    ]
    assert all(result.error is None for result in results)
    assert codes(world, idempotent(world, 0)) == [ErrorCode.out_of_order_sequence_number]
    assert world.log.log_end_offset == 6


def test_26_sequences_wrap_between_and_within_batches() -> None:
    world = LogWorld()
    top = 2**31 - 1
    assert codes(world, idempotent(world, top - 3, 4), idempotent(world, 0, 2)) == [0, 4]
    other = LogWorld()
    assert codes(other, idempotent(other, top - 1, 4), idempotent(other, 2)) == [0, 4]


def test_later_batches_of_a_call_see_the_sequences_of_earlier_ones() -> None:
    world = LogWorld()
    assert codes(
        world,
        idempotent(world, 0, 2),
        idempotent(world, 2),
        idempotent(world, 2),
        idempotent(world, 5),
        idempotent(world, 3),
        world.batch(),
    ) == [0, 2, 2, ErrorCode.out_of_order_sequence_number, 3, 4]
    assert world.offsets() == [(0, 1), (2, 2), (3, 3), (4, 4)]


def test_a_refused_first_batch_leaves_no_producer() -> None:
    world = LogWorld(message_timestamp_before_max_ms=1000)
    assert codes(world, idempotent(world, 0, timestamp=1), world.batch()) == [ErrorCode.invalid_timestamp, 0]
    assert world.log.producer_count == 0


def test_the_batches_of_a_call_are_one_write_per_segment() -> None:
    world = LogWorld(segment_bytes=400)
    before = world.disk.operations.get("write", 0)
    assert codes(world, *[world.batch() for _ in range(8)]) == list(range(8))
    assert world.log.segments.base_offsets == [0, 5]
    log_writes = 2
    index_and_epoch_writes = world.disk.operations["write"] - before - log_writes
    assert index_and_epoch_writes <= 2
    assert world.offsets() == [(number, number) for number in range(8)]


def test_results_carry_what_an_answer_needs() -> None:
    world = LogWorld()
    world.append(5)
    world.log.maybe_increment_log_start_offset(2, "test")
    (result,) = world.log.append_as_leader(parsed(world.batch(3)), 7)
    assert (result.base_offset, result.last_offset) == (5, 7)
    assert (result.log_start_offset, result.record_errors) == (2, ())
    assert repr(result) == "LogAppendResult(5..7, duplicate=False)"


# -- the disk refuses --------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_the_batches_and_the_log_lives_on() -> None:
    world = LogWorld()
    world.append(producer_id=1, producer_epoch=0, base_sequence=0)
    before = world.disk.read(world.path(0, ".log"))
    world.disk.budget_bytes = world.disk.used_bytes() + 100
    batches = [idempotent(world, 1), idempotent(world, 2), world.batch()]
    assert codes(world, *batches) == [ErrorCode.kafka_storage_error] * 3
    assert world.disk.read(world.path(0, ".log")) == before
    assert world.log.log_end_offset == 1
    assert world.log.producer_state_manager.last_entry(1).last_sequence == 0  # type: ignore[union-attr]
    assert world.offsets() == [(0, 0)]
    world.disk.heal()
    assert codes(world, idempotent(world, 1), idempotent(world, 2)) == [1, 2]
    assert world.metrics.storage_failures.value == 1


def test_a_new_producer_begins_with_what_the_disk_refused() -> None:
    world = LogWorld()
    world.disk.fail(world.directory, "write")
    assert codes(world, idempotent(world, 0, 2), idempotent(world, 2)) == [ErrorCode.kafka_storage_error] * 2
    world.disk.heal()
    out_of_order = ErrorCode.out_of_order_sequence_number
    assert codes(world, idempotent(world, 2), idempotent(world, 3)) == [out_of_order] * 2
    assert codes(world, idempotent(world, 0, 2), idempotent(world, 2), idempotent(world, 3)) == [0, 2, 3]
    assert codes(world, idempotent(world, 5), idempotent(world, 4)) == [out_of_order, 4]


def test_what_the_disk_refused_binds_its_own_producer_and_epoch_only() -> None:
    world = LogWorld()
    world.disk.fail(world.directory, "write")
    assert codes(world, idempotent(world, 0)) == [ErrorCode.kafka_storage_error]
    world.disk.heal()
    assert codes(world, idempotent(world, 7, producer_id=2), idempotent(world, 7, epoch=1)) == [0, 1]


def test_a_failure_in_a_later_segment_keeps_what_was_written_before() -> None:
    world = LogWorld(segment_bytes=200)
    world.disk.fail(world.path(2, ".log"), "open")
    assert codes(world, *[world.batch() for _ in range(4)]) == [0, 1] + [ErrorCode.kafka_storage_error] * 2
    assert world.log.log_end_offset == 2
    world.disk.heal()
    assert codes(world, world.batch()) == [2]
    assert world.log.segments.base_offsets == [0, 2]


def test_a_failed_original_fails_its_duplicate_in_the_same_call() -> None:
    world = LogWorld()
    world.disk.fail(world.directory, "write")
    assert codes(world, idempotent(world, 0), idempotent(world, 0)) == [ErrorCode.kafka_storage_error] * 2


def test_flush_messages_1_flushes_before_the_answer() -> None:
    world = LogWorld(flush_messages=1)
    assert codes(world, world.batch(2)) == [0]
    assert world.log.unflushed_messages == 0
    world.disk.fail(world.directory, "sync")
    size = world.log.size_bytes
    assert codes(world, idempotent(world, 0)) == [ErrorCode.kafka_storage_error]
    assert (world.log.log_end_offset, world.log.size_bytes) == (2, size)
    assert world.disk.size(world.path(0, ".log")) == size
    world.disk.heal()
    assert codes(world, idempotent(world, 0)) == [2]
    assert world.log.unflushed_messages == 0


def test_flush_messages_counts_records() -> None:
    world = LogWorld(flush_messages=5)
    world.append(4)
    assert (world.log.unflushed_messages, world.metrics.flush_seconds.count) == (4, 0)
    world.append(1)
    assert (world.log.unflushed_messages, world.metrics.flush_seconds.count) == (0, 1)


def test_errors_are_exceptions_of_the_storage_kind() -> None:
    world = LogWorld()
    world.disk.fail(world.directory, "write")
    (result,) = world.log.append_as_leader(parsed(world.batch()), 0)
    assert isinstance(result.error, StorageFailure)
    assert "StorageFailure" in repr(result)
    assert result.base_offset == -1


def test_coordinators_skip_client_checks_and_size_limits_hold() -> None:
    world = LogWorld()
    assert codes(world, idempotent(world, 55), origin=AppendOrigin.COORDINATOR) == [0]
    assert codes(world, idempotent(world, 99), origin=AppendOrigin.COORDINATOR) == [1]
    assert isinstance(world.batches()[0], RecordBatch)
