from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.protocol import follower_fetch_codec as codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MalformedFrameError
from broker.protocol.follower_fetch_codec import FollowerFetchHead
from broker.protocol.requests import decode_request, encode_request, encode_response
from broker.protocol.response_schema import RequestSchema, ResponseSchema

VERSIONS = range(13, 19)
A, B = UUID(int=1001), UUID(int=1 << 100)
HEAD = FollowerFetchHead(3, 1 << 40, 500, 1, 10_485_760, 77, 5)
ASKED = {A: [(0, 4, 1 << 35, 3, 17, 1_048_576)], B: [(7, 0, 0, -1, 0, 5), (200, 1, 2, 1, 2, 6)]}
FORGOTTEN = {B: [1, 300], A: [9]}


def kio_request(version: int) -> Any:
    schema = RequestSchema.of(ApiKey.FETCH, version)
    replica: dict[str, Any] = {"replica_id": 3}
    if version >= 15:
        replica = {"replica_state": schema.ReplicaState(replica_id=3, replica_epoch=1 << 40)}
    return schema.FetchRequest(
        **replica,
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=10_485_760,
        isolation_level=0,
        session_id=77,
        session_epoch=5,
        topics=tuple(
            schema.FetchTopic(
                topic_id=topic_id,
                partitions=tuple(
                    schema.FetchPartition(
                        partition=each[0],
                        current_leader_epoch=each[1],
                        fetch_offset=each[2],
                        last_fetched_epoch=each[3],
                        log_start_offset=each[4],
                        partition_max_bytes=each[5],
                    )
                    for each in partitions
                ),
            )
            for topic_id, partitions in ASKED.items()
        ),
        forgotten_topics_data=tuple(
            schema.ForgottenTopic(topic_id=topic_id, partitions=tuple(numbers))
            for topic_id, numbers in FORGOTTEN.items()
        ),
        rack_id="",
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_those_of_kio(version: int) -> None:
    ours = codec.encode_request(version, 42, "broker-3-fetcher-0", HEAD, ASKED, FORGOTTEN)
    assert ours == encode_request(ApiKey.FETCH, version, 42, "broker-3-fetcher-0", kio_request(version))
    assert decode_request(ours[4:]).body == kio_request(version)


def kio_response(version: int) -> bytes:
    schema = ResponseSchema.of(ApiKey.FETCH, version)

    def partition(index: int, **fields: Any) -> Any:
        return schema.PartitionData(
            **{
                "partition_index": index,
                "error_code": ErrorCode.none,
                "high_watermark": 1 << 33,
                "last_stable_offset": 3,
                "log_start_offset": 2,
                "aborted_transactions": None,
                "preferred_read_replica": -1,
                "records": None,
                **fields,
            }
        )

    aborted = (schema.AbortedTransaction(producer_id=1, first_offset=2),) * 2
    topics = (
        schema.FetchableTopicResponse(
            topic_id=A,
            partitions=(
                partition(0, records=b"x" * 300),
                partition(1, diverging_epoch=schema.EpochEndOffset(epoch=6, end_offset=1 << 34)),
            ),
        ),
        schema.FetchableTopicResponse(
            topic_id=B,
            partitions=(
                partition(
                    2,
                    error_code=ErrorCode.not_leader_or_follower,
                    current_leader=schema.LeaderIdAndEpoch(leader_id=4, leader_epoch=5),
                    records=b"",
                ),
                partition(3, aborted_transactions=aborted, records=b"yz"),
                partition(4, aborted_transactions=()),
            ),
        ),
    )
    response = schema.FetchResponse(
        throttle_time=timedelta(milliseconds=9),
        error_code=ErrorCode.none,
        session_id=77,
        responses=topics,
        node_endpoints=(schema.NodeEndpoint(node_id=4, host="h", port=1, rack=None),) if version >= 16 else (),
    )
    return b"".join(bytes(each) for each in encode_response(ApiKey.FETCH, version, 42, response))[4:]


@pytest.mark.parametrize("version", VERSIONS)
def test_responses_of_kio_are_read(version: int) -> None:
    answers = codec.decode_response(kio_response(version))
    assert (answers.error_code, answers.session_id) == (0, 77)
    assert [
        (topic_id, [(*each[:4], bytes(each.records), each.diverging_epoch) for each in partitions])
        for topic_id, partitions in answers.topics
    ] == [
        (A, [(0, 0, 1 << 33, 2, b"x" * 300, None), (1, 0, 1 << 33, 2, b"", (6, 1 << 34))]),
        (
            B,
            [
                (2, 6, 1 << 33, 2, b"", None),
                (3, 0, 1 << 33, 2, b"yz", None),
                (4, 0, 1 << 33, 2, b"", None),
            ],
        ),
    ]


def test_a_response_that_ends_anywhere_is_refused_or_was_over() -> None:
    whole = kio_response(17)
    for size in range(len(whole) - 30):  # the rest is what no follower reads
        with pytest.raises(MalformedFrameError):
            codec.decode_response(whole[:size])


def test_an_error_of_the_whole_is_read() -> None:
    schema = ResponseSchema.of(ApiKey.FETCH, 17)
    response = schema.FetchResponse(
        throttle_time=timedelta(0),
        error_code=ErrorCode.fetch_session_id_not_found,
        session_id=0,
        responses=(),
    )
    frame = b"".join(bytes(each) for each in encode_response(ApiKey.FETCH, 17, 42, response))[4:]
    assert codec.decode_response(frame) == (70, 0, [])
