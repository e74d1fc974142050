"""The ByteStream and Network ports: what a client connection needs of TCP, so that a simulation can stand in for it."""

import asyncio
import socket
from typing import Protocol

from broker.common.buffers import Buffer


class ByteStream(Protocol):
    """One end of a connection."""

    async def read_exactly(self, size: int) -> bytes:
        """Wait for so many bytes; EOFError when the peer closes before."""

    def write(self, data: Buffer) -> None:
        """Send, or queue what cannot be sent yet; the data must not be changed afterwards."""

    async def drain(self) -> None:
        """Wait until most of what was written has left."""

    def close(self) -> None:
        """Close now; may be called again."""


class Network(Protocol):
    async def connect(self, host: str, port: int) -> ByteStream:
        """OSError when nobody answers there."""


class AsyncioByteStream:
    """Over asyncio's streams: used among nodes, where requests are few and large."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read_exactly(self, size: int) -> bytes:
        return await self._reader.readexactly(size)  # IncompleteReadError is an EOFError

    def write(self, data: Buffer) -> None:
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
