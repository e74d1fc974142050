"""kio writes and reads the same."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.protocol import producer_codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.errors import MalformedFrameError
from broker.protocol.producer_codec import ProducedAnswer
from broker.protocol.requests import encode_request, encode_response
from broker.protocol.response_schema import RequestSchema, ResponseSchema

TOPIC_ID = UUID(int=77)
REQUEST = RequestSchema.of(ApiKey.PRODUCE, 13)
RESPONSE = ResponseSchema.of(ApiKey.PRODUCE, 13)


@pytest.mark.parametrize("count", [1, 3, 200])
def test_a_request_is_what_kio_writes(count: int) -> None:
    partitions = [(number * 7, bytes([number]) * (number * 150)) for number in range(count)]
    topic = REQUEST.TopicProduceData(
        topic_id=TOPIC_ID,
        partition_data=tuple(
            REQUEST.PartitionProduceData(index=index, records=records) for index, records in partitions
        ),
    )
    entity = REQUEST.ProduceRequest(
        transactional_id=None, acks=-1, timeout=timedelta(milliseconds=1234), topic_data=(topic,)
    )

    written = producer_codec.encode_request(42, "broker-1", -1, 1234, TOPIC_ID, partitions)

    assert written == encode_request(ApiKey.PRODUCE, 13, 42, "broker-1", entity)


def partition_response(index: int, error: ErrorCode, **more: Any) -> Any:
    fields = {"error_message": None, "record_errors": (), "log_start_offset": 3, "current_leader": None, **more}
    if fields["current_leader"] is None:
        del fields["current_leader"]
    return RESPONSE.PartitionProduceResponse(
        index=index, error_code=error, base_offset=1000 + index, log_append_time=None, **fields
    )


def response(*partitions: Any) -> bytes:
    topic = RESPONSE.TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=partitions)
    entity = RESPONSE.ProduceResponse(responses=(topic,), throttle_time=NO_THROTTLE)
    return b"".join(encode_response(ApiKey.PRODUCE, 13, 42, entity))[4:]


def test_a_response_is_what_kio_wrote() -> None:
    frame = response(
        partition_response(4, ErrorCode.none),
        partition_response(
            5,
            ErrorCode.invalid_record,
            error_message="no" * 90,
            record_errors=(
                RESPONSE.BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="why"),
                RESPONSE.BatchIndexAndErrorMessage(batch_index=2, batch_index_error_message=None),
            ),
        ),
        partition_response(
            6,
            ErrorCode.not_leader_or_follower,
            current_leader=RESPONSE.LeaderIdAndEpoch(leader_id=2, leader_epoch=9),
        ),
    )

    assert producer_codec.decode_response(frame) == [
        ProducedAnswer(4, 0, 1004),
        ProducedAnswer(5, int(ErrorCode.invalid_record), 1005),
        ProducedAnswer(6, int(ErrorCode.not_leader_or_follower), 1006),
    ]


def test_a_response_that_is_cut_short_is_refused() -> None:
    frame = response(partition_response(4, ErrorCode.none))
    for end in (3, 6, 12, 30, 50):
        with pytest.raises(MalformedFrameError):
            producer_codec.decode_response(frame[:end])
