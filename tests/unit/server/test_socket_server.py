"""SocketServer on real loopback sockets, with asyncio's loop and with uvloop's."""

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from broker.metrics.request_metrics import IDLE, MALFORMED, TOO_LARGE
from broker.network.listener import Listener
from broker.protocol.api_keys import ApiKey
from broker.protocol.frames import Frame
from broker.server.api_registry import handles_frames
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot
from broker.server.socket_server import SocketServer
from tests.support.patience import PATIENCE_S, eventually
from tests.support.requests_corpus import recorded_requests
from tests.support.socket_harness import listening, server_of

API_VERSIONS_0 = next(each.frame for each in recorded_requests(ApiKey.API_VERSIONS) if each.version == 0)
BLOB = bytes(range(256)) * 4096 * 8  # 8 MiB: more than any socket buffer holds


class Store:
    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.contexts: list[RequestContext] = []


@handles_frames(ApiKey.PRODUCE, versions=range(3, 14))
def produce(frame: Frame, context: RequestContext, slot: ResponseSlot, store: Store) -> None:
    store.received.append(bytes(frame.buffer[frame.body_position :]))
    store.contexts.append(context)
    slot.send([struct.pack(">ii", 4, frame.correlation_id)])


@handles_frames(ApiKey.FETCH, versions=range(4, 19))
def fetch(frame: Frame, context: RequestContext, slot: ResponseSlot, store: Store) -> None:
    slot.send([struct.pack(">ii", 4 + len(BLOB), frame.correlation_id), memoryview(BLOB)])


def frame(api_key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    content = struct.pack(">hhih", api_key, version, correlation_id, -1) + body
    return struct.pack(">i", len(content)) + content


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], None]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run_in_loop(story: Coroutine[Any, Any, Any]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(story, PATIENCE_S))

    return run_in_loop


Run = Callable[[Coroutine[Any, Any, Any]], None]


def test_requests_of_all_sizes_arrive_whole(run: Run) -> None:
    store = Store()
    bodies = [bytes([size % 251]) * size for size in (0, 1, 1000, 32_000, 33_000, 200_000, 300_000, 3_000_000, 5)]

    async def story() -> None:
        async with listening(server_of(produce, fetch, services=[store])) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for index, body in enumerate(bodies):
                writer.write(frame(0, 3, index, body))
            for index in range(len(bodies)):
                assert await read_answer(reader) == struct.pack(">i", index)
            writer.close()
        context = store.contexts[0]
        assert (context.listener_name, context.security_protocol) == ("PLAINTEXT", "PLAINTEXT")
        assert (context.client_host, context.local_port, context.principal) == ("127.0.0.1", port, "User:ANONYMOUS")

    run(story())
    assert store.received == bodies


def test_answers_larger_than_the_socket_leave_in_order(run: Run) -> None:
    async def story() -> None:
        async with listening(server_of(produce, fetch, services=[Store()])) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(frame(1, 4, 1) + frame(0, 3, 2) + frame(1, 4, 3) + frame(0, 3, 4))
            await asyncio.sleep(0.05)  # let the server run into the full socket
            assert await read_answer(reader) == struct.pack(">i", 1) + BLOB
            assert await read_answer(reader) == struct.pack(">i", 2)
            assert await read_answer(reader) == struct.pack(">i", 3) + BLOB
            assert await read_answer(reader) == struct.pack(">i", 4)
            writer.close()

    run(story())


