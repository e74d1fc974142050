"""SimNetwork: TCP in virtual time.  Bytes arrive late, in order, in pieces of any size; hosts can die or be cut off.

It implements the Network port: `connect` gives the product's own stream over an asyncio transport, `bind` a server that
hands accepted transports to the product's own protocols.  A cut between two hosts holds what is under way until it is
healed, as TCP retransmits; a host that dies resets its peers' connections.  Nothing is ever lost in the midst of a
stream that goes on.
"""

import asyncio
import contextvars
import errno
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from broker.common.buffers import Buffer
from broker.network.byte_stream import AsyncioByteStream, ListenOptions, MakeProtocol
from tests.support.sim_loop import SimLoop

LATENCY_MEAN_S = 0.000_5
RETRANSMIT_S = 0.2  # how soon a connection attempt across a cut is repeated
SPLIT_CHANCE = 0.3  # how often what has arrived is read in two pieces
FREE_PORTS_FROM = 40_000
LOOPBACK = ("", "localhost", "127.0.0.1")


class _Signal(Enum):
    END = "end of stream"
    RESET = "connection reset"


_Item = bytes | _Signal


class SimNetwork:
    """All hosts and what lies between them.  `trace` is told of every delivery."""

    def __init__(self, loop: SimLoop, trace: Callable[[str], None] = lambda line: None) -> None:
        self.loop = loop
        self.trace = trace
        self.latency_mean_s = LATENCY_MEAN_S
        self.servers: dict[tuple[str, int], _SimServer] = {}
        self.resets = 0
        self.splits = 0
        self._cuts: dict[tuple[str, str], None] = {}
        self._delays: dict[tuple[str, str], float] = {}
        self._transports: dict[SimTransport, None] = {}
        self._addresses: dict[str, str] = {}
        self._free_port = FREE_PORTS_FROM

    def host(self, name: str) -> "SimHost":
        return SimHost(self, name)

    def address(self, host: str) -> str:
        """The host's IP address: the same for each mention of its name."""
        return self._addresses.setdefault(host, f"10.0.0.{len(self._addresses) + 1}")

    def cut(self, sender: str, receiver: str) -> None:
        """From now on nothing gets from one host to the other; what is sent is held until `heal`."""
        self._cuts[sender, receiver] = None

    def heal(self) -> None:
        """End all cuts and delays: what was held arrives."""
        self._cuts.clear()
        self._delays.clear()
        self._wake_transports()

    def heal_between(self, one: str, other: str) -> None:
        """End the cuts and delays between two hosts."""
        for pair in ((one, other), (other, one)):
            self._cuts.pop(pair, None)
            self._delays.pop(pair, None)
        self._wake_transports()

    def _wake_transports(self) -> None:
        for transport in list(self._transports):
            transport.wake()

    def delay(self, sender: str, receiver: str, mean_s: float) -> None:
        """From now on what is sent takes so much longer, each message by another time, without overtaking."""
        self._delays[sender, receiver] = mean_s

    @property
    def is_disturbed(self) -> bool:
        """Whether there is a cut or a delay somewhere."""
        return bool(self._cuts or self._delays)

    def is_cut(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._cuts

    def free_port(self) -> int:
        self._free_port += 1
        return self._free_port

    def latency(self, sender: str, receiver: str) -> float:
        mean_s = self.latency_mean_s + self._delays.get((sender, receiver), 0.0)
        return self.loop.random.expovariate(1 / mean_s)

    def add(self, transport: "SimTransport") -> None:
        self._transports[transport] = None

    def remove(self, transport: "SimTransport") -> None:
        self._transports.pop(transport, None)

    def transports_of(self, host: str) -> list["SimTransport"]:
        return [transport for transport in self._transports if transport.host == host]


class SimHost:
    """One machine's view of the network: the Network port of what runs on it.  Loopback addresses mean itself."""

    def __init__(self, network: SimNetwork, name: str) -> None:
        self.network = network
        self.name = name

    async def connect(self, host: str, port: int) -> AsyncioByteStream:
        network, loop = self.network, self.network.loop
        target = self._resolve(host)
        await asyncio.sleep(network.latency(self.name, target))
        while network.is_cut(self.name, target) or network.is_cut(target, self.name):
            await asyncio.sleep(RETRANSMIT_S)
        server = network.servers.get((target, port))
        if server is None or not server.is_serving():
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {target}:{port}")
        near = SimTransport(network, self.name, network.free_port(), contextvars.copy_context())
        far = SimTransport(network, target, port, server.context)
        near.peer, far.peer = far, near
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        near.start(protocol)
        loop.call_soon(server.accept, far, context=server.context)
        return AsyncioByteStream(reader, asyncio.StreamWriter(near, protocol, reader, loop))

    async def bind(
        self, make_protocol: MakeProtocol, host: str, port: int, options: ListenOptions
    ) -> tuple[asyncio.AbstractServer, int]:
        address = (self._resolve(host), port or self.network.free_port())
        if address in self.network.servers:
            raise OSError(errno.EADDRINUSE, f"{address[0]}:{address[1]} is taken")
        server = _SimServer(self.network, address, make_protocol)
        self.network.servers[address] = server
        return server, address[1]

    def die(self) -> None:
        """The machine is gone: what it had sent may still arrive, then its peers find their connections reset."""
        for address in [address for address in self.network.servers if address[0] == self.name]:
            del self.network.servers[address]
        for transport in self.network.transports_of(self.name):
            transport.die()

    def _resolve(self, host: str) -> str:
        return self.name if host in LOOPBACK else host


class _SimServer(asyncio.AbstractServer):
    def __init__(self, network: SimNetwork, address: tuple[str, int], make_protocol: MakeProtocol) -> None:
        self.context = contextvars.copy_context()  # what it accepts belongs to whoever listens
        self._network = network
        self._address = address
        self._make_protocol = make_protocol
        self._is_serving = False

    async def start_serving(self) -> None:
        self._is_serving = True

    def is_serving(self) -> bool:
        return self._is_serving

    def close(self) -> None:
        self._is_serving = False
        if self._network.servers.get(self._address) is self:
            del self._network.servers[self._address]

    def accept(self, transport: "SimTransport") -> None:
        if self._is_serving:
            transport.start(self._make_protocol())
        else:
            transport.abort()


class SimTransport(asyncio.Transport):
    """One end of a connection.  What arrives waits in `_inbox` until its time, and while the protocol does not read."""

    def __init__(self, network: SimNetwork, host: str, port: int, context: contextvars.Context) -> None:
        super().__init__()
        self.peer: SimTransport | None = None
        self.host = host
        self.address = (network.address(host), port)
        self._network = network
        self._context = context  # of the owner: its callbacks must not run in the sender's
        self._protocol: asyncio.BaseProtocol | None = None
        self._inbox: deque[tuple[float, _Item]] = deque()
        self._inbox_bytes = 0
        self._arrival_of_last = 0.0
        self._timer: asyncio.Handle | None = None
        self._is_reading = True
        self._is_closing = False
        self._is_over = False
        self._is_writing_paused = False
        self._high_water, self._low_water = 65_536, 16_384
        network.add(self)

    # The owner's side

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        self.wake()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sockname":
            return self.address
        if name == "peername" and self.peer is not None:
            return self.peer.address
        return default

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self.wake()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water = 65_536 if high is None else high
        self._low_water = self._high_water // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self.peer._inbox_bytes if self.peer is not None else 0

    def write(self, data: Buffer) -> None:
        if self._is_closing or not data:
            return
        self._send(bytes(data))
        if not self._is_writing_paused and self.get_write_buffer_size() > self._high_water:
            self._is_writing_paused = True
            self.get_protocol().pause_writing()

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        self.write(b"".join(buffers))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._send(_Signal.END)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._send(_Signal.END)
            self._call_soon(self._end, None)

    def abort(self) -> None:
        if not self._is_over:
            self._is_closing = True
            self._send(_Signal.RESET)
            self._call_soon(self._end, None)

    def die(self) -> None:
        """Like a machine without power: what was sent and is not there yet arrives up to some point."""
        self._is_closing = self._is_over = True
        self._network.remove(self)
        peer = self.peer
        if peer is not None and not peer._is_over:
            self._network.resets += 1
            for _ in range(self._network.loop.random.randint(0, len(peer._inbox))):
                _, item = peer._inbox.pop()
                peer._inbox_bytes -= len(item) if isinstance(item, bytes) else 0
            self._send(_Signal.RESET)

    # The network's side

    def _send(self, item: _Item) -> None:
        peer = self.peer
        if peer is None or peer._is_over:
            return
        arrival = max(peer._arrival_of_last, self._network.loop.time() + self._network.latency(self.host, peer.host))
        peer._arrival_of_last = arrival
        peer._inbox.append((arrival, item))
        peer._inbox_bytes += len(item) if isinstance(item, bytes) else 0
        peer.wake()

    def wake(self) -> None:
        """Look at the inbox when its first item is due."""
        if self._timer is None and self._inbox and self._protocol is not None and not self._is_over:
            self._timer = self._network.loop.call_at(self._inbox[0][0], self._arrive, context=self._context)

    def _arrive(self) -> None:
        self._timer = None
        if self._is_over or not self._inbox or (self.peer and self._network.is_cut(self.peer.host, self.host)):
            return
        item = self._inbox[0][1]
        if isinstance(item, bytes):
            if not self._is_reading:
                return
            self._read(self._take_arrived())
        else:
            self._inbox.popleft()
            self._network.trace(f"{self._network.loop.time():.9f} {self.peer_name}>{self.address} {item.value}")
            if item is _Signal.RESET:
                self._is_closing = True
                self._end(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
            elif not self._is_closing and not self.get_protocol().eof_received():  # type: ignore[attr-defined]
                self.close()
        self.wake()

    def _take_arrived(self) -> bytes:
        """What has arrived by now, read at once or in two pieces."""
        now, random = self._network.loop.time(), self._network.loop.random
        parts = []
        while self._inbox and self._inbox[0][0] <= now and isinstance(self._inbox[0][1], bytes):
            part = self._inbox.popleft()[1]
            assert isinstance(part, bytes)
            parts.append(part)
        data = b"".join(parts)
        if len(data) > 1 and random.random() < SPLIT_CHANCE:
            self._network.splits += 1
            size = random.randrange(1, len(data))
            self._inbox.appendleft((now, data[size:]))
            data = data[:size]
        return data

    def _read(self, data: bytes) -> None:
        protocol = self.get_protocol()
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = protocol.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]  # type: ignore[index]
            if size < len(data):
                self._inbox.appendleft((self._network.loop.time(), data[size:]))
                data = data[:size]
        self._inbox_bytes -= len(data)
        self._network.trace(
            f"{self._network.loop.time():.9f} {self.peer_name}>{self.address} {len(data)} {zlib.crc32(data):08x}"
        )
        if self.peer is not None:
            self.peer._on_peer_read()
        if self._is_closing:
            return  # nobody reads any more
        if isinstance(protocol, asyncio.BufferedProtocol):
            protocol.buffer_updated(len(data))
        else:
            protocol.data_received(data)  # type: ignore[attr-defined]

    def _on_peer_read(self) -> None:
        if self._is_writing_paused and self.get_write_buffer_size() <= self._low_water and not self._is_over:
            self._is_writing_paused = False
            self._call_soon(self.get_protocol().resume_writing)

    def _end(self, error: Exception | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._network.remove(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        self._network.loop.call_soon(callback, *args, context=self._context)

    @property
    def peer_name(self) -> tuple[str, int] | None:
        return self.peer.address if self.peer is not None else None
