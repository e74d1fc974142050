"""The answers of appends and reads."""

from broker.common.errors import CorruptMessageError, ErrorCode
from broker.log.log_append import LogAppendInfo, LogAppendResult, LogRead, UnexpectedAppendOffsetError
from broker.records.log_validator import RecordError, RecordValidationError


def test_a_fresh_result_says_nothing() -> None:
    result = LogAppendResult()
    assert (result.error, result.base_offset, result.last_offset, result.log_append_time) == (None, -1, -1, -1)
    assert (result.is_duplicate, result.record_errors) == (False, ())


def test_record_errors_come_from_the_error() -> None:
    result = LogAppendResult()
    result.error = RecordValidationError("bad", (RecordError(3, "no key"),))
    assert result.record_errors == ((3, "no key"),)
    result.error = CorruptMessageError("bad")
    assert result.record_errors == ()


def test_an_empty_read_and_an_empty_append() -> None:
    answer = LogRead(5)
    assert (answer.size_bytes, answer.file_slice, answer.aborted_transactions) == (0, None, None)
    assert LogAppendInfo() == (-1, -1, -1, 0, 0)


def test_unexpected_offsets_carry_their_range() -> None:
    error = UnexpectedAppendOffsetError(3, 7, 10)
    assert (error.first_offset, error.last_offset) == (3, 7)
    assert "3..7" in str(error)
    assert error.code is ErrorCode.unknown_server_error
