"""SimNode: the product's own Node on a simulated disk and network, and a power switch.

A power cut stops a node in mid-sentence: between two operations of its disk, inside of a function if need be.  What it
had scheduled never runs, its connections are reset, and its disk keeps what was synced and a chance part of the rest.
Nothing of the node is replaced but its ports.
"""

import asyncio
import contextvars
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from broker.common.chance import Chance
from broker.config.broker_config import BrokerConfig
from broker.node import Node
from tests.support.sim_disk import SimFileSystem
from tests.support.sim_loop import SimClock, SimLoop
from tests.support.sim_network import SimNetwork

P = ParamSpec("P")
T = TypeVar("T")

LOG_DIRECTORY = Path("/data")
BROKER_PORT = 9092
DISK_OPERATION_S = 0.000_5

_incarnation: contextvars.ContextVar[int] = contextvars.ContextVar("incarnation", default=0)


class PowerCut(BaseException):
    """Unwinds whatever the node was doing.  Not an Exception: nothing may handle it."""


class Crashed(Exception):
    """The node lost its power while its start or stop was waited for."""


class NodeLoop(SimLoop):
    """A SimLoop in which some incarnations of nodes are dead: nothing of theirs runs any more.

    Their tasks, and the callbacks that would run them, are kept until the story is over, and then run to their end with
    the power off: the garbage collector would run their `finally` clauses in the midst of it.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.trace_lines: list[str] = []
        self.complaints = 0
        self._incarnations = 0
        self._dead: dict[int, None] = {}
        self._frozen_tasks: dict[asyncio.Task[Any], None] = {}
        self._frozen_callbacks: list[asyncio.Handle] = []

    def trace(self, line: str) -> None:
        self.trace_lines.append(line)

    def new_incarnation(self) -> contextvars.Context:
        self._incarnations += 1
        context = contextvars.copy_context()
        context.run(_incarnation.set, self._incarnations)
        return context

    def freeze(self, context: contextvars.Context) -> None:
        """Whatever was scheduled in this context, or derives from it, is not run."""
        self._dead[context[_incarnation]] = None
        ready = self._ready  # type: ignore[attr-defined]
        for index, handle in enumerate(ready):
            if self._is_dead(handle._context):
                self._frozen_callbacks.append(handle)
                ready[index] = asyncio.Handle(lambda: None, (), self)  # the loop has counted them already
        for timer in self._scheduled:  # type: ignore[attr-defined]
            if self._is_dead(timer._context):
                timer.cancel()
        self._frozen_tasks.update(dict.fromkeys(asyncio.all_tasks(self)))

    def _is_dead(self, context: contextvars.Context | None) -> bool:
        return (contextvars.copy_context() if context is None else context).get(_incarnation, 0) in self._dead

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(coro, **options)
        if self._dead and self._is_dead(options.get("context")):
            self._frozen_tasks[task] = None  # started on the way down
        return task

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        if self._dead and self._is_dead(context):
            self._frozen_callbacks.append(asyncio.Handle(callback, args, self, context))
            return self._frozen_callbacks[-1]
        return super().call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        timer = super().call_at(when, callback, *args, context=context)
        if self._dead and self._is_dead(context):
            timer.cancel()
        return timer

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and "future" in context and not isinstance(error, AssertionError):
            self.complaints += 1  # a failure whose waiter was cancelled: nodes log it and go on (node.on_loop_error)
        elif not isinstance(error, PowerCut):
            super().call_exception_handler(context)

    def finish(self) -> None:
        """After the story, with the power off: let everything end."""
        failures, self.failures = self.failures, []
        self._dead.clear()
        self._ready.extend(self._frozen_callbacks)  # type: ignore[attr-defined]
        left = asyncio.all_tasks(self)
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.wait(left, timeout=60))
        self.run_until_complete(self.shutdown_asyncgens())
        self.failures = failures


def simulate_nodes(story: Callable[[NodeLoop], Coroutine[Any, Any, T]], *, seed: int) -> T:
    """Run a story to its end; whatever failed in the background of a living node fails it too."""
    loop = NodeLoop(seed)
    asyncio.set_event_loop(loop)
    try:
        result = loop.run_until_complete(story(loop))
        loop.raise_failures()
        return result
    finally:
        loop.finish()
        asyncio.set_event_loop(None)
        loop.close()


class SimDiskExecutor:
    """Runs its work inline after a drawn delay; `slowness` multiplies it."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.slowness = 1.0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.submit(function, *args, **kwargs)

    def submit(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":
        result: asyncio.Future[T] = self._loop.create_future()

        def finish() -> None:
            try:
                value = function(*args, **kwargs)
            except Exception as error:
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(value)

        delay = self._loop.random.expovariate(1 / DISK_OPERATION_S) * self.slowness
        self._loop.call_later(delay, finish)
        return result

    def close(self) -> None:
        """What is under way is done in its own time."""


class SwitchedFileSystem(SimFileSystem):
    """A disk behind a power switch, which can be set to fall at a certain operation."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self.is_on = True
        self.cut_after: int | None = None  # so many operations,
        self.cut_before: tuple[str, str] | None = None  # of this name and on such files; None: any
        self.on_cut: Callable[[], None] = lambda: None
        self.seen: Counter[str] = Counter()
        self.make_directories(Path("/"))
        self.sync_everything()

    def count(self, operation: str, path: Path) -> None:
        if not self.is_on:
            raise PowerCut
        if self.cut_after is not None and self.cut_before in (None, (operation, path.suffix)):
            self.cut_after -= 1
            if self.cut_after < 0:
                self.seen[f"cut before {operation}"] += 1
                self.on_cut()
                raise PowerCut
        super().count(operation, path)

    def cut(self, chance: Chance) -> None:
        """Lose the power: counts what that did to the disk."""
        self.is_on, self.cut_after = False, None
        before = self._tree()
        self.crash(chance)
        after = self._tree()
        for path, content in before.items():
            if path not in after:
                self.seen["lost name"] += 1
            elif content != after[path] and path.suffix == ".log":
                is_prefix = content.startswith(after[path])
                self.seen["lost bytes" if is_prefix else "torn write"] += 1
        self.seen["old name"] += sum(path not in before for path in after)

    def _tree(self) -> dict[Path, bytes]:
        found: dict[Path, bytes] = {}

        def visit(path: Path) -> None:
            for name in self.list_directory(path):
                child = path / name
                if self.is_directory(child):
                    visit(child)
                else:
                    found[child] = self.read(child)

        if self.is_directory(LOG_DIRECTORY):
            visit(LOG_DIRECTORY)
        return found


class _HeadlessNode(Node):
    """Without the HTTP endpoint, which would take a port of this machine."""

    async def _serve_http(self, stack: AsyncExitStack) -> None:
        """Nobody scrapes a simulation."""


class SimNode:
    """One machine.  `start`, `stop`, `crash`, `start` again: the disk is what stays."""

    def __init__(self, loop: NodeLoop, network: SimNetwork, name: str, properties: Mapping[str, str]) -> None:
        self.name = name
        self.clock = SimClock(loop)
        self.file_system = SwitchedFileSystem(self.clock.now_ms)
        self.file_system.on_cut = self.crash
        self.disk = SimDiskExecutor(loop)
        self.host = network.host(name)
        self.node: Node | None = None
        self.crashes = 0
        self._loop = loop
        self._context: contextvars.Context | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._past: list[Node] = []  # kept, for the same reason as frozen tasks
        self._config = BrokerConfig.from_properties(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": f"PLAINTEXT://{name}:{BROKER_PORT},CONTROLLER://{name}:9093",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"1@{name}:9093",
                "log.dirs": str(LOG_DIRECTORY),
                **properties,
            }
        )

    @property
    def is_running(self) -> bool:
        return self.node is not None and self.node.is_ready

    @property
    def is_on(self) -> bool:
        return self._context is not None

    @property
    def processes(self) -> list[Node]:
        """All there ever were; the last one may be running."""
        return self._past if self.node is None else [*self._past, self.node]

    async def start(self) -> None:
        """Switch on and wait until clients are served.  Crashed when the power is cut before."""
        assert self._context is None, f"{self.name} is on"
        self.file_system.is_on = True
        self._context = self._loop.new_incarnation()
        self.node = _HeadlessNode(
            self._config,
            chance=self.chance(),
            clock=self.clock,
            file_system=self.file_system,
            disk=self.disk,
            network=self.host,
        )
        await self._run(self.node.start())

    async def stop(self) -> None:
        """A clean stop; the machine is off afterwards."""
        assert self.node is not None
        await self._run(self.node.stop())
        self._switch_off()

    def crash(self) -> None:
        """Cut the power now."""
        self.crashes += 1
        self._switch_off()
        self.file_system.cut(self.chance())

    def kill(self) -> None:
        """End the process now (kill -9): the machine stays on, and keeps what was written."""
        self._switch_off()
        self.file_system.is_on, self.file_system.cut_after = True, None
        self.file_system.kill()

    def give_up(self) -> None:
        """The start has failed, and what it had begun is undone: the process ends."""
        self._switch_off()
        self.file_system.is_on = True
        self.file_system.kill()

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it as this node, which must be on: what it schedules dies with the node."""
        assert self._context is not None, f"{self.name} is off"
        return self._context.run(function, *args, **kwargs)

    def empty_disk(self) -> None:
        """The machine, which is off, gets another disk."""
        assert self._context is None, f"{self.name} is on"
        self.file_system.erase()

    def chance(self) -> Chance:
        """A source of its own, from the seed of the run."""
        return Chance(self._loop.random.getrandbits(64))

    def crash_after(self, operations: int, *, before: tuple[str, str] | None = None) -> None:
        """Cut the power before the disk's operation after so many more: `("sync", ".log")` counts only those."""
        self.file_system.cut_after, self.file_system.cut_before = operations, before

    def _switch_off(self) -> None:
        context, node = self._context, self.node
        assert context is not None and node is not None, f"{self.name} is off"
        self._past.append(node)
        self._context = self.node = None
        self._loop.freeze(context)
        self.file_system.is_on = False
        self.host.die()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Crashed(self.name))

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it as this node, and wait for it as whoever asks."""
        self._waiting = done = self._loop.create_future()

        async def work_and_tell() -> None:
            try:
                await work
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(None)

        task = self._loop.create_task(work_and_tell(), name=f"{self.name}:life", context=self._context)
        try:
            await done
        finally:
            self._waiting = None
            del task
