import asyncio

from broker.demo.latencies import Latencies
from tests.support.sim_loop import SimLoop, simulate


def test_percentiles_of_the_last_seconds_in_milliseconds() -> None:
    async def story(_: SimLoop) -> None:
        latencies = Latencies()
        assert latencies.percentiles_ms(0.5) == [None]
        latencies.note(60.0)
        await asyncio.sleep(8)
        for number in range(1, 101):
            latencies.note(number / 1000)
        assert latencies.percentiles_ms(1.0) == [60_000]
        await asyncio.sleep(3)
        assert latencies.percentiles_ms(0.0, 0.5, 0.99, 1.0) == [1, 50, 99, 100]
        await asyncio.sleep(10)
        assert latencies.percentiles_ms(0.5) == [None]

    simulate(story)
