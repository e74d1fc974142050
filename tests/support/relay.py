"""A network that can be cut: TCP relays in front of nodes, which know by the client id who speaks to whom.

Every node advertises a relay's port instead of its own.  The first frame of a connection names its client
("broker-2-fetcher-0", "raft-client-2", "2": node 2; anything else: a client), so one relay per listener tells all
pairs apart.  A cut is a set of directed pairs (from, to): bytes of such a pair stand still, connections stay open, new
ones are accepted and silent, as with a router that drops packets.  What stands still goes on its way when the cut is
healed, unless it is reset.
"""

import asyncio
import contextlib
import re
import threading
from collections.abc import Coroutine, Iterable
from typing import Final, Self, TypeVar

from tests.support.patience import PATIENCE_S

CLIENT: Final = "client"
CONTROLLER: Final = "controller"
CLIENT_ID_AT: Final = 12  # size, api key, api version, correlation id; then a nullable string in every header since v1
NODE_OF_CLIENT_ID: Final = re.compile(r"(?:broker-|raft-client-)?(\d+)(?:-.*)?")
CHUNK_BYTES: Final = 1 << 16

Pair = tuple[str, str]
Result = TypeVar("Result")


def source_of(frame: bytes) -> str | None:
    """Who sent this first piece of a connection; None while it is too short to tell."""
    if len(frame) < CLIENT_ID_AT + 2:
        return None
    length = int.from_bytes(frame[CLIENT_ID_AT : CLIENT_ID_AT + 2], "big", signed=True)
    if length < 0:
        return CLIENT
    if len(frame) < CLIENT_ID_AT + 2 + length:
        return None
    client_id = frame[CLIENT_ID_AT + 2 : CLIENT_ID_AT + 2 + length].decode(errors="replace")
    match = NODE_OF_CLIENT_ID.fullmatch(client_id)
    return match[1] if match else CLIENT


class _Connection:
    """One connection through a relay."""

    def __init__(self, near: asyncio.StreamWriter) -> None:
        self.near, self.far = near, None  # type: asyncio.StreamWriter, asyncio.StreamWriter | None
        self.pair: Pair | None = None

    def abort(self) -> None:
        for writer in (self.near, self.far):
            if writer is not None:
                writer.transport.abort()


class Relays:
    """Relays in a thread of their own; use it as a context manager.  All methods are for other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._cut: frozenset[Pair] = frozenset()
        self._changed = asyncio.Event()
        self._connections: set[_Connection] = set()
        self._servers: list[asyncio.Server] = []
        self.seen: set[Pair] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def listen(self, target: str, port: int, target_port: int) -> None:
        """Relay connections to `port` to `target_port`, which belongs to the node named `target`."""
        self._call(self._listen(target, port, target_port))

    def cut(self, pairs: Iterable[Pair]) -> None:
        """From now on exactly these directed pairs stand still."""
        self._call(self._set(frozenset(pairs)))

    def heal(self) -> None:
        """Nothing stands still any more; what did goes on its way."""
        self.cut(())

    def reset(self, pairs: Iterable[Pair]) -> None:
        """The connections of these pairs are lost, as when the other side came back without knowing of them."""
        self._call(self._reset(frozenset(pairs)))

    def _call(self, work: Coroutine[object, object, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _listen(self, target: str, port: int, target_port: int) -> None:
        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._relay(target, target_port, reader, writer)

        self._servers.append(await asyncio.start_server(relay, "127.0.0.1", port))

    async def _set(self, pairs: frozenset[Pair]) -> None:
        self._cut = pairs
        self._changed.set()
        self._changed = asyncio.Event()

    async def _reset(self, pairs: frozenset[Pair]) -> None:
        for connection in list(self._connections):
            pair = connection.pair
            if pair is not None and (pair in pairs or pair[::-1] in pairs):
                connection.abort()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.abort()
        await self._set(frozenset())
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _relay(
        self, target: str, target_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        connection = _Connection(writer)
        self._connections.add(connection)
        try:
            first = b""
            while (source := source_of(first)) is None:
                piece = await reader.read(CHUNK_BYTES)
                if not piece:
                    return
                first += piece
            connection.pair = (source, target)
            self.seen.add(connection.pair)
            far_reader, connection.far = await asyncio.open_connection("127.0.0.1", target_port)
            there = self._pump(reader, connection.far, (source, target), first)
            back = self._pump(far_reader, writer, (target, source), b"")
            await asyncio.gather(there, back)
        except OSError:
            pass  # the node is down, or either side was lost
        finally:
            connection.abort()
            self._connections.discard(connection)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: Pair, data: bytes) -> None:
        """One direction, until its end; ending one direction ends the other."""
        data = data or await reader.read(CHUNK_BYTES)
        while data:
            while pair in self._cut:
                await self._changed.wait()
            writer.write(data)
            await writer.drain()
            data = await reader.read(CHUNK_BYTES)
        while pair in self._cut:  # the end of a connection does not get through either
            await self._changed.wait()
        with contextlib.suppress(OSError):
            writer.close()
