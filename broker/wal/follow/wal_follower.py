"""WalFollower: takes what one followed partition needs from buckets, in one leader epoch, and appends it.

All of it is plain: what was checked about the log, the leader and the slice is still so when the append is made.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import structlog

from broker.common.buffers import Buffer
from broker.common.byte_budget import ByteBudget
from broker.common.clock import Clock
from broker.common.errors import CorruptMessageError, KafkaError, NotLeaderOrFollowerError, StorageFailure
from broker.common.identifiers import TopicIdPartition
from broker.log.leader_epoch_file_cache import EpochEndOffset
from broker.log.unified_log import UnifiedLog
from broker.records.record_batch import RecordBatch
from broker.replication.bucket_fetch_state import BucketFetchState
from broker.replication.leader_endpoint import FollowerFetch
from broker.wal.follow.append_plan import AppendPlan, plan_append
from broker.wal.follow.follower_term import FollowerTerm, FollowerTicket
from broker.wal.follow.slice_gets import WantedSlice
from broker.wal.follow.wal_interval_map import SLICES_AHEAD_MAX, WalFetchPlan, WalIntervalMap
from broker.wal.objects.slice_verifier import CorruptSliceError, verify_slice
from broker.wal.objects.wal_entry import WalEntry
from broker.wal.remote_wal_stats import RemoteWalStats, WalHop

log = structlog.get_logger(__name__)

# Of which some are not in the plan any more: better candidates came while their GETs were under way.
UNDER_WAY_MAX: Final = 2 * SLICES_AHEAD_MAX

PAUSE_SECONDS: Final = 0.9  # after an append that the log refused; a little less than until it is planned again
GAP_SECONDS: Final = 1.0  # that a slice may be later than its successor before it counts as missing

SliceKey = tuple[int, int, object]


class FollowersHost(Protocol):
    """What followers share, and who makes their requests (`WalFetcher`)."""

    maps: Callable[[TopicIdPartition], WalIntervalMap | None]
    stats: RemoteWalStats
    early_bytes: ByteBudget  # of slices that came before their turn
    clock: Clock

    def plan_soon(self, follower: "WalFollower") -> None:
        """Ask it for its wishes, together with all others that want to be asked in this turn of the loop."""

    def plan_later(self, follower: "WalFollower") -> None:
        """The same after a pause: what it needs could not be had just now."""

    def forget(self, follower: "WalFollower") -> None:
        """It has ended."""


class Wishes(NamedTuple):
    """What a follower wants next: slices, and the leader's word about epochs."""

    slices: tuple[WantedSlice, ...] = ()
    epochs: frozenset[int] = frozenset()


_NO_WISHES: Final = Wishes()


@dataclass(slots=True)
class _Early:
    """A slice whose bytes are here, and whose turn is not."""

    entry: WalEntry
    ticket: FollowerTicket
    data: Buffer


