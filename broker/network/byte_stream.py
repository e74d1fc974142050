"""The ByteStream and Network ports: what the node needs of TCP, so that a simulation can stand in for it."""

import asyncio
import socket
from collections.abc import Callable
from typing import NamedTuple, Protocol

from broker.common.buffers import Buffer


class ByteStream(Protocol):
    """One end of a connection."""

    async def read_exactly(self, size: int) -> bytes:
        """Wait for so many bytes; EOFError when the peer closes before."""

    def write(self, data: Buffer) -> None:
        """Send, or queue what cannot be sent yet; the data must not be changed afterwards.

        OSError when the connection is known to be broken.
        """

    async def drain(self) -> None:
        """Wait until most of what was written has left."""

    def close(self) -> None:
        """Close now; may be called again."""


MakeProtocol = Callable[[], asyncio.BaseProtocol]

KERNEL_DECIDES = -1


class ListenOptions(NamedTuple):
    backlog: int = 50
    send_buffer_bytes: int = KERNEL_DECIDES
    receive_buffer_bytes: int = KERNEL_DECIDES


class Network(Protocol):
    async def connect(self, host: str, port: int) -> ByteStream:
        """OSError when nobody answers there."""

    async def bind(
        self, make_protocol: MakeProtocol, host: str, port: int, options: ListenOptions
    ) -> tuple[asyncio.AbstractServer, int]:
        """Take an address without accepting yet; an empty host is every interface, port 0 a free one.

        Returns the server, which accepts once `start_serving` was called, and its port.  OSError when the address
        cannot be bound.
        """


class AsyncioByteStream:
    """Over asyncio's streams: used among nodes, where requests are few and large."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read_exactly(self, size: int) -> bytes:
        return await self._reader.readexactly(size)  # IncompleteReadError is an EOFError

    def write(self, data: Buffer) -> None:
        """ConnectionResetError once the connection is known to be broken: uvloop's transport has a RuntimeError for it,
        and asyncio's forgets the data."""
        if self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


class AsyncioNetwork:
    """The real one."""

    async def connect(self, host: str, port: int) -> AsyncioByteStream:
        reader, writer = await asyncio.open_connection(host, port)
        sock = writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return AsyncioByteStream(reader, writer)

    async def bind(
        self, make_protocol: MakeProtocol, host: str, port: int, options: ListenOptions
    ) -> tuple[asyncio.AbstractServer, int]:
        loop = asyncio.get_running_loop()
        bound = await _bound_socket(host, port, options)
        server = await loop.create_server(make_protocol, sock=bound, backlog=options.backlog, start_serving=False)
        return server, int(bound.getsockname()[1])


async def _bound_socket(host: str, port: int, options: ListenOptions) -> socket.socket:
    """A socket whose options the accepted ones inherit."""
    if host:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
    elif socket.has_dualstack_ipv6():
        family, kind, protocol, address = socket.AF_INET6, socket.SOCK_STREAM, 0, ("::", port)
    else:
        family, kind, protocol, address = socket.AF_INET, socket.SOCK_STREAM, 0, ("0.0.0.0", port)
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if host else 0)
        if options.send_buffer_bytes != KERNEL_DECIDES:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
        if options.receive_buffer_bytes != KERNEL_DECIDES:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
        bound.setblocking(False)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound
