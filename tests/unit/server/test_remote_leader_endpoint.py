import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import TopicPartition
from broker.config.config_holder import ConfigHolder
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, to_milliseconds
from broker.protocol.requests import decode_request, encode_response
from broker.protocol.response_schema import ResponseSchema
from broker.replication.fetch_params import EpochEndOffset
from broker.replication.leader_endpoint import (
    FetchedPartition,
    FetchSessionError,
    FollowerFetch,
    LeaderUnavailableError,
)
from broker.replication.leader_local_start import LeaderLocalStart
from broker.server.remote_leader_endpoint import RemoteLeaderEndPoint, fetch_version, list_offsets_version
from tests.support.builders import broker_config

T = TopicPartition("t", 4)
TOPIC_ID = UUID(int=1001)
ASKED = {T: FollowerFetch(TOPIC_ID, 10, 3, 6, 5, 1000)}


class Connection:
    """Answers as a test says."""

    def __init__(self, respond: Callable[[Any], Any]) -> None:
        self.sent: list[tuple[int, int, Any, int]] = []
        self.closed = 0
        self._respond = respond

    async def send(self, api_key: int, version: int, entity: Any, timeout_ms: int) -> Any:
        self.sent.append((api_key, version, entity, timeout_ms))
        return self._respond(entity)

    async def exchange(self, write: Callable[[int, str], bytes], read: Callable[[bytes], Any], timeout_ms: int) -> Any:
        request = decode_request(write(7, "test")[4:])
        response = await self.send(int(request.api_key), request.version, request.body, timeout_ms)
        return read(b"".join(encode_response(request.api_key, request.version, 7, response))[4:])

    async def close(self) -> None:
        self.closed += 1


def endpoint(
    respond: Callable[[Any], Any], *, level: int = 25, properties: dict[str, str] | None = None
) -> tuple[RemoteLeaderEndPoint, Connection]:
    connection = Connection(respond)
    made = RemoteLeaderEndPoint(
        connection,
        local_broker_id=1,
        broker_epoch=lambda: 77,
        metadata_version=lambda: level,
        config=ConfigHolder(broker_config(properties)),
    )
    return made, connection


def fetch_response(
    version: int = 17, *, error: ErrorCode = ErrorCode.none, session_id: int = 9, **partition: Any
) -> Callable[[Any], Any]:
    def respond(request: Any) -> Any:
        schema = ResponseSchema.of(ApiKey.FETCH, version)
        diverging = partition.pop("diverging", None)
        fields = {
            "partition_index": 4,
            "error_code": ErrorCode.none,
            "high_watermark": 8,
            "log_start_offset": 2,
            "aborted_transactions": None,
            "records": None,
            **partition,
        }
        if diverging is not None:
            fields["diverging_epoch"] = schema.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        topic = schema.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=(schema.PartitionData(**fields),))
        return schema.FetchResponse(
            throttle_time=NO_THROTTLE,
            error_code=error,
            session_id=session_id,
            responses=() if error or not request.topics else (topic,),
        )

    return respond


@pytest.mark.parametrize(
    ("level", "fetch", "list_offsets"),
    [
        (7, 13, 7),
        (8, 13, 7),
        (9, 14, 8),
        (10, 15, 8),
        (18, 15, 8),
        (19, 16, 8),
        (21, 17, 9),
        (25, 17, 10),
        (27, 18, 10),
    ],
)
def test_versions_follow_the_finalized_level(level: int, fetch: int, list_offsets: int) -> None:
    assert (fetch_version(level), list_offsets_version(level)) == (fetch, list_offsets)


