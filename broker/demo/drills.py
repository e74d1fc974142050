"""Drills: breaks buckets, brokers and zones of the demonstration, and heals them again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from broker.common.tasks import BackgroundTasks
from broker.demo.http_client import HttpAnswer
from broker.demo.layout import DemoError, DemoNode, Layout
from broker.demo.target import PlannedBreak, Target, TargetKind

HttpPost = Callable[[int, str, Any], Awaitable[HttpAnswer]]

# As S3 Express One Zone and S3 answer: a directory is faster than any bucket.
FAST: Final = {"latency": "s3-express"}
STANDARD: Final = {"latency": "s3-standard"}
GONE: Final = {"down": "black_hole"}
_OK: Final = 200


class DrilledCluster(Protocol):
    """`Cluster`."""

    def start_node(self, node: DemoNode) -> None: ...
    def kill_node(self, node: DemoNode) -> None: ...
    def is_wanted(self, node: DemoNode) -> bool: ...
    async def wait_until_serving(self, node: DemoNode, path: str) -> None: ...


class Drills:
    """What is broken is remembered here, and a broker that starts again is told of it."""

    def __init__(
        self,
        layout: Layout,
        cluster: DrilledCluster,
        tasks: BackgroundTasks,
        *,
        tell: Callable[[str], None],
        post: HttpPost,
    ) -> None:
        self._layout = layout
        self._cluster = cluster
        self._tasks = tasks
        self._tell = tell
        self._post = post
        self._broken: dict[Target, None] = {}

    @property
    def broken(self) -> Sequence[Target]:
        return list(self._broken)

    def press(self, key: str) -> bool:
        """Break what the key is for, or heal it; False when it is for nothing."""
        target = next((each for each in self._layout.targets() if each.key == key), None)
        if target is not None:
            self.toggle(target)
        return target is not None

    def toggle(self, target: Target) -> None:
        if self.is_broken(target):
            self.heal(target)
        else:
            self.break_(target)

    def plan(self, planned: PlannedBreak) -> None:
        self._tasks.start(f"break:{planned.target}", self._run(planned))

    def is_broken(self, target: Target) -> bool:
        """A broker that ended by itself is broken as well: its key starts it again."""
        if target.kind is TargetKind.BROKER and not self._cluster.is_wanted(self._layout.node(int(target.name))):
            return True
        return target in self._broken

    def break_(self, target: Target) -> None:
        if target in self._broken:
            return
        self._broken[target] = None
        for node in self._brokers_of(target):
            self._cluster.kill_node(node)
        self._tell(f"{target} is broken{_how(target.kind)}; key {target.key} heals it")
        self._order()

    def heal(self, target: Target) -> None:
        self._broken.pop(target, None)
        self._tell(f"{target} is healed")
        for node in self._brokers_of(target):
            if not self._cluster.is_wanted(node) and not self._is_held_down(node):
                self._tasks.start(f"restart:{node.node_id}", self._restart(node))
        self._order()

    async def order(self, node: DemoNode) -> None:
        """Give one broker the faults of its buckets, as they are meant to be now."""
        for bucket, wanted in self.orders_for(node):
            try:
                answer = await self._post(node.metrics_port, "/faults", {**wanted, "bucket": bucket})
            except OSError as error:
                if self._cluster.is_wanted(node):
                    self._tell(f"broker {node.node_id} was not told of its buckets' faults: {error}")
                return
            if answer.status != _OK:
                self._tell(f"broker {node.node_id} takes no faults: {answer.body.decode(errors='replace').strip()}")

    def orders_for(self, node: DemoNode) -> list[tuple[str, dict[str, str]]]:
        """By the bucket's name.  A bucket of S3 that zones share is gone for the brokers of a broken zone alone."""
        orders = []
        for zone, bucket in self._layout.fast_buckets.items():
            if bucket.is_directory:
                orders.append((bucket.name, GONE if self._is_bucket_gone(zone) else FAST))
            elif zone == node.zone:
                orders.append((bucket.name, GONE if self._is_bucket_gone(zone) else {}))
        if self._layout.standard_bucket.is_directory:
            orders.append((self._layout.standard_bucket.name, STANDARD))
        return orders

    async def _run(self, planned: PlannedBreak) -> None:
        await asyncio.sleep(planned.after_seconds)
        self.break_(planned.target)
        if planned.heal_after_seconds is not None:
            await asyncio.sleep(planned.heal_after_seconds)
            self.heal(planned.target)

    async def _restart(self, node: DemoNode) -> None:
        try:
            self._cluster.start_node(node)
            await self._cluster.wait_until_serving(node, "/healthz")
        except DemoError as error:
            if self._cluster.is_wanted(node):  # else it was broken again meanwhile
                self._tell(str(error))
            return
        await self.order(node)

    def _order(self) -> None:
        for node in self._layout.nodes:
            if self._cluster.is_wanted(node):
                self._tasks.start(f"order:{node.node_id}", self.order(node))

    def _brokers_of(self, target: Target) -> list[DemoNode]:
        if target.kind is TargetKind.BROKER:
            return [self._layout.node(int(target.name))]
        return self._layout.nodes_of_zone(target.name) if target.kind is TargetKind.ZONE else []

    def _is_held_down(self, node: DemoNode) -> bool:
        return any(node in self._brokers_of(target) for target in self._broken)

    def _is_bucket_gone(self, zone: str) -> bool:
        return any((kind, zone) in self._broken for kind in (TargetKind.BUCKET, TargetKind.ZONE))


def _how(kind: TargetKind) -> str:
    if kind is TargetKind.BUCKET:
        return " (its requests are not answered)"
    return " (kill -9)" if kind is TargetKind.BROKER else " (kill -9, and its bucket is gone)"
