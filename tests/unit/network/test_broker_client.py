"""BrokerClient over a network of its own making: no socket, and every failure on purpose."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from broker.common.buffers import Buffer
from broker.common.errors import ErrorCode
from broker.network.broker_client import BrokerClient, BrokerClientError
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.errors import MalformedFrameError
from broker.protocol.requests import Request, decode_request, decode_response, encode_request, encode_response
from broker.protocol.response_schema import RequestSchema

Answer = Callable[[Request], Any]


class FakeStream:
    """The peer's answers are made when a request is written."""

    def __init__(self, network: "FakeNetwork") -> None:
        self._network = network
        self.reader = asyncio.StreamReader()
        self.requests: list[Request] = []
        self.is_closed = False

    async def read_exactly(self, size: int) -> bytes:
        return await self.reader.readexactly(size)

    def write(self, data: Buffer) -> None:
        if self.is_closed:
            raise ConnectionResetError("closed")
        request = decode_request(bytes(data)[4:])
        self.requests.append(request)
        entity = self._network.answer(request)
        if isinstance(entity, bytes):
            self.reader.feed_data(entity)
        elif entity is not None:
            (response,) = encode_response(request.api_key, request.version, request.correlation_id, entity)
            self.reader.feed_data(bytes(response))

    async def drain(self) -> None:
        await asyncio.sleep(0)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.reader.feed_eof()


class FakeNetwork:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.streams: list[FakeStream] = []
        self.refuses = False

    async def connect(self, host: str, port: int) -> FakeStream:
        await asyncio.sleep(0)
        if self.refuses:
            raise ConnectionRefusedError(111, "refused")
        stream = FakeStream(self)
        self.streams.append(stream)
        return stream


def heartbeat() -> Any:
    return RequestSchema.of(ApiKey.HEARTBEAT, 4).HeartbeatRequest(
        group_id="g", generation_id=1, member_id="m", group_instance_id=None
    )


def answer_heartbeat(request: Request) -> Any:
    return request.schema.HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.rebalance_in_progress)


def client_of(network: FakeNetwork) -> BrokerClient:
    return BrokerClient("controller", 9190, "broker-1", network=network)


async def send(client: BrokerClient, timeout_ms: int = 1000) -> Any:
    return await client.send(ApiKey.HEARTBEAT, 4, heartbeat(), timeout_ms)


async def test_a_request_is_answered_over_a_connection_made_for_it() -> None:
    network = FakeNetwork(answer_heartbeat)
    client = client_of(network)
    assert not client.is_connected
    assert (await send(client)).error_code == ErrorCode.rebalance_in_progress
    assert (await send(client)).error_code == ErrorCode.rebalance_in_progress
    (stream,) = network.streams
    assert [request.client_id for request in stream.requests] == ["broker-1", "broker-1"]
    assert stream.requests[0].correlation_id != stream.requests[1].correlation_id
    await client.close()
    assert stream.is_closed


async def test_requests_may_overlap_and_are_answered_by_correlation_id() -> None:
    waiting: list[Request] = []
    network = FakeNetwork(lambda request: waiting.append(request))
    client = client_of(network)
    tasks = [asyncio.ensure_future(send(client)) for _ in range(3)]
    while len(waiting) < 3:
        await asyncio.sleep(0)
    assert len(network.streams) == 1
    for request in reversed(waiting):
        entity = request.schema.HeartbeatResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode(request.correlation_id)
        )
        (response,) = encode_response(request.api_key, request.version, request.correlation_id, entity)
        network.streams[0].reader.feed_data(bytes(response))
    assert [answer.error_code for answer in await asyncio.gather(*tasks)] == [1, 2, 3]
    await client.close()


