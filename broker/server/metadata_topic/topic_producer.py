"""TopicProducer: appends to a metadata topic (Kafka's ProducerManager of KIP-405, without its KafkaProducer).

All that waits for partitions of one leader goes in one request, and the next request when that one is answered: so
requests grow with the load and nothing lingers without it.  A leader that is this very broker is asked in the same
way: acks=all then waits where all producers wait.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

import structlog

from broker.common.buffers import Buffer
from broker.common.clock import Clock
from broker.common.errors import ErrorCode
from broker.common.metadata_topic import MetadataTopicError
from broker.common.tasks import BackgroundTasks
from broker.protocol.producer_codec import ProducedAnswer, decode_response, encode_request
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.metadata_topic.topic_queue import TopicAppend, TopicQueue
from broker.server.metadata_topic.topic_routes import TopicRoutes

log = structlog.get_logger(__name__)

T = TypeVar("T")

PRODUCE_TIMEOUT_MS: Final = 1_000  # per attempt: by then records must find another way to their followers
ANSWER_TIMEOUT_MS: Final = PRODUCE_TIMEOUT_MS + 500  # the leader says itself that replicas were late
REQUEST_BYTES_MAX: Final = 1024 * 1024  # uncompressed: what is made without letting others run
# What a broker announces in some 15 seconds at 100 objects a second of 50 slices; after one second without an
# acknowledgement the leader gives its records to followers anyway.  One partition without a leader leaves room.
QUEUE_BYTES_MAX: Final = 16 * 1024 * 1024
PARTITION_QUEUE_BYTES_MAX: Final = QUEUE_BYTES_MAX // 4

# Sent again, it would be refused again.
_FINAL_ERRORS: Final = frozenset(
    int(error)
    for error in (
        ErrorCode.message_too_large,
        ErrorCode.record_list_too_large,
        ErrorCode.invalid_record,
        ErrorCode.invalid_timestamp,
        ErrorCode.corrupt_message,
        ErrorCode.unsupported_compression_type,
        ErrorCode.topic_authorization_failed,
        ErrorCode.invalid_topic_exception,
    )
)


class ProducerConnection(Protocol):
    """`BrokerClient`, as a producer uses it."""

    async def exchange(self, write: Callable[[int, str], bytes], read: Callable[[bytes], T], timeout_ms: int) -> T: ...

    async def close(self) -> None: ...


class TopicProducer:
    """`acks` as in Produce: -1 or 1."""

    def __init__(
        self,
        routes: TopicRoutes,
        connect: Callable[[LeaderAddress], ProducerConnection],
        acks: int,
        clock: Clock,
    ) -> None:
        self._routes = routes
        self._connect = connect
        self._acks = acks
        self._clock = clock
        self._log = log.bind(topic=routes.topic)
        self._queues: dict[int, TopicQueue] = {}
        self._refused: set[int] = set()  # partitions of which the last append was refused
        self._senders: dict[LeaderAddress, _LeaderSender] = {}
        self._tasks = BackgroundTasks("metadata-topic-producer")
        self._is_running = False
        self.error_count = 0  # attempts that failed, of whole requests or of single partitions

    @property
    def queued_bytes(self) -> int:
        return sum(queue.size_bytes for queue in self._queues.values())

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TopicProducer"]:
        self._is_running = True
        try:
            async with self._tasks:
                self.reroute()
                yield self
        finally:
            self._is_running = False
            for queue in self._queues.values():
                queue.close(MetadataTopicError("the broker stops"))

    def append(self, partition: int, values: Sequence[bytes], *, may_linger: bool = False) -> "asyncio.Future[int]":
        """See `MetadataTopic.append`."""
        acknowledged: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        append = TopicAppend(values, acknowledged)
        problem = self._problem_with(partition, append)
        if problem is not None:
            acknowledged.set_exception(MetadataTopicError(problem))
            return acknowledged
        self._queue(partition).add(append, _now(), may_linger=may_linger)
        self._wake(partition)
        return acknowledged

    def reroute(self) -> None:
        """Leaders may have changed: whoever leads what waits is sent it."""
        for partition, queue in self._queues.items():
            route = self._routes.route(partition)
            if route is not None and route.leader != queue.sent_to:
                queue.retry_at = 0.0
            self._wake(partition)
        for sender in self._senders.values():
            sender.changed.set()  # those without a partition end

    def _problem_with(self, partition: int, append: TopicAppend) -> str | None:
        count = self._routes.partition_count
        if count is None:
            return "the topic is not there yet"
        if not 0 <= partition < count:
            return f"there is no partition {partition}, only {count} of them"
        waiting = self._queue(partition).size_bytes
        if waiting and waiting + append.size_bytes > PARTITION_QUEUE_BYTES_MAX:
            return f"{waiting} bytes wait for partition {partition}"
        if waiting and self.queued_bytes + append.size_bytes > QUEUE_BYTES_MAX:
            return f"{self.queued_bytes} bytes wait"
        return None

    def _queue(self, partition: int) -> TopicQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = TopicQueue(partition)
        return queue

    def _wake(self, partition: int) -> None:
        route = self._routes.route(partition)
        if route is None or not self._is_running or not self._queues[partition].is_ready:
            return
        sender = self._senders.get(route.leader)
        if sender is None:
            sender = self._senders[route.leader] = _LeaderSender(self, route.leader, self._connect(route.leader))
            self._tasks.start(f"leader-{route.leader.broker_id}", sender.run())
        sender.changed.set()

    # For senders

    def retire(self, leader: LeaderAddress) -> bool:
        """Whether a sender without work should end: its leader leads nothing."""
        if self._routes.leads_any(leader):
            return False
        self._senders.pop(leader, None)
        return True

    def take(self, leader: LeaderAddress, now: float) -> tuple[UUID, list[tuple[TopicQueue, Buffer]]] | None:
        """A request for the leader: the topic, and a batch each for partitions of which nothing is on its way.

        What may linger goes along as soon as there is a request.
        """
        topic_id = self._routes.topic_id
        if topic_id is None:
            return None
        ready = self._ready(leader)
        if all(queue.due_at > now for queue in ready):
            return None
        taken: list[tuple[TopicQueue, Buffer]] = []
        size = 0
        for queue in sorted(ready, key=lambda each: each.due_at > now):  # those that must come first
            if queue.retry_at > now or size >= REQUEST_BYTES_MAX:
                continue
            batch = queue.take(leader, self._clock.now_ms())
            if batch is not None:
                taken.append((queue, batch))
                size += queue.under_way_bytes
        for queue, _ in taken:  # who was served comes last the next time
            self._queues[queue.partition] = self._queues.pop(queue.partition)
        return (topic_id, taken) if taken else None

    def next_due(self, leader: LeaderAddress) -> float | None:
        """When a partition of the leader is sent again at the earliest; loop time."""
        return min((queue.due_at for queue in self._ready(leader)), default=None)

    def _ready(self, leader: LeaderAddress) -> list[TopicQueue]:
        return [
            queue
            for queue in self._queues.values()
            if queue.is_ready and (route := self._routes.route(queue.partition)) is not None and route.leader == leader
        ]

    def write(self, topic_id: UUID, taken: Sequence[tuple[TopicQueue, Buffer]]) -> Callable[[int, str], bytes]:
        partitions = [(queue.partition, batch) for queue, batch in taken]
        return lambda correlation_id, client_id: encode_request(
            correlation_id, client_id, self._acks, PRODUCE_TIMEOUT_MS, topic_id, partitions
        )

    def settle(
        self, taken: Sequence[tuple[TopicQueue, Buffer]], answers: Mapping[int, ProducedAnswer], now: float
    ) -> None:
        """What the leader said; what it did not say is that it failed."""
        for queue, _ in taken:
            answer = answers.get(queue.partition)
            if answer is not None and answer.error_code == ErrorCode.none:
                queue.succeeded(answer.base_offset)
                self._refused.discard(queue.partition)
                continue
            self.error_count += 1
            code = int(ErrorCode.unknown_server_error) if answer is None else answer.error_code
            if code in _FINAL_ERRORS:
                say = (
                    self._log.debug if queue.partition in self._refused else self._log.error
                )  # once until one is appended
                say("metadata_topic_append_refused", partition=queue.partition, error=_name(code))
                self._refused.add(queue.partition)
                queue.refused(MetadataTopicError(f"partition {queue.partition}: {_name(code)}"))
            else:
                self._log.debug("metadata_topic_not_appended", partition=queue.partition, error=_name(code))
                queue.failed(now)
            self._wake(queue.partition)  # the next in line, or another leader's business

    def lost(
        self,
        leader: LeaderAddress,
        taken: Sequence[tuple[TopicQueue, Buffer]],
        now: float,
        error: Exception,
        *,
        is_news: bool,
    ) -> None:
        """There was no answer: it may be there, and is sent again."""
        say = self._log.warning if is_news else self._log.debug  # once for each time it goes away
        say("metadata_topic_leader_unavailable", leader=leader.broker_id, error=str(error))
        self.error_count += 1
        for queue, _ in taken:
            queue.failed(now)
            self._wake(queue.partition)


class _LeaderSender:
    """One leader: its connection, and one request on its way."""

    def __init__(self, producer: TopicProducer, leader: LeaderAddress, connection: ProducerConnection) -> None:
        self.changed = asyncio.Event()
        self._producer = producer
        self._leader = leader
        self._connection = connection
        self._is_unavailable = False

    async def run(self) -> None:
        """Until cancelled, or until there is nothing to do for a broker that leads nothing."""
        try:
            while True:
                self.changed.clear()
                request = self._producer.take(self._leader, _now())
                if request is not None:
                    await self._send(*request)
                elif self._producer.retire(self._leader):
                    return
                else:
                    await self._wait()
        finally:
            await self._connection.close()

    async def _send(self, topic_id: UUID, taken: list[tuple[TopicQueue, Any]]) -> None:
        try:
            answers = await self._connection.exchange(
                self._producer.write(topic_id, taken), decode_response, ANSWER_TIMEOUT_MS
            )
        except (OSError, TimeoutError) as error:
            self._producer.lost(self._leader, taken, _now(), error, is_news=not self._is_unavailable)
            self._is_unavailable = True
            return
        self._is_unavailable = False
        self._producer.settle(taken, {each.partition: each for each in answers}, _now())

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout_at(self._producer.next_due(self._leader)):
                await self.changed.wait()
        except TimeoutError:
            pass


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _now() -> float:
    return asyncio.get_running_loop().time()
