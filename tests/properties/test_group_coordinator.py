"""Consumers that come, go, stall and restart over a coordinator that fails over, loses its tail and is refused writes.

Whatever happens: one generation has one assignment, no acknowledged offset is lost or goes back, and once the faults
end every consumer is a member of one stable group.
"""

import asyncio

import pytest
import structlog

from broker.common.errors import ErrorCode, NotEnoughReplicasError
from broker.coordinator.group.group_messages import JoinGroupResult, MemberIdentity
from broker.records.record_batch import RecordBatch
from tests.support.group_world import GROUP, TOPIC, GroupWorld, settle
from tests.support.sim_loop import SimLoop, simulate

CLIENTS = 4
FAULTS_UNTIL = 300.0
CALM_SECONDS = 200.0  # rebalance timeouts, session timeouts and back-off of everybody, several times
FATAL = frozenset({ErrorCode.fenced_instance_id, ErrorCode.inconsistent_group_protocol, ErrorCode.invalid_group_id})


class Story:
    def __init__(self, loop: SimLoop, world: GroupWorld) -> None:
        self.loop = loop
        self.world = world
        self.is_calm = False
        self.is_over = False
        self.assignments: dict[int, bytes] = {}
        self.acknowledged: dict[int, int] = {}
        self.counts = {"assigned": 0, "committed": 0, "failovers": 0, "rejoins": 0}

    def chance(self, probability: float) -> bool:
        return not self.is_calm and self.loop.random.random() < probability

    def assigned(self, generation: int, assignment: bytes) -> None:
        """Every member of a generation hears the same assignment, from whichever coordinator."""
        known = self.assignments.setdefault(generation, assignment)
        assert known == assignment, f"generation {generation} was assigned {known!r} and {assignment!r}"
        self.counts["assigned"] += 1


class Client:
    def __init__(self, story: Story, index: int) -> None:
        self.story = story
        self.index = index
        self.instance_id = f"i{index}" if index % 2 else None
        self.joined = JoinGroupResult()
        self.member_id = ""
        self.committed = 0
        self.is_stable = False

    async def run(self) -> None:
        while not self.story.is_over:
            self.is_stable = False
            if await self.join() and await self.sync():
                self.is_stable = True
                await self.stay()
            self.story.counts["rejoins"] += 1
            await asyncio.sleep(0.1)

    async def join(self) -> bool:
        world = self.story.world
        rebalance_ms, version = 20_000, 5 + self.index
        result = await world.join(
            self.member_id,
            group_instance_id=self.instance_id,
            rebalance_timeout_ms=rebalance_ms,
            version=version,
        )
        assert result.error not in FATAL or self.instance_id is not None, result
        if result.error in (ErrorCode.none, ErrorCode.member_id_required):
            self.member_id = result.member_id
        elif result.error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self.member_id = ""
        self.joined = result
        return result.error is ErrorCode.none

    async def sync(self) -> bool:
        story = self.story
        if story.chance(0.1):
            await asyncio.sleep(story.loop.random.uniform(0, 40))
        nonce = f"{self.joined.generation}/{self.index}/{story.loop.random.random()}".encode()
        assignments = {member.member_id: nonce for member in self.joined.members}
        if self.joined.skip_assignment:
            assignments = {}
        result = await story.world.sync(self.joined, group_instance_id=self.instance_id, assignments=assignments)
        if result.error is ErrorCode.none:
            story.assigned(self.joined.generation, result.assignment)
            return True
        if result.error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self.member_id = ""
        return False

    async def stay(self) -> None:
        story, world = self.story, self.story.world
        while not story.is_over:
            await asyncio.sleep(story.loop.random.uniform(0.5, 3))
            if story.chance(0.02):
                await asyncio.sleep(story.loop.random.uniform(5, 30))  # long enough to lose its session, or not
            if story.chance(0.02):
                self.member_id = ""  # the process restarts
                return
            if story.chance(0.02):
                await world.leave(MemberIdentity(self.member_id, self.instance_id))
                self.member_id = ""
                return
            await self.commit()
            error = await world.heartbeat(self.joined, group_instance_id=self.instance_id)
            if error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
                self.member_id = ""
            if error in (
                ErrorCode.unknown_member_id,
                ErrorCode.fenced_instance_id,
                ErrorCode.illegal_generation,
                ErrorCode.rebalance_in_progress,
            ):
                return

    async def commit(self) -> None:
        self.committed += 1
        error = await self.story.world.commit_code(
            self.committed, self.joined, group_instance_id=self.instance_id, partition=self.index
        )
        if error is ErrorCode.none:
            self.story.acknowledged[self.index] = self.committed
            self.story.counts["committed"] += 1


async def check_offsets(story: Story) -> None:
    fetched = await story.world.fetch({TOPIC: tuple(range(CLIENTS))})
    if fetched.error is not ErrorCode.none:
        return
    for offset in fetched.topics[TOPIC]:
        acknowledged = story.acknowledged.get(offset.partition, -1)
        assert offset.offset >= acknowledged, f"{offset} lost {acknowledged}"


async def fail_over(story: Story) -> None:
    """Another broker takes over what is committed; what was not may be lost."""
    log = story.world.log
    if story.chance(0.5):
        log.batches = [each for each in log.batches if RecordBatch.parse(each).next_offset <= log.high_watermark]
    old = story.world.groups
    story.world.groups = story.world._coordinator()
    await old.shutdown()
    log.append_error = None
    await story.world.start()
    log.commits_at_once = True
    log.commit()
    await settle()
    story.counts["failovers"] += 1


async def make_faults(story: Story) -> None:
    random, log = story.loop.random, story.world.log
    while story.loop.time() < FAULTS_UNTIL:
        await asyncio.sleep(random.uniform(0.1, 8))
        await check_offsets(story)
        kind = random.randrange(4)
        if kind == 0:
            log.append_error = NotEnoughReplicasError("too few")
            await asyncio.sleep(random.uniform(0, 3))
            log.append_error = None
        elif kind == 1:
            log.commits_at_once = False
            await asyncio.sleep(random.uniform(0, 7))
            if random.random() < 0.5:
                await fail_over(story)
            log.commits_at_once = True
            log.commit()
        elif kind == 2:
            await fail_over(story)
        await check_offsets(story)


@pytest.mark.parametrize("seed", range(12))
def test_groups_survive_whatever_happens(seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        world = await GroupWorld(loop, {"group.initial.rebalance.delay.ms": "500"}).start()
        story = Story(loop, world)
        clients = [Client(story, index) for index in range(CLIENTS)]
        tasks = [asyncio.create_task(client.run(), name=f"client-{client.index}") for client in clients]
        await make_faults(story)
        story.is_calm = True
        await asyncio.sleep(CALM_SECONDS)
        await check_offsets(story)
        failed = [task.exception() for task in tasks if task.done()]
        assert failed == []
        assert world.describe() == ("Stable", CLIENTS)
        assert all(client.is_stable for client in clients)
        assert len({client.joined.generation for client in clients}) == 1
        await fail_over(story)
        await check_offsets(story)
        assert world.describe() == ("Stable", CLIENTS)
        assert min(story.counts.values()) > 0, story.counts
        story.is_over = True
        assert GROUP in [group.group_id for group in world.groups.list_groups([], [])]

    with structlog.testing.capture_logs() as logs:
        simulate(main, seed=seed)
    assert [entry for entry in logs if entry["log_level"] == "error"] == []