async def test_a_codec_of_the_callers_own() -> None:
    network = FakeNetwork(answer_heartbeat)
    client = client_of(network)

    def write(correlation_id: int, client_id: str) -> bytes:
        return encode_request(ApiKey.HEARTBEAT, 4, correlation_id, client_id, heartbeat())

    frame = await client.exchange(write, bytes, 1000)
    assert decode_response(ApiKey.HEARTBEAT, 4, frame)[1].error_code == ErrorCode.rebalance_in_progress
    assert network.streams[0].requests[0].client_id == "broker-1"

    def refuse(frame: bytes) -> bytes:
        raise MalformedFrameError("not what I asked for")

    with pytest.raises(BrokerClientError, match="not what I asked for"):
        await client.exchange(write, refuse, 1000)
    assert network.streams[0].is_closed
    await client.close()


async def test_nobody_there() -> None:
    network = FakeNetwork(answer_heartbeat)
    network.refuses = True
    client = client_of(network)
    with pytest.raises(BrokerClientError, match="controller:9190"):
        await send(client)
    network.refuses = False
    assert (await send(client)).error_code == ErrorCode.rebalance_in_progress
    await client.close()


async def test_the_peer_closes_while_we_wait_and_the_next_request_connects_again() -> None:
    network = FakeNetwork(lambda request: network.streams[-1].close())
    client = client_of(network)
    with pytest.raises(BrokerClientError):
        await send(client)
    assert not client.is_connected
    network.answer = answer_heartbeat
    assert (await send(client)).error_code == ErrorCode.rebalance_in_progress
    assert len(network.streams) == 2
    await client.close()


async def test_no_answer_within_the_deadline_closes_the_connection() -> None:
    network = FakeNetwork(lambda request: None)
    client = client_of(network)
    with pytest.raises(TimeoutError, match="10 ms"):
        await send(client, timeout_ms=10)
    assert network.streams[0].is_closed
    assert not client.is_connected
    await client.close()


async def test_an_answer_nobody_waits_for_is_dropped() -> None:
    held: list[Request] = []
    network = FakeNetwork(lambda request: held.append(request))
    client = client_of(network)
    task = asyncio.ensure_future(send(client))
    while not held:
        await asyncio.sleep(0)
    task.cancel()
    network.answer = answer_heartbeat
    late = encode_response(ApiKey.HEARTBEAT, 4, held[0].correlation_id, answer_heartbeat(held[0]))
    network.streams[0].reader.feed_data(bytes(late[0]))
    assert (await send(client)).error_code == ErrorCode.rebalance_in_progress
    await client.close()


@pytest.mark.parametrize(
    "garbage", [struct.pack(">i", -1), struct.pack(">i", 1 << 30), struct.pack(">ii", 6, 1) + b"\xff\xff"]
)
async def test_garbage_is_a_connection_error(garbage: bytes) -> None:
    client = client_of(FakeNetwork(lambda request: garbage))
    with pytest.raises(BrokerClientError):
        await send(client)
    assert not client.is_connected
    await client.close()


async def test_versions_are_asked_once_per_connection() -> None:
    def answer(request: Request) -> Any:
        schema = request.schema
        if request.api_key != ApiKey.API_VERSIONS:
            return answer_heartbeat(request)
        return schema.ApiVersionsResponse(
            error_code=ErrorCode.none,
            api_keys=(schema.ApiVersion(api_key=12, min_version=0, max_version=4),),
            throttle_time=NO_THROTTLE,
        )

    network = FakeNetwork(answer)
    client = client_of(network)
    assert await client.versions(1000) == {12: (0, 4)}
    assert await client.versions(1000) == {12: (0, 4)}
    assert len(network.streams[0].requests) == 1
    await client.close()
    assert await client.versions(1000) == {12: (0, 4)}
    assert len(network.streams) == 2
    await client.close()


async def test_versions_of_a_peer_that_refuses() -> None:
    client = client_of(
        FakeNetwork(
            lambda request: request.schema.ApiVersionsResponse(
                error_code=ErrorCode.invalid_request, api_keys=(), throttle_time=NO_THROTTLE
            )
        )
    )
    with pytest.raises(BrokerClientError, match="invalid_request"):
        await client.versions(1000)
    await client.close()
