"""WalFetcher: gets from buckets what all followers of this broker need, with as few requests as possible."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final

import structlog

from broker.common.byte_budget import ByteBudget
from broker.common.clock import Clock
from broker.common.errors import CorruptMessageError, KafkaError
from broker.common.identifiers import TopicIdPartition
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.objectstore.errors import Corrupt, NotFound, ObjectStoreError, Throttled
from broker.replication.bucket_fetch_state import BucketFetchState
from broker.replication.leader_endpoint import LeaderUnavailableError
from broker.wal.follow.follower_term import FollowerTicket
from broker.wal.follow.leader_epochs import LeaderEpochs
from broker.wal.follow.slice_gets import SliceGet, SliceGets
from broker.wal.follow.wal_follower import WalFollower
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.remote_wal_stats import RemoteWalStats, WalHop
from broker.wal.storage.remote_wal_storage_manager import RemoteWalStorageManager

log = structlog.get_logger(__name__)

SET_ASIDE_MS: Final = 5000  # as long as an open circuit leaves a bucket alone
THROTTLED_MS: Final = 1000  # a bucket that asks for fewer requests is there
PLAN_AGAIN_SECONDS: Final = 1.0  # for what could not be had; a bucket or a leader that comes back is not announced
PLAN_MAX: Final = 200  # followers planned in one turn of the loop: some milliseconds
YIELD_BYTES: Final = 1024 * 1024  # appended without letting others run: what a leader appends at once for a producer
# The storage manager has the deadline of one attempt, makes a few, and learns from them that a bucket is down: this one
# is for those that never come back.
DEADLINES_MAX: Final = 3
# Under way, or come before their turn: sixteen objects of the largest kind, the 4 MiB of what is uploaded again.
BYTES_MAX: Final = 64 * 1024 * 1024


class WalFetcher:
    """One per broker, for all followers and leaders.

    It plans when something happened: metadata came, a GET or the leader answered, a handshake was made.  Whoever has
    a wish in the same turn of the loop is planned together, and slices in one object are one GET, whomever they are
    for.  While all followers have what is announced, nothing runs here and no request is made.
    """

    def __init__(
        self,
        storage: RemoteWalStorageManager,
        epochs: LeaderEpochs,
        maps: Callable[[TopicIdPartition], WalIntervalMap | None],
        config: ConfigHolder[BrokerConfig],
        stats: RemoteWalStats,
        clock: Clock,
    ) -> None:
        """`maps` knows what was announced of a partition; None when it is not here."""
        self.maps = maps
        self.stats = stats
        self.clock = clock
        self.early_bytes = ByteBudget(BYTES_MAX)
        self._storage = storage
        self._epochs = epochs
        self._config = config
        self._followers: dict[TopicIdPartition, WalFollower] = {}
        self._gets = SliceGets(config.current.remote_wal_fetch_threads)
        self._bytes_under_way = 0
        self._to_plan: dict[WalFollower, None] = {}
        self._again: dict[WalFollower, asyncio.TimerHandle] = {}
        self._turn: asyncio.Handle | None = None
        self._leaders_in_trouble: set[int] = set()
        self._is_running = False
        self._tasks = BackgroundTasks("wal-fetcher")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WalFetcher"]:
        """Owns the GETs; when it ends no follower appends any more."""
        self._is_running = True
        self._plan_in_this_turn()
        try:
            yield self
        finally:
            self._is_running = False
            if self._turn is not None:
                self._turn.cancel()
            for handle in self._again.values():
                handle.cancel()
            self._again.clear()
            await self._tasks.cancel_all()

    # What is measured

    @property
    def gets_under_way(self) -> int:
        return self._gets.under_way_count

    @property
    def bytes_held(self) -> int:
        """Asked for and not here yet, or here and not appended yet."""
        return self._bytes_under_way + self.early_bytes.used_bytes

    # Who follows

    def make_follower(self, state: BucketFetchState) -> WalFollower:
        """A state was made: the `MakeBucketFollower` of the fetchers' manager."""
        follower = WalFollower(state, self)
        self._followers[follower.partition] = follower
        return follower

    def wake(self, partitions: Iterable[TopicIdPartition]) -> None:
        """More is known of these.  Told once for all that came together, it makes one GET of what is in one object."""
        for partition in partitions:
            follower = self._followers.get(partition)
            if follower is not None:
                self.plan_soon(follower)

    # As the host of the followers

    def plan_soon(self, follower: WalFollower) -> None:
        self._to_plan[follower] = None
        self._plan_in_this_turn()

    def plan_later(self, follower: WalFollower) -> None:
        if self._is_running and follower not in self._again:
            loop = asyncio.get_running_loop()
            self._again[follower] = loop.call_later(PLAN_AGAIN_SECONDS, self._plan_again, follower)

    def forget(self, follower: WalFollower) -> None:
        if self._followers.get(follower.partition) is follower:
            del self._followers[follower.partition]
        self._to_plan.pop(follower, None)
        handle = self._again.pop(follower, None)
        if handle is not None:
            handle.cancel()

    def _plan_again(self, follower: WalFollower) -> None:
        self._again.pop(follower, None)
        self.plan_soon(follower)

    # Planning

    def _plan_in_this_turn(self) -> None:
        """After everything else that is ready now: it may want something as well."""
        if self._turn is None and self._is_running and (self._to_plan or self._gets.has_waiting):
            self._turn = asyncio.get_running_loop().call_soon(self._plan)

    def _plan(self) -> None:
        self._turn = None
        now_ms = self.clock.now_ms()
        for follower in list(itertools.islice(self._to_plan, PLAN_MAX)):
            del self._to_plan[follower]
            wishes = follower.plan(now_ms)
            for wanted in wishes.slices:
                self._gets.add(wanted)
            if wishes.epochs:
                follower.asking = follower.ticket
                name = f"epochs:{follower.partition.topic_partition}"
                self._tasks.start(name, self._ask_leader(follower, follower.ticket, wishes.epochs))
        if self._to_plan:  # they may want what is in the same objects
            self._plan_in_this_turn()
        else:
            self._start_gets()

    def _start_gets(self) -> None:
        """As many as may be.  One is always: what came early waits for slices that are yet to be got."""
        while self.bytes_held < BYTES_MAX or not self._gets.under_way_count:
            get = self._gets.next()
            if get is None:
                return
            self._bytes_under_way += get.size
            self._tasks.start(f"get:{get.object_range.object_key}", self._run_get(get))

    # One GET

    async def _run_get(self, get: SliceGet) -> None:
        try:
            await self._get(get)
        finally:
            self._bytes_under_way -= get.size
            self._plan_in_this_turn()

    async def _get(self, get: SliceGet) -> None:
        wish = get.object_range
        began = asyncio.get_running_loop().time()
        deadline_ms = DEADLINES_MAX * self._config.current.remote_wal_fetch_timeout_ms
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                data = await self._storage.fetch_wal_segment(wish.bucket, wish.object_key, wish.start, wish.end)
        except NotFound:
            self._gets.answered(get)
            self._count_errors(get)
            for wanted in get.wanted:
                wanted.receiver.gone(wanted)
        except Corrupt as error:
            self._gets.answered(get)
            self._count_errors(get)
            for wanted in get.wanted:
                wanted.receiver.came_wrong(wanted, error)
        except (ObjectStoreError, OSError, TimeoutError) as error:
            self._on_unreachable(get, error)
        else:
            self._gets.answered(get)
            self.stats.hop(WalHop.GET, asyncio.get_running_loop().time() - began)
            await self._deliver(get, data)

    def _on_unreachable(self, get: SliceGet, error: Exception) -> None:
        bucket = get.object_range.bucket
        failures = self._gets.unanswered(get)
        say = log.warning if failures == 1 else log.debug  # once for each time it goes away
        say("wal_bucket_unreachable", bucket=bucket, error=str(error) or type(error).__name__)
        self._count_errors(get)
        until_ms = self.clock.now_ms() + (THROTTLED_MS if isinstance(error, Throttled) else SET_ASIDE_MS)
        others = self._gets.take_back(bucket) if failures > 1 else []  # they need not find it out one by one
        for wanted in get.wanted + others:
            wanted.receiver.unreachable(wanted, until_ms)

    async def _deliver(self, get: SliceGet, data: bytes) -> None:
        """Each slice to whoever wants it, in the order of the object: those of one partition are in order there."""
        self._count(get)
        appended_bytes = 0
        for wanted in sorted(get.wanted, key=lambda each: each.entry.position):
            try:
                wanted.receiver.arrived(wanted, get.bytes_of(wanted, data))
            except CorruptMessageError as error:  # the answer is not as long as it should be
                wanted.receiver.came_wrong(wanted, error)
            appended_bytes += wanted.entry.size
            if appended_bytes >= YIELD_BYTES:
                appended_bytes = 0
                await asyncio.sleep(0)

    def _count(self, get: SliceGet) -> None:
        counted: set[object] = set()
        for wanted in get.wanted:
            entry = wanted.entry
            if entry.key not in counted:  # two may have wanted the same
                counted.add(entry.key)
                self.stats.of(entry.partition.topic).count_fetched(entry.broker_id, entry.size)
        for topic in {wanted.entry.partition.topic for wanted in get.wanted}:
            self.stats.of(topic).fetch_requests += 1

    def _count_errors(self, get: SliceGet) -> None:
        for topic in {wanted.entry.partition.topic for wanted in get.wanted}:
            stats = self.stats.of(topic)
            stats.fetch_requests += 1
            stats.fetch_errors += 1

    # The leader's epochs

    async def _ask_leader(self, follower: WalFollower, ticket: FollowerTicket, epochs: frozenset[int]) -> None:
        partition = follower.state.replica.partition
        leader_id = partition.leader_id
        try:
            for epoch in sorted(epochs):
                answer = await self._epochs.end_offset(
                    leader_id, partition.topic_partition, epoch, current_leader_epoch=ticket.leader_epoch
                )
                follower.epoch_answered(ticket, epoch, answer)
        except (LeaderUnavailableError, KafkaError) as error:
            say = log.debug if leader_id in self._leaders_in_trouble else log.warning
            self._leaders_in_trouble.add(leader_id)
            say("leader_epochs_not_answered", partition=str(partition.topic_partition), error=str(error))
            self._asked(follower, ticket)
            if follower.ticket == ticket:
                self.plan_later(follower)
        else:
            self._leaders_in_trouble.discard(leader_id)
            self._asked(follower, ticket)
            self.plan_soon(follower)

    @staticmethod
    def _asked(follower: WalFollower, ticket: FollowerTicket) -> None:
        if follower.asking == ticket:
            follower.asking = None
