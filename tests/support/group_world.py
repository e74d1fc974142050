"""GroupWorld: one group coordinator over logs in memory, and clients to ask it, in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from broker.common.chance import Chance
from broker.common.errors import ErrorCode
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.group.group_coordinator_shard import GroupCoordinatorShard
from broker.coordinator.group.group_messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResult,
    LeaveGroupResult,
    MemberIdentity,
    MemberProtocol,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResult,
    OffsetToCommit,
    SyncGroupRequest,
    SyncGroupResult,
    TopicPartitionError,
)
from broker.coordinator.snapshot_writer import LOG_BYTES_MAX
from broker.metrics.coordinator_metrics import CoordinatorMetrics
from broker.metrics.registry import MetricsRegistry
from tests.support.memory_partition_writer import MemoryLog, MemoryPartitionWriter
from tests.support.sim_loop import SimClock, SimLoop, simulate

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9190",
    "controller.quorum.voters": "1@127.0.0.1:9190",
    "offsets.topic.num.partitions": "1",
}
GROUP = "g"
TOPIC = "t"


def subscription(*topics: str) -> bytes:
    """A ConsumerProtocolSubscription of version 0."""
    encoded = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + encoded + (0xFFFFFFFF).to_bytes(4, "big")


RANGE = (MemberProtocol("range", subscription(TOPIC)),)


def protocols(*names: str, metadata: bytes = b"") -> tuple[MemberProtocol, ...]:
    return tuple(MemberProtocol(name, metadata or subscription(TOPIC)) for name in names)


class GroupRequests:
    """What clients ask of the coordinator in `groups`."""

    groups: GroupCoordinator

    def join(self, member_id: str = "", **changes: Any) -> "asyncio.Task[JoinGroupResult]":
        """Version 9 of a dynamic member, changed by keywords; the task may stay parked."""
        version = changes.pop("version", 9)
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": member_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "requires_known_member_id": version >= 4,
            "supports_skipping_assignment": version >= 9,
        }
        return asyncio.create_task(self.groups.join_group(JoinGroupRequest(**{**fields, **changes})), name="join")

    async def join_known(self, **changes: Any) -> "asyncio.Task[JoinGroupResult]":
        """Both rounds of a dynamic member: the second may stay parked."""
        first = await self.join(**changes)
        assert first.error is ErrorCode.member_id_required, first
        task = self.join(first.member_id, **changes)
        await settle()
        return task

    def sync(self, joined: JoinGroupResult, **changes: Any) -> "asyncio.Task[SyncGroupResult]":
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "generation": joined.generation,
            "member_id": joined.member_id,
            "protocol_type": joined.protocol_type,
            "protocol_name": joined.protocol_name,
        }
        return asyncio.create_task(self.groups.sync_group(SyncGroupRequest(**{**fields, **changes})), name="sync")

    async def heartbeat(self, joined: JoinGroupResult, **changes: Any) -> ErrorCode:
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "generation": joined.generation,
            "member_id": joined.member_id,
        }
        return await self.groups.heartbeat(HeartbeatRequest(**{**fields, **changes}))

    async def leave(self, *members: MemberIdentity | str, group_id: str = GROUP) -> LeaveGroupResult:
        identities = [MemberIdentity(each) if isinstance(each, str) else each for each in members]
        return await self.groups.leave_group(group_id, identities)

    async def commit(
        self, offset: int = 1, joined: JoinGroupResult | None = None, **changes: Any
    ) -> list[TopicPartitionError]:
        """One offset of `t-0`; without a member a simple commit."""
        topic, partition = changes.pop("topic", TOPIC), changes.pop("partition", 0)
        leader_epoch, metadata = changes.pop("leader_epoch", -1), changes.pop("metadata", "")
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "generation": -1 if joined is None else joined.generation,
            "member_id": "" if joined is None else joined.member_id,
            "offsets": (OffsetToCommit(topic, partition, offset, leader_epoch, metadata),),
        }
        return await self.groups.commit_offsets(OffsetCommitRequest(**{**fields, **changes}))

    async def commit_code(self, offset: int = 1, joined: JoinGroupResult | None = None, **changes: Any) -> ErrorCode:
        (result,) = await self.commit(offset, joined, **changes)
        return result.error

    async def fetch(
        self,
        topics: Mapping[str, tuple[int, ...]] | None = None,
        *,
        group_id: str = GROUP,
        require_stable: bool = False,
    ) -> OffsetFetchResult:
        return await self.groups.fetch_offsets(
            OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)
        )

    async def fetch_offset(self, **changes: Any) -> int:
        """The offset of `t-0`."""
        return (await self.fetch({TOPIC: (0,)}, **changes)).topics[TOPIC][0].offset


class GroupWorld(GroupRequests):
    """`start` elects the coordinator for every partition; `restart` brings another one up on the same logs."""

    def __init__(
        self, loop: SimLoop, properties: Mapping[str, str] | None = None, *, log_bytes_max: int = LOG_BYTES_MAX
    ) -> None:
        self.clock = SimClock(loop)
        self.config = ConfigHolder(BrokerConfig({**NODE, **(properties or {})}))
        self.writer = MemoryPartitionWriter()
        self._log_bytes_max = log_bytes_max
        self.seed = 0
        self.epoch = 0
        self.groups = self._coordinator()

    def _coordinator(self) -> GroupCoordinator:
        self.seed += 1
        self.registry = MetricsRegistry()
        metrics = CoordinatorMetrics(self.registry)
        groups = GroupCoordinator(
            self.config, self.clock, Chance(self.seed), self.writer, metrics, log_bytes_max=self._log_bytes_max
        )
        metrics.read_from(groups, lambda topic, partition: 100)
        return groups

    async def start(self) -> "GroupWorld":
        await self.groups.startup()
        self.epoch += 1
        for partition in range(self.groups.partition_count):
            self.groups.on_election(partition, self.epoch)
        await settle()
        return self

    async def restart(self) -> None:
        """As after kill -9: whatever was only in memory is gone."""
        old = self.groups
        self.groups = self._coordinator()
        await self.start()
        await old.shutdown()

    @property
    def log(self) -> MemoryLog:
        return self.writer.log(0)

    @property
    def shard(self) -> GroupCoordinatorShard:
        return self.groups._runtime.shard(0)

    # -- whole stories ------------------------------------------------------------------------------------------------

    async def stable_group(self, count: int = 1, **changes: Any) -> list[JoinGroupResult]:
        """`count` members, assigned and Stable; the leader comes first."""
        joins = [await self.join_known(**changes) for _ in range(count)]
        joined = [await join for join in joins]
        joined.sort(key=lambda result: result.member_id != result.leader_id)
        assignments = {result.member_id: b"assigned" for result in joined}
        syncs = [self.sync(joined[0], assignments=assignments), *(self.sync(result) for result in joined[1:])]
        for sync in syncs:
            assert (await sync).error is ErrorCode.none
        return joined

    async def static_group(self, *instance_ids: str, **changes: Any) -> list[JoinGroupResult]:
        """Static members, assigned and Stable, in the order given; the first one leads."""
        joins = []
        for instance_id in instance_ids:
            joins.append(self.join(group_instance_id=instance_id, **changes))
            await settle()
        joined = [await join for join in joins]
        assignments = {
            result.member_id: instance_id.encode() for result, instance_id in zip(joined, instance_ids, strict=True)
        }
        for result in joined:
            sync = self.sync(result, assignments=assignments if result.member_id == result.leader_id else {})
            await settle()
            assert (await sync).error is ErrorCode.none
        return joined

    def describe(self, group_id: str = GROUP) -> tuple[str, int]:
        """State and number of members."""
        (group,) = self.groups.describe_groups([group_id], 5)
        return group.state, len(group.members)

    @property
    def generation(self) -> int:
        group = self.shard.groups.find(GROUP)
        assert group is not None
        return group.generation


def run_world(
    story: Callable[[GroupWorld], Coroutine[Any, Any, None]], *, log_bytes_max: int = LOG_BYTES_MAX, **settings: str
) -> None:
    """A story about one started world in virtual time; settings with underscores for dots."""

    async def main(loop: SimLoop) -> None:
        properties = {name.replace("_", "."): text for name, text in settings.items()}
        await story(await GroupWorld(loop, properties, log_bytes_max=log_bytes_max).start())

    simulate(main)


async def settle() -> None:
    """Let everything run that can run now, without letting time pass."""
    for _ in range(10):
        await asyncio.sleep(0)


async def after(milliseconds: int) -> None:
    await asyncio.sleep(milliseconds / 1000)
    await settle()