async def test_a_fetch_says_who_asks_and_what() -> None:
    leader, connection = endpoint(
        fetch_response(),
        properties={
            "replica.fetch.min.bytes": "17",
            "replica.fetch.response.max.bytes": "12345",
            "replica.socket.timeout.ms": "2500",
        },
    )
    assert await leader.fetch(ASKED, max_wait_ms=123) == {T: FetchedPartition(ErrorCode.none, 8, 2, b"")}
    key, version, request, timeout_ms = connection.sent[0]
    assert (key, version, timeout_ms) == (1, 17, 2500)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (1, 77)
    assert (to_milliseconds(request.max_wait), request.min_bytes, request.max_bytes) == (123, 17, 12345)
    assert (request.isolation_level, request.session_id, request.session_epoch, request.rack_id) == (0, 0, 0, "")
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic_id, partition.partition, partition.partition_max_bytes) == (TOPIC_ID, 4, 1000)
    assert (partition.current_leader_epoch, partition.last_fetched_epoch) == (6, 5)
    assert (partition.fetch_offset, partition.log_start_offset, partition.replica_directory_id) == (10, 3, None)
    assert await leader.fetch({}, max_wait_ms=5) is not None
    assert connection.sent[1][2].session_epoch == 1
    assert [(each.topic_id, each.partitions) for each in connection.sent[1][2].forgotten_topics_data] == [
        (TOPIC_ID, (4,))
    ]


async def test_before_replica_states_there_was_a_replica_id() -> None:
    leader, connection = endpoint(fetch_response(13), level=8)
    await leader.fetch(ASKED, max_wait_ms=5)
    assert (connection.sent[0][1], connection.sent[0][2].replica_id) == (13, 1)


async def test_records_errors_and_divergence_arrive() -> None:
    leader, _ = endpoint(fetch_response(records=b"abc", diverging=(3, 44)))
    answer = (await leader.fetch(ASKED, max_wait_ms=5))[T]
    assert (bytes(answer.records), answer.diverging_epoch) == (b"abc", EpochEndOffset(3, 44))
    leader, _ = endpoint(fetch_response(error_code=ErrorCode.fenced_leader_epoch))
    assert (await leader.fetch(ASKED, max_wait_ms=5))[T].error is ErrorCode.fenced_leader_epoch


async def test_a_refused_session_is_said_and_the_next_fetch_is_full() -> None:
    leader, connection = endpoint(fetch_response(error=ErrorCode.invalid_fetch_session_epoch))
    for _ in range(2):
        with pytest.raises(FetchSessionError) as caught:
            await leader.fetch(ASKED, max_wait_ms=5)
        assert caught.value.error is ErrorCode.invalid_fetch_session_epoch
    assert connection.sent[1][2].session_epoch == 0


async def test_an_answer_that_does_not_fit_is_not_used() -> None:
    leader, _ = endpoint(fetch_response(partition_index=5))
    with pytest.raises(FetchSessionError):
        await leader.fetch(ASKED, max_wait_ms=5)


async def test_what_was_not_used_is_asked_for_in_another_session() -> None:
    leader, connection = endpoint(fetch_response())
    await leader.fetch(ASKED, max_wait_ms=5)
    leader.begin_anew()
    await leader.fetch(ASKED, max_wait_ms=5)
    request = connection.sent[1][2]
    assert (request.session_id, request.session_epoch, len(request.topics)) == (9, 0, 1)


@pytest.mark.parametrize("failure", [ConnectionError("gone"), TimeoutError()])
async def test_a_leader_that_does_not_answer_is_unavailable_and_its_session_over(failure: Exception) -> None:
    leader, connection = endpoint(fetch_response())
    await leader.fetch(ASKED, max_wait_ms=5)

    def fail(entity: Any) -> Any:
        raise failure

    connection._respond = fail
    with pytest.raises(LeaderUnavailableError):
        await leader.fetch(ASKED, max_wait_ms=5)
    assert connection.closed == 1
    connection._respond = fetch_response()
    await leader.fetch(ASKED, max_wait_ms=5)
    assert connection.sent[2][2].session_epoch == 0


async def test_a_cancelled_fetch_gives_its_connection_up() -> None:
    leader, connection = endpoint(fetch_response())

    async def hang(*arguments: Any) -> Any:
        await asyncio.Event().wait()

    connection.exchange = hang  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await leader.fetch(ASKED, max_wait_ms=5)
    assert connection.closed == 1


