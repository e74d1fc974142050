"""Cluster: the brokers' processes, started together, watched, and ended together."""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from broker.demo.broker_process import BrokerProcess, broker_command, broker_environment
from broker.demo.layout import HOST, DemoError, DemoNode, Layout
from broker.demo.watch import HttpGet

READY_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 15.0
POLL_SECONDS: Final = 0.05
LOG_LINES: Final = 5
_OK: Final = 200


class ChildProcess(Protocol):
    """`BrokerProcess`."""

    @property
    def is_running(self) -> bool: ...
    @property
    def exit_code(self) -> int | None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


def real_process(layout: Layout, node: DemoNode) -> BrokerProcess:
    command = broker_command(layout.properties_file_of(node))
    return BrokerProcess(command, layout.log_file_of(node), broker_environment(os.environ))


class Cluster:
    """`on_ended` is told of a broker that ended although nobody wanted it."""

    def __init__(
        self,
        layout: Layout,
        *,
        get: HttpGet,
        on_ended: Callable[[DemoNode, int], None],
        process: Callable[[Layout, DemoNode], ChildProcess] = real_process,
    ) -> None:
        self.layout = layout
        self._get = get
        self._on_ended = on_ended
        self._processes = {node.node_id: process(layout, node) for node in layout.nodes}
        self._wanted: set[int] = set()

    @property
    def running(self) -> dict[int, bool]:
        return {node_id: process.is_running for node_id, process in self._processes.items()}

    def start(self) -> None:
        """All of them; DemoError when their ports are taken."""
        for port in self._ports():
            if not _is_free(port):
                raise DemoError(
                    f"port {port} is taken: by another demo, or another broker? --port takes others than "
                    f"{self.layout.nodes[0].port} and those that go with it"
                )
        for node in sorted(self.layout.nodes, key=lambda node: not node.has_controller):
            self.start_node(node)

    def start_node(self, node: DemoNode) -> None:
        self._wanted.add(node.node_id)
        try:
            self._processes[node.node_id].start()
        except OSError as error:
            raise DemoError(f"broker {node.node_id} cannot be started: {error}") from error

    def kill_node(self, node: DemoNode) -> None:
        """kill -9."""
        self._wanted.discard(node.node_id)
        self._processes[node.node_id].kill()

    def is_wanted(self, node: DemoNode) -> bool:
        """Whether it is meant to run."""
        return node.node_id in self._wanted

    async def wait_until_serving(self, node: DemoNode, path: str) -> None:
        """Until the HTTP listener says 200 there; DemoError when the process ends, or takes too long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_SECONDS_MAX
        while not await self._says_ok(node, path):
            if not self._processes[node.node_id].is_running:
                code = self._processes[node.node_id].exit_code
                raise DemoError(f"broker {node.node_id} ended with {code}:\n{self.last_words(node)}")
            if loop.time() >= deadline:
                raise DemoError(
                    f"broker {node.node_id} is not ready after {READY_SECONDS_MAX:.0f} s:\n{self.last_words(node)}"
                )
            await asyncio.sleep(POLL_SECONDS)

    def note_ended(self) -> None:
        """Tell of those that ended by themselves, once each."""
        for node in self.layout.nodes:
            process = self._processes[node.node_id]
            if node.node_id in self._wanted and not process.is_running:
                self._wanted.discard(node.node_id)
                self._on_ended(node, process.exit_code or 0)

    async def stop(self) -> list[DemoNode]:
        """End all, the controller last: the others hand over what they lead.  Returns those that had to be killed."""
        self._wanted.clear()
        killed = []
        for has_controller in (False, True):
            nodes = [node for node in self.layout.nodes if node.has_controller is has_controller]
            for node in nodes:
                self._processes[node.node_id].stop()
            killed += await self._await_end(nodes)
        return killed

    def kill(self) -> None:
        """kill -9 for all of them, now."""
        self._wanted.clear()
        for process in self._processes.values():
            process.kill()

    def last_words(self, node: DemoNode) -> str:
        """The end of its log, without what is no news."""
        try:
            lines = self.layout.log_file_of(node).read_text(errors="replace").splitlines()
        except OSError:
            return ""
        sentences = [line for line in lines if line.startswith("wherry: ")]
        return "\n".join((sentences or lines)[-LOG_LINES:])

    async def _await_end(self, nodes: Sequence[DemoNode]) -> list[DemoNode]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_SECONDS_MAX
        while loop.time() < deadline:
            if not any(self._processes[node.node_id].is_running for node in nodes):
                return []
            await asyncio.sleep(POLL_SECONDS)
        late = [node for node in nodes if self._processes[node.node_id].is_running]
        for node in late:
            self._processes[node.node_id].kill()
        return late

    async def _says_ok(self, node: DemoNode, path: str) -> bool:
        try:
            answer = await self._get(node.metrics_port, path)
        except OSError:
            return False
        return answer.status == _OK

    def _ports(self) -> list[int]:
        clients = [node.port for node in self.layout.nodes]
        return [*clients, self.layout.controller_port, *(node.metrics_port for node in self.layout.nodes)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
