"""Reader: a consumer at the end of a topic, and how old records are when they reach it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from broker.common.clock import Clock
from broker.common.errors import CorruptMessageError, ErrorCode
from broker.demo.latencies import Latencies
from broker.demo.load import LoadConnection, LoadRoutes
from broker.demo.topic_routes import TopicRoute
from broker.protocol.errors import ProtocolError
from broker.protocol.follower_fetch_codec import (
    AskedPartition,
    FetchedAnswer,
    FetchedAnswers,
    FollowerFetchHead,
    decode_response,
    encode_request,
)
from broker.records.record_batch import batches

CONSUMER: Final = -1  # as the id of a replica
FETCH_VERSION: Final = 13
WAIT_MAX_MS: Final = 500
TIMEOUT_MS: Final = WAIT_MAX_MS + 5_000
FETCH_BYTES_MAX: Final = 4 << 20
PARTITION_BYTES_MAX: Final = 1 << 20
RETRY_SECONDS: Final = 0.3


class ReaderRoutes(LoadRoutes, Protocol):
    """`TopicRoutes`, with connections of its own: a fetch that waits holds up all that is asked behind it."""

    async def ends(self, node_id: int, topic: str, partitions: Sequence[int]) -> Mapping[int, int]: ...


class Reader:
    """Reads every partition from its leader, one fetch at a time for each of those, from the end it has at first."""

    def __init__(
        self,
        topic: str,
        routes: ReaderRoutes,
        latencies: Latencies,
        clock: Clock,
        *,
        start: Callable[[str, Any], object],
    ) -> None:
        self._topic = topic
        self._routes = routes
        self._latencies = latencies
        self._clock = clock
        self._start = start
        self._positions: dict[int, int] = {}
        self._readers: set[int] = set()
        self._route: TopicRoute | None = None

    async def run(self) -> None:
        """Until cancelled: sees to it that every leader is read from."""
        while True:
            if self._route is None:
                await self._find()
            for leader in set(self._route.leaders.values() if self._route is not None else ()) - self._readers:
                if leader >= 0:
                    self._readers.add(leader)
                    self._start(f"read:{self._topic}", self._read_from(leader))
            await asyncio.sleep(RETRY_SECONDS)

    async def _find(self) -> None:
        try:
            self._route = (await self._routes.find([self._topic])).get(self._topic)
        except (OSError, ProtocolError):
            self._route = None

    async def _read_from(self, leader: int) -> None:
        """As long as it leads anything; what fails is looked up anew."""
        try:
            while (route := self._route) is not None and leader in route.leaders.values():
                connection = self._routes.client_of(leader)
                if connection is None or not await self._fetch(connection, route, leader):
                    self._route = None
        finally:
            self._readers.discard(leader)

    async def _fetch(self, connection: LoadConnection, route: TopicRoute, leader: int) -> bool:
        """One fetch; False when something was refused."""
        asked = [partition for partition, each in route.leaders.items() if each == leader]
        try:
            if new := [each for each in asked if each not in self._positions]:
                self._positions |= await self._routes.ends(leader, self._topic, new)
            answers = await connection.exchange(
                lambda correlation_id, client_id: self._request(correlation_id, client_id, route, asked),
                decode_response,
                TIMEOUT_MS,
            )
        except (OSError, ProtocolError):
            return False
        return self._take(answers)

    def _request(self, correlation_id: int, client_id: str, route: TopicRoute, asked: Sequence[int]) -> bytes:
        head = FollowerFetchHead(CONSUMER, -1, WAIT_MAX_MS, 1, FETCH_BYTES_MAX, 0, -1)
        partitions: list[AskedPartition] = [
            (each, -1, self._positions[each], -1, -1, PARTITION_BYTES_MAX) for each in asked if each in self._positions
        ]
        return encode_request(FETCH_VERSION, correlation_id, client_id, head, {route.topic_id: partitions}, {})

    def _take(self, answers: FetchedAnswers) -> bool:
        now_ms = self._clock.now_ms()
        found = [answer for _, partitions in answers.topics for answer in partitions]
        taken = [self._take_partition(each, now_ms) for each in found]
        return answers.error_code == ErrorCode.none and all(taken)

    def _take_partition(self, answer: FetchedAnswer, now_ms: int) -> bool:
        if answer.error_code == ErrorCode.offset_out_of_range:
            self._positions.pop(answer.partition, None)
            return True
        if answer.error_code != ErrorCode.none:
            return False
        try:
            for batch in batches(answer.records):
                if batch.last_offset >= self._positions[answer.partition]:
                    self._positions[answer.partition] = batch.last_offset + 1
                    self._latencies.note(max(0, now_ms - batch.max_timestamp) / 1000)
        except CorruptMessageError:
            return False  # the end of what the answer had room for
        return True
