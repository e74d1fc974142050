"""ServerConnection: order, pipelining, back-pressure and bad input, on a transport that is a list."""

import asyncio
import struct
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.common.disk import InlineDiskExecutor
from broker.common.errors import ErrorCode
from broker.metrics.request_metrics import IDLE, MALFORMED, STALLED, TOO_LARGE, UNSUPPORTED
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, milliseconds
from broker.protocol.frames import Frame
from broker.protocol.requests import Request
from broker.protocol.response_schema import RequestSchema
from broker.server.api_registry import handles, handles_frames
from broker.server.connection import LARGE_REQUEST_BYTES, OPEN_REQUESTS_MAX, WRITE_BUFFER_BYTES_HIGH
from broker.server.large_request import EAGER_BUFFER_BYTES_MAX, FIRST_BUFFER_BYTES
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot
from broker.server.socket_server import STALLED_SECONDS_MAX, SocketServer
from tests.support.socket_harness import (
    RecordingTransport,
    connected,
    receive,
    receive_all,
    request,
    server_of,
    turns,
)


class Desk:
    """What the handlers of this test do is decided here."""

    def __init__(self) -> None:
        self.open: list[tuple[Frame, ResponseSlot]] = []
        self.answers_at_once = False
        self.started: list[int] = []
        self.gate = asyncio.Event()
        self.cancelled = 0
        self.owned: list[bool] = []
        self.bodies: list[bytes] = []

    def answer(self, index: int = 0) -> None:
        frame, slot = self.open.pop(index)
        slot.send([struct.pack(">ii", 4, frame.correlation_id)])


@handles_frames(ApiKey.PRODUCE, versions=range(3, 14), advertised_from=0)
def produce(frame: Frame, context: RequestContext, slot: ResponseSlot, desk: Desk) -> None:
    desk.started.append(frame.correlation_id)
    desk.owned.append(frame.is_owned)
    desk.bodies.append(bytes(frame.buffer[frame.body_position :]))
    desk.open.append((frame, slot))
    if desk.answers_at_once:
        desk.answer()


@handles_frames(ApiKey.FETCH, versions=range(4, 19))
def fetch(frame: Frame, context: RequestContext, slot: ResponseSlot, desk: Desk) -> None:
    desk.started.append(frame.correlation_id)
    desk.open.append((frame, slot))


@handles(ApiKey.LIST_GROUPS, versions=range(6))
def list_groups(request: Request, context: RequestContext, desk: Desk) -> Any:
    desk.started.append(request.correlation_id)
    return request.schema.ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=())


@handles(ApiKey.HEARTBEAT, versions=range(5))
async def heartbeat(request: Request, context: RequestContext, desk: Desk) -> Any:
    desk.started.append(request.correlation_id)
    try:
        await desk.gate.wait()
    except asyncio.CancelledError:
        desk.cancelled += 1
        raise
    return request.schema.HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none)


def produce_request(correlation_id: int, records: bytes = b"r") -> bytes:
    schema = RequestSchema.of(ApiKey.PRODUCE, 9)
    partition = schema.PartitionProduceData(index=0, records=records)
    topic = schema.TopicProduceData(name="t", partition_data=(partition,))
    return request(
        ApiKey.PRODUCE, 9, correlation_id, transactional_id=None, acks=1, timeout=milliseconds(1), topic_data=(topic,)
    )


def list_groups_request(correlation_id: int) -> bytes:
    return request(ApiKey.LIST_GROUPS, 0, correlation_id)


def heartbeat_request(correlation_id: int) -> bytes:
    return request(ApiKey.HEARTBEAT, 0, correlation_id, group_id="g", generation_id=1, member_id="m")


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


@pytest.fixture
def desk() -> Desk:
    return Desk()


def make_server(desk: Desk, **overrides: str) -> SocketServer:
    return server_of(
        produce,
        fetch,
        list_groups,
        heartbeat,
        services=[desk],
        overrides={name.replace("_", "."): value for name, value in overrides.items()},
    )


