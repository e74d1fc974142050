"""Broker 1 follows broker 2, whose answers the test writes."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.replication.fetch_params import EpochEndOffset
from broker.replication.fetcher_stats import FetcherStats
from broker.replication.follower_replica import FollowerReplica
from broker.replication.leader_endpoint import FetchedPartition, FollowerFetch
from broker.replication.leader_local_start import LeaderLocalStart
from broker.replication.partition_fetch_state import PartitionFetchState
from broker.replication.replica_fetcher import ReplicaFetcher
from broker.replication.replication_throttle import ReplicationThrottle
from tests.support.builders import ReplicaWorld, batch
from tests.support.scripted_remote_log import ScriptedRemoteLog

T = TopicPartition("t", 0)
Found = TypeVar("Found")


def records(offset: int, *values: str, epoch: int = 0) -> bytes:
    """One batch as the leader sends it."""
    return bytes(batch(*values, base_offset=offset, partition_leader_epoch=epoch))


class FakeLeader:
    """A `LeaderEndPoint` that answers what a test has prepared, and waits while there is nothing."""

    def __init__(self) -> None:
        self.asked: list[Mapping[TopicPartition, FollowerFetch]] = []
        self.waits_ms: list[int] = []
        self.listed: list[tuple[str, TopicPartition, int]] = []
        self.latest: int | Exception = 0
        self.earliest: int | Exception = 0
        self.earliest_local: LeaderLocalStart | Exception = LeaderLocalStart(0, 0)
        self.epoch_ends: dict[int, EpochEndOffset | Exception] = {}
        self.begun_anew = 0
        self.closed = 0
        self.cancelled = 0
        self._answers: asyncio.Queue[Mapping[TopicPartition, FetchedPartition] | Exception] = asyncio.Queue()

    def answer(self, answers: Mapping[TopicPartition, FetchedPartition] | Exception) -> None:
        self._answers.put_nowait(answers)

    def answer_one(self, **fields: Any) -> None:
        """For t-0."""
        self.answer({T: FetchedPartition(**{"high_watermark": 0, "log_start_offset": 0, **fields})})

    async def fetch(
        self, requests: Mapping[TopicPartition, FollowerFetch], *, max_wait_ms: int
    ) -> Mapping[TopicPartition, FetchedPartition]:
        self.asked.append(dict(requests))
        self.waits_ms.append(max_wait_ms)
        try:
            answer = await self._answers.get()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    def begin_anew(self) -> None:
        self.begun_anew += 1

    async def latest_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        return self._listed("latest", topic_partition, leader_epoch, self.latest)

    async def earliest_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        return self._listed("earliest", topic_partition, leader_epoch, self.earliest)

    async def earliest_local_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> LeaderLocalStart:
        return self._listed("earliest_local", topic_partition, leader_epoch, self.earliest_local)

    async def epoch_end_offset(self, topic_partition: TopicPartition, epoch: int, leader_epoch: int) -> EpochEndOffset:
        return self._listed(f"end of {epoch}", topic_partition, leader_epoch, self.epoch_ends[epoch])

    def _listed(self, which: str, topic_partition: TopicPartition, epoch: int, found: Found | Exception) -> Found:
        self.listed.append((which, topic_partition, epoch))
        if isinstance(found, Exception):
            raise found
        return found

    async def close(self) -> None:
        self.closed += 1


class FollowerWorld(ReplicaWorld):
    """A partition t-0 that follows broker 2 in epoch 0, with what was appended as a follower."""

    def __init__(
        self, directory: Path, properties: dict[str, str] | None = None, configs: dict[str, str] | None = None
    ) -> None:
        super().__init__(directory, properties)
        self.register_brokers(1, 2)
        self.create_topic(replicas=(2, 1), leader=2, configs=configs)

    def replica(self) -> FollowerReplica:
        partition = self.partition()
        return FollowerReplica(partition, partition.leader_epoch)

    def state(self) -> PartitionFetchState:
        return PartitionFetchState(self.replica())


class FetcherWorld(FollowerWorld):
    """And a fetcher, whose rounds the test makes: needs a running loop."""

    kind: ClassVar[type[ReplicaFetcher]] = ReplicaFetcher

    def __init__(
        self, directory: Path, properties: dict[str, str] | None = None, configs: dict[str, str] | None = None
    ) -> None:
        super().__init__(directory, properties, configs)
        self.leader = FakeLeader()
        self.remote_log = ScriptedRemoteLog()
        self.failed: list[tuple[TopicPartition, Exception]] = []
        self.stats = FetcherStats()
        self.throttle = ReplicationThrottle(
            1,
            self.config,
            lambda: int(asyncio.get_running_loop().time() * 1000),
            lambda current: current.follower_replication_throttled_rate,
        )
        self.fetcher = self.kind(
            "ReplicaFetcherThread-0-2",
            2,
            self.leader,
            self.config,
            self.stats,
            self.throttle,
            self._on_failed,
            self.remote_log,
        )

    def _on_failed(self, state: PartitionFetchState, error: Exception) -> None:
        self.failed.append((state.topic_partition, error))

    def follow(self) -> PartitionFetchState:
        state = self.state()
        self.fetcher.add(state)
        return state

    async def round(self, **fields: Any) -> None:
        """One round with this answer for t-0."""
        self.leader.answer_one(**fields)
        await self.fetcher.work_once()


__all__ = ["ErrorCode", "FakeLeader", "FetcherWorld", "FollowerWorld", "T", "records"]