def offsets(error: ErrorCode = ErrorCode.none) -> Callable[[Any], Any]:
    def respond(request: Any) -> Any:
        schema = ResponseSchema.of(ApiKey.LIST_OFFSETS, 10)
        timestamp = request.topics[0].partitions[0].timestamp
        partition = schema.ListOffsetsPartitionResponse(
            partition_index=4,
            error_code=error,
            timestamp=-1,
            offset={-1: 50, -2: 20, -4: 30}[timestamp],
            leader_epoch=6,
        )
        topic = schema.ListOffsetsTopicResponse(name="t", partitions=(partition,))
        return schema.ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=(topic,))

    return respond


async def test_ends_are_asked_for_as_a_replica_in_its_epoch() -> None:
    leader, connection = endpoint(offsets())
    assert (await leader.latest_offset(T, 6), await leader.earliest_offset(T, 6)) == (50, 20)
    request = connection.sent[0][2]
    assert (connection.sent[0][:2], request.replica_id) == ((2, 10), 1)
    assert (request.topics[0].name, request.topics[0].partitions[0].current_leader_epoch) == ("t", 6)


async def test_where_the_leaders_disk_begins_is_asked_with_the_epoch_that_wrote_it() -> None:
    leader, connection = endpoint(offsets())
    assert await leader.earliest_local_offset(T, 6) == LeaderLocalStart(epoch=6, offset=30)
    assert connection.sent[0][2].topics[0].partitions[0].timestamp == -4


async def test_a_refused_question_has_the_leaders_code() -> None:
    leader, _ = endpoint(offsets(ErrorCode.unknown_leader_epoch))
    for ask in (leader.latest_offset, leader.earliest_local_offset):
        with pytest.raises(KafkaError) as caught:
            await ask(T, 6)
        assert caught.value.code is ErrorCode.unknown_leader_epoch


def epoch_ends(error: ErrorCode = ErrorCode.none, topic: str = "t") -> Callable[[Any], Any]:
    def respond(request: Any) -> Any:
        schema = ResponseSchema.of(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4)
        answer = schema.EpochEndOffset(error_code=error, partition=4, leader_epoch=1, end_offset=90)
        result = schema.OffsetForLeaderTopicResult(topic=topic, partitions=(answer,))
        return schema.OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=(result,))

    return respond


async def test_the_end_of_an_epoch_is_asked_for_in_the_leaders_epoch() -> None:
    leader, connection = endpoint(epoch_ends())
    assert await leader.epoch_end_offset(T, 2, 6) == EpochEndOffset(1, 90)
    ((api_key, version, request, _),) = connection.sent
    asked = request.topics[0].partitions[0]
    assert (api_key, version, request.replica_id) == (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, 1)
    assert (request.topics[0].topic, asked.partition, asked.leader_epoch, asked.current_leader_epoch) == ("t", 4, 2, 6)


async def test_the_end_of_an_epoch_may_be_refused_or_not_come() -> None:
    leader, connection = endpoint(epoch_ends(ErrorCode.fenced_leader_epoch))
    with pytest.raises(KafkaError) as caught:
        await leader.epoch_end_offset(T, 2, 6)
    assert (caught.value.code, connection.closed) == (ErrorCode.fenced_leader_epoch, 0)
    leader, connection = endpoint(epoch_ends(topic="another"))
    with pytest.raises(LeaderUnavailableError, match="nothing of t-4"):
        await leader.epoch_end_offset(T, 2, 6)
    assert connection.closed == 1  # what comes later must not be taken for the answer to something else


async def test_a_code_nobody_knows_yet_is_an_error_like_any_other() -> None:
    def respond(write: Callable[[int, str], bytes], read: Callable[[bytes], Any], timeout_ms: int) -> Any:
        frame = bytearray(
            b"".join(encode_response(1, 17, 7, fetch_response()(decode_request(write(7, "")[4:]).body)))[4:]
        )
        position = frame.index((4).to_bytes(4, "big") + b"\0\0", 20)  # the partition, then its error
        frame[position + 4 : position + 6] = (30_000).to_bytes(2, "big")
        return read(bytes(frame))

    leader, connection = endpoint(fetch_response())

    async def exchange(*arguments: Any) -> Any:
        return respond(*arguments)

    connection.exchange = exchange  # type: ignore[method-assign]
    assert (await leader.fetch(ASKED, max_wait_ms=5))[T].error is ErrorCode.unknown_server_error
