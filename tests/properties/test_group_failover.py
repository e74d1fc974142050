"""Groups whose coordinator moves: brokers die, are cut off, come back, and are elected before they know everything.

Whatever happens: one generation has one assignment, no acknowledged offset is lost or goes back, a coordinator of the
past acknowledges nothing, and once the faults end every consumer is a member of one stable group.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import structlog

from broker.common.errors import ErrorCode
from broker.coordinator.group.group_messages import JoinGroupResult
from tests.support.group_cluster import NOBODY, ClusterClient, DisconnectedError, GroupCluster
from tests.support.group_world import GROUP, TOPIC
from tests.support.sim_loop import SimLoop, simulate

T = TypeVar("T")

CLIENTS = 4
FAULTS_UNTIL = 200.0
CALM_SECONDS = 120.0  # sessions, rebalances and back-off of everybody, several times
SNAPSHOT_BYTES = 20_000  # so that a coordinator writes its state anew, and deletes what is before, many times
FORGETS = frozenset({ErrorCode.not_coordinator, ErrorCode.coordinator_not_available})
LOSES_ID = frozenset({ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id})
ENDS_STAY = LOSES_ID | {ErrorCode.illegal_generation, ErrorCode.rebalance_in_progress}


class Story:
    def __init__(self, loop: SimLoop, cluster: GroupCluster) -> None:
        self.loop = loop
        self.cluster = cluster
        self.is_over = False
        self.assignments: dict[int, bytes] = {}
        self.acknowledged: dict[int, int] = {}
        self.counts = dict.fromkeys(
            ("assigned", "committed", "refused", "kept", "checked", "kills", "cuts", "moves"), 0
        )


class Consumer(ClusterClient):
    def __init__(self, story: Story, index: int) -> None:
        super().__init__(story.cluster)
        self.story = story
        self.index = index
        self.instance_id = f"i{index}" if index % 2 else None
        self.member_id = ""
        self.joined = JoinGroupResult()
        self.committed = 0
        self.is_stable = False

    async def run(self) -> None:
        while not self.story.is_over:
            self.is_stable = False
            try:
                if await self.join_and_sync():
                    self.is_stable = True
                    await self.stay()
            except DisconnectedError:
                pass
            await asyncio.sleep(self.story.loop.random.uniform(0.05, 0.3))

    async def answered(self, request: Callable[[], Awaitable[T]], error: Callable[[T], ErrorCode]) -> T:
        answer = await self.ask(request)
        if error(answer) in FORGETS:
            self.coordinator = None
        if error(answer) in LOSES_ID:
            self.member_id = ""
        return answer

    async def join_and_sync(self) -> bool:
        joined = await self.answered(
            lambda: self.join(
                self.member_id, group_instance_id=self.instance_id, rebalance_timeout_ms=20_000, version=5 + self.index
            ),
            lambda answer: answer.error,
        )
        if joined.error in (ErrorCode.none, ErrorCode.member_id_required):
            self.member_id = joined.member_id
        if joined.error is not ErrorCode.none:
            return False
        self.joined = joined
        nonce = f"{joined.generation}/{self.index}/{self.story.loop.random.random()}".encode()
        assignments = {} if joined.skip_assignment else {member.member_id: nonce for member in joined.members}
        synced = await self.answered(
            lambda: self.sync(joined, group_instance_id=self.instance_id, assignments=assignments),
            lambda answer: answer.error,
        )
        if synced.error is not ErrorCode.none:
            return False
        known = self.story.assignments.setdefault(joined.generation, synced.assignment)
        assert known == synced.assignment, f"generation {joined.generation}: {known!r} and {synced.assignment!r}"
        self.story.counts["assigned"] += 1
        return True

    async def stay(self) -> None:
        """Heartbeats and commits; a coordinator that moves is looked for, and the generation goes on."""
        while not self.story.is_over:
            await asyncio.sleep(self.story.loop.random.uniform(0.3, 2))
            try:
                await self.commit_next()
                error = await self.answered(
                    lambda: self.heartbeat(self.joined, group_instance_id=self.instance_id), lambda answer: answer
                )
            except DisconnectedError:
                continue
            if error in ENDS_STAY:
                return
            self.story.counts["kept"] += error is ErrorCode.none

    async def commit_next(self) -> None:
        self.committed += 1
        error = await self.answered(
            lambda: self.commit_code(
                self.committed, self.joined, group_instance_id=self.instance_id, partition=self.index
            ),
            lambda answer: answer,
        )
        if error is ErrorCode.none:
            self.story.acknowledged[self.index] = self.committed
        self.story.counts["committed" if error is ErrorCode.none else "refused"] += 1


async def check_offsets(story: Story) -> None:
    """What the coordinator of now answers; one of the past may, as Kafka's, answer with what it has."""
    cluster = story.cluster
    leader, epoch = cluster.leader, cluster.epoch
    if leader == NOBODY or not cluster.brokers[leader].is_up or cluster.brokers[leader].heard != (leader, epoch):
        return
    asker = ClusterClient(cluster)
    asker.coordinator = cluster.brokers[leader]
    before = dict(story.acknowledged)
    stable = story.loop.random.random() < 0.3
    try:
        fetched = await asker.ask(lambda: asker.fetch({TOPIC: tuple(range(CLIENTS))}, require_stable=stable))
    except DisconnectedError:
        return
    if fetched.error is ErrorCode.none:
        story.counts["checked"] += 1
        for offset in fetched.topics[TOPIC]:
            acknowledged = before.get(offset.partition, -1)
            assert offset.offset >= acknowledged, f"{offset} of broker {leader} in epoch {epoch} lost {acknowledged}"


