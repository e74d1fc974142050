"""Over loopback: binding is what this module is for."""

import asyncio
import socket

import pytest

from broker.network.byte_stream import ListenOptions
from broker.network.listener import Listener, ListenError


class Greeter(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


async def start(listener: Listener, host: str, port: int) -> int:
    bound_port = await listener.bind(host, port)
    await listener.start_accepting()
    return bound_port


async def greeting(port: int, host: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_port_0_takes_a_free_port_and_an_empty_host_every_interface() -> None:
    listener = Listener("INTERNAL", Greeter)
    port = await start(listener, "", 0)
    assert port > 0
    assert await greeting(port) == b"hello"
    await listener.close()
    with pytest.raises(OSError):
        await greeting(port)


async def test_a_port_can_be_taken_again_at_once() -> None:
    first = Listener("A", Greeter)
    port = await start(first, "127.0.0.1", 0)
    assert await greeting(port) == b"hello"
    await first.close()
    second = Listener("B", Greeter)
    assert await start(second, "127.0.0.1", port) == port
    assert await greeting(port) == b"hello"
    await second.close()


async def test_a_taken_port_is_named_and_leaves_nothing_open() -> None:
    first, second = Listener("A", Greeter), Listener("B", Greeter)
    port = await start(first, "127.0.0.1", 0)
    with pytest.raises(ListenError, match=rf"^listener B://127\.0\.0\.1:{port}: Address already in use$"):
        await start(second, "127.0.0.1", port)
    await second.close()
    await first.close()


async def test_accepted_sockets_inherit_the_buffer_sizes() -> None:
    sizes = []

    class Measurer(Greeter):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            sock = transport.get_extra_info("socket")
            sizes.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
            super().connection_made(transport)

    listener = Listener("A", Measurer, send_buffer_bytes=65536, receive_buffer_bytes=65536)
    port = await start(listener, "localhost", 0)
    await greeting(port, "localhost")
    assert sizes == [131072], "Linux doubles what is asked for"
    await listener.close()


async def test_it_binds_and_accepts_through_its_network() -> None:
    class Server(asyncio.AbstractServer):
        state = "bound"

        async def start_serving(self) -> None:
            self.state = "accepting"

        def close(self) -> None:
            self.state = "closed"

    class Network:
        def __init__(self) -> None:
            self.server = Server()
            self.asked: list[object] = []

        async def bind(self, *asked: object) -> tuple[asyncio.AbstractServer, int]:
            self.asked.append(asked)
            return self.server, 4711

    network = Network()
    listener = Listener("A", Greeter, backlog=7, network=network)  # type: ignore[arg-type]
    assert await listener.bind("node-1", 0) == 4711
    assert (network.asked, network.server.state) == ([(Greeter, "node-1", 0, ListenOptions(backlog=7))], "bound")
    await listener.start_accepting()
    assert network.server.state == "accepting"
    await listener.close()
    assert network.server.state == "closed"
