import asyncio
import json

import pytest

from broker.common.errors import ErrorCode
from broker.common.tasks import BackgroundTasks
from broker.demo.latencies import Latencies
from broker.demo.load import BATCH_BYTES_MAX, IN_FLIGHT_MAX, RECORD_BYTES, Pace, TopicLoad
from tests.support.sim_loop import SimClock, SimLoop, simulate
from tests.unit.demo.load_world import FakeLeaders


class World:
    def __init__(self, loop: SimLoop, megabytes_per_second: float = 2.0) -> None:
        self.leaders = FakeLeaders({0: 1, 1: 2, 2: 3})
        self.pace, self.latencies, self.tasks = Pace(megabytes_per_second), Latencies(), BackgroundTasks("test")
        self.load = TopicLoad("orders", self.leaders, self.pace, self.latencies, SimClock(loop), start=self.tasks.start)

    async def run(self, seconds: float) -> float:
        """Megabytes that were appended a second meanwhile."""
        before = self.bytes_appended
        task = self.tasks.start("load", self.load.run())
        await asyncio.sleep(seconds)
        task.cancel()
        return (self.bytes_appended - before) / seconds / 1e6

    @property
    def bytes_appended(self) -> int:
        return sum(batch.size_bytes for log in self.leaders.logs.values() for batch in log)


@pytest.mark.parametrize("megabytes", [0.01, 0.5, 2.0, 8.0])
def test_it_produces_as_much_as_it_should_to_each_partition_alike(megabytes: float) -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop, megabytes)
        assert await world.run(20) == pytest.approx(megabytes, rel=0.06)
        counts = [len(log) for log in world.leaders.logs.values()]
        assert max(counts) - min(counts) <= 1
        assert world.load.failed == 0
        assert world.load.acknowledged == sum(world.leaders.end_of(each) for each in world.leaders.logs)

    simulate(story)


def test_records_are_orders_of_the_same_size_with_the_time_of_now() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        await world.run(1)
        batch = world.leaders.logs[1][0]
        records = list(batch.records())
        assert {len(record.value or b"") for record in records} == {RECORD_BYTES}
        order = json.loads(records[0].value or b"")
        assert (str(order["order"]).encode(), order["at"]) == (records[0].key, batch.max_timestamp)
        assert batch.size_bytes <= BATCH_BYTES_MAX + 2_000

    simulate(story)


def test_the_pace_may_change() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop, 1.0)
        world.pace.double()
        assert await world.run(10) == pytest.approx(2, rel=0.06)
        world.pace.halve()
        world.pace.halve()
        assert await world.run(10) == pytest.approx(0.5, rel=0.1)

    simulate(story)


def test_a_leader_that_moves_is_found_again() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        loop.call_later(2, world.leaders.leaders.update, {0: 2})
        await world.run(10)
        assert world.load.failed > 0
        assert world.leaders.finds < 10, "and not asked for by every batch that failed"
        assert [batch.base_timestamp > 1_700_000_009_000 for batch in world.leaders.logs[0]][-1]

    simulate(story)


def test_brokers_that_are_down_are_waited_for() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        loop.call_later(1, world.leaders.down.update, {1, 2, 3})
        loop.call_later(5, world.leaders.down.clear)
        rate = await world.run(10)
        assert 0.4 * 2 < rate < 0.75 * 2, "what was not sent meanwhile is not made up for"

    simulate(story)


def test_a_slow_leader_gets_no_more_than_so_many_batches() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        world.leaders.takes_seconds = 30.0
        await world.run(20)
        assert len(world.tasks) <= 3 * IN_FLIGHT_MAX + 1

    simulate(story)


def test_what_is_refused_is_counted_and_the_rest_timed() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(loop)
        world.leaders.errors = [ErrorCode.not_enough_replicas]
        world.leaders.takes_seconds = 0.004
        await world.run(3)
        assert 0 < world.load.failed <= 25
        assert world.latencies.percentiles_ms(0.5) == [pytest.approx(4)]

    simulate(story)