async def keep_checking(story: Story) -> None:
    while not story.is_over:
        await asyncio.sleep(story.loop.random.uniform(0.005, 0.1))
        await check_offsets(story)


async def make_faults(story: Story) -> None:
    random, cluster = story.loop.random, story.cluster
    while story.loop.time() < FAULTS_UNTIL:
        await asyncio.sleep(random.uniform(0.1, 8))
        broker = random.choice(list(cluster.brokers.values()))
        kind = random.randrange(3)
        if kind == 0:
            story.counts["moves"] += 1
            cluster.elect()
        elif kind == 1:
            story.counts["kills"] += 1
            await broker.kill()
            await asyncio.sleep(random.uniform(0.5, 3))
            cluster.fence(broker.id)
            await asyncio.sleep(random.uniform(0, 12))
            await broker.start()
        else:
            story.counts["cuts"] += 1
            broker.is_cut = True
            await asyncio.sleep(random.uniform(0, 4))
            if random.random() < 0.7:
                cluster.fence(broker.id)
                await asyncio.sleep(random.uniform(0, 15))
            broker.is_cut = False
        if cluster.leader == NOBODY:
            cluster.elect()


@pytest.mark.parametrize("seed", range(8))
def test_groups_survive_coordinators_that_move(seed: int) -> None:
    async def main(loop: SimLoop) -> None:
        settings = {"group.initial.rebalance.delay.ms": "500", "offsets.topic.num.partitions": "1"}
        cluster = await GroupCluster(loop, settings, log_bytes_max=SNAPSHOT_BYTES).start()
        story = Story(loop, cluster)
        consumers = [Consumer(story, index) for index in range(CLIENTS)]
        tasks = [asyncio.create_task(each.run(), name=f"consumer-{each.index}") for each in consumers]
        tasks.append(asyncio.create_task(keep_checking(story)))
        await make_faults(story)
        await asyncio.sleep(CALM_SECONDS)
        failed = [task.exception() for task in tasks if task.done()]
        assert failed == []
        assert all(each.is_stable for each in consumers)
        assert len({each.joined.generation for each in consumers}) == 1
        leader = cluster.brokers[cluster.leader]
        (described,) = leader.groups.describe_groups([GROUP], 5)
        assert (described.state, len(described.members)) == ("Stable", CLIENTS)
        assert min(story.counts.values()) > 0, story.counts
        assert min(broker.log.log_start_offset for broker in cluster.brokers.values()) > 0
        story.is_over = True
        await asyncio.sleep(30)
        failed = [task.exception() for task in tasks]
        assert failed == [None] * len(tasks)
        await cluster.stop()

    with structlog.testing.capture_logs() as logs:
        simulate(main, seed=seed)
    assert [entry for entry in logs if entry["log_level"] == "error"] == []
