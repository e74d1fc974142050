from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.error_counts import error_counts
from broker.protocol.response_schema import ResponseSchema


def test_errors_are_counted_on_every_level_and_none_is_not() -> None:
    schema = ResponseSchema.of(ApiKey.LIST_OFFSETS, 5)
    codes = [ErrorCode.none, ErrorCode.offset_not_available, ErrorCode.offset_not_available]
    partitions = tuple(
        schema.ListOffsetsPartitionResponse(
            partition_index=index, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1
        )
        for index, code in enumerate(codes)
    )
    topics = (schema.ListOffsetsTopicResponse(name="t", partitions=partitions),)
    entity = schema.ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=topics)
    assert error_counts(entity) == {ErrorCode.offset_not_available: 2}


def test_a_top_level_error() -> None:
    schema = ResponseSchema.of(ApiKey.HEARTBEAT, 4)
    entity = schema.HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.rebalance_in_progress)
    assert error_counts(entity) == {ErrorCode.rebalance_in_progress: 1}
