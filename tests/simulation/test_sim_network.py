"""What the simulation stands on: the network keeps the promises of TCP and no others, and a dead node does nothing."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.common.chance import Chance
from broker.common.errors import StorageFailure
from broker.network.byte_stream import AsyncioNetwork, ByteStream, ListenOptions
from tests.support.sim_disk import SimFileSystem
from tests.support.sim_network import SimNetwork
from tests.support.sim_node import NodeLoop, simulate_nodes

pytestmark = pytest.mark.simulation

SEEDS = range(5)


class Echo(asyncio.BufferedProtocol):
    """Answers every byte with itself; receives into a small buffer."""

    def __init__(self) -> None:
        self.buffer = bytearray(7)
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))

    def eof_received(self) -> None:
        return None

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)


async def listen(network: SimNetwork, protocols: list[Echo], *, is_accepting: bool = True) -> None:
    def make() -> Echo:
        protocols.append(Echo())
        return protocols[-1]

    server, port = await network.host("server").bind(make, "", 9092, ListenOptions())
    assert port == 9092
    if is_accepting:
        await server.start_serving()


def tell(story: Any, seed: int) -> None:
    def start(loop: NodeLoop) -> Coroutine[Any, Any, None]:
        result: Coroutine[Any, Any, None] = story(SimNetwork(loop, loop.trace))
        return result

    simulate_nodes(start, seed=seed)


async def connect(network: SimNetwork) -> ByteStream:
    return await network.host("client").connect("server", 9092)


@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_arrive_in_order_whatever_the_pieces(seed: int) -> None:
    async def story(network: SimNetwork) -> None:
        protocols: list[Echo] = []
        await listen(network, protocols)
        stream = await connect(network)
        sent = bytes(range(256)) * 4
        for start in range(0, len(sent), 100):
            stream.write(sent[start : start + 100])
        assert await stream.read_exactly(len(sent)) == sent
        stream.close()
        await asyncio.sleep(1)
        assert protocols[0].lost == [None]

    tell(story, seed)


def test_who_does_not_accept_yet_refuses() -> None:
    async def story(network: SimNetwork) -> None:
        with pytest.raises(ConnectionRefusedError):
            await connect(network)
        await listen(network, [], is_accepting=False)
        with pytest.raises(ConnectionRefusedError):
            await connect(network)

    tell(story, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_holds_what_is_sent_until_it_is_healed(seed: int) -> None:
    async def story(network: SimNetwork) -> None:
        await listen(network, [])
        stream = await connect(network)
        network.cut("server", "client")
        stream.write(b"over there, and not back")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await stream.read_exactly(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await connect(network)
        network.heal()
        assert await stream.read_exactly(24) == b"over there, and not back"
        stream.close()

    tell(story, seed)


def test_a_cut_in_one_direction_and_its_end_between_two_hosts() -> None:
    async def story(network: SimNetwork) -> None:
        protocols: list[Echo] = []
        await listen(network, protocols)
        stream = await connect(network)
        network.cut("server", "client")
        network.cut("server", "another")
        assert network.is_disturbed
        stream.write(b"held")
        await asyncio.sleep(1)
        assert protocols[0].transport.get_write_buffer_size() == 4  # the server heard, and its answer is under way
        network.heal_between("client", "server")
        assert await stream.read_exactly(4) == b"held"
        assert (network.is_cut("server", "client"), network.is_cut("server", "another")) == (False, True)

    tell(story, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_delayed_bytes_arrive_later_and_in_order(seed: int) -> None:
    async def story(network: SimNetwork) -> None:
        await listen(network, [])
        stream = await connect(network)
        network.delay("client", "server", 5.0)
        started = network.loop.time()
        for number in range(10):
            stream.write(bytes([number]))
        assert await stream.read_exactly(10) == bytes(range(10))
        assert network.loop.time() - started > 1.0
        network.heal()
        assert not network.is_disturbed

    tell(story, seed)


def test_a_killed_process_leaves_what_it_wrote_and_a_power_cut_what_it_synced() -> None:
    disk = SimFileSystem()
    disk.make_directories(Path("/d"))
    disk.sync_everything()
    file = disk.open(Path("/d/f"), create=True)
    file.write_at(0, [b"written"])
    disk.lock(Path("/d/lock"))
    disk.kill()
    with pytest.raises(StorageFailure):
        file.size()
    assert disk.read(Path("/d/f")) == b"written"
    disk.lock(Path("/d/lock"))
    survived = set()
    for seed in range(20):
        again = SimFileSystem()
        again.make_directories(Path("/d"))
        again.sync_everything()
        again.open(Path("/d/f"), create=True).write_at(0, [b"written"])
        again.kill()
        again.crash(Chance(seed))
        survived.add(again.exists(Path("/d/f")))
    assert survived == {True, False}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_peers_of_a_dead_host_are_reset_and_have_read_a_prefix(seed: int) -> None:
    async def story(network: SimNetwork) -> None:
        await listen(network, [])
        stream = await connect(network)
        stream.write(b"0123456789")
        await asyncio.sleep(0.001)
        network.host("server").die()
        read = b""
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            while True:
                read += await stream.read_exactly(1)
        assert b"0123456789".startswith(read)
        with pytest.raises(ConnectionRefusedError):
            await connect(network)

    tell(story, seed)


def test_what_a_dead_incarnation_scheduled_is_not_run_before_the_end() -> None:
    heard: list[str] = []

    async def story(loop: NodeLoop) -> None:
        async def live(name: str) -> None:
            try:
                while True:
                    await asyncio.sleep(0.1)
                    heard.append(name)
            finally:
                heard.append(f"{name} ends")

        first, second = loop.new_incarnation(), loop.new_incarnation()
        loop.create_task(live("first"), context=first)
        loop.create_task(live("second"), context=second)
        await asyncio.sleep(0.25)
        loop.freeze(first)
        await asyncio.sleep(0.2)
        assert heard == ["first", "second", "first", "second", "second", "second"]

    simulate_nodes(story, seed=0)
    assert sorted(heard[6:]) == ["first ends", "second ends"]


def test_the_port_has_the_verbs_of_the_real_one() -> None:
    host = SimNetwork(NodeLoop(0)).host("a")
    verbs = [name for name in dir(AsyncioNetwork) if not name.startswith("_")]
    assert verbs == ["bind", "connect"]
    assert all(callable(getattr(host, verb)) for verb in verbs)