@pytest.fixture
async def server(desk: Desk) -> AsyncIterator[SocketServer]:
    server = make_server(desk)
    async with server.dispatcher.running(), server.running():
        yield server


async def test_a_request_is_answered_within_its_read(server: SocketServer) -> None:
    connection, transport = connected(server)
    receive(connection, list_groups_request(7))
    assert transport.correlation_ids() == [7]
    assert not connection.has_open_requests


async def test_requests_in_one_read_are_answered_in_order(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    await receive_all(connection, transport, [b"".join(map(list_groups_request, range(5)))])
    assert transport.correlation_ids() == [0, 1, 2, 3, 4]
    assert transport.is_reading


async def test_produce_follows_open_produce_and_answers_leave_in_order(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    receive(connection, b"".join(map(produce_request, range(4))))
    assert desk.started == [0, 1, 2, 3]
    desk.answer(2)
    desk.answer(1)
    await turns()
    assert transport.correlation_ids() == []
    desk.answer(0)
    await turns()
    assert transport.correlation_ids() == [0, 1, 2]
    assert transport.writes == 1, "what is answered in one turn leaves in one write"
    desk.answer(0)
    assert transport.correlation_ids() == [0, 1, 2, 3]


class HeldDisk(InlineDiskExecutor):
    """Does what it is told when the test says so."""

    def __init__(self) -> None:
        self.told: list[tuple[asyncio.Future[Any], Any]] = []

    def submit(self, function: Any, *args: Any, **kwargs: Any) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.told.append((future, lambda: function(*args, **kwargs)))
        return future

    def work(self) -> None:
        for future, function in self.told:
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)


async def test_the_first_request_of_a_version_waits_for_its_schemas_and_no_other_does(desk: Desk) -> None:
    disk = HeldDisk()
    server = server_of(produce, fetch, list_groups, heartbeat, services=[desk], disk=disk)
    async with server.dispatcher.running(), server.running():
        (first, first_transport), (second, second_transport), (gone, _) = (connected(server) for _ in range(3))
        receive(first, list_groups_request(1) + list_groups_request(2))
        receive(gone, list_groups_request(8))
        receive(second, produce_request(3))
        desk.answer()
        assert second_transport.correlation_ids() == [3], "produce is read by hand"
        receive(second, list_groups_request(4))
        assert (len(disk.told), first_transport.is_reading, second_transport.is_reading) == (1, False, False)
        gone.connection_lost(None)
        disk.work()
        await turns()
        assert first_transport.correlation_ids() == [1, 2]
        assert second_transport.correlation_ids() == [3, 4]
        receive(first, list_groups_request(5))
        assert first_transport.correlation_ids() == [1, 2, 5]
        assert len(disk.told) == 1


async def test_schemas_that_cannot_be_loaded_are_the_request_s_trouble(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = HeldDisk()
    server = server_of(list_groups, services=[desk], disk=disk)

    def fail(api_key: int, version: int) -> None:
        raise OSError("no such file")

    monkeypatch.setattr("broker.server.dispatcher.load_schemas", fail)
    async with server.dispatcher.running(), server.running():
        connection, transport = connected(server)
        receive(connection, list_groups_request(1))
        disk.work()
        await turns()
        assert transport.correlation_ids() == [1]


async def test_another_request_waits_for_open_produce_and_holds_up_what_follows(
    server: SocketServer, desk: Desk
) -> None:
    connection, transport = connected(server)
    receive(connection, produce_request(1) + list_groups_request(2) + produce_request(3))
    assert desk.started == [1]
    assert not transport.is_reading
    desk.answer()
    await turns()
    assert desk.started == [1, 2, 3]
    assert transport.correlation_ids() == [1, 2]
    assert transport.is_reading


async def test_produce_waits_for_an_open_fetch(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    receive(connection, fetch_request(1))
    assert transport.is_reading, "nothing waits yet"
    receive(connection, produce_request(2))
    assert desk.started == [1]
    assert not transport.is_reading
    desk.answer()
    await turns()
    assert desk.started == [1, 2]


async def test_a_waiting_fetch_blocks_only_its_own_connection(server: SocketServer, desk: Desk) -> None:
    waiting, _ = connected(server)
    other, transport = connected(server)
    receive(waiting, fetch_request(1))
    receive(other, list_groups_request(2))
    assert transport.correlation_ids() == [2]


async def test_a_coroutine_answers_later(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    receive(connection, heartbeat_request(1) + list_groups_request(2))
    await turns()
    assert desk.started == [1]
    assert transport.correlation_ids() == []
    desk.gate.set()
    await turns(10)
    assert transport.correlation_ids() == [1, 2]


async def test_a_coroutine_is_cancelled_when_its_connection_dies(server: SocketServer, desk: Desk) -> None:
    connection, _ = connected(server)
    receive(connection, heartbeat_request(1))
    await turns()
    connection.connection_lost(None)
    await turns()
    assert desk.cancelled == 1
    assert server.connection_count == 0


async def test_a_parked_request_is_told_that_its_connection_died(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    receive(connection, fetch_request(1))
    told = []
    frame, slot = desk.open[0]
    slot.on_closed = lambda: told.append(frame.correlation_id)
    connection.connection_lost(ConnectionResetError())
    assert told == [1]
    slot.send([b"too late"])
    await turns()
    assert transport.written == b""


async def test_open_requests_are_bounded(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    requests = b"".join(map(produce_request, range(OPEN_REQUESTS_MAX + 5)))
    await_later = asyncio.ensure_future(receive_all(connection, transport, [requests]))
    await turns()
    assert len(desk.started) == OPEN_REQUESTS_MAX
    assert not transport.is_reading
    while desk.open:
        desk.answer()
        await turns()
    await await_later
    assert transport.correlation_ids() == list(range(OPEN_REQUESTS_MAX + 5))


async def test_a_slow_reader_gets_no_further_answers(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    assert transport.write_buffer_high == WRITE_BUFFER_BYTES_HIGH
    connection.pause_writing()
    receive(connection, list_groups_request(1))
    assert desk.started == []
    assert not transport.is_reading
    connection.resume_writing()
    await turns()
    assert transport.correlation_ids() == [1]
    assert transport.is_reading


async def test_what_a_reader_does_not_take_is_counted_until_it_does_or_has_gone(server: SocketServer) -> None:
    (first, first_transport), (second, second_transport) = connected(server), connected(server)
    first_transport.write_buffer_size, second_transport.write_buffer_size = 5_000_000, 3_000_000
    first.pause_writing()
    assert server.answer_budget.used_bytes == 5_000_000
    second.pause_writing()
    assert [read() for read in server.metrics.unsent_bytes] == [8_000_000]
    first.resume_writing()
    assert server.answer_budget.used_bytes == 3_000_000
    second.connection_lost(None)
    first.connection_lost(None)
    assert server.answer_budget.used_bytes == 0


async def test_a_fetch_answered_later_leaves_at_once_although_another_request_waits(
    server: SocketServer, desk: Desk
) -> None:
    """Its bytes are counted before the next fetch is answered."""
    connection, transport = connected(server)
    receive(connection, fetch_request(1) + fetch_request(2))
    desk.answer()
    assert transport.correlation_ids() == [1]
    assert desk.started == [1]


async def test_a_large_request_gets_its_own_buffer(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    small, large = produce_request(1), produce_request(2, b"x" * (LARGE_REQUEST_BYTES + 1000))
    await receive_all(connection, transport, [small + large[:5000], large[5000:20000], large[20000:]])
    assert desk.started == [1, 2]
    assert desk.owned == [False, True]
    assert desk.bodies[1].count(b"x") == LARGE_REQUEST_BYTES + 1000


async def test_a_large_request_waits_its_turn_before_it_takes_memory(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    large = produce_request(2, b"x" * 50_000)
    receive(connection, fetch_request(1) + large[:100])
    assert not transport.is_reading
    assert server.byte_budget.used_bytes == len(fetch_request(1)) - 4
    desk.answer()
    await receive_all(connection, transport, [large[100:]])
    assert desk.started == [1, 2]
    assert transport.is_reading


async def test_a_large_request_of_a_client_that_reads_no_answers_takes_no_memory(
    server: SocketServer, desk: Desk
) -> None:
    connection, transport = connected(server)
    connection.pause_writing()
    large = produce_request(2, b"x" * 50_000)
    receive(connection, large[:100])
    assert (transport.is_reading, server.byte_budget.used_bytes) == (False, 0)
    connection.resume_writing()
    await turns()
    await receive_all(connection, transport, [large[100:]])
    assert desk.started == [2]


async def test_a_large_request_behind_an_answer_of_its_own_read_does_not_wait(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    receive(connection, list_groups_request(1) + produce_request(2, b"x" * 50_000)[:100])
    assert transport.correlation_ids() == [1]
    assert transport.is_reading


async def test_bytes_in_flight_are_counted_and_given_back(server: SocketServer, desk: Desk) -> None:
    connection, _ = connected(server)
    frames = produce_request(1), produce_request(2, b"x" * 50_000)
    receive(connection, frames[0] + frames[1][:1000])
    assert server.byte_budget.used_bytes == len(frames[0]) + len(frames[1]) - 8
    receive(connection, frames[1][1000:])
    desk.answer()
    await turns()
    assert server.byte_budget.used_bytes == len(frames[1]) - 4
    connection.connection_lost(None)
    assert server.byte_budget.used_bytes == 0


async def test_queued_max_request_bytes_stops_the_reading(desk: Desk) -> None:
    server = make_server(desk, queued_max_request_bytes="100")
    async with server.dispatcher.running(), server.running():
        first, _ = connected(server)
        second, transport = connected(server)
        receive(first, produce_request(1, b"x" * 200))
        receive(second, produce_request(2, b"x" * LARGE_REQUEST_BYTES))
        assert desk.started == [1]
        assert not transport.is_reading
        desk.answer()
        await turns()
        assert desk.started == [1, 2]
        assert transport.is_reading


async def test_small_requests_go_on_while_the_budget_is_exhausted(desk: Desk) -> None:
    server = make_server(desk, queued_max_request_bytes="100")
    async with server.dispatcher.running(), server.running():
        first, _ = connected(server)
        second, transport = connected(server)
        receive(first, produce_request(1, b"x" * 200))
        assert server.byte_budget.is_exhausted
        receive(second, list_groups_request(2))
        assert transport.correlation_ids() == [2]
        assert transport.is_reading


async def test_what_is_announced_and_not_sent_takes_no_budget(server: SocketServer, desk: Desk) -> None:
    connection, _ = connected(server)
    receive(connection, struct.pack(">i", 100 << 20) + bytes(70_000))
    assert server.byte_budget.used_bytes == 8 * 70_000
    assert len(connection.get_buffer(-1)) == 7 * 70_000
    connection.connection_lost(None)
    assert server.byte_budget.used_bytes == 0


async def test_a_large_request_takes_memory_as_its_bytes_arrive(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    large = produce_request(1, b"x" * 5_000_000)
    taken, at = [], receive(connection, large[:1000])
    while at < len(large):
        taken.append(server.byte_budget.used_bytes)
        at += receive(connection, large[at:])
    assert taken == [FIRST_BUFFER_BYTES, *(EAGER_BUFFER_BYTES_MAX << n for n in range(3)), len(large) - 4]
    assert desk.bodies[0].count(b"x") == 5_000_000
    desk.answer()
    assert server.byte_budget.used_bytes == 0
    assert transport.correlation_ids() == [1]


async def test_of_large_requests_beyond_the_budget_one_grows_at_a_time(desk: Desk) -> None:
    """Or all would wait for bytes that none of them gives back."""
    server = make_server(desk, queued_max_request_bytes=str(2 * EAGER_BUFFER_BYTES_MAX))
    async with server.dispatcher.running(), server.running():
        connections = [connected(server) for _ in range(3)]
        large = produce_request(1, b"x" * (3 * EAGER_BUFFER_BYTES_MAX))
        for connection, _ in connections[:2]:
            receive(connection, large[:1000])
        sent = [1000, 1000]
        while any(transport.is_reading for _, transport in connections[:2]):
            for index, (connection, transport) in enumerate(connections[:2]):
                if transport.is_reading:
                    sent[index] += receive(connection, large[sent[index] :])
            if sent[0] == len(large):
                break
        assert desk.started == [1], "the first went beyond the budget"
        assert sent[1] == EAGER_BUFFER_BYTES_MAX + 4
        assert not connections[1][1].is_reading
        desk.answer()
        await receive_all(*connections[1], [large[sent[1] :]])
        assert desk.started == [1, 1]
        desk.answer()
        assert server.byte_budget.used_bytes == 0


async def test_a_request_that_stays_half_received_is_closed(server: SocketServer, desk: Desk) -> None:
    half_small, half_large, waiting, idle = (connected(server) for _ in range(4))
    receive(half_small[0], list_groups_request(1)[:-1])
    receive(half_large[0], produce_request(1, b"x" * 50_000)[:40_000])
    receive(waiting[0], fetch_request(1) + produce_request(2))  # whole, and it waits for us
    for connection, _ in (half_small, half_large, waiting, idle):
        connection.last_active_at = server.now() - STALLED_SECONDS_MAX + 1
    server.close_stalled()
    assert server.metrics.closed_count(STALLED) == 0
    for connection, _ in (half_small, half_large, waiting, idle):
        connection.last_active_at = server.now() - STALLED_SECONDS_MAX - 1
    server.close_stalled()
    closed = [transport.is_closed for _, transport in (half_small, half_large, waiting, idle)]
    assert closed == [True, True, False, False]
    assert server.metrics.closed_count(STALLED) == 2


class Pressure:
    """A budget of 4 MB: a client has sent 2.2 of 8 MB, which holds it all, and another one waits."""

    def __init__(self, desk: Desk) -> None:
        self.server = make_server(desk, queued_max_request_bytes="4000000")
        self.large = produce_request(1, b"x" * 8_000_000)

    def begin(self) -> None:
        self.holder, self.holding = connected(self.server)
        self.sent = 0
        self.send(2_200_000)

    def crowd(self) -> None:
        self.waiter, self.waiting = connected(self.server)
        receive(self.waiter, produce_request(2, b"x" * 50_000)[:100])
        assert not self.waiting.is_reading

    def send(self, count: int) -> None:
        end = self.sent + count
        while self.sent < end:
            self.sent += receive(self.holder, self.large[self.sent : end])


async def test_while_others_wait_a_large_request_has_to_keep_a_pace(desk: Desk) -> None:
    pressure = Pressure(desk)
    server = pressure.server
    async with server.dispatcher.running(), server.running():
        pressure.begin()
        pressure.crowd()
        server.close_stalled()
        assert not pressure.holding.is_closed, "how fast it is nobody knows yet"
        held = server.byte_budget.used_bytes
        pressure.send(held // 8 + 1)
        server.close_stalled()
        assert not pressure.holding.is_closed, "an eighth of what it holds has come"
        pressure.send(1000)
        server.close_stalled()
        assert pressure.holding.is_closed
        assert server.metrics.closed_count(STALLED) == 1
        pressure.holder.connection_lost(None)
        await turns()
        assert pressure.waiting.is_reading
        assert server.byte_budget.used_bytes == len(produce_request(2, b"x" * 50_000)) - 4


async def test_while_nobody_waits_a_large_request_may_take_its_time(desk: Desk) -> None:
    pressure = Pressure(desk)
    async with pressure.server.dispatcher.running(), pressure.server.running():
        pressure.begin()
        for _ in range(3):
            pressure.server.close_stalled()
            pressure.send(1)
        assert not pressure.holding.is_closed
        pressure.crowd()
        pressure.server.close_stalled()
        assert pressure.holding.is_closed


async def test_a_large_request_is_not_slow_while_we_do_not_read_it(desk: Desk) -> None:
    pressure = Pressure(desk)
    server = pressure.server
    async with server.dispatcher.running(), server.running():
        pressure.begin()
        pressure.crowd()
        server.close_stalled()
        pressure.holder._is_blocked = True
        pressure.holder._is_reading_paused = True
        pressure.holding.is_reading = False
        server.close_stalled()
        pressure.holder.go_on()
        server.close_stalled()
        assert not pressure.holding.is_closed
        server.close_stalled()
        assert pressure.holding.is_closed


async def test_who_holds_a_large_request_and_reads_nothing_is_closed(server: SocketServer, desk: Desk) -> None:
    (reader, reading), (deaf, deafening) = connected(server), connected(server)
    large = produce_request(1, b"x" * 50_000)
    for connection, transport in ((reader, reading), (deaf, deafening)):
        receive(connection, large[:100])
        transport.write_buffer_size = 5_000_000
        connection.pause_writing()
        receive(connection, large[100:])
        assert desk.started == [], "whole, and it waits for its client to read"
        connection._taken_at = server.now() - STALLED_SECONDS_MAX - 1
    reading.write_buffer_size = 4_999_000
    server.close_stalled()
    assert (reading.is_closed, deafening.is_closed) == (False, True)
    assert server.answer_budget.used_bytes == 4_999_000 + 5_000_000
    deaf.connection_lost(None)
    assert server.byte_budget.used_bytes == len(large) - 4
    assert server.metrics.closed_count(STALLED) == 1


async def test_what_we_did_not_read_is_no_stall_of_the_client(desk: Desk) -> None:
    server = make_server(desk, queued_max_request_bytes="100")
    async with server.dispatcher.running(), server.running():
        first, _ = connected(server)
        second, transport = connected(server)
        receive(first, produce_request(1, b"x" * 200))
        receive(second, produce_request(2, b"x" * 100_000)[:1000])
        second.last_active_at = server.now() - STALLED_SECONDS_MAX - 1
        server.close_stalled()
        assert not transport.is_closed, "its bytes wait for the budget"
        desk.answer()
        await turns()
        assert transport.is_reading
        server.close_stalled()
        assert not transport.is_closed, "it can send again only from now on"


async def test_queued_max_request_bytes_stops_a_large_request_before_its_memory_is_taken(desk: Desk) -> None:
    server = make_server(desk, queued_max_request_bytes="100")
    async with server.dispatcher.running(), server.running():
        first, _ = connected(server)
        second, transport = connected(server)
        receive(first, produce_request(1, b"x" * 200))
        large = produce_request(2, b"x" * 100_000)
        receive(second, large[:1000])
        assert server.byte_budget.used_bytes < 1000
        assert not transport.is_reading
        desk.answer()
        await receive_all(second, transport, [large[1000:]])
        assert desk.started == [1, 2]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">i", -1), MALFORMED),
        (struct.pack(">i", 0), MALFORMED),
        (struct.pack(">i", 3) + b"abc", MALFORMED),
        (struct.pack(">i", 2000) + b"anything", TOO_LARGE),
        (b"GET / HTTP/1.1\r\n\r\n", TOO_LARGE),
        (struct.pack(">ihhih", 10, 18, 0, 1, 100), MALFORMED),
        (struct.pack(">ihhih", 10, 77, 0, 1, -1), UNSUPPORTED),
        (struct.pack(">ihhih", 10, 0, 2, 1, -1), UNSUPPORTED),
        (struct.pack(">ihhih", 10, 16, 6, 1, -1), UNSUPPORTED),
        (struct.pack(">ihhih", 10, 16, -1, 1, -1), UNSUPPORTED),
        (struct.pack(">ihhih", 10, 12, 0, 1, -1), MALFORMED),
    ],
)
async def test_bad_input_closes_its_connection_and_harms_no_other(desk: Desk, data: bytes, reason: str) -> None:
    server = make_server(desk, socket_request_max_bytes="1000")
    async with server.dispatcher.running(), server.running():
        other, other_transport = connected(server)
        connection, transport = connected(server)
        receive(connection, data)
        assert transport.is_closed
        assert transport.written == b""
        assert server.metrics.closed_count(reason) == 1
        assert server.byte_budget.used_bytes == 0
        receive(other, list_groups_request(1))
        assert other_transport.correlation_ids() == [1]


async def test_an_answer_before_bad_input_is_still_sent(server: SocketServer) -> None:
    connection, transport = connected(server)
    receive(connection, list_groups_request(1) + struct.pack(">i", -5))
    assert transport.correlation_ids() == [1]
    assert transport.is_closed


async def test_nothing_is_started_after_the_connection_was_closed(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    receive(connection, struct.pack(">ihhih", 10, 77, 0, 1, -1) + list_groups_request(1))
    receive(connection, list_groups_request(2))
    assert desk.started == []
    assert transport.written == b""


async def test_a_handler_may_close_the_connection_instead_of_answering(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    receive(connection, produce_request(1) + produce_request(2))
    desk.open[0][1].close_connection("a produce error with acks=0")
    assert transport.is_closed
    desk.open[1][1].send([b"late"])
    await turns()
    assert transport.written == b""
    assert server.metrics.closed_count("refused_silently") == 1


async def test_a_request_without_a_response_keeps_the_order(server: SocketServer, desk: Desk) -> None:
    connection, transport = connected(server)
    receive(connection, b"".join(map(produce_request, range(3))))
    desk.open.pop(1)[1].send_nothing()
    desk.answer(1)
    desk.answer(0)
    await turns()
    assert transport.correlation_ids() == [0, 2]


async def test_a_completion_never_starts_a_request_of_another_connection_at_once(
    server: SocketServer, desk: Desk
) -> None:
    """Waking a fetch inside an append must not run that client's next request within the append."""
    waiting, _ = connected(server)
    receive(waiting, fetch_request(1) + produce_request(2))
    desk.answer()
    assert desk.started == [1]
    await turns()
    assert desk.started == [1, 2]


async def test_idle_connections_are_aborted_but_not_those_that_wait_for_us(server: SocketServer) -> None:
    silent, silent_transport = connected(server)
    parked, parked_transport = connected(server)
    receive(parked, fetch_request(1))
    silent.last_active_at = parked.last_active_at = server.now() - 100
    _, fresh_transport = connected(server)
    server.close_idle(50)
    assert (silent_transport.is_closed, parked_transport.is_closed, fresh_transport.is_closed) == (True, False, False)
    assert server.metrics.closed_count(IDLE) == 1


def test_the_memory_of_an_idle_connection_is_small() -> None:
    desk = Desk()
    connection_bytes = sys.getsizeof(connected_without_loop(desk))
    assert connection_bytes < 400


def connected_without_loop(desk: Desk) -> Any:
    return connected(make_server(desk))[0]


async def test_phases_of_a_request_are_observed(server: SocketServer, desk: Desk) -> None:
    connection, _ = connected(server)
    receive(connection, produce_request(1))
    await asyncio.sleep(0.1)
    desk.answer()
    seconds = server.metrics._seconds
    whole, remote, local = (seconds.labels("Produce", phase) for phase in ("total", "remote", "local"))
    assert whole.count == 1
    assert remote.total >= 0.1
    assert local.total + remote.total < whole.total + 0.001, "no moment is in both"
    assert server.metrics.frames.labels("PLAINTEXT").value == 1


def test_recording_transport_splits_responses() -> None:
    transport = RecordingTransport()
    transport.writelines([struct.pack(">ii", 4, 9)])
    assert transport.correlation_ids() == [9]
