"""ReplicaFetcher: one task that follows partitions of one leader (Kafka's AbstractFetcherThread, ReplicaFetcherThread).

One fetch is in flight at a time.  Whatever happens meanwhile (another leader, another epoch, a partition that is
deleted) makes the answer for that partition void: see `PartitionFetchState.awaits`.
"""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Final

import structlog

from broker.common.errors import (
    CorruptMessageError,
    ErrorCode,
    FencedLeaderEpochError,
    InvalidRecordError,
    KafkaError,
    NotLeaderOrFollowerError,
    StorageFailure,
)
from broker.common.identifiers import TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.replication.fetch_params import EpochEndOffset
from broker.replication.fetch_plan import FetchPlan
from broker.replication.fetcher_stats import FetcherStats, FetchRate
from broker.replication.leader_endpoint import (
    FetchedPartition,
    FetchSessionError,
    FollowerFetch,
    LeaderEndPoint,
    LeaderUnavailableError,
)
from broker.replication.out_of_range import place_in_range
from broker.replication.partition_fetch_state import PartitionFetchState
from broker.replication.remote_log import RemoteLog
from broker.replication.replication_throttle import ReplicationThrottle
from broker.replication.tier_state import RemoteStateUnavailableError, TierStateMachine
from broker.replication.topic_stats import ReplicationPath
from broker.replication.truncation import common_end_offset

log = structlog.get_logger(__name__)

PATIENCE_SECONDS: Final = 0.05  # an answer that is under way comes sooner; one that is not costs a connection
YIELD_BYTES: Final = 1024 * 1024  # appended without letting others run: what a leader appends at once for a producer

