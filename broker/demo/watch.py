"""ClusterWatch: the metrics of all brokers, again and again, and what became more of them in the last seconds."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.demo.http_client import HttpAnswer
from broker.demo.layout import DemoNode
from broker.demo.scrape import Scrape

WINDOW_SECONDS: Final = 10.0
_OK: Final = 200

HttpGet = Callable[[int, str], Awaitable[HttpAnswer]]


@dataclass(frozen=True)
class View:
    """`brokers` has those that answered; `increase` is of all of them, over the last `seconds`."""

    brokers: Mapping[int, Scrape]
    ready: frozenset[int]
    increase: Scrape
    seconds: float

    @property
    def now(self) -> Scrape:
        """All brokers added up."""
        return Scrape.sum_of(self.brokers.values())

    def rate(self, name: str, **wanted: str) -> float:
        """Per second."""
        return self.increase.total(name, **wanted) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class _Step:
    at: float
    seconds: float
    increase: Scrape


class ClusterWatch:
    def __init__(self, nodes: Sequence[DemoNode], wanted: Collection[str], get: HttpGet) -> None:
        self._nodes = nodes
        self._wanted = frozenset(wanted)
        self._get = get
        self._last: dict[int, Scrape] = {}
        self._last_at: float | None = None
        self._steps: deque[_Step] = deque()

    async def look(self) -> View:
        """Ask all brokers at once; one that does not answer is left out."""
        answers = await asyncio.gather(*map(self._ask, self._nodes))
        found = {node.node_id: answer for node, answer in zip(self._nodes, answers, strict=True)}
        brokers = {node_id: scrape for node_id, (scrape, _) in found.items() if scrape is not None}
        ready = frozenset(node_id for node_id, (_, is_ready) in found.items() if is_ready)
        return self.note(brokers, ready, asyncio.get_running_loop().time())

    def note(self, brokers: Mapping[int, Scrape], ready: frozenset[int], now: float) -> View:
        """Of a broker that was not seen the time before, nobody knows when its counts came."""
        if self._last_at is not None:
            grown = [scrape.increase_since(self._last[each]) for each, scrape in brokers.items() if each in self._last]
            self._steps.append(_Step(now, now - self._last_at, Scrape.sum_of(grown)))
        self._last, self._last_at = dict(brokers), now
        while self._steps and now - self._steps[0].at >= WINDOW_SECONDS:
            self._steps.popleft()
        increase = Scrape.sum_of(step.increase for step in self._steps)
        return View(brokers, ready, increase, sum(step.seconds for step in self._steps))

    async def _ask(self, node: DemoNode) -> tuple[Scrape | None, bool]:
        try:
            metrics = await self._get(node.metrics_port, "/metrics")
            ready = await self._get(node.metrics_port, "/readyz")
        except OSError:
            return None, False
        return Scrape.parse(metrics.body.decode(), self._wanted), ready.status == _OK