class WalFollower:
    """The `BucketFollower` of one `BucketFetchState`.

    Before the handshake nothing is asked nor appended; a truncation, a reset or the end of the epoch makes void what
    was asked before.  Nothing that goes wrong with slices fails the partition: others are tried, and when there are
    none the leader sees a follower that stands still and sends records itself.
    """

    def __init__(self, state: BucketFetchState, host: FollowersHost) -> None:
        partition = state.replica.partition
        self.state = state
        self.partition = TopicIdPartition(partition.topic_id, *partition.topic_partition)
        self.asking: FollowerTicket | None = None  # the leader is asked for epochs, for that
        self._host = host
        self._began_ms = host.clock.now_ms()
        self._stats = host.stats.of(self.partition.topic)
        self._term = FollowerTerm()
        self._term.begin(state.leader_epoch)
        self._under_way: dict[SliceKey, WantedSlice] = {}
        self._early: dict[SliceKey, _Early] = {}
        self._suspects: set[SliceKey] = set()  # came wrong once
        self._is_troubled = False  # and that was told; until something is appended
        self._planned_for = -1  # the log end when it was last planned
        self._paused_until = 0.0
        self._gap: tuple[int, float] | None = None  # a log end where a slice is missing, and since when
        self._untold: tuple[int, float] | None = None  # an append's end and time, until a fetch tells the leader
        self._map: WalIntervalMap | None = None
        self._position = (-1, -1)  # log end and high watermark, as the map was told
        self._settled()

    @property
    def ticket(self) -> FollowerTicket:
        return self._term.ticket

    @property
    def may_append(self) -> bool:
        return self._term.may_append

    @property
    def early_count(self) -> int:
        return len(self._early)

    # As the BucketFollower of its state

    def answered(self, request: FollowerFetch, leader_log_start_offset: int) -> None:
        """The leader answered a fetch without an error or divergence; its offsets were taken over already."""
        self._settled()
        was_agreed = self._term.may_append
        end_offset = self.state.fetch_offset
        if not self._term.fetch_answered(self._term.ticket, request.fetch_offset, end_offset, leader_log_start_offset):
            return
        if self._untold is not None and request.fetch_offset >= self._untold[0]:
            self._host.stats.hop(WalHop.FOLLOWER_FETCH, _now() - self._untold[1])
            self._untold = None
        if self._term.may_append and not (was_agreed and end_offset == self._planned_for):
            self._host.plan_soon(self)

    def truncated(self) -> None:
        """The log was cut: what is under way is void, and the handshake is due again."""
        self._term.truncated()
        self._forget_slices()
        self._settled()

    def begin_reset(self) -> None:
        """Neither fetched nor appended until `end_reset`."""
        self._term.begin_reset()
        self._forget_slices()

    def end_reset(self) -> None:
        """The log is where it should be now."""
        self._term.end_reset()
        self._settled()

    def stop(self) -> None:
        """Not followed by this state any more."""
        self._term.end()
        self._forget_slices()
        self._host.forget(self)

    # What to ask for

    def plan(self, now_ms: int) -> Wishes:
        """The slices and answers that would bring the log on, without those that are on their way."""
        found = self._settled()
        if found is None or not self._term.may_append:
            return _NO_WISHES
        local, known = found
        self._append_early(local, known)
        if not self._term.may_append:
            return _NO_WISHES
        if _now() < self._paused_until:
            self._host.plan_later(self)  # the timer that brought us here may be older than the pause
            return _NO_WISHES
        self._planned_for = local.log_end_offset
        fenced = known.fenced_count
        plan = known.plan(self._term.lineage, now_ms)
        self._stats.fenced_metadata += known.fenced_count - fenced
        if plan.is_held_back:
            self._host.plan_later(self)
        if not (plan.slices or plan.epochs_to_ask or plan.is_held_back or self._under_way):
            self._note_gap(known, local.log_end_offset)
        epochs = plan.epochs_to_ask if self.asking != self._term.ticket else frozenset()
        return Wishes(self._want(plan), epochs)

    def _note_gap(self, known: WalIntervalMap, end_offset: int) -> None:
        """Slices may overtake each other, for a moment; one that does not come is told once.  The leader sees that we
        stand still, and sends the records itself."""
        following = known.next_start_of(self.state.leader_epoch, end_offset)
        if following is None:
            return
        now = _now()
        if self._gap is None or self._gap[0] != end_offset:
            self._gap = end_offset, now + GAP_SECONDS
        if self._gap[1] > now:
            if self._gap[1] < math.inf:
                self._host.plan_later(self)
        else:
            self._gap = end_offset, math.inf
            log.warning(
                "wal_slice_missing",
                partition=str(self.partition.topic_partition),
                offset=end_offset,
                following=following,
                epoch=self.state.leader_epoch,
            )

    def wants(self, wanted: WantedSlice) -> bool:
        return self._under_way.get(wanted.entry.key) is wanted

    def epoch_answered(self, ticket: FollowerTicket, epoch: int, answer: EpochEndOffset) -> None:
        """The leader's answer to what was asked with that ticket."""
        if self._term.holds(ticket):
            self._term.lineage.answered(epoch, answer, ticket.leader_epoch)

    def _want(self, plan: WalFetchPlan) -> tuple[WantedSlice, ...]:
        if not (plan.slices or self._early):
            return ()
        planned = {each.entry.key for each in plan.slices}
        if not self._under_way:  # nothing is coming that would bring their turn
            for key in [key for key in self._early if key not in planned]:
                self._let_go(key)
        here = planned & (self._under_way.keys() | self._early.keys())
        room = UNDER_WAY_MAX - len(self._under_way) - len(self._early)
        chosen = [each.entry for each in plan.slices if each.entry.key not in here][: max(0, room)]
        wanted = tuple(
            WantedSlice(entry, self, self._term.ticket, is_alone=entry.key in self._suspects) for entry in chosen
        )
        self._under_way.update((each.entry.key, each) for each in wanted)
        return wanted

    # What comes

    def arrived(self, wanted: WantedSlice, data: memoryview) -> None:
        """The bytes of a slice; appended now or when their turn comes."""
        found = self._take(wanted)
        if found is None:
            return
        self._host.plan_soon(self)
        local, known = found
        entry = wanted.entry
        if entry.end_offset < local.log_end_offset:
            return  # the log got there by other ways
        if entry.start_offset <= local.log_end_offset:
            self._append(local, known, _Early(entry, wanted.ticket, data))
            self._append_early(local, known)
        else:  # its own bytes only: the answer may be larger
            self._early[entry.key] = _Early(entry, wanted.ticket, bytes(data))
            self._host.early_bytes.acquire(entry.size)

    def came_wrong(self, wanted: WantedSlice, error: Exception) -> None:
        """The object is shorter than announced, or the answer is."""
        found = self._take(wanted)
        if found is not None:
            self._suspect(found[1], wanted.entry, error)

    def gone(self, wanted: WantedSlice) -> None:
        """There is no such object."""
        found = self._take(wanted)
        if found is not None:
            self._stats.stale_metadata += 1
            self._give_up(found[1], wanted.entry, "wal_object_gone", "no such object")

    def unreachable(self, wanted: WantedSlice, until_ms: int) -> None:
        """The bucket did not answer: others first until then, by the wall clock."""
        found = self._take(wanted)
        if found is not None:
            self._stats.stale_metadata += 1
            found[1].set_aside(wanted.entry, until_ms)
            self._host.plan_soon(self)

    # Appending

    def _append_early(self, local: UnifiedLog, known: WalIntervalMap) -> None:
        """What came before its turn, as far as its turn has come."""
        while self._early and self._term.may_append:
            end_offset = local.log_end_offset
            due = [key for key, early in self._early.items() if early.entry.start_offset <= end_offset]
            if not due:
                return
            early = self._let_go(due[0])
            if early.entry.end_offset >= end_offset:
                self._append(local, known, early)

    def _append(self, local: UnifiedLog, known: WalIntervalMap, early: _Early) -> None:
        """Check everything again, and append.  Nothing is awaited from the first question to the append."""
        entry, end_offset = early.entry, local.log_end_offset
        if not self._term.holds(early.ticket) or not self._term.may_append:
            return
        try:
            batches = verify_slice(entry, early.data)
        except CorruptSliceError as error:
            self._suspect(known, entry, error)
            return
        valid_until = known.valid_until(entry, self._term.lineage, end_offset)
        if valid_until <= end_offset:
            return
        is_empty = local.log_start_offset == end_offset
        try:
            plan = plan_append(batches, log_end_offset=end_offset, valid_until=valid_until, is_log_empty=is_empty)
            if not plan.batches:  # it is said to hold the log end, and has a hole there
                self._give_up(known, entry, "wal_slice_has_gap", f"no batch begins at {end_offset}")
                return
            self._write(local, known, entry, plan)
        except CorruptMessageError as error:  # again it would be no better: its checksums are right
            self._stats.corrupt += 1
            self._give_up(known, entry, "wal_slice_refused", str(error))
        except NotLeaderOrFollowerError:  # the metadata is about to take the partition away
            self._pause()
        except StorageFailure as error:  # a log that is offline is given up by the next fetch, a full disk may empty
            self._tell("wal_append_failed", error=str(error))
            self._pause()
        except KafkaError as error:
            self._give_up(known, entry, "wal_slice_refused", str(error))
        else:
            self._is_troubled = False
            self._suspects = {key for key in self._suspects if key[0] >= end_offset}

    def _write(self, local: UnifiedLog, known: WalIntervalMap, entry: WalEntry, plan: AppendPlan) -> None:
        began = time.perf_counter()
        end_offset = self.state.append(plan.batches, plan.restart_at, sender_id=entry.broker_id)
        self._position = end_offset, local.high_watermark
        known.log_moved(*self._position)
        now, stats = _now(), self._host.stats
        stats.hop(WalHop.FOLLOWER_APPEND, time.perf_counter() - began)
        newest_ms = _newest_timestamp(plan.batches)
        if newest_ms >= self._began_ms:  # what waited for us to come says nothing about the way
            stats.hop(WalHop.END_TO_END, (self._host.clock.now_ms() - newest_ms) / 1000)
        if self._untold is None:
            self._untold = end_offset, now

    # What went wrong

    def _suspect(self, known: WalIntervalMap, entry: WalEntry, error: Exception) -> None:
        """Wrong bytes: once more, alone; then never again."""
        self._stats.corrupt += 1
        if entry.key in self._suspects:
            self._suspects.discard(entry.key)
            self._give_up(known, entry, "wal_slice_corrupt", str(error))
            return
        self._suspects.add(entry.key)
        self._tell("wal_slice_fetched_again", object_key=entry.object_key, error=str(error))
        self._host.plan_soon(self)

    def _give_up(self, known: WalIntervalMap, entry: WalEntry, event: str, reason: str) -> None:
        known.drop(entry)
        self._tell(event, bucket=entry.bucket, object_key=entry.object_key, offset=entry.start_offset, reason=reason)
        self._host.plan_soon(self)

    def _pause(self) -> None:
        """Slices are good, and would be fetched again with every event only to be refused again."""
        self._paused_until = _now() + PAUSE_SECONDS
        self._host.plan_later(self)

    def _tell(self, event: str, **about: object) -> None:
        """Once until something is appended again: a bad object holds many slices."""
        say = log.debug if self._is_troubled else log.warning
        say(event, partition=str(self.partition.topic_partition), epoch=self.state.leader_epoch, **about)
        self._is_troubled = True

    # Bookkeeping

    def _settled(self) -> tuple[UnifiedLog, WalIntervalMap] | None:
        """The log and the map, which is told where the log is; None when one of them is not there now."""
        known = self._host.maps(self.partition)
        try:
            local = self.state.replica.log
        except KafkaError:
            return None
        if known is None:
            return None
        position = local.log_end_offset, local.high_watermark
        if self._map is not known:
            self._map = known
            known.begin_epoch(self.state.leader_epoch)
        elif position == self._position:
            return local, known
        self._position = position
        known.log_moved(*position)
        return local, known

    def _take(self, wanted: WantedSlice) -> tuple[UnifiedLog, WalIntervalMap] | None:
        """It is not on its way any more; None when nobody wants it."""
        if not self.wants(wanted):
            return None
        del self._under_way[wanted.entry.key]
        if not self._term.holds(wanted.ticket) or not self._term.may_append:
            return None
        return self._settled()

    def _let_go(self, key: SliceKey) -> _Early:
        early = self._early.pop(key)
        self._host.early_bytes.release(early.entry.size)
        return early

    def _forget_slices(self) -> None:
        for key in list(self._early):
            self._let_go(key)
        self._under_way.clear()
        self._suspects.clear()


def _newest_timestamp(batches: Iterable[RecordBatch]) -> int:
    return max(batch.max_timestamp for batch in batches)


def _now() -> float:
    return asyncio.get_running_loop().time()
