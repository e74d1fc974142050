import asyncio

import pytest

from broker.metrics.event_loop_metrics import EventLoopMetrics
from broker.metrics.registry import MetricsRegistry
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.metrics.scrape import scrape


def test_what_holds_the_loop_is_measured() -> None:
    registry = MetricsRegistry()
    metrics = EventLoopMetrics(registry, interval_seconds=0.01)

    async def story(loop: SimLoop) -> None:
        metrics.start()
        await asyncio.sleep(0.045)
        loop.advance(0.5)  # a callback that took half a second: the timer was due 5 ms after it began
        await asyncio.sleep(0.002)
        metrics.stop()
        loop.advance(5)
        await asyncio.sleep(1)

    simulate(story)
    samples = scrape(registry)
    assert samples["broker_event_loop_lag_seconds_count"] == 5
    assert samples['broker_event_loop_lag_seconds_bucket{le="0.001"}'] == 4
    assert samples['broker_event_loop_lag_seconds_bucket{le="0.5"}'] == 5
    assert samples["broker_event_loop_lag_longest_seconds"] == pytest.approx(0.495)


def test_nothing_is_measured_before_the_start() -> None:
    registry = MetricsRegistry()
    EventLoopMetrics(registry).stop()
    samples = scrape(registry)
    assert samples["broker_event_loop_lag_seconds_count"] == 0
    assert samples["broker_event_loop_lag_longest_seconds"] == 0
