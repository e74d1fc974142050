"""TierStateMachine: a follower begins behind what its leader has in remote storage only (KIP-405; Kafka's class of
that name).

Of the records it lacks it downloads none: what it needs of them is their leader epochs and the state of producers.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from broker.common.errors import KafkaError
from broker.common.tasks import BackgroundTasks
from broker.replication.leader_endpoint import FetchedPartition, FollowerFetch, LeaderEndPoint
from broker.replication.partition_fetch_state import PartitionFetchState
from broker.replication.remote_log import RemoteLog, RemoteLogState

log = structlog.get_logger(__name__)

BUILDS_AT_ONCE_MAX: Final = 4  # of one fetcher: each waits for remote storage, and a new broker has thousands to do
BUILD_SECONDS_MAX: Final = 120.0  # a store that does not answer keeps the others waiting no longer

OnDone = Callable[[PartitionFetchState, Exception | None], None]


class RemoteStateUnavailableError(KafkaError):
    """The state cannot be had now, and that was logged; a later try may find it."""


class _Moved(NamedTuple):
    """The leader's answer to a request: the offset asked for has moved to remote storage."""

    state: PartitionFetchState
    request: FollowerFetch
    answer: FetchedPartition


class TierStateMachine:
    """For the partitions of one fetcher, a few of them at once.  From `moved` to `on_done` nothing else may touch the
    partition's log, and it is not fetched.

    The leader is asked in the fetcher's own rounds, for its connection takes one question after the other; remote
    storage, which may take minutes, is asked beside them.  `on_done` hears of each partition once: what went wrong, or
    None when there is something to fetch, or the state was left meanwhile.
    """

    def __init__(self, leader: LeaderEndPoint, remote_log: RemoteLog | None, on_done: OnDone) -> None:
        """Without a `remote_log` every try fails."""
        self._leader = leader
        self._remote_log = remote_log
        self._on_done = on_done
        self._waiting: dict[PartitionFetchState, _Moved] = {}  # in the order in which they came
        self._building: dict[PartitionFetchState, asyncio.Task[None]] = {}
        self._failing: set[PartitionFetchState] = set()  # and that was told
        self._tasks = BackgroundTasks("tier-state")

    def moved(self, state: PartitionFetchState, request: FollowerFetch, answer: FetchedPartition) -> None:
        """The leader gave this `answer`: OFFSET_MOVED_TO_TIERED_STORAGE."""
        state.begin_reset()
        self._waiting[state] = _Moved(state, request, answer)

    def leave(self, state: PartitionFetchState) -> None:
        """It is followed no more."""
        self._waiting.pop(state, None)
        self._failing.discard(state)
        if (building := self._building.pop(state, None)) is not None:
            building.cancel()

    async def stop(self) -> None:
        """Until none of it can touch a log any more."""
        self._waiting.clear()
        await self._tasks.cancel_all()

    @property
    def is_due(self) -> bool:
        """Whether `ask_leader` has something to do."""
        return bool(self._waiting) and len(self._building) < BUILDS_AT_ONCE_MAX

    async def ask_leader(self) -> None:
        """Begin with those whose turn it is: a few, for the fetcher does not ask the leader anything else meanwhile."""
        for _ in range(BUILDS_AT_ONCE_MAX):
            if not self.is_due:
                return
            moved = self._waiting.pop(next(iter(self._waiting)))
            try:
                work = await self._ask_about(moved)
            except Exception as error:
                self._on_done(moved.state, error)
                continue
            if work is None:
                self._on_done(moved.state, None)
            else:
                self._building[moved.state] = self._tasks.start(
                    str(moved.state.topic_partition), self._build(moved, *work)
                )

    async def _ask_about(self, moved: _Moved) -> tuple[RemoteLog, int, int] | None:
        """(whom to ask, epoch, offset) of the last record before those that the leader has on its disk; None when
        there is nothing to build."""
        state, request, _ = moved
        topic_partition, leader_epoch = state.topic_partition, state.leader_epoch
        if not state.awaits(request):
            return None
        if self._remote_log is None or not state.replica.log.is_tiered:
            raise self._unavailable(state, "remote storage is not in use here yet")
        start = await self._leader.earliest_local_offset(topic_partition, leader_epoch)
        if not state.awaits(request):
            return None
        end_offset = state.replica.log.log_end_offset
        if start.offset <= end_offset:  # appends from the bucket have overtaken the question
            state.continue_at_end()
            if end_offset == request.fetch_offset:
                raise self._unavailable(state, f"the leader has offset {end_offset} after all")
            return None
        if start.epoch < 0:
            raise self._unavailable(state, f"the leader does not know the epoch of its offset {start.offset}")
        earlier = None
        if (epoch := start.epoch_to_ask_for) is not None:
            earlier = await self._leader.epoch_end_offset(topic_partition, epoch, leader_epoch)
            if not state.awaits(request):
                return None
        return self._remote_log, start.epoch_of_last_remote_offset(earlier), start.last_remote_offset

    async def _build(self, moved: _Moved, remote_log: RemoteLog, epoch: int, offset: int) -> None:
        state, request, answer = moved
        failure: Exception | None = None
        try:
            found = await self._find(state, remote_log, epoch, offset)
            if state.awaits(request):
                state.restore_from_remote(found, answer.log_start_offset)
                state.lag = max(0, answer.high_watermark - state.fetch_offset)
                self._failing.discard(state)
        except Exception as error:
            failure = error
        self._building.pop(state, None)
        self._on_done(state, failure)

    async def _find(self, state: PartitionFetchState, remote_log: RemoteLog, epoch: int, offset: int) -> RemoteLogState:
        try:
            async with asyncio.timeout(BUILD_SECONDS_MAX):
                return await remote_log.state_before(state.replica.partition, epoch, offset)
        except Exception as error:  # whatever it is, remote storage may do better next time
            reason = str(error) or type(error).__name__
            raise self._unavailable(state, f"of offset {offset} in epoch {epoch}: {reason}") from error

    def _unavailable(self, state: PartitionFetchState, reason: str) -> RemoteStateUnavailableError:
        """Told once for each partition until it succeeds: usually what this broker knows of remote storage is late."""
        say = log.debug if state in self._failing else log.warning
        self._failing.add(state)
        say("remote_log_state_not_built", partition=str(state.topic_partition), reason=reason, epoch=state.leader_epoch)
        return RemoteStateUnavailableError(reason)
