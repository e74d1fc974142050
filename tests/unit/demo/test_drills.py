import asyncio
from pathlib import Path

from broker.common.tasks import BackgroundTasks
from broker.demo.cluster import Cluster
from broker.demo.drills import FAST, GONE, STANDARD, Drills
from broker.demo.layout import Layout
from broker.demo.target import PlannedBreak, Target, TargetKind
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.demo.demo_world import FakeHttp, FakeProcesses, layout

BUCKET_A = Target(TargetKind.BUCKET, "a")
BROKER_1 = Target(TargetKind.BROKER, "1")
ZONE_A = Target(TargetKind.ZONE, "a")


class World:
    """Three brokers that run and answer."""

    def __init__(self, shape: Layout | None = None) -> None:
        self.layout = shape or layout()
        self.http, self.processes, self.tasks = FakeHttp(), FakeProcesses(), BackgroundTasks("test")
        self.told: list[str] = []
        self.cluster = Cluster(self.layout, get=self.http.get, on_ended=lambda node, code: None, process=self.processes)
        self.drills = Drills(self.layout, self.cluster, self.tasks, tell=self.told.append, post=self.http.post)
        for node in self.layout.nodes:
            self.cluster.start_node(node)
            for path in ("/healthz", "/faults"):
                self.http.serve(node.metrics_port, path)

    async def done(self) -> None:
        while len(self.tasks):
            await asyncio.sleep(0.1)

    def ordered(self, node_id: int) -> dict[str, dict[str, str]]:
        """The last order to a broker for each bucket, by the directory's name."""
        port = self.layout.node(node_id).metrics_port
        found = {}
        for posted_port, _, order in self.http.posted:
            if posted_port == port:
                rest = {name: value for name, value in order.items() if name != "bucket"}
                found[Path(order["bucket"]).name] = rest
        return found


def test_directories_are_as_fast_as_what_they_stand_for() -> None:
    orders = dict(World().drills.orders_for(layout().node(1)))
    buckets = layout().fast_buckets.values()
    assert orders == {**{bucket.name: FAST for bucket in buckets}, layout().standard_bucket.name: STANDARD}


def test_a_bucket_is_gone_for_all_brokers_and_comes_back() -> None:
    world = World()

    async def story(_: SimLoop) -> None:
        assert world.drills.press("a")
        await world.done()
        for node_id in (1, 2, 3):
            assert world.ordered(node_id) == {"zone-a": GONE, "zone-b": FAST, "zone-c": FAST, "standard": STANDARD}
        assert world.drills.broken == [BUCKET_A]
        assert all(world.cluster.running.values())
        assert world.drills.press("a")
        await world.done()
        assert world.ordered(1)["zone-a"] == FAST
        assert world.drills.broken == []

    simulate(story)
    assert world.told == ["bucket-a is broken (its requests are not answered); key a heals it", "bucket-a is healed"]


def test_a_broker_is_killed_and_started_again_and_learns_what_is_broken() -> None:
    world = World()

    async def story(_: SimLoop) -> None:
        world.drills.press("b")
        world.drills.press("1")
        await world.done()
        assert world.processes.by_id[1].calls == ["start", "kill"]
        assert not world.cluster.running[1]
        world.http.posted.clear()
        world.drills.press("1")
        await world.done()
        assert world.cluster.running[1]
        assert world.ordered(1)["zone-b"] == GONE

    simulate(story)


def test_a_zone_is_its_brokers_and_its_bucket() -> None:
    world = World(layout(brokers=4))

    async def story(_: SimLoop) -> None:
        world.drills.press("A")
        await world.done()
        assert world.cluster.running == {1: False, 2: True, 3: True, 4: False}
        assert world.ordered(2)["zone-a"] == GONE
        assert world.ordered(1) == {}
        world.drills.press("A")
        await world.done()
        assert all(world.cluster.running.values())
        assert world.ordered(2)["zone-a"] == world.ordered(1)["zone-a"] == FAST

    simulate(story)


def test_what_two_have_broken_both_must_heal() -> None:
    world = World()

    async def story(_: SimLoop) -> None:
        for key in "aA1":
            world.drills.press(key)  # the last one heals broker 1, which the zone holds down
        await world.done()
        assert not world.cluster.running[1]
        world.drills.press("A")
        await world.done()
        assert world.cluster.running[1]
        assert world.ordered(2)["zone-a"] == GONE, "the bucket is still broken by itself"

    simulate(story)


def test_the_key_of_a_broker_that_ended_by_itself_starts_it() -> None:
    world = World()

    async def story(_: SimLoop) -> None:
        world.processes.by_id[2].end(1)
        world.cluster.note_ended()
        world.drills.press("2")
        await world.done()
        assert world.cluster.running[2]

    simulate(story)


def test_other_keys_do_nothing() -> None:
    assert not World().drills.press("x")


def test_a_break_may_be_planned() -> None:
    world = World()

    async def story(loop: SimLoop) -> None:
        world.drills.plan(PlannedBreak(ZONE_A, 10, 20))
        world.drills.plan(PlannedBreak(BROKER_1, 40, None))
        seen = []
        for _ in range(5):
            seen.append((round(loop.time()), world.drills.broken))
            await asyncio.sleep(12)
        assert seen == [(0, []), (12, [ZONE_A]), (24, [ZONE_A]), (36, []), (48, [BROKER_1])]

    simulate(story)


def test_a_broker_that_takes_no_orders_is_told_of() -> None:
    world = World()
    world.http.serve(9405, "/faults", 403, b"not here\n")
    del world.http.answers[9406, "/faults"]

    async def story(_: SimLoop) -> None:
        world.drills.press("c")
        await world.done()

    simulate(story)
    assert "broker 2 takes no faults: not here" in world.told
    assert any(text.startswith("broker 3 was not told of its buckets' faults") for text in world.told)


def test_a_broker_that_cannot_be_started_again_is_told_of() -> None:
    world = World()

    async def story(_: SimLoop) -> None:
        world.drills.press("1")
        process = world.processes.by_id[1]
        del world.http.answers[9404, "/healthz"]
        process.start = lambda: process.calls.append("start")  # type: ignore[method-assign]  # and ends at once
        world.drills.press("1")
        await world.done()

    simulate(story)
    assert world.told[-1].startswith("broker 1 ended with -9")


def test_a_bucket_that_zones_share_is_gone_for_one_zone_alone(tmp_path: Path) -> None:
    world = World(Layout(tmp_path, store="s3://wherry"))
    world.drills._broken[BUCKET_A] = None
    assert world.drills.orders_for(world.layout.node(1)) == [("s3://wherry", GONE)]
    assert world.drills.orders_for(world.layout.node(2)) == [("s3://wherry", {})]
