import asyncio
import socket
from pathlib import Path

import pytest

from broker.demo import cluster as module
from broker.demo.cluster import READY_SECONDS_MAX, STOP_SECONDS_MAX, Cluster
from broker.demo.layout import DemoError, DemoNode, Layout
from tests.support.demo_process import free_demo_port
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.demo.demo_world import FakeHttp, FakeProcesses, layout


class World:
    def __init__(self, shape: Layout | None = None) -> None:
        self.http, self.processes = FakeHttp(), FakeProcesses()
        self.ended: list[tuple[int, int]] = []
        self.layout = shape or layout()
        self.cluster = Cluster(self.layout, get=self.http.get, on_ended=self._on_ended, process=self.processes)

    def _on_ended(self, node: DemoNode, code: int) -> None:
        self.ended.append((node.node_id, code))

    def start(self) -> None:
        for node in self.layout.nodes:
            self.cluster.start_node(node)


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every port is free, and the nodes are noted as they are started."""
    monkeypatch.setattr(module, "_is_free", lambda port: True)
    started: list[int] = []
    start = Cluster.start_node

    def note(self: Cluster, node: DemoNode) -> None:
        started.append(node.node_id)
        start(self, node)

    monkeypatch.setattr(Cluster, "start_node", note)
    return started


def test_the_controller_is_started_first_and_ended_last(order: list[int]) -> None:
    world = World()
    world.cluster.start()
    assert (order, world.cluster.running) == ([3, 1, 2], {1: True, 2: True, 3: True})
    told: list[tuple[int, dict[int, bool]]] = []
    for node_id, process in world.processes.by_id.items():
        process.stop = lambda node_id=node_id: told.append((node_id, world.cluster.running))  # type: ignore[method-assign]

    async def story(loop: SimLoop) -> None:
        loop.call_later(1, world.processes.by_id[1].end, 0)
        loop.call_later(2, world.processes.by_id[2].end, 0)
        loop.call_later(3, world.processes.by_id[3].end, 0)
        assert await world.cluster.stop() == []

    simulate(story)
    assert told == [
        (1, {1: True, 2: True, 3: True}),
        (2, {1: True, 2: True, 3: True}),
        (3, {1: False, 2: False, 3: True}),
    ]


def test_a_port_that_is_taken_is_told_before_anything_is_started(tmp_path: Path) -> None:
    port = free_demo_port()
    world = World(Layout(tmp_path, port=port))
    with socket.socket() as other:
        other.bind(("127.0.0.1", port + 1))
        other.listen()
        with pytest.raises(DemoError, match=f"port {port + 1} is taken: .*--port takes others than {port} "):
            world.cluster.start()
    assert not any(world.cluster.running.values())


def test_one_that_does_not_end_is_killed() -> None:
    world = World()
    world.start()
    world.processes.by_id[2].ends_when_told = False

    async def story(loop: SimLoop) -> None:
        assert [node.node_id for node in await world.cluster.stop()] == [2]
        assert loop.time() >= STOP_SECONDS_MAX

    simulate(story)
    assert world.processes.by_id[2].calls == ["start", "stop", "kill"]
    assert not any(world.cluster.running.values())


def test_waiting_until_it_serves() -> None:
    world = World()
    world.start()
    node = world.layout.node(1)

    async def story(loop: SimLoop) -> None:
        loop.call_later(2, world.http.serve, node.metrics_port, "/readyz", 503)
        loop.call_later(5, world.http.serve, node.metrics_port, "/readyz", 200)
        await world.cluster.wait_until_serving(node, "/readyz")
        assert loop.time() == pytest.approx(5, abs=0.1)

    simulate(story)


def test_one_that_ends_instead_tells_why(tmp_path: Path) -> None:
    world = World(Layout(tmp_path))
    world.start()
    node = world.layout.node(1)
    world.layout.log_file_of(node).write_text('{"event": "x"}\nwherry: the disk is full\n{"event": "y"}\n')

    async def story(loop: SimLoop) -> None:
        loop.call_later(1, world.processes.by_id[1].end, 1)
        with pytest.raises(DemoError, match=r"^broker 1 ended with 1:\nwherry: the disk is full$"):
            await world.cluster.wait_until_serving(node, "/readyz")

    simulate(story)


def test_one_that_never_serves_is_given_up_with_the_end_of_its_log(tmp_path: Path) -> None:
    world = World(Layout(tmp_path))
    world.start()
    node = world.layout.node(2)
    world.layout.log_file_of(node).write_text("".join(f"line {number}\n" for number in range(9)))

    async def story(loop: SimLoop) -> None:
        with pytest.raises(DemoError) as told:
            await world.cluster.wait_until_serving(node, "/readyz")
        assert str(told.value) == "broker 2 is not ready after 60 s:\nline 4\nline 5\nline 6\nline 7\nline 8"
        assert loop.time() >= READY_SECONDS_MAX

    simulate(story)


def test_those_that_end_by_themselves_are_told_once() -> None:
    world = World()
    world.start()
    world.cluster.note_ended()
    world.processes.by_id[1].end(-11)
    world.cluster.kill_node(world.layout.node(2))
    world.cluster.note_ended()
    world.cluster.note_ended()
    assert world.ended == [(1, -11)], "and not those that were killed on purpose"
    assert [world.cluster.is_wanted(node) for node in world.layout.nodes] == [False, False, True]
    world.cluster.start_node(world.layout.node(1))
    world.processes.by_id[1].end(1)
    world.cluster.note_ended()
    assert world.ended == [(1, -11), (1, 1)]


def test_one_that_cannot_be_started() -> None:
    world = World()

    def fail() -> None:
        raise OSError("no memory")

    world.processes.by_id[1].start = fail  # type: ignore[method-assign]
    with pytest.raises(DemoError, match="broker 1 cannot be started: no memory"):
        world.cluster.start_node(world.layout.node(1))


def test_all_may_be_killed_at_once() -> None:
    world = World()
    world.start()
    world.cluster.kill()
    assert not any(world.cluster.running.values())
    world.cluster.note_ended()
    assert world.ended == []


def test_its_processes_are_servers_with_the_files_of_the_layout(tmp_path: Path) -> None:
    shape = Layout(tmp_path)
    process = module.real_process(shape, shape.node(1))
    assert not process.is_running
    assert process.exit_code is None
    asyncio.run(Cluster(shape, get=FakeHttp().get, on_ended=lambda node, code: None).stop())
