import asyncio
import errno
import socket
import threading
from pathlib import Path

import pytest

from broker.common.tasks import BackgroundTasks
from broker.demo import demonstration
from broker.demo.demonstration import Demonstration, DemoOptions
from broker.demo.layout import DemoError, DemoNode, Layout
from tests.support.demo_process import free_demo_port
from tests.support.sim_loop import SimLoop, simulate


class World:
    def __init__(self, layout: Layout, megabytes_per_second: float | None = 2.0) -> None:
        self.told: list[str] = []
        self.endings = 0
        self.tasks = BackgroundTasks("test")
        options = DemoOptions(layout, megabytes_per_second)
        self.demonstration = Demonstration(options, self.tasks, tell=self.told.append, end=self._end)

    def _end(self) -> None:
        self.endings += 1

    def events(self) -> list[str]:
        return [event.text for event in self.demonstration._events.last(10)]


def test_keys(tmp_path: Path) -> None:
    async def story(_: SimLoop) -> None:
        world = World(Layout(tmp_path))
        for key in "+--xq":
            world.demonstration._press(key)
        assert world.events() == [
            "load is 4 MB/s to each topic",
            "load is 2 MB/s to each topic",
            "load is 1 MB/s to each topic",
        ]
        assert world.endings == 1
        world.demonstration._press("a")
        assert world.events()[-1].startswith("bucket-a is broken")

    simulate(story)


def test_without_a_load_there_is_no_pace_to_change(tmp_path: Path) -> None:
    async def story(_: SimLoop) -> None:
        world = World(Layout(tmp_path), None)
        world.demonstration._press("+")
        world.demonstration._press("-")
        world.demonstration._start_load()
        assert (world.events(), len(world.tasks)) == ([], 0)

    simulate(story)


@pytest.mark.parametrize(("code", "how"), [(-9, "signal 9"), (1, "exit code 1")])
def test_a_broker_that_ends_is_told_of_with_its_key(tmp_path: Path, code: int, how: str) -> None:
    async def story(_: SimLoop) -> None:
        world = World(Layout(tmp_path))
        node: DemoNode = world.demonstration.cluster.layout.node(2)
        world.demonstration._on_ended(node, code)
        assert world.events() == [f"broker 2 ended by itself with {how}; key 2 starts it again"]

    simulate(story)


def test_a_port_that_is_taken_ends_it_with_a_sentence(tmp_path: Path) -> None:
    port, told = free_demo_port(), list[str]()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(DemoError, match=f"port {port} is taken"):
            demonstration.run(DemoOptions(Layout(tmp_path, port=port)), tell=told.append)
    assert told == [
        f"Starting 3 brokers in {tmp_path} ...",
        f"All brokers have stopped. Their state is in {tmp_path}, for the next start.",
    ]


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(errno.EIO, "the terminal has gone")])
def test_nobody_who_listens_is_a_reason_to_end(tmp_path: Path, error: OSError) -> None:
    def tell(_: str) -> None:
        raise error

    assert demonstration.run(DemoOptions(Layout(tmp_path, port=free_demo_port())), tell=tell) == 0


def test_ending_twice_is_ending_once() -> None:
    async def story() -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        demonstration._end(ended)
        demonstration._end(ended)
        assert ended.done()

    assert threading.current_thread() is threading.main_thread(), "signals are handled there"
    asyncio.run(story())