def test_many_connections_share_the_receive_buffer(run: Run) -> None:
    store = Store()

    async def client(port: int, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for index in range(5):
            data = frame(0, 3, index, bytes([number]) * (1000 * number + 1))
            cut = (number * 7919) % len(data)
            writer.write(data[:cut])
            await asyncio.sleep(0)
            writer.write(data[cut:])
            assert await read_answer(reader) == struct.pack(">i", index)
        writer.close()

    async def story() -> None:
        async with listening(server_of(produce, fetch, services=[store])) as port:
            await asyncio.gather(*(client(port, number) for number in range(50)))

    run(story())
    assert sorted(store.received) == sorted(bytes([n]) * (1000 * n + 1) for n in range(50) for _ in range(5))


def test_max_connections_per_ip_refuses_the_next_one(run: Run) -> None:
    async def story() -> None:
        server = server_of(produce, services=[Store()], overrides={"max.connections.per.ip": "2"})
        async with listening(server) as port:
            pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            assert await pairs[2][0].read() == b""
            assert server.connection_count == 2
            pairs[0][1].close()
            await eventually(lambda: server.connection_count < 2, "the first one is forgotten", every_s=0.01)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(struct.pack(">i", len(API_VERSIONS_0)) + API_VERSIONS_0)
            assert (await read_answer(reader))[4:6] == b"\0\0"
            refused = server.metrics.connections_refused.labels("PLAINTEXT", "max.connections.per.ip")
            assert refused.value == 1
            for _, each in [*pairs, (reader, writer)]:
                each.close()

    run(story())


def test_idle_connections_are_closed(run: Run) -> None:
    async def story() -> None:
        server = server_of(produce, services=[Store()], overrides={"connections.max.idle.ms": "50"})
        async with listening(server) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            assert server.metrics.closed_count(IDLE) == 1
            writer.close()

    run(story())


def test_a_client_that_vanishes_is_forgotten(run: Run) -> None:
    async def story() -> None:
        server = server_of(produce, fetch, services=[Store()])
        async with listening(server) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(frame(1, 4, 1) + frame(0, 3, 2, b"x" * 100_000)[:5000])
            await asyncio.sleep(0.05)
            writer.transport.abort()
            await eventually(lambda: not server.connection_count, "it is forgotten", every_s=0.01)
            assert server.byte_budget.used_bytes == 0
            assert server.metrics.connections == {"PLAINTEXT": 0}

    run(story())


def test_stop_accepting_leaves_connections_alone(run: Run) -> None:
    async def story() -> None:
        server = server_of(produce, services=[Store()])
        async with listening(server) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(frame(0, 3, 1))
            await read_answer(reader)
            assert server.is_accepting
            server.stop_accepting()
            assert not server.is_accepting
            await asyncio.sleep(0.01)
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", port)
            writer.write(frame(0, 3, 2))
            assert await read_answer(reader) == struct.pack(">i", 2)
        assert await reader.read() == b""
        writer.close()

    run(story())


def test_a_taken_port_is_an_oserror(run: Run) -> None:
    async def story() -> None:
        async with listening(server_of(produce, services=[Store()])) as port:
            other: SocketServer = server_of(produce, services=[Store()])
            async with other.running():
                with pytest.raises(OSError):
                    await other.bind("PLAINTEXT", "127.0.0.1", port)

    run(story())


def test_a_malformed_frame_closes_the_socket(run: Run) -> None:
    async def story() -> None:
        server = server_of(produce, services=[Store()])
        async with listening(server) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\xff\xff\xff\xff")
            assert await reader.read() == b""
            assert server.metrics.closed_count(MALFORMED) == 1
            writer.close()

    run(story())


def test_a_bound_listener_has_its_port_and_refuses_until_it_accepts(run: Run) -> None:
    async def story() -> None:
        server = server_of(produce, services=[Store()])
        async with server.dispatcher.running(), server.running():
            port = await server.bind("PLAINTEXT", "127.0.0.1", 0)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            await server.start_accepting()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(frame(0, 3, 1))
            assert await read_answer(reader) == struct.pack(">i", 1)
            writer.close()

    run(story())


def test_sockets_have_the_buffers_and_the_backlog_of_the_settings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []

    class Noted(Listener):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            given.append(keywords)
            super().__init__(*arguments, **keywords)

    monkeypatch.setattr("broker.server.socket_server.Listener", Noted)

    async def story() -> None:
        overrides = {
            "socket.send.buffer.bytes": "65536",
            "socket.receive.buffer.bytes": "32768",
            "socket.listen.backlog.size": "7",
        }
        server = server_of(produce, services=[Store()], overrides=overrides)
        async with listening(server):
            (keywords,) = given
            assert (keywords["send_buffer_bytes"], keywords["receive_buffer_bytes"]) == (65536, 32768)
            assert keywords["backlog"] == 7

    run(story())


def test_the_bounds_on_connections_and_requests_are_settings(run: Run) -> None:
    async def story() -> None:
        bounds = {
            "max.connections": "3",
            "max.connections.per.ip": "1",
            "max.connections.per.ip.overrides": "127.0.0.1:5",
            "socket.request.max.bytes": "10000",
        }
        server = server_of(produce, services=[Store()], overrides=bounds)
        async with listening(server) as port:
            pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
            assert await pairs[3][0].read() == b""
            assert server.connection_count == 3  # more than one of an address, and not four
            assert server.metrics.connections_refused.labels("PLAINTEXT", "max.connections").value == 1
            pairs[0][1].write(struct.pack(">i", 10_001))
            assert await pairs[0][0].read() == b""
            assert server.metrics.closed_count(TOO_LARGE) == 1
            for _, each in pairs:
                each.close()

    run(story())
