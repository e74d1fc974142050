"""TopicFetcher: reads the assigned metadata partitions of one leader (Kafka's ConsumerTask of KIP-405)."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import structlog

from broker.common.buffers import Buffer
from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_EPOCH, NO_OFFSET, TopicPartition
from broker.common.metadata_topic import MetadataRecord
from broker.replication.leader_endpoint import (
    FetchedPartition,
    FetchSessionError,
    FollowerFetch,
    LeaderUnavailableError,
)
from broker.replication.offset_lookup import LATEST_TIMESTAMP
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.metadata_topic.topic_endpoint import FoundOffset
from broker.server.metadata_topic.topic_positions import MetadataPosition
from broker.server.metadata_topic.topic_reading import TopicReading
from broker.server.metadata_topic.topic_routes import Route

log = structlog.get_logger(__name__)

WAIT_MAX_MS: Final = 500  # two requests a second to a leader with nothing new
HISTORY_BYTES_MAX: Final = 32 * 1024  # of what was announced before this broker began to read
HISTORY_REST_SECONDS: Final = 0.7e-6  # for each byte of it, about three times what it takes: the present comes first
PARTITION_BYTES_MAX: Final = 256 * 1024  # decoded without letting others run
UNHURRIED_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 0.05  # an answer that is under way comes sooner; one that is not costs a connection
# Of a partition, read even if an earlier run has read it.  What is not read is not known to be in a bucket: a follower
# that is behind it gets records from this broker, should it come to lead.
HISTORY_RECORDS_MAX: Final = 100
RETRY_SECONDS: Final = 0.1
UNEXPECTED_RETRY_SECONDS: Final = 1.0
YIELD_BYTES: Final = 8 * 1024  # of values, told without letting others run

# The metadata moves, here or there: worth another try, not worth a word.
_EXPECTED_ERRORS: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.leader_not_available,
        ErrorCode.offset_not_available,
    }
)


class MetadataLeader(Protocol):
    """`TopicEndPoint`."""

    async def fetch(
        self, requests: dict[TopicPartition, FollowerFetch], *, max_wait_ms: int
    ) -> Mapping[TopicPartition, FetchedPartition]: ...
    def begin_anew(self) -> None: ...
    async def list_offsets(self, epochs: Mapping[int, int], timestamp: int) -> dict[int, FoundOffset]: ...
    async def close(self) -> None: ...


class FetcherOwner(Protocol):
    """`TopicReadings`, as its fetchers see it."""

    @property
    def topic(self) -> str:
        """Its name."""

    def readings_of(self, leader: LeaderAddress) -> list[tuple[TopicReading, Route]]:
        """What is to be read from this leader now."""

    def is_read_from(self, leader: LeaderAddress, reading: TopicReading) -> bool: ...
    def is_unhurried(self, reading: TopicReading) -> bool:
        """Whether it is enough to hear of it now and then."""

    def remembered(self, reading: TopicReading, route: Route) -> MetadataPosition | None: ...
    def oldest_timestamp(self) -> int:
        """Where reading begins without anything remembered: wall time, or what a special timestamp means."""

    def place(self, reading: TopicReading, beginning: MetadataPosition, end_offset: int) -> None:
        """From `beginning` on all is to be told; the partition ends at `end_offset`.  The reading gets a position."""

    def finished(self, reading: TopicReading) -> None:
        """All is told that the reading was for."""

    def tell(self, partition: int, records: Sequence[MetadataRecord]) -> None: ...
    def retire(self, leader: LeaderAddress) -> bool:
        """Whether the fetcher should end: its leader leads nothing."""


class TopicFetcher:
    """One fetch is in flight at a time; partitions that are new interrupt it, unless it is about to be answered."""

    def __init__(self, owner: FetcherOwner, address: LeaderAddress, leader: MetadataLeader) -> None:
        self._owner = owner
        self._address = address
        self._leader = leader
        self._log = log.bind(topic=owner.topic)
        self._changed = asyncio.Event()
        self._asking: asyncio.Timeout | None = None
        self._interruptible_from = 0.0
        self._patience_seconds = PATIENCE_SECONDS
        self._retry_at = 0.0  # of the leader as a whole
        self._is_unavailable = False
        self._told_bytes = 0  # of values
        self._yielded_at_bytes = 0  # when others could last run
        self._seen: set[TopicReading] = set()  # in the round under way

    def wake_for_new(self) -> None:
        """Metadata or assignments have changed; what is read no longer is left to the round under way."""
        if all(reading in self._seen for reading, _ in self._owner.readings_of(self._address)):
            return
        self._changed.set()
        if self._asking is not None and self._asking.when() is None:
            self._asking.reschedule(max(_now(), self._interruptible_from))

    async def run(self) -> None:
        """Until cancelled, or until the leader leads nothing."""
        try:
            while not self._owner.retire(self._address):
                await self.work_once()
        finally:
            await self._leader.close()

    async def work_once(self) -> None:
        """One round: find where to begin what is new, fetch all, tell what came; or wait."""
        self._changed.clear()
        # One look at the clock tells who is ready and when the others are: a timer may come before its time.
        now = _now()
        try:
            ready = await self._ready(now)
            if not ready:
                if self._owner.readings_of(self._address):  # else there is nothing to do any more
                    await self._wait(now)
                return
            requests = {
                route.topic_partition: _request(reading, reading.position, route)
                for reading, route in ready
                if reading.position is not None
            }
            answers = await self._ask(requests, now)
        except TimeoutError:
            self._patience_seconds *= 2  # partitions that come faster than answers would keep all answers away
        except FetchSessionError as error:
            self._log.info("metadata_topic_session_lost", leader=self._address.broker_id, error=error.error.name)
            self._retry_at = _now() + RETRY_SECONDS
        except LeaderUnavailableError as error:
            say = self._log.debug if self._is_unavailable else self._log.warning  # once for each time it goes away
            say("metadata_topic_leader_unavailable", leader=self._address.broker_id, error=str(error))
            self._is_unavailable = True
            self._retry_at = _now() + RETRY_SECONDS
        else:
            self._is_unavailable = False
            self._patience_seconds = PATIENCE_SECONDS
            await self._take(requests, answers, {route.topic_partition: reading for reading, route in ready})

    async def _ready(self, now: float) -> list[tuple[TopicReading, Route]]:
        """Whatever is due, each with a position; what is over ends here, wherever the last of it was told."""
        readings = self._owner.readings_of(self._address)
        self._seen = {reading for reading, _ in readings}
        if self._retry_at > now:
            return []
        due = [each for each in readings if each[0].due_at <= now]
        new = [each for each in due if each[0].position is None]
        if new:
            await self._place(new)
        for reading, _ in due:
            if reading.is_over and self._owner.is_read_from(self._address, reading):
                self._owner.finished(reading)
        return [(reading, route) for reading, route in due if reading.position is not None and not reading.is_over]

    async def _place(self, new: list[tuple[TopicReading, Route]]) -> None:
        """Where the owner says.  The end is asked for first: what comes in between is not passed over."""
        epochs = {reading.partition: route.leader_epoch for reading, route in new}
        ends = await self._leader.list_offsets(epochs, LATEST_TIMESTAMP)
        found = await self._leader.list_offsets(epochs, self._owner.oldest_timestamp())
        for reading, route in new:
            if not self._owner.is_read_from(self._address, reading):
                continue  # it was replaced while the leader was asked, or has another one
            end, first = ends.get(reading.partition), found.get(reading.partition)
            if end is None or first is None or end.error or first.error:
                refused = next((each.error for each in (end, first) if each is not None and each.error), None)
                self._delay(reading, refused or ErrorCode.unknown_server_error)
                continue
            oldest = end.offset if first.offset == NO_OFFSET else first.offset
            reading.end_offset = end.offset
            self._owner.place(reading, self._beginning(reading, route, oldest, end.offset), end.offset)

    def _beginning(self, reading: TopicReading, route: Route, oldest_offset: int, end_offset: int) -> MetadataPosition:
        """All that is within the retention, unless it is too much, and an earlier run has read most of it."""
        oldest = MetadataPosition(oldest_offset, NO_EPOCH)
        remembered = self._owner.remembered(reading, route)
        if remembered is None or end_offset - oldest_offset <= HISTORY_RECORDS_MAX:
            return oldest
        self._log.info(
            "metadata_topic_resumed", partition=reading.partition, offset=remembered.offset, oldest=oldest_offset
        )
        return max(remembered, oldest)

    async def _ask(
        self, requests: dict[TopicPartition, FollowerFetch], now: float
    ) -> Mapping[TopicPartition, FetchedPartition]:
        """One fetch; TimeoutError when it was interrupted."""
        self._interruptible_from = _now() + self._patience_seconds
        try:
            async with asyncio.timeout_at(None) as self._asking:
                if self._changed.is_set():
                    self._asking.reschedule(self._interruptible_from)  # it came while the offsets were asked for
                return await self._leader.fetch(requests, max_wait_ms=self._wait_ms(now))
        finally:
            self._asking = None

    def _wait_ms(self, now: float) -> int:
        """How long the leader may wait: until a partition that is left out for a while is due again."""
        due = self._next_due(now)
        return WAIT_MAX_MS if due is None else min(WAIT_MAX_MS, math.ceil(max(0.0, due - _now()) * 1000))

    def _next_due(self, now: float) -> float | None:
        if self._retry_at > now:
            return self._retry_at
        left_out = [reading.due_at for reading, _ in self._owner.readings_of(self._address)]
        return min((due for due in left_out if due > now), default=None)

    async def _wait(self, now: float) -> None:
        try:
            async with asyncio.timeout_at(self._next_due(now)):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _take(
        self,
        requests: Mapping[TopicPartition, FollowerFetch],
        answers: Mapping[TopicPartition, FetchedPartition],
        readings: Mapping[TopicPartition, TopicReading],
    ) -> None:
        for topic_partition, answer in answers.items():
            reading, request = readings.get(topic_partition), requests.get(topic_partition)
            if reading is None or request is None or not self._awaits(reading, request.fetch_offset):
                self._leader.begin_anew()
                continue
            if answer.error is ErrorCode.offset_out_of_range or answer.diverging_epoch is not None:
                self._log.warning("metadata_topic_position_lost", partition=reading.partition, at=request.fetch_offset)
                reading.begin_anew()
            elif answer.error is not ErrorCode.none:
                self._delay(reading, answer.error)
            else:
                reading.end_offset = answer.high_watermark
                told_bytes = self._told_bytes
                if not await self._tell(reading, answer.records):
                    self._leader.begin_anew()
                elif reading.is_over:
                    self._owner.finished(reading)
                elif reading.is_in_history:
                    reading.due_at = _now() + HISTORY_REST_SECONDS * (self._told_bytes - told_bytes)
                elif not reading.lag and self._owner.is_unhurried(reading):
                    reading.due_at = _next_round()

    async def _tell(self, reading: TopicReading, records: Buffer) -> bool:
        """Whether all of it was told: meanwhile the partition may have become somebody else's to read."""
        before = reading.position
        for portion in reading.take(records):
            self._owner.tell(reading.partition, portion)
            self._told_bytes += sum(len(record.value) for record in portion)
            position = reading.position
            if self._told_bytes - self._yielded_at_bytes >= YIELD_BYTES:
                self._yielded_at_bytes = self._told_bytes
                await asyncio.sleep(0)
                if position is None or not self._awaits(reading, position.offset):
                    return False
        if records and reading.position == before:  # unreadable: asking at once would bring the same
            self._delay(reading, ErrorCode.corrupt_message)
            return False
        return True

    def _awaits(self, reading: TopicReading, offset: int) -> bool:
        """Whether the partition is still read here, from that offset on."""
        position = reading.position
        return position is not None and position.offset == offset and self._owner.is_read_from(self._address, reading)

    def _delay(self, reading: TopicReading, error: ErrorCode) -> None:
        is_expected = error in _EXPECTED_ERRORS
        say = self._log.debug if is_expected else self._log.warning
        say("metadata_topic_fetch_refused", partition=reading.partition, error=error.name)
        reading.due_at = _now() + (RETRY_SECONDS if is_expected else UNEXPECTED_RETRY_SECONDS)


def _request(reading: TopicReading, position: MetadataPosition, route: Route) -> FollowerFetch:
    max_bytes = HISTORY_BYTES_MAX if reading.is_in_history else PARTITION_BYTES_MAX
    return FollowerFetch(route.topic_id, position.offset, NO_OFFSET, route.leader_epoch, position.epoch, max_bytes)


def _next_round() -> float:
    """The same for all that are unhurried, so that one fetch asks for all of them."""
    return (math.floor(_now() / UNHURRIED_SECONDS) + 1) * UNHURRIED_SECONDS


def _now() -> float:
    return asyncio.get_running_loop().time()
