"""A partition that is followed through the bucket, with a bucket follower that writes down what it is told."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from broker.records.record_batch import RecordBatch, batches
from broker.replication.bucket_fetch_state import BucketFetchState
from broker.replication.bucket_replica_fetcher import BucketReplicaFetcher
from broker.replication.follower_replica import FollowerReplica
from broker.replication.leader_endpoint import FollowerFetch
from broker.replication.replica_fetcher import ReplicaFetcher
from tests.unit.replication.follower_world import FetcherWorld, FollowerWorld, records

THROUGH_BUCKETS = {
    "remote.wal.storage.system.enable": "true",
    "remote.wal.storage.manager.class.name": "LocalWalStorageManager",
    "rwsm.config.bucket": "file:///not/used",
    "broker.rack": "zone-a",
}


class FakeBucketFollower:
    """Tells what it was told: an answer as (fetch offset, leader's log start)."""

    def __init__(self, state: BucketFetchState) -> None:
        self.state = state
        self.told: list[str | tuple[int, int]] = []

    def answered(self, request: FollowerFetch, leader_log_start_offset: int) -> None:
        self.told.append((request.fetch_offset, leader_log_start_offset))

    def truncated(self) -> None:
        self.told.append("truncated")

    def begin_reset(self) -> None:
        self.told.append("begin_reset")

    def end_reset(self) -> None:
        self.told.append("end_reset")

    def stop(self) -> None:
        self.told.append("stop")


def some(offset: int, *values: str, epoch: int = 0) -> Sequence[RecordBatch]:
    """One batch, as it is found in an object."""
    return list(batches(records(offset, *values, epoch=epoch)))


def told(state: BucketFetchState) -> list[str | tuple[int, int]]:
    """What the state's follower was told since this was last asked."""
    follower = state.follower
    assert isinstance(follower, FakeBucketFollower)
    found, follower.told = follower.told, []
    return found


class BucketWorld(FollowerWorld):
    """The log holds one record of epoch 0."""

    def __init__(self, directory: Path, properties: dict[str, str] | None = None) -> None:
        super().__init__(directory, properties)
        self.replica().append(records(0, "a"))
        self.moved: list[BucketFetchState] = []

    def bucket_state(self) -> BucketFetchState:
        state = BucketFetchState(self.replica(), FakeBucketFollower)
        state.tell_moves_to(self.moved.append)
        return state


class BucketFetcherWorld(FetcherWorld):
    """A fetcher for what is followed through the bucket; the log holds one record of epoch 0."""

    kind: ClassVar[type[ReplicaFetcher]] = BucketReplicaFetcher

    def __init__(
        self, directory: Path, properties: dict[str, str] | None = None, configs: dict[str, str] | None = None
    ) -> None:
        super().__init__(directory, properties, configs)
        self.replica().append(records(0, "a"))

    def follow(self, topic: str = "t") -> BucketFetchState:
        partition = self.partition(topic)
        state = BucketFetchState(FollowerReplica(partition, partition.leader_epoch), FakeBucketFollower)
        self.fetcher.add(state)
        return state
