"""The demonstration: a cluster is started, loaded, shown, broken and healed, until somebody ends it."""

import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import uvloop
from rich.console import Console

from broker.common.clock import Clock, SystemClock
from broker.common.tasks import BackgroundTasks
from broker.demo.advice import advice
from broker.demo.cluster import Cluster
from broker.demo.display import display_for
from broker.demo.drills import Drills
from broker.demo.events import Events, LogTail
from broker.demo.figures import METRICS, figures_of
from broker.demo.http_client import http_get, http_post
from broker.demo.keys import key_presses
from broker.demo.latencies import Latencies
from broker.demo.layout import CLASSIC_TOPIC, HOST, WAL_TOPIC, DemoNode, Layout
from broker.demo.load import Pace, TopicLoad
from broker.demo.reader import Reader
from broker.demo.status import Status, TopicLatency
from broker.demo.target import PlannedBreak
from broker.demo.topic_routes import TopicRoutes
from broker.demo.watch import ClusterWatch, View
from broker.server.runtime_tuning import process_age_seconds

LOOK_SECONDS: Final = 1.0
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TOPIC_NAMES: Final = (WAL_TOPIC, CLASSIC_TOPIC)


@dataclass(frozen=True)
class DemoOptions:
    layout: Layout
    megabytes_per_second: float | None = None  # of each topic; None: no load
    breaks: Sequence[PlannedBreak] = ()


def run(options: DemoOptions, *, tell: Callable[[str], None]) -> int:
    """Until a signal, or the key for it, ends it; returns the exit code.

    DemoError when it could not be started.  No process is left behind.
    """
    return uvloop.run(_run(options, tell))


async def _run(options: DemoOptions, tell: Callable[[str], None]) -> int:
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_failure(_name: str, error: BaseException) -> None:
        if not ended.done():
            ended.set_exception(error)

    async with BackgroundTasks("demo", on_failure) as tasks:
        demonstration = Demonstration(options, tasks, tell=tell, end=lambda: _end(ended))
        _stop_on_signals(ended, demonstration.cluster)
        try:
            tasks.start("run", demonstration.run())
            await ended
        except OSError as error:
            if not _is_nobody_there(error):
                raise
        finally:
            await tasks.cancel_all()
            await demonstration.stop()
    return 0


def _is_nobody_there(error: OSError) -> bool:
    """Whether it comes of a reader, or a terminal, that has gone."""
    return isinstance(error, BrokenPipeError) or error.errno == errno.EIO


def _end(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)


def _stop_on_signals(ended: "asyncio.Future[None]", cluster: Cluster) -> None:
    """The second one ends everything at once; a terminal that hangs up says so twice, and is in no hurry."""

    def on_signal(number: signal.Signals) -> None:
        if not ended.done():
            ended.set_result(None)
        elif number is not signal.SIGHUP:
            cluster.kill()
            os._exit(128 + number)

    for number in STOP_SIGNALS:
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)


