"""EventLoopMetrics: how late the event loop runs what is due, which is how long something else held it."""

import asyncio
from typing import Final

from broker.metrics.registry import MetricsRegistry

INTERVAL_SECONDS: Final = 0.01  # what holds the loop for less than this is seen now and then, longer holds always
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class EventLoopMetrics:
    """One timer between `start` and `stop`; a tick costs a few microseconds.

    Every request of this process waits while one callback runs, so its longest ones are the broker's worst latency.
    """

    def __init__(self, registry: MetricsRegistry, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self.longest_seconds = 0.0
        self._interval_seconds = interval_seconds
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._lag_seconds = registry.histogram(
            "broker_event_loop_lag_seconds",
            f"How late a timer ran that is due {1 / INTERVAL_SECONDS:.0f} times a second: how long the event loop was "
            "held.",
            bounds=BOUNDS,
            action="All requests wait meanwhile. Above 0.1: too much at once (thousands of partitions created or "
            "deleted), a slow disk in the way of a write, or a process that gets too little CPU.",
        )
        registry.gauge(
            "broker_event_loop_lag_longest_seconds",
            "The longest of them since the process started.",
            lambda: self.longest_seconds,
        )

    def start(self) -> None:
        """Begin to measure the running loop."""
        self._expect(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expect(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + self._interval_seconds
        self._timer = loop.call_at(self._due, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        lag_seconds = max(0.0, loop.time() - self._due)
        self._lag_seconds.observe(lag_seconds)
        self.longest_seconds = max(self.longest_seconds, lag_seconds)
        self._expect(loop)
