"""A bucket without objects, metadata or lineage: what a leader hands in is there for followers a while later.

It is no model of the bucket.  It moves records past the fetch, so that the fetching half can be told stories: a
follower takes what was handed in by the leader of its own epoch, in order, after the handshake.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from broker.common.errors import NotLeaderOrFollowerError
from broker.log.file_records import read
from broker.records.record_batch import RecordBatch, batches
from broker.replication.bucket_fetch_state import BucketFetchState
from broker.replication.bucket_follower import BucketFollower
from broker.replication.leader_endpoint import FollowerFetch
from broker.replication.leader_wal import LeaderWal
from broker.replication.partition import Partition

LATENCY_S = 0.03


class PlainBucket:
    """`latency` is the time from an append on the leader to the append on a follower, drawn for each."""

    def __init__(self) -> None:
        self.latency: Callable[[], float] = lambda: LATENCY_S
        self.is_down = False
        self.followers: list[PlainBucketFollower] = []  # of all time
        self.slices: dict[int, list[RecordBatch]] = {}  # by the epoch of the leader that handed them in
        self.refused_appends = 0

    def make_follower(self, state: BucketFetchState) -> BucketFollower:
        self.followers.append(PlainBucketFollower(self, state))
        return self.followers[-1]

    def lead(self, partition: Partition) -> "PlainLeaderWal":
        """The partition's records, those of now included, go through the bucket from now on."""
        wal = PlainLeaderWal(self, partition)
        partition.leader_wal = wal
        wal.appended(0)
        return wal

    def hand_in(self, partition: Partition, offset: int) -> int:
        """What is in the log from `offset` on; returns where the rest begins."""
        log = partition.log
        found = self.slices.setdefault(partition.leader_epoch, [])
        while offset < log.log_end_offset:
            file_slice = log.read(offset, 1 << 20, log.log_end_offset, min_one_batch=True).file_slice
            assert file_slice is not None
            found += batches(bytes(read(file_slice)))
            offset = found[-1].next_offset
        for follower in self.followers:
            follower.pump()
        return offset


class PlainLeaderWal(LeaderWal):
    """Hands in each append at once; followers in `falls_back` are served by the leader."""

    def __init__(self, bucket: PlainBucket, partition: Partition) -> None:
        self.falls_back: set[int] = set()
        self.leader_epoch = partition.leader_epoch
        self._bucket = bucket
        self._partition = partition
        self._next_offset = partition.log.log_start_offset

    def appended(self, size_bytes: int) -> None:
        self._next_offset = self._bucket.hand_in(self._partition, self._next_offset)

    def serves_records(self, replica_id: int, fetch_offset: int) -> bool:
        return replica_id in self.falls_back

    def count_fallback(self, replica_id: int, size_bytes: int) -> None: ...
    def log_start_moved(self) -> None: ...


class PlainBucketFollower(BucketFollower):
    """One download at a time.  A careless one appends what it has in hand also when that is void: the fetch state
    withstands it.  A paused one begins no download."""

    def __init__(self, bucket: PlainBucket, state: BucketFetchState) -> None:
        self.state = state
        self.told: list[str | tuple[int, int]] = []
        self.is_careless = False
        self.is_paused = False
        self._bucket = bucket
        self._generation = 0
        self._is_stopped = False
        self._is_getting = False

    def answered(self, request: FollowerFetch, leader_log_start_offset: int) -> None:
        self.told.append((request.fetch_offset, leader_log_start_offset))
        self.pump()

    def truncated(self) -> None:
        self.told.append("truncated")
        self._generation += 1

    def begin_reset(self) -> None:
        self.told.append("begin_reset")
        self._generation += 1

    def end_reset(self) -> None:
        self.told.append("end_reset")

    def stop(self) -> None:
        self.told.append("stop")
        self._is_stopped = True
        self._generation += 1

    def pump(self) -> None:
        """Get what comes next, if it is there."""
        state = self.state
        if self._is_getting or self._is_stopped or self.is_paused or self._bucket.is_down:
            return
        if not state.is_agreed or state.is_resetting:
            return
        found = self._from_here(self._bucket.slices.get(state.leader_epoch, ()))
        if found:
            self._is_getting = True
            asyncio.get_running_loop().call_later(self._bucket.latency(), self._got, found, self._generation)

    def _got(self, found: Sequence[RecordBatch], generation: int) -> None:
        self._is_getting = False
        if self.is_careless or (generation == self._generation and not self._is_stopped):
            left = self._from_here(found)
            end_offset = self.state.fetch_offset
            if left:
                restart_at = left[0].base_offset if left[0].base_offset < end_offset else None
                try:
                    self.state.append(left, restart_at)
                except NotLeaderOrFollowerError:
                    self._bucket.refused_appends += 1
        self.pump()

    def _from_here(self, found: Iterable[RecordBatch]) -> Sequence[RecordBatch]:
        """From the batch at the log end on; an empty log may begin with the batch around it."""
        end_offset = self.state.fetch_offset
        left = [batch for batch in found if batch.next_offset > end_offset]
        if not left or left[0].base_offset > end_offset:
            return ()
        is_whole = left[0].base_offset == end_offset
        local = self.state.replica.partition.local_log
        is_empty = local is not None and local.log_start_offset == end_offset
        return left if is_whole or is_empty else ()
