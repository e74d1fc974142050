from pathlib import Path

from broker.common.errors import CorruptMessageError, ErrorCode, OutOfOrderSequenceNumberError
from broker.common.identifiers import TopicPartition
from broker.log.log_append import LogAppendResult
from broker.records.log_validator import RecordError, RecordValidationError
from broker.replication.append_request import AppendRequest
from tests.support.builders import ReplicaWorld, ToldAppend, batch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def appended(base_offset: int, last_offset: int) -> LogAppendResult:
    result = LogAppendResult()
    result.base_offset, result.last_offset, result.log_start_offset = base_offset, last_offset, 0
    return result


def refused(error: Exception) -> LogAppendResult:
    result = LogAppendResult()
    result.error = error  # type: ignore[assignment]
    return result


def request_of(done: list[AppendRequest], count: int = 1) -> AppendRequest:
    request = ToldAppend(lambda results: None, acks=1)
    request.begin(count, done.append)
    return request


def test_it_tells_once_all_partitions_have_spoken(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.create_topic(partitions=2)
    done: list[AppendRequest] = []
    request = request_of(done, count=2)
    request.complete_one(1, appended(5, 7), world.partition("t", 1), 300)
    assert done == []
    request.refuse_one(0, T0, ErrorCode.invalid_required_acks)
    assert done == [request]
    first, second = request.results
    assert (first.topic_partition, first.error, first.base_offset) == (T0, ErrorCode.invalid_required_acks, -1)
    assert (second.topic_partition, second.error, second.base_offset) == (T1, ErrorCode.none, 5)
    assert (second.required_offset, second.log_start_offset) == (8, 0)
    stats = world.partition().topic_stats
    assert (stats.bytes_in, stats.messages_in, stats.total_produce_requests) == (300, 3, 1)


def test_only_errors_of_records_are_explained(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.create_topic()
    world.append(batch("a", "b"))
    world.partition().delete_records_on_leader(1)
    record_errors = (RecordError(0, "no key"), RecordError(2, "no key"))
    for error, code, start, message, errors in (
        (RecordValidationError("bad", record_errors), ErrorCode.invalid_record, 1, "bad", record_errors),
        (CorruptMessageError("crc"), ErrorCode.corrupt_message, -1, None, ()),
        (OutOfOrderSequenceNumberError("gap"), ErrorCode.out_of_order_sequence_number, 1, None, ()),
    ):
        request = request_of([])
        request.complete_one(0, refused(error), world.partition(), 100)
        (result,) = request.results
        assert (result.error, result.log_start_offset, result.error_message, result.record_errors) == (
            code,
            start,
            message,
            errors,
        )
        assert request.partitions == [None]
    stats = world.partition().topic_stats
    assert (stats.failed_produce_requests, stats.invalid_message_crc_records) == (2, 1)
    assert (stats.no_key_compacted_topic_records, stats.invalid_offset_or_sequence_records) == (2, 1)
    assert stats.bytes_in == 0
