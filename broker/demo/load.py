"""Load: producers with acks=1, one for each topic, at an even pace, in batches that a real one would make."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from broker.common.clock import Clock
from broker.common.errors import ErrorCode
from broker.demo.latencies import Latencies
from broker.demo.topic_routes import TopicRoute
from broker.protocol.errors import ProtocolError
from broker.protocol.producer_codec import ProducedAnswer, decode_response, encode_request
from broker.records.memory_records_builder import MemoryRecordsBuilder

ACKS: Final = 1
ANSWER_TIMEOUT_MS: Final = 5_000
BATCHES_PER_SECOND: Final = 20  # of a partition, while that makes batches large enough
BATCH_BYTES_MAX: Final = 32_768
RECORD_BYTES: Final = 1_600
IN_FLIGHT_MAX: Final = 10  # batches of a partition: a broker that is away is not waited for with ever more of them
FIND_AGAIN_SECONDS: Final = 0.3
MEGABYTE: Final = 1_000_000


class LoadConnection(Protocol):
    """`BrokerClient`."""

    async def exchange(
        self, write: Callable[[int, str], bytes], read: Callable[[bytes], Any], timeout_ms: int
    ) -> Any: ...


class LoadRoutes(Protocol):
    """`TopicRoutes`."""

    def client_of(self, node_id: int) -> LoadConnection | None: ...
    async def find(self, names: Sequence[str]) -> Mapping[str, TopicRoute]: ...


class Pace:
    """Bytes a second of each topic; may be changed while they are produced."""

    def __init__(self, megabytes_per_second: float) -> None:
        self.megabytes_per_second = megabytes_per_second

    def double(self) -> None:
        self.megabytes_per_second *= 2

    def halve(self) -> None:
        self.megabytes_per_second /= 2

    def batch_of(self, partitions: int) -> tuple[int, float]:
        """How many records, and how many seconds until the next batch of a partition."""
        bytes_per_second = self.megabytes_per_second * MEGABYTE / partitions
        records = round(bytes_per_second / BATCHES_PER_SECOND / RECORD_BYTES)
        records = min(max(records, 1), BATCH_BYTES_MAX // RECORD_BYTES)
        return records, records * RECORD_BYTES / bytes_per_second


class TopicLoad:
    """One topic: a batch for each partition in turn.  What a leader did not take is not sent again: it is a load, and
    counted as `failed`."""

    def __init__(
        self,
        topic: str,
        routes: LoadRoutes,
        pace: Pace,
        latencies: Latencies,
        clock: Clock,
        *,
        start: Callable[[str, Any], object],
    ) -> None:
        """`start` starts a task by its name; `latencies` get the times of acknowledgements."""
        self._topic = topic
        self._routes = routes
        self._pace = pace
        self._latencies = latencies
        self._clock = clock
        self._start = start
        self._route: TopicRoute | None = None
        self._in_flight: dict[int, int] = {}
        self._number = 0
        self.acknowledged = 0
        self.failed = 0

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            route = await self._found()
            records, interval = self._pace.batch_of(len(route.leaders))
            for partition, leader in route.leaders.items():
                if self._in_flight.get(partition, 0) < IN_FLIGHT_MAX:
                    self._start(f"produce:{self._topic}", self._send(route, partition, leader, records))
                due = max(due + interval / len(route.leaders), loop.time() - interval)
                await asyncio.sleep(max(0.0, due - loop.time()))

    async def _found(self) -> TopicRoute:
        while self._route is None:
            with contextlib.suppress(OSError, ProtocolError):
                self._route = (await self._routes.find([self._topic])).get(self._topic)
            if self._route is None:
                await asyncio.sleep(FIND_AGAIN_SECONDS)
        return self._route

    async def _send(self, route: TopicRoute, partition: int, leader: int, records: int) -> None:
        self._in_flight[partition] = self._in_flight.get(partition, 0) + 1
        began = asyncio.get_running_loop().time()
        try:
            answer = await self._exchange(route, partition, leader, self._batch(records))
        except (OSError, ProtocolError):
            answer = None
        finally:
            self._in_flight[partition] -= 1
        if answer is not None and answer.error_code == ErrorCode.none:
            self.acknowledged += records
            self._latencies.note(asyncio.get_running_loop().time() - began)
            return
        self.failed += records
        if self._route is route:
            await asyncio.sleep(FIND_AGAIN_SECONDS)  # the next leader is not known at once
            self._route = None

    async def _exchange(
        self, route: TopicRoute, partition: int, leader: int, batch: bytearray
    ) -> ProducedAnswer | None:
        connection = self._routes.client_of(leader)
        if connection is None:
            return None
        answers = await connection.exchange(
            lambda correlation_id, client_id: encode_request(
                correlation_id, client_id, ACKS, ANSWER_TIMEOUT_MS, route.topic_id, [(partition, batch)]
            ),
            decode_response,
            ANSWER_TIMEOUT_MS,
        )
        return next((each for each in answers if each.partition == partition), None)

    def _batch(self, records: int) -> bytearray:
        """Orders, each with a number and room for what else an order has."""
        builder, now = MemoryRecordsBuilder(), self._clock.now_ms()
        for _ in range(records):
            self._number += 1
            order = json.dumps({"order": self._number, "at": now, "note": ""})
            value = order.replace('""', f'"{"." * (RECORD_BYTES - len(order))}"')
            builder.append(now, str(self._number).encode(), value.encode())
        return builder.build()
