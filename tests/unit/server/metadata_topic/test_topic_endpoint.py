from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC, TopicPartition
from broker.config.config_holder import ConfigHolder
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import decode_request, encode_response
from broker.protocol.response_schema import ResponseSchema
from broker.replication.leader_endpoint import FetchedPartition, FollowerFetch, LeaderUnavailableError
from broker.server.metadata_topic.topic_endpoint import FoundOffset, TopicEndPoint
from tests.support.builders import broker_config

TOPIC_ID = UUID(int=1001)
PLACE = TopicPartition(REMOTE_WAL_LOG_METADATA_TOPIC, 4)


class Connection:
    """Answers as a test says."""

    def __init__(self, respond: Callable[[Any], Any]) -> None:
        self.sent: list[tuple[int, int, Any]] = []
        self.closed = 0
        self._respond = respond

    async def send(self, api_key: int, version: int, entity: Any, timeout_ms: int) -> Any:
        self.sent.append((api_key, version, entity))
        return self._respond(entity)

    async def exchange(self, write: Callable[[int, str], bytes], read: Callable[[bytes], Any], timeout_ms: int) -> Any:
        request = decode_request(write(7, "test")[4:])
        response = await self.send(int(request.api_key), request.version, request.body, timeout_ms)
        return read(b"".join(encode_response(request.api_key, request.version, 7, response))[4:])

    async def close(self) -> None:
        self.closed += 1


def endpoint(respond: Callable[[Any], Any]) -> tuple[TopicEndPoint, Connection]:
    connection = Connection(respond)
    made = TopicEndPoint(
        REMOTE_WAL_LOG_METADATA_TOPIC, connection, config=ConfigHolder(broker_config()), metadata_version=lambda: 25
    )
    return made, connection


async def test_it_fetches_as_a_consumer() -> None:
    def respond(request: Any) -> Any:
        schema = ResponseSchema.of(ApiKey.FETCH, 17)
        data = schema.PartitionData(
            partition_index=4,
            error_code=ErrorCode.none,
            high_watermark=8,
            log_start_offset=2,
            aborted_transactions=None,
            records=b"abc",
        )
        topic = schema.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(data,))
        return schema.FetchResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.none, session_id=9, responses=(topic,)
        )

    leader, connection = endpoint(respond)
    answers = await leader.fetch({PLACE: FollowerFetch(TOPIC_ID, 10, -1, 6, 5, 1000)}, max_wait_ms=123)

    assert answers == {PLACE: FetchedPartition(ErrorCode.none, 8, 2, b"abc")}
    ((_, _, request),) = connection.sent
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (-1, -1)
    assert (request.min_bytes, request.isolation_level, request.session_id) == (1, 0, 0)
    (partition,) = request.topics[0].partitions
    assert (partition.fetch_offset, partition.last_fetched_epoch, partition.current_leader_epoch) == (10, 5, 6)
    leader.begin_anew()
    await leader.fetch({PLACE: FollowerFetch(TOPIC_ID, 10, -1, 6, 5, 1000)}, max_wait_ms=123)
    assert (connection.sent[1][2].session_id, connection.sent[1][2].session_epoch) == (9, 0)


async def test_offsets_are_asked_for_all_at_once() -> None:
    def respond(request: Any) -> Any:
        schema = ResponseSchema.of(ApiKey.LIST_OFFSETS, 7)
        partitions = tuple(
            schema.ListOffsetsPartitionResponse(
                partition_index=index, error_code=error, timestamp=None, offset=offset, leader_epoch=6
            )
            for index, error, offset in ((4, ErrorCode.none, 40), (5, ErrorCode.not_leader_or_follower, -1))
        )
        topic = schema.ListOffsetsTopicResponse(name=REMOTE_WAL_LOG_METADATA_TOPIC, partitions=partitions)
        return schema.ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=(topic,))

    leader, connection = endpoint(respond)

    assert await leader.list_offsets({4: 6, 5: 7}, 1234) == {
        4: FoundOffset(ErrorCode.none, 40),
        5: FoundOffset(ErrorCode.not_leader_or_follower, -1),
    }
    ((key, version, request),) = connection.sent
    assert (key, version, request.replica_id, request.isolation_level) == (2, 7, -1, 0)
    asked = [(each.partition_index, each.current_leader_epoch, each.timestamp) for each in request.topics[0].partitions]
    assert (request.topics[0].name, asked) == (REMOTE_WAL_LOG_METADATA_TOPIC, [(4, 6, 1234), (5, 7, 1234)])


@pytest.mark.parametrize("failure", [ConnectionError("gone"), TimeoutError("late")])
async def test_no_answer_is_an_unavailable_leader_and_another_connection(failure: Exception) -> None:
    def respond(request: Any) -> Any:
        raise failure

    leader, connection = endpoint(respond)
    with pytest.raises(LeaderUnavailableError, match=str(failure)):
        await leader.list_offsets({4: 6}, -1)
    with pytest.raises(LeaderUnavailableError, match=str(failure)):
        await leader.fetch({PLACE: FollowerFetch(TOPIC_ID, 10, -1, 6, 5, 1000)}, max_wait_ms=1)
    assert connection.closed == 2