# The leader, or we, have not heard of the latest metadata yet: worth another try, not worth a warning.
_EXPECTED_ERRORS: Final = frozenset(
    {
        ErrorCode.unknown_leader_epoch,
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)

OnFailed = Callable[[PartitionFetchState, Exception], None]


class ReplicaFetcher:
    """For partitions whose records come with the answers; `BucketReplicaFetcher` is for the others.

    `on_failed` is told of a partition that was given up: only new metadata or a repaired disk brings it back."""

    path: ClassVar = ReplicationPath.FETCH  # how records that come with answers are counted

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
        self.name = name
        self.leader_id = leader_id
        self.rate = FetchRate(asyncio.get_running_loop().time())
        self._leader = leader
        self._config = config
        self._stats = stats
        self._throttle = throttle
        self._on_failed = on_failed
        self._plan = FetchPlan(config, throttle, self._handle)
        self._tier_state = TierStateMachine(leader, remote_log, self._on_tier_state)
        self._changed = asyncio.Event()
        self._asking: asyncio.Timeout | None = None
        self._interruptible_from = 0.0
        self.patience_seconds = PATIENCE_SECONDS  # how long a fetch may take before new partitions interrupt it
        self._session_errors = 0  # in a row
        self._is_unavailable = False
        self._log = log.bind(fetcher=name, leader=leader_id)

    # What it follows

    def __len__(self) -> int:
        return len(self._plan)

    def __iter__(self) -> Iterator[PartitionFetchState]:
        return iter(self._plan)

    def add(self, state: PartitionFetchState) -> None:
        """Follow from the next fetch on; a partition that is followed in this epoch already stays as it is."""
        present = self._plan.get(state.topic_partition)
        if present is not None and present.leader_epoch == state.leader_epoch and present.replica.is_valid:
            state.stop()
            return
        if present is not None:
            self.remove(state.topic_partition)
        self._plan.add(state)
        self._hurry()

    def remove(self, topic_partition: TopicPartition) -> None:
        """Stop following at once: an answer under way finds nobody."""
        state = self._plan.get(topic_partition)
        if state is not None:
            self._plan.remove(topic_partition)
            self._tier_state.leave(state)

    def _hurry(self) -> None:
        """There is more to ask for than the fetch under way does."""
        self._changed.set()
        if self._asking is not None and self._asking.when() is None:
            self._asking.reschedule(max(self._now(), self._interruptible_from))

    # The task

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                await self.work_once()
        finally:
            await self._tier_state.stop()
            await self._leader.close()

    async def work_once(self) -> None:
        """One round: truncate what must be, ask for all that is ready, take what comes; or wait for work."""
        self._changed.clear()
        await self._tier_state.ask_leader()
        # One look at the clock tells who is ready and when the others are: a timer may come before its time.
        now = self._now()
        requests = self._plan.requests(now)
        if not requests:
            await self._wait_for_work(now)
            return
        try:
            answers = await self._ask(requests, now)
        except TimeoutError:
            self.patience_seconds *= 2  # partitions that come faster than answers would keep all answers away
            return
        except LeaderUnavailableError as error:
            self._on_unavailable(error)
            self._delay_asked(requests)
        except FetchSessionError as error:
            await self._on_session_error(error, requests)
        else:
            self._session_errors = 0
            self._is_unavailable = False
            self.patience_seconds = PATIENCE_SECONDS
            await self._take(requests, answers)

    async def _ask(
        self, requests: dict[TopicPartition, FollowerFetch], now: float
    ) -> Mapping[TopicPartition, FetchedPartition]:
        """One fetch; TimeoutError when a partition that is added while the leader waits for records interrupts it.

        Whoever has a new leader would lose up to replica.fetch.wait.max.ms otherwise, and acks=all with it.
        """
        self._stats.requests += 1
        self.rate.mark(now)
        self._interruptible_from = now + self.patience_seconds
        try:
            async with asyncio.timeout_at(None) as self._asking:
                return await self._leader.fetch(requests, max_wait_ms=self._wait_ms(now))
        finally:
            self._asking = None

    def _wait_ms(self, now: float) -> int:
        """How long the leader may wait: until a partition that is left out for a while is due again."""
        if self._tier_state.is_due:
            return 0  # there is more to ask it
        wait_max_ms = self._config.current.replica_fetch_wait_max_ms
        due = self._plan.next_due(now)
        return wait_max_ms if due is None else min(wait_max_ms, math.ceil((due - now) * 1000))

    async def _wait_for_work(self, now: float) -> None:
        """Until a partition is added, or the first delay ends that had not ended `now`."""
        try:
            async with asyncio.timeout_at(self._plan.next_due(now)):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _on_session_error(self, error: FetchSessionError, asked: Mapping[TopicPartition, FollowerFetch]) -> None:
        self._log.info("fetch_session_lost", error=error.error.name)
        self._session_errors += 1
        if error.error is ErrorCode.fetch_session_topic_id_error:
            self._delay_asked(asked)
        elif self._session_errors > 1:  # a leader that restarted says it once
            await asyncio.sleep(self._backoff_seconds)

    def _on_unavailable(self, error: LeaderUnavailableError) -> None:
        say = self._log.debug if self._is_unavailable else self._log.warning  # once for each time it goes away
        say("leader_unavailable", error=str(error), partitions=len(self._plan))
        self._is_unavailable = True

    def _delay_asked(self, asked: Mapping[TopicPartition, FollowerFetch]) -> None:
        for topic_partition in asked:
            state = self._plan.get(topic_partition)
            if state is not None:
                self._delay(state)

    def _delay(self, state: PartitionFetchState) -> None:
        state.delay(self._now(), self._backoff_seconds)
        self._plan.touch(state)

    # Answers

    async def _take(
        self, asked: Mapping[TopicPartition, FollowerFetch], answers: Mapping[TopicPartition, FetchedPartition]
    ) -> None:
        out_of_range = []
        appended_bytes = 0
        for topic_partition, answer in answers.items():
            state, request = self._plan.get(topic_partition), asked.get(topic_partition)
            if state is None or request is None or not state.awaits(request):
                self._leader.begin_anew()
                continue
            if answer.error is ErrorCode.offset_out_of_range:
                state.begin_reset()
                out_of_range.append((state, request))
                continue
            if answer.error is ErrorCode.offset_moved_to_tiered_storage:
                self._tier_state.moved(state, request, answer)
                self._plan.touch(state)
                continue
            self._take_one(state, request, answer)
            self._plan.touch(state)
            appended_bytes += len(answer.records)
            if appended_bytes >= YIELD_BYTES:
                appended_bytes = 0
                await asyncio.sleep(0)
        for state, request in out_of_range:
            if self._plan.holds(state) and state.awaits(request):
                await self._return_into_range(state, request)
                self._plan.touch(state)
            if self._plan.holds(state):
                state.end_reset()

    def _take_one(self, state: PartitionFetchState, request: FollowerFetch, answer: FetchedPartition) -> None:
        try:
            if answer.error is not ErrorCode.none:
                self._take_error(state, answer.error)
            elif answer.diverging_epoch is not None:
                self._truncate_to_common_end(state, answer.diverging_epoch)
            else:
                self._take_records(state, request, answer)
        except Exception as error:
            self._handle(state, error)

    def _take_records(self, state: PartitionFetchState, request: FollowerFetch, answer: FetchedPartition) -> None:
        replica = state.replica
        local = replica.log
        assert local.log_end_offset == state.fetch_offset, (
            f"{state.topic_partition} was fetched at {state.fetch_offset}, its log ends at {local.log_end_offset}"
        )
        valid_bytes = 0
        if answer.records:
            info = replica.append(answer.records, answer.log_start_offset)
            valid_bytes = info.valid_bytes
            self._stats.bytes += valid_bytes
            replica.partition.topic_stats.count_received(self.path, self.leader_id, valid_bytes)
            if self._plan.is_covered(state):
                self._throttle.record(valid_bytes)
            if valid_bytes:
                state.continue_at_end()
            else:  # not one whole batch we may have yet: asking at once would bring the same
                self._delay(state)
        replica.update_offsets(answer.high_watermark, answer.log_start_offset)
        state.refused_in_range_at = None
        if valid_bytes or state.lag is None or not answer.records:
            state.lag = max(0, answer.high_watermark - state.fetch_offset)

    def _truncate_to_common_end(self, state: PartitionFetchState, diverging: EpochEndOffset) -> None:
        """Nothing else of such an answer counts: its offsets are the leader's, for a log we do not have yet."""
        local = state.replica.log
        known_epoch, known_end_offset = local.end_offset_for_epoch(diverging.epoch)
        was = (state.fetch_offset, state.last_fetched_epoch)
        offset = common_end_offset(
            leader_epoch=diverging.epoch,
            leader_end_offset=diverging.end_offset,
            local_epoch=known_epoch,
            local_end_offset=known_end_offset,
            log_end_offset=local.log_end_offset,
            fetch_offset=state.fetch_offset,
        )
        self._log.info("log_diverged", partition=str(state.topic_partition), leader=diverging, was=was, now=offset)
        state.truncate_to(offset)
        self._leader.begin_anew()  # what the leader's session takes for told, its high watermark, was not taken over
        if (state.fetch_offset, state.last_fetched_epoch) == was:
            self._delay(state)  # the same question would get the same answer

    def _take_error(self, state: PartitionFetchState, error: ErrorCode) -> None:
        if error is ErrorCode.fenced_leader_epoch:
            # The cluster is past our epoch: only metadata can tell whom to follow now.
            raise FencedLeaderEpochError(f"The leader knows a newer epoch than {state.leader_epoch}")
        say = self._log.info if error in _EXPECTED_ERRORS else self._log.error
        say("fetch_refused", partition=str(state.topic_partition), error=error.name, epoch=state.leader_epoch)
        if error in _EXPECTED_ERRORS:
            state.delay_briefly(self._now(), self._backoff_seconds)
        else:
            self._delay(state)

    async def _return_into_range(self, state: PartitionFetchState, request: FollowerFetch) -> None:
        """The leader's log does not have the offset asked for: find out what it has, and go there."""
        try:
            await place_in_range(self._leader, state, request)
        except LeaderUnavailableError as error:
            self._on_not_placed(state, error)
        except KafkaError as error:
            if self._plan.holds(state) and state.awaits(request):
                self._on_not_placed(state, error)
        except Exception as error:
            self._handle(state, error)

    def _on_tier_state(self, state: PartitionFetchState, error: Exception | None) -> None:
        """What the leader has in remote storage only is behind this follower, or that failed."""
        if not self._plan.holds(state):
            return
        if error is not None:
            self._on_not_placed(state, error)
        if self._plan.holds(state):
            state.end_reset()
            self._plan.touch(state)
        if error is None:
            self._hurry()
        else:
            self._changed.set()

    def _on_not_placed(self, state: PartitionFetchState, error: Exception) -> None:
        """The offset is not one the leader has, and where to go could not be found out."""
        if isinstance(error, RemoteStateUnavailableError):
            self._delay(state)
        elif isinstance(error, LeaderUnavailableError):
            self._on_unavailable(error)
            self._delay(state)
        elif isinstance(error, KafkaError) and not isinstance(error, StorageFailure):
            if error.code is ErrorCode.fenced_leader_epoch:
                self._handle(state, error)
            else:
                self._take_error(state, error.code)
        else:
            self._handle(state, error)

    def _handle(self, state: PartitionFetchState, error: Exception) -> None:
        """Corrupt bytes are asked for again; anything else that stops a partition leaves the others alone."""
        if isinstance(error, NotLeaderOrFollowerError):  # the permission ended in the middle
            self._delay(state)
        elif isinstance(error, CorruptMessageError | InvalidRecordError):
            self._log.error("fetched_records_corrupt", partition=str(state.topic_partition), error=str(error))
            self._delay(state)
        else:
            self._fail(state, error)

    def _fail(self, state: PartitionFetchState, error: Exception) -> None:
        self.remove(state.topic_partition)
        self._on_failed(state, error)

    @property
    def _backoff_seconds(self) -> float:
        return self._config.current.replica_fetch_backoff_ms / 1000

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
