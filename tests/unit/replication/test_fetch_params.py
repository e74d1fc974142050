import pytest

from broker.common.errors import ErrorCode
from broker.replication.fetch_params import FetchIsolation, FetchParams, FetchPartition, FetchPartitionResult


@pytest.mark.parametrize(
    ("replica_id", "version", "isolation_level", "isolation", "fetch_only_leader"),
    [
        (-1, 10, 0, FetchIsolation.HIGH_WATERMARK, True),
        (-1, 11, 0, FetchIsolation.HIGH_WATERMARK, False),
        (-1, 11, 1, FetchIsolation.TXN_COMMITTED, False),
        (-2, 4, 1, FetchIsolation.TXN_COMMITTED, False),
        (2, 17, 1, FetchIsolation.LOG_END, True),
        (-3, 17, 0, FetchIsolation.LOG_END, False),
    ],
)
def test_who_may_read_what_from_whom(
    replica_id: int, version: int, isolation_level: int, isolation: FetchIsolation, fetch_only_leader: bool
) -> None:
    params = FetchParams(version=version, replica_id=replica_id, isolation_level=isolation_level)
    assert (params.isolation, params.fetch_only_leader) == (isolation, fetch_only_leader)
    assert params.is_from_follower == (replica_id == 2)


def test_a_refused_result_has_no_offsets_and_empty_records() -> None:
    result = FetchPartitionResult(FetchPartition("t", 0, 5, 100), ErrorCode.none, 7, 6, 1)
    result.records, result.size_bytes, result.aborted_transactions = b"abc", 3, ()
    result.refuse(ErrorCode.offset_out_of_range)
    assert (result.error, result.high_watermark, result.last_stable_offset, result.log_start_offset) == (
        ErrorCode.offset_out_of_range,
        -1,
        -1,
        -1,
    )
    assert (result.records, result.size_bytes, result.aborted_transactions) == (b"", 0, None)
    assert result.completes_fetch


def test_outside_of_a_session_nothing_is_known_of_earlier_answers() -> None:
    request = FetchPartition("t", 0, 5, 100)
    assert not request.is_remembered
    assert request.is_refused_again
    assert not request.has_news(7, 3)
