"""ReplicaFetcherManager: which fetcher follows which partition (Kafka's AbstractFetcherManager)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple, TypeAlias

import structlog

from broker.common.errors import FencedLeaderEpochError, KafkaError, StorageFailure
from broker.common.identifiers import TopicPartition, java_string_hash
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.replication.bucket_fetch_state import BucketFetchState
from broker.replication.bucket_follower import MakeBucketFollower
from broker.replication.bucket_replica_fetcher import BucketReplicaFetcher
from broker.replication.fetcher_stats import FetcherStats
from broker.replication.follower_replica import FollowerReplica
from broker.replication.leader_endpoint import LeaderEndPoint
from broker.replication.partition import Partition
from broker.replication.partition_fetch_state import PartitionFetchState
from broker.replication.remote_log import RemoteLog
from broker.replication.replica_fetcher import ReplicaFetcher
from broker.replication.replication_throttle import ReplicationThrottle

log = structlog.get_logger(__name__)

TOLD_AGAIN_SECONDS: Final = 60.0


class LeaderAddress(NamedTuple):
    """Where a leader is reached: another address is another leader to a fetcher."""

    broker_id: int
    host: str
    port: int


class FetcherKey(NamedTuple):
    """Partitions that are followed through a bucket have connections and fetch sessions of their own: the topic that
    announces objects must never wait for them."""

    leader: LeaderAddress
    fetcher_id: int
    is_through_bucket: bool = False

    @property
    def name(self) -> str:
        kind = "BucketReplicaFetcher" if self.is_through_bucket else "ReplicaFetcherThread"
        return f"{kind}-{self.fetcher_id}-{self.leader.broker_id}"


AddressOf: TypeAlias = Callable[[int], LeaderAddress | None]
ConnectToLeader: TypeAlias = Callable[[LeaderAddress, int], LeaderEndPoint]


class Failure(NamedTuple):
    partition: Partition
    is_storage: bool  # the disk may be repaired; for all else only a new epoch helps


def fetcher_id(topic_partition: TopicPartition, fetcher_count: int) -> int:
    """Kafka's AbstractFetcherManager.getFetcherId, with Java's arithmetic."""
    value = (31 * java_string_hash(topic_partition.topic) + topic_partition.partition) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed) % fetcher_count


class ReplicaFetcherManager:
    """The `FollowerFetchers` of a broker.  `address_of` knows where a broker is; None while it is not registered.
    Without `make_bucket_follower` every partition is followed as in Kafka, else those that are kept in a bucket are
    followed through that.  `remote_log` is what a follower begins with that is behind what its leader has on its disk;
    without it such a follower only tries again and again.

    A partition is in one of three places: with a fetcher, failed, or waiting for its leader's registration.
    """

    def __init__(
        self,
        local_broker_id: int,
        config: ConfigHolder[BrokerConfig],
        address_of: AddressOf,
        connect: ConnectToLeader,
        *,
        make_bucket_follower: MakeBucketFollower | None = None,
        remote_log: RemoteLog | None = None,
    ) -> None:
        self._config = config
        self._address_of = address_of
        self._connect = connect
        self._make_bucket_follower = make_bucket_follower
        self._remote_log = remote_log
        self._fetchers: dict[FetcherKey, ReplicaFetcher] = {}
        self._running: dict[FetcherKey, asyncio.Task[None]] = {}
        self._fetcher_of: dict[TopicPartition, ReplicaFetcher] = {}
        self._failed: dict[TopicPartition, Failure] = {}
        self._told_until: dict[TopicPartition, float] = {}  # of failures, by the loop's time
        self._leaderless: dict[TopicPartition, Partition] = {}
        self._fetcher_count = config.current.num_replica_fetchers
        self.throttle = ReplicationThrottle(
            local_broker_id, config, _monotonic_ms, lambda current: current.follower_replication_throttled_rate
        )
        self._tasks = BackgroundTasks("replica-fetchers")
        self.stats: dict[int, FetcherStats] = {}  # by leader; a cluster has so many brokers and no more

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ReplicaFetcherManager"]:
        """Owns the fetchers' tasks."""
        try:
            yield self
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End every fetcher, and wait until none of them can touch a log any more."""
        await self._tasks.cancel_all()

    # What is measured

    @property
    def fetchers(self) -> list[ReplicaFetcher]:
        return list(self._fetchers.values())

    def states(self) -> Iterator[tuple[ReplicaFetcher, PartitionFetchState]]:
        """Every partition that is followed, with who follows it."""
        for fetcher in self.fetchers:
            for state in fetcher:
                yield fetcher, state

    @property
    def max_lag(self) -> int:
        """The most records a partition is behind its leader's high watermark."""
        return max((state.lag or 0 for _, state in self.states()), default=0)

    @property
    def min_fetch_rate(self) -> float:
        """Fetches a second of the slowest fetcher; 0 without any."""
        if not self._fetchers:
            return 0.0
        now = asyncio.get_running_loop().time()
        return min(fetcher.rate.per_second(now) for fetcher in self._fetchers.values())

    @property
    def failed_count(self) -> int:
        return len(self._failed)

    # FollowerFetchers

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Whether through a bucket is decided anew: to switch, follow again.  An answer under way finds nobody."""
        for partition in partitions:
            self._leave_one(partition.topic_partition)
            self._follow_one(partition)

    def leave(self, topic_partitions: Iterable[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            self._leave_one(topic_partition)
            self._told_until.pop(topic_partition, None)

    def on_brokers_changed(self, broker_ids: Iterable[int]) -> None:
        changed = frozenset(broker_ids)
        waiting = [partition for partition in self._leaderless.values() if partition.leader_id in changed]
        moved = [
            state.replica.partition
            for key, fetcher in self._fetchers.items()
            if key.leader.broker_id in changed and self._address_of(key.leader.broker_id) != key.leader
            for state in fetcher
        ]
        self.follow([*waiting, *moved])

    def settle(self) -> None:
        fetcher_count = self._config.current.num_replica_fetchers
        if fetcher_count != self._fetcher_count:
            self._fetcher_count = fetcher_count
            self.follow([state.replica.partition for _, state in self.states()])
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                del self._fetchers[key]
                self._running.pop(key).cancel()
                log.info("fetcher_stopped", fetcher=fetcher.name, leader=fetcher.leader_id)

    def retry_failed(self) -> None:
        again = [failure.partition for failure in self._failed.values() if failure.is_storage]
        self.follow(partition for partition in again if partition.local_log is not None and not partition.is_leader)

    # One partition

    def _leave_one(self, topic_partition: TopicPartition) -> None:
        self._failed.pop(topic_partition, None)
        self._leaderless.pop(topic_partition, None)
        fetcher = self._fetcher_of.pop(topic_partition, None)
        if fetcher is not None:
            fetcher.remove(topic_partition)

    def _follow_one(self, partition: Partition) -> None:
        address = self._address_of(partition.leader_id)
        if address is None:
            self._leaderless[partition.topic_partition] = partition
            return
        try:
            state = self._state_of(partition)
        except KafkaError as error:
            self._fail(partition, error)
            return
        number = fetcher_id(partition.topic_partition, self._fetcher_count)
        fetcher = self._fetcher(FetcherKey(address, number, isinstance(state, BucketFetchState)))
        fetcher.add(state)
        self._fetcher_of[partition.topic_partition] = fetcher

    def _state_of(self, partition: Partition) -> PartitionFetchState:
        """Through a bucket or not: as the settings are at this moment."""
        replica = FollowerReplica(partition, partition.leader_epoch)
        if self._make_bucket_follower is not None and partition.is_through_bucket:
            return BucketFetchState(replica, self._make_bucket_follower)
        return PartitionFetchState(replica)

    def _fetcher(self, key: FetcherKey) -> ReplicaFetcher:
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            leader_id = key.leader.broker_id
            kind = BucketReplicaFetcher if key.is_through_bucket else ReplicaFetcher
            fetcher = self._fetchers[key] = kind(
                key.name,
                leader_id,
                self._connect(key.leader, key.fetcher_id),
                self._config,
                self.stats.setdefault(leader_id, FetcherStats()),
                self.throttle,
                self._on_failed,
                self._remote_log,
            )
            self._running[key] = self._tasks.start(fetcher.name, fetcher.run())
        return fetcher

    def _on_failed(self, state: PartitionFetchState, error: Exception) -> None:
        self._fetcher_of.pop(state.topic_partition, None)
        self._fail(state.replica.partition, error)

    def _fail(self, partition: Partition, error: Exception) -> None:
        self._failed[partition.topic_partition] = Failure(partition, isinstance(error, StorageFailure))
        self._tell(partition.topic_partition, error)

    def _tell(self, topic_partition: TopicPartition, error: Exception) -> None:
        """A full disk is found full again each second: it is told once in a while.  That a leader is past our epoch
        is no fault, the metadata is late."""
        now = asyncio.get_running_loop().time()
        if now < self._told_until.get(topic_partition, 0.0):
            say = log.debug
        else:
            self._told_until[topic_partition] = now + TOLD_AGAIN_SECONDS
            say = log.warning if isinstance(error, FencedLeaderEpochError) else log.error
        say("partition_not_followed", partition=str(topic_partition), error=str(error) or type(error).__name__)


def _monotonic_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