class Demonstration:
    """`tell` says a line to the user; `end` ends it all."""

    def __init__(
        self,
        options: DemoOptions,
        tasks: BackgroundTasks,
        *,
        tell: Callable[[str], None],
        end: Callable[[], None],
    ) -> None:
        self._options = options
        self._layout = options.layout
        self._tasks = tasks
        self._tell = tell
        self._end = end
        self._clock: Clock = SystemClock()
        self._events = Events(self._clock)
        self.cluster = Cluster(self._layout, get=http_get, on_ended=self._on_ended)
        self._drills = Drills(self._layout, self.cluster, tasks, tell=self._events.tell, post=http_post)
        self._watch = ClusterWatch(self._layout.nodes, METRICS, http_get)
        self._pace = None if options.megabytes_per_second is None else Pace(options.megabytes_per_second)
        self._read = {topic: Latencies() for topic in TOPIC_NAMES}
        self._acknowledged = {topic: Latencies() for topic in TOPIC_NAMES}
        self._routes: list[TopicRoutes] = []

    async def run(self) -> None:
        """Until cancelled; DemoError when it cannot be started."""
        is_reused = self._layout.prepare()
        for node in self._layout.nodes:
            self._layout.log_file_of(node).unlink(missing_ok=True)
        tails = [LogTail(node, self._layout.log_file_of(node)) for node in self._layout.nodes]
        earlier = ", with what an earlier start left" if is_reused else ""
        self._tell(f"Starting {len(self._layout.nodes)} brokers in {self._layout.data}{earlier} ...")
        self.cluster.start()
        await self._become_ready()
        ready_seconds = process_age_seconds()
        self._say_ready(ready_seconds)
        self._start_load()
        for planned in self._options.breaks:
            self._drills.plan(planned)
        await self._show(ready_seconds, tails)

    async def stop(self) -> None:
        """Nothing runs afterwards."""
        for routes in self._routes:
            await routes.close()
        for node in await self.cluster.stop():
            self._say_last(f"broker {node.node_id} did not stop in time and was killed")
        self._say_last(f"All brokers have stopped. Their state is in {self._layout.data}, for the next start.")

    async def _become_ready(self) -> None:
        await asyncio.gather(*(self._serve(node) for node in self._layout.nodes))
        routes = self._new_routes()
        await routes.create(self._layout.topics(), self._layout.replication_factor)
        await routes.wait_until_whole(TOPIC_NAMES)

    async def _serve(self, node: DemoNode) -> None:
        """The buckets have the times of real ones from the beginning."""
        await self.cluster.wait_until_serving(node, "/healthz")
        await self._drills.order(node)
        await self.cluster.wait_until_serving(node, "/readyz")

    def _say_ready(self, seconds: float) -> None:
        self._tell(f"Ready after {seconds:.2f} s.")
        for node in self._layout.nodes:
            role = "broker and controller" if node.has_controller else "broker"
            self._tell(
                f"  {role} {node.node_id} in {node.rack}: {HOST}:{node.port}, "
                f"http://{HOST}:{node.metrics_port}/, log {self._layout.log_file_of(node)}"
            )
        for line in advice(self._layout, sys.orig_argv):
            self._tell(line)

    def _start_load(self) -> None:
        if self._pace is None:
            return
        for topic in TOPIC_NAMES:
            load = TopicLoad(
                topic,
                self._new_routes(),
                self._pace,
                self._acknowledged[topic],
                self._clock,
                start=self._tasks.start,
            )
            reader = Reader(topic, self._new_routes(), self._read[topic], self._clock, start=self._tasks.start)
            self._tasks.start(f"load:{topic}", load.run())
            self._tasks.start(f"reader:{topic}", reader.run())

    async def _show(self, ready_seconds: float, tails: Sequence[LogTail]) -> None:
        loop = asyncio.get_running_loop()
        began = due = loop.time()
        console = Console()
        with display_for(console, self._layout, self._tell) as display, key_presses(sys.stdin, self._press):
            while True:
                self.cluster.note_ended()
                for tail in tails:
                    tail.read_into(self._events)
                view = await self._watch.look()
                display.show(self._status(view, ready_seconds, loop.time() - began))
                due = max(due + LOOK_SECONDS, loop.time())
                await asyncio.sleep(due - loop.time())

    def _status(self, view: View, ready_seconds: float, up_seconds: float) -> Status:
        return Status(
            ready_seconds=ready_seconds,
            up_seconds=up_seconds,
            megabytes_per_second=None if self._pace is None else self._pace.megabytes_per_second,
            figures=figures_of(view, self._layout.nodes, self.cluster.running),
            wal_latency=self._latency(WAL_TOPIC),
            classic_latency=self._latency(CLASSIC_TOPIC),
            broken=self._drills.broken,
            events=self._events.last(100),
            fresh_events=self._events.fresh(),
        )

    def _latency(self, topic: str) -> TopicLatency:
        return TopicLatency(
            *self._acknowledged[topic].percentiles_ms(0.5, 0.99), *self._read[topic].percentiles_ms(0.5, 0.99)
        )

    def _press(self, key: str) -> None:
        if key == "q":
            self._end()
        elif key == "+" and self._pace is not None:
            self._pace.double()
            self._events.tell(f"load is {self._pace.megabytes_per_second:g} MB/s to each topic")
        elif key == "-" and self._pace is not None:
            self._pace.halve()
            self._events.tell(f"load is {self._pace.megabytes_per_second:g} MB/s to each topic")
        else:
            self._drills.press(key)

    def _new_routes(self) -> TopicRoutes:
        routes = TopicRoutes(self._layout.nodes)
        self._routes.append(routes)
        return routes

    def _on_ended(self, node: DemoNode, code: int) -> None:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        self._events.tell(f"broker {node.node_id} ended by itself with {how}; key {node.node_id} starts it again")

    def _say_last(self, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            self._tell(text)
