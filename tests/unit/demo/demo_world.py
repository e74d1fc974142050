"""What the tests of the demonstration share: brokers that are nothing but what they answer, processes that are none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker.demo.figures import Figures, figures_of
from broker.demo.http_client import HttpAnswer
from broker.demo.layout import DemoNode, Layout
from broker.demo.scrape import Scrape
from broker.demo.status import Status
from broker.demo.watch import View


def layout(directory: Path = Path("/demo"), **options: Any) -> Layout:
    return Layout(directory, **options)


def scrape(text: str) -> Scrape:
    """All of it."""
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines()}
    return Scrape.parse(text, names)


def view(brokers: Mapping[int, str], increase: str = "", seconds: float = 10.0) -> View:
    """Of brokers that are all ready."""
    scrapes = {node_id: scrape(text) for node_id, text in brokers.items()}
    return View(scrapes, frozenset(scrapes), scrape(increase), seconds)


def figures(brokers: Mapping[int, str], increase: str = "", seconds: float = 10.0) -> Figures:
    """Of three brokers, those running that are named."""
    nodes = layout().nodes
    running = {node.node_id: node.node_id in brokers for node in nodes}
    return figures_of(view(brokers, increase, seconds), nodes, running)


def status(shown: Figures, **more: Any) -> Status:
    return Status(ready_seconds=3.21, up_seconds=75.0, megabytes_per_second=2.0, figures=shown, **more)


class FakeHttp:
    """`answers` by port and path; others are refused.  What was posted is kept."""

    def __init__(self) -> None:
        self.answers: dict[tuple[int, str], HttpAnswer] = {}
        self.posted: list[tuple[int, str, Any]] = []
        self.asked: list[tuple[int, str]] = []

    def serve(self, port: int, path: str, status: int = 200, body: bytes = b"ok") -> None:
        self.answers[port, path] = HttpAnswer(status, body)

    async def get(self, port: int, path: str) -> HttpAnswer:
        self.asked.append((port, path))
        if (port, path) not in self.answers:
            raise ConnectionRefusedError(port)
        return self.answers[port, path]

    async def post(self, port: int, path: str, value: Any) -> HttpAnswer:
        answer = await self.get(port, path)
        self.posted.append((port, path, value))
        return answer


class FakeProcess:
    def __init__(self) -> None:
        self.is_running = False
        self.exit_code: int | None = None
        self.ends_when_told = True
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")
        self.is_running, self.exit_code = True, None

    def stop(self) -> None:
        self.calls.append("stop")
        if self.ends_when_told:
            self.end(0)

    def kill(self) -> None:
        self.calls.append("kill")
        self.end(-9)

    def end(self, code: int) -> None:
        if self.is_running:
            self.is_running, self.exit_code = False, code


class FakeProcesses:
    """Made for a `Cluster`."""

    def __init__(self) -> None:
        self.by_id: dict[int, FakeProcess] = {}

    def __call__(self, _layout: Layout, node: DemoNode) -> FakeProcess:
        return self.by_id.setdefault(node.node_id, FakeProcess())
