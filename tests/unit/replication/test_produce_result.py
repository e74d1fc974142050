from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.replication.produce_result import ERRORS_WITHOUT_LOG_START_OFFSET, PartitionProduceResult


def test_a_result_begins_neutral() -> None:
    result = PartitionProduceResult(TopicPartition("t", 3))
    assert (result.error, result.base_offset, result.log_append_time, result.log_start_offset) == (
        ErrorCode.none,
        -1,
        -1,
        -1,
    )
    assert (result.record_errors, result.error_message, result.current_leader) == ((), None, None)


def test_kafkas_list_of_errors_without_a_log_start_offset() -> None:
    assert sorted(ERRORS_WITHOUT_LOG_START_OFFSET) == [2, 3, 6, 10, 17, 18, 56]
