from broker.common.errors import ErrorCode
from broker.replication.leader_endpoint import FetchedPartition, FetchSessionError


def test_an_answer_without_an_error_says_so() -> None:
    answer = FetchedPartition()
    assert (answer.error, answer.high_watermark, answer.log_start_offset) == (ErrorCode.none, -1, -1)
    assert (answer.records, answer.diverging_epoch) == (b"", None)


def test_a_refused_session_names_its_error() -> None:
    error = FetchSessionError(ErrorCode.fetch_session_id_not_found)
    assert error.error is ErrorCode.fetch_session_id_not_found
    assert str(error) == "the fetch was refused: fetch_session_id_not_found"
