"""Any chunking of the same bytes starts the same requests and sends the same answers."""

import asyncio
import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.frames import Frame
from broker.protocol.response_schema import RequestSchema
from broker.server.api_registry import handles_frames
from broker.server.connection import LARGE_REQUEST_BYTES
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot
from tests.support.requests_corpus import recorded_requests
from tests.support.socket_harness import connected, receive_all, request, server_of, turns

RECORDED = [each.frame for each in recorded_requests(ApiKey.API_VERSIONS)]


class Appender:
    """Answers a Produce some turns later, as group commit does."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.delay = 0

    def accept(self, frame: Frame, slot: ResponseSlot) -> None:
        self.received.append(bytes(frame.buffer))
        answer = [struct.pack(">ii", 4, frame.correlation_id)]
        if self.delay == 0:
            slot.send(answer)
        else:
            asyncio.get_running_loop().call_soon(asyncio.get_running_loop().call_soon, slot.send, answer)
        self.delay = (self.delay + 1) % 3


@handles_frames(ApiKey.PRODUCE, versions=range(3, 14))
def produce(frame: Frame, context: RequestContext, slot: ResponseSlot, appender: Appender) -> None:
    appender.accept(frame, slot)


@handles_frames(ApiKey.FETCH, versions=range(4, 19))
def fetch(frame: Frame, context: RequestContext, slot: ResponseSlot, appender: Appender) -> None:
    appender.accept(frame, slot)


def produce_request(correlation_id: int, size: int) -> bytes:
    schema = RequestSchema.of(ApiKey.PRODUCE, 9)
    partition = schema.PartitionProduceData(index=0, records=bytes([correlation_id % 251]) * size)
    topic = schema.TopicProduceData(name="t", partition_data=(partition,))
    return request(
        ApiKey.PRODUCE, 9, correlation_id, transactional_id=None, acks=1, timeout=milliseconds(1), topic_data=(topic,)
    )


def fetch_request(correlation_id: int) -> bytes:
    return request(
        ApiKey.FETCH,
        4,
        correlation_id,
        replica_id=-1,
        max_wait=milliseconds(1),
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        topics=(),
    )


def api_versions_request(correlation_id: int, recorded: bytes) -> bytes:
    frame = recorded[:4] + struct.pack(">i", correlation_id) + recorded[8:]
    return struct.pack(">i", len(frame)) + frame


SIZES = st.one_of(st.integers(0, 300), st.sampled_from([LARGE_REQUEST_BYTES, LARGE_REQUEST_BYTES + 1, 70_000]))
KINDS = st.one_of(
    st.tuples(st.just("produce"), SIZES),
    st.tuples(st.just("fetch"), st.just(0)),
    st.tuples(st.just("api_versions"), st.integers(0, len(RECORDED) - 1)),
)


def encode(index: int, kind: tuple[str, int]) -> bytes:
    name, detail = kind
    if name == "produce":
        return produce_request(index, detail)
    return fetch_request(index) if name == "fetch" else api_versions_request(index, RECORDED[detail])


def chunks_of(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False) if end > start]


async def run(chunks: list[bytes]) -> tuple[list[bytes], list[int], list[bytes], Any]:
    appender = Appender()
    server = server_of(produce, fetch, services=[appender])
    async with server.dispatcher.running(), server.running():
        connection, transport = connected(server)
        await receive_all(connection, transport, chunks)
        await turns(20)
        while connection.has_open_requests or not transport.is_reading:
            await turns()
        return appender.received, transport.correlation_ids(), transport.responses(), server.byte_budget.used_bytes


@settings(max_examples=60)
@given(kinds=st.lists(KINDS, min_size=1, max_size=12), cuts=st.lists(st.integers(0, 1 << 20), max_size=30))
def test_any_chunking(kinds: list[tuple[str, int]], cuts: list[int]) -> None:
    requests = [encode(index, kind) for index, kind in enumerate(kinds)]
    data = b"".join(requests)
    received, correlation_ids, responses, bytes_in_flight = asyncio.run(run(chunks_of(data, cuts)))
    expected = [frame[4:] for frame, (name, _) in zip(requests, kinds, strict=True) if name != "api_versions"]
    assert received == expected
    assert correlation_ids == list(range(len(kinds)))
    assert bytes_in_flight == 0
    whole = asyncio.run(run([data]))
    assert whole[2] == responses


@settings(max_examples=30)
@given(kinds=st.lists(KINDS, min_size=1, max_size=3), junk=st.binary(min_size=1, max_size=40), cut=st.integers(0, 100))
def test_junk_never_harms_what_came_before(kinds: list[tuple[str, int]], junk: bytes, cut: int) -> None:
    """What precedes the junk is received whole; the junk closes the connection, or waits for more bytes."""
    data = b"".join(encode(index, kind) for index, kind in enumerate(kinds))

    async def deliver() -> tuple[list[int], int]:
        server = server_of(produce, fetch, services=[Appender()])
        async with server.dispatcher.running(), server.running():
            connection, transport = connected(server)
            await receive_all(connection, transport, [data])
            await turns(20)
            await receive_all(connection, transport, chunks_of(junk, [cut]))
            other, other_transport = connected(server)
            await receive_all(other, other_transport, [api_versions_request(77, RECORDED[0])])
            assert other_transport.correlation_ids() == [77]
            return transport.correlation_ids()[: len(kinds)], server.connection_count

    answered, _ = asyncio.run(deliver())
    assert answered == list(range(len(kinds)))
