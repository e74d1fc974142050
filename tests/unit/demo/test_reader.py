import asyncio

import pytest

from broker.common.errors import ErrorCode
from broker.common.tasks import BackgroundTasks
from broker.demo.latencies import Latencies
from broker.demo.reader import Reader
from broker.records.memory_records_builder import records_batch
from tests.support.sim_loop import SimClock, SimLoop, simulate
from tests.unit.demo.load_world import FakeLeaders


class World:
    """A record has been in each partition from the beginning."""

    def __init__(self, loop: SimLoop) -> None:
        self.leaders = FakeLeaders({0: 1, 1: 2, 2: 1})
        self.clock = SimClock(loop)
        for partition in range(3):
            self.append(partition, age_ms=1_000_000)
        self.latencies, self.tasks = Latencies(), BackgroundTasks("test")
        self.reader = Reader("orders", self.leaders, self.latencies, self.clock, start=self.tasks.start)
        self.tasks.start("reader", self.reader.run())

    def append(self, partition: int, age_ms: int) -> None:
        self.leaders.append(partition, bytes(records_batch((self.clock.now_ms() - age_ms, None, b"v"))))

    def read(self) -> int:
        return len(self.latencies._kept)


def test_it_reads_from_the_end_on_and_knows_how_old_records_are() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        await asyncio.sleep(1)
        assert world.read() == 0, "what was there is not read"
        for age_ms, partition in ((70, 0), (80, 1), (90, 2)):
            world.append(partition, age_ms)
        await asyncio.sleep(2)
        assert world.read() == 3, "each once"
        p0, p100 = world.latencies.percentiles_ms(0.0, 1.0)
        assert p0 is not None and p100 is not None
        assert 70 <= p0 <= p100 <= 90 + 500, "the fake leader looks twice a second"

    simulate(story)


def test_leaders_that_move_are_followed() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        await asyncio.sleep(1)
        world.leaders.leaders[0] = 3
        await asyncio.sleep(2)
        world.append(0, 0)
        world.append(2, 0)
        await asyncio.sleep(2)
        assert world.read() == 2

    simulate(story)


def test_brokers_that_are_down_are_asked_again() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        world.leaders.down = {1, 2, 3}
        await asyncio.sleep(5)
        assert world.leaders.finds < 25
        world.leaders.down = set()
        await asyncio.sleep(1)
        world.append(1, 0)
        await asyncio.sleep(2)
        assert world.read() == 1

    simulate(story)


@pytest.mark.parametrize("error", [ErrorCode.offset_out_of_range, ErrorCode.unknown_server_error])
def test_what_is_refused_is_asked_again(error: ErrorCode) -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        await asyncio.sleep(1)
        world.leaders.errors = [error]
        await asyncio.sleep(2)
        world.append(0, 0)
        world.append(1, 0)
        await asyncio.sleep(2)
        assert (world.read(), world.leaders.errors) == (2, [])

    simulate(story)
