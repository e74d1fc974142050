"""BucketReplicaFetcher: follows partitions whose records come through the bucket (KIP-1176).

The leader is asked as by any fetcher, and by that it learns how far we are.  Its answers bring high watermark, log
start and divergence, and records only where the bucket fails us (fallback).  What is special: logs move between
question and answer, and each partition waits for a handshake, which an answer may give by not mentioning it.
"""

import asyncio
from collections.abc import Mapping
from typing import ClassVar, Final

from broker.common.buffers import Buffer
from broker.common.errors import CorruptMessageError
from broker.common.identifiers import TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.records.record_batch import batches
from broker.replication.bucket_fetch_state import BucketFetchState
from broker.replication.fetcher_stats import FetcherStats
from broker.replication.leader_endpoint import FetchedPartition, FollowerFetch, LeaderEndPoint
from broker.replication.partition_fetch_state import PartitionFetchState
from broker.replication.remote_log import RemoteLog
from broker.replication.replica_fetcher import OnFailed, ReplicaFetcher
from broker.replication.replication_throttle import ReplicationThrottle
from broker.replication.topic_stats import ReplicationPath

# Between two fetches while nothing is appended: what the leader has no news of it would only say again.  A high
# watermark that moves meanwhile is heard of so much later.
REST_SECONDS: Final = 0.02
# The same when every high watermark is where the log ends here: it cannot move before something is appended.
SETTLED_REST_SECONDS: Final = 0.1
BACKOFF_SECONDS_MIN: Final = 0.02  # the leader refuses at once, and what it has for us it has no reason to hold back


class BucketReplicaFetcher(ReplicaFetcher):
    """Its states are all `BucketFetchState`s."""

    path: ClassVar = ReplicationPath.FALLBACK

    def __init__(
        self,
        name: str,
        leader_id: int,
        leader: LeaderEndPoint,
        config: ConfigHolder[BrokerConfig],
        stats: FetcherStats,
        throttle: ReplicationThrottle,
        on_failed: OnFailed,
        remote_log: RemoteLog | None = None,
    ) -> None:
        super().__init__(name, leader_id, leader, config, stats, throttle, on_failed, remote_log)
        self._had_news: bool | None = None  # the last answer told something; None: there was none
        self._awaiting: dict[BucketFetchState, None] = {}  # the handshake; those that no longer do go with an answer
        self._expecting: dict[PartitionFetchState, None] = {}  # other offsets of the leader; and some that no longer do

    def add(self, state: PartitionFetchState) -> None:
        assert isinstance(state, BucketFetchState), f"{state.topic_partition} is not followed through a bucket"
        super().add(state)
        state.tell_moves_to(self._on_moved)
        self._on_moved(state)

    def remove(self, topic_partition: TopicPartition) -> None:
        state = self._plan.get(topic_partition)
        if state is not None:
            self._expecting.pop(state, None)
        super().remove(topic_partition)

    def _on_moved(self, state: BucketFetchState) -> None:
        """The leader is to know at once; while a fetch is under way, with the next one, which is milliseconds away."""
        self._plan.touch(state)
        self._changed.set()
        self._expecting[state] = None
        if not state.is_agreed:
            self._awaiting[state] = None

    async def work_once(self) -> None:
        """While the leader has nothing new to tell there is nothing to say until something is appended: asking on and
        on would cost both sides more than the records do.  An append then need not wait for a fetch under way."""
        self._had_news = None
        await super().work_once()
        if self._changed.is_set() or self._had_news is None or not (rest_seconds := self._rest_seconds()):
            return
        try:
            async with asyncio.timeout(rest_seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _rest_seconds(self) -> float:
        """How long the leader need not be asked, after an answer."""
        if any(not state.is_resetting for state in self._awaiting):
            return 0.0
        if self._expects_news():
            return 0.0 if self._had_news else REST_SECONDS
        now = self._now()
        due = self._plan.next_due(now)
        return SETTLED_REST_SECONDS if due is None else min(SETTLED_REST_SECONDS, due - now)

    def _expects_news(self) -> bool:
        """Whether the leader may have something to tell before anything is appended here."""
        while self._expecting:
            state = next(iter(self._expecting))
            assert isinstance(state, BucketFetchState)
            if not state.is_settled:
                return True
            del self._expecting[state]
        return False

    async def _take(
        self, asked: Mapping[TopicPartition, FollowerFetch], answers: Mapping[TopicPartition, FetchedPartition]
    ) -> None:
        self._had_news = bool(answers)
        if self._awaiting:
            self._take_unmentioned(asked, answers)
        await super()._take(asked, answers)

    def _take_unmentioned(
        self, asked: Mapping[TopicPartition, FollowerFetch], answers: Mapping[TopicPartition, FetchedPartition]
    ) -> None:
        """A fetch session leaves out what has not changed: for the offset and the epoch asked for there is no error
        and no divergence.  Without that news a partition whose leader began another epoch would never be agreed on,
        never append, and so never give the leader anything new to mention.
        """
        for state in list(self._awaiting):
            if state.is_agreed or not self._plan.holds(state):
                del self._awaiting[state]
                continue
            request = asked.get(state.topic_partition)
            if request is None or state.topic_partition in answers or not state.awaits(request):
                continue
            try:
                # Ours is at least what the leader told last: an answer that was not applied ended the session.
                state.answered(request, state.replica.log.log_start_offset)
            except Exception as error:
                self._handle(state, error)

    def _take_records(self, state: PartitionFetchState, request: FollowerFetch, answer: FetchedPartition) -> None:
        """Appends from the bucket may have overtaken the request: its offsets count all the same, held at our log end,
        and of its records those from the log end on."""
        assert isinstance(state, BucketFetchState)
        state.is_served_by_leader = bool(answer.records)
        end_offset = state.fetch_offset
        if answer.records and request.fetch_offset != end_offset:
            following = _records_from(answer.records, end_offset)
            dropped_bytes = len(answer.records) - len(following)
            state.replica.partition.topic_stats.count_received(self.path, self.leader_id, dropped_bytes)
            answer = answer._replace(records=following)
        super()._take_records(state, request, answer)
        state.leader_high_watermark = answer.high_watermark
        if not state.is_settled:
            self._expecting[state] = None
        if state.fetch_offset != end_offset:
            request = request._replace(fetch_offset=state.fetch_offset)
        state.answered(request, answer.log_start_offset)

    async def _return_into_range(self, state: PartitionFetchState, request: FollowerFetch) -> None:
        was = (state.fetch_offset, state.last_fetched_epoch)
        await super()._return_into_range(state, request)
        if (state.fetch_offset, state.last_fetched_epoch) == was:
            state.delay_briefly(self._now(), self._backoff_seconds)  # the same question would get the same answer

    @property
    def _backoff_seconds(self) -> float:
        return max(super()._backoff_seconds, BACKOFF_SECONDS_MIN)


def _records_from(records: Buffer, offset: int) -> Buffer:
    """The records from `offset` on; none when no batch begins there: they are asked for next, if there are any.

    CorruptMessageError when a batch begins below `offset` and reaches beyond: the logs differ, whatever epochs say.
    """
    position = 0
    for batch in batches(records):
        if batch.base_offset == offset:
            return memoryview(records)[position:]
        if batch.base_offset > offset:
            break
        if batch.last_offset >= offset:
            raise CorruptMessageError(
                f"The leader's batch of offsets {batch.base_offset} to {batch.last_offset} straddles our end {offset}"
            )
        position += batch.size_bytes
    return b""
