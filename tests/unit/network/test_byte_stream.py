"""Over loopback: the asyncio implementation of the port."""

import asyncio

import pytest
import uvloop

from broker.network.byte_stream import AsyncioNetwork


async def test_bytes_go_both_ways_until_the_peer_closes() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    stream = await AsyncioNetwork().connect("127.0.0.1", port)
    stream.write(b"he")
    stream.write(memoryview(b"llo"))
    await stream.drain()
    assert await stream.read_exactly(5) == b"hello"
    with pytest.raises(EOFError):
        await stream.read_exactly(1)
    stream.close()
    stream.close()
    server.close()


async def test_nobody_there_is_an_oserror() -> None:
    with pytest.raises(OSError):
        await AsyncioNetwork().connect("127.0.0.1", 1)


def test_a_connection_that_broke_before_anybody_read_of_it_is_an_oserror() -> None:
    """uvloop's transport says RuntimeError then, which nobody who sends expects."""

    async def story() -> None:
        accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

        async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.put_nowait(writer)

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        stream = await AsyncioNetwork().connect("127.0.0.1", server.sockets[0].getsockname()[1])
        reading = asyncio.create_task(stream.read_exactly(1))
        (await accepted.get()).transport.abort()
        with pytest.raises((OSError, EOFError)):
            await reading
        with pytest.raises(OSError):
            for _ in range(10_000):
                stream.write(b"nobody hears")
                await asyncio.sleep(0)
        stream.close()
        server.close()

    uvloop.run(story())
