"""Clients of a simulated node that speak the wire: a connection, an idempotent producer, a reader, a group's commits.

They keep what they were told, and complain (`Violation`) about an answer that no correct broker gives.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Any, Final, TypeAlias

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.network.byte_stream import ByteStream
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.requests import decode_response, encode_request
from broker.protocol.response_schema import RequestSchema
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.records.record_batch import RecordBatch, batches
from tests.support.sim_network import SimHost

IN_FLIGHT_MAX: Final = 5  # of an idempotent producer: brokers remember as many batches (KIP-98)
REQUEST_TIMEOUT_S: Final = 5.0
BACKOFF_S: Final = 0.05
CHURNED: Final = "churn-"
FORWARDED_S: Final = 1.0  # brokers do not repeat sooner what they forward, unless the connection has broken
LEADER_ONLY: Final = 4  # later fetches may be answered by a follower (KIP-392), whose high watermark is older

RETRIABLE: Final = frozenset(
    {
        ErrorCode.kafka_storage_error,
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.request_timed_out,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_controller,
    }
)

_LENGTH: Final = Struct(">i")


class Violation(AssertionError):
    """The broker broke a promise."""


class SimConnection:
    """Requests out in order, answers in order; a failure fails everything that waits."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._waiting: deque[tuple[ApiKey, int, int, asyncio.Future[Any]]] = deque()
        self._correlation_id = 0
        self._reader = asyncio.get_running_loop().create_task(self._read(), name="client:reader")
        self.is_open = True

    def submit(self, api_key: ApiKey, version: int, entity: Any) -> "asyncio.Future[Any]":
        self._correlation_id += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            answer.set_exception(ConnectionResetError("closed"))
            return answer
        self._waiting.append((api_key, version, self._correlation_id, answer))
        try:
            self._stream.write(encode_request(api_key, version, self._correlation_id, "sim", entity))
        except OSError:  # the reader has not heard of it yet
            self.close()
        return answer

    async def _read(self) -> None:
        try:
            while True:
                (size,) = _LENGTH.unpack(await self._stream.read_exactly(_LENGTH.size))
                frame = await self._stream.read_exactly(size)
                api_key, version, correlation_id, answer = self._waiting.popleft()
                received, body = decode_response(api_key, version, frame)
                if received != correlation_id:
                    raise Violation(f"answer {received} to request {correlation_id}")
                if not answer.done():
                    answer.set_result(body)
        except (OSError, EOFError):
            self.close()

    def close(self) -> None:
        self.is_open = False
        self._stream.close()
        waiting, self._waiting = self._waiting, deque()
        for _, _, _, answer in waiting:
            if not answer.done():
                answer.set_exception(ConnectionResetError("closed"))
                answer.exception()  # its owner may have gone already
        self._reader.cancel()


class SimClient:
    """A connection that is made again when it breaks."""

    retriable = RETRIABLE
    is_forwarded = False  # whether whom it asks may repeat the request to another node

    def __init__(self, host: SimHost, node: str, port: int, chance: random.Random) -> None:
        self.chance = chance
        self._host = host
        self._node = node
        self._port = port
        self._connection: SimConnection | None = None

    async def connection(self) -> SimConnection:
        """Waits until somebody listens."""
        while self._connection is None or not self._connection.is_open:
            try:
                self._connection = SimConnection(await self._host.connect(self._node, self._port))
            except OSError:
                await self.pause()
        return self._connection

    async def pause(self) -> None:
        """Between two attempts."""
        await asyncio.sleep(BACKOFF_S * (0.5 + self.chance.random()))

    def on_refused(self) -> None:
        """There was no answer, or one that says to try again: for those who may have asked the wrong node."""

    async def ask_once(self, api_key: ApiKey, version: int, entity: Any) -> Any:
        """ConnectionError or TimeoutError when there is no answer."""
        connection = await self.connection()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await connection.submit(api_key, version, entity)
        except TimeoutError:
            connection.close()
            raise

    async def insist(
        self, api_key: ApiKey, version: int, entity: Any, error_of: Callable[[Any], ErrorCode]
    ) -> tuple[Any, ErrorCode, int]:
        """Repeat until there is an answer that is not retriable; returns it, its error, and the number of attempts."""
        attempts = 0
        while True:
            attempts += 1
            try:
                answer = await self.ask_once(api_key, version, entity)
            except (ConnectionError, TimeoutError):
                self.on_refused()
                continue
            error = error_of(answer)
            if error not in self.retriable:
                return answer, error, attempts
            self.on_refused()
            await self.pause()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


# Requests


def produce_request(version: int, partition: TopicPartition, acks: int, records: bytes) -> Any:
    schema = RequestSchema.of(ApiKey.PRODUCE, version)
    data = schema.PartitionProduceData(index=partition.partition, records=records)
    topic = schema.TopicProduceData(name=partition.topic, partition_data=(data,))
    return schema.ProduceRequest(transactional_id=None, acks=acks, timeout=milliseconds(3_000), topic_data=(topic,))


def fetch_request(
    version: int,
    partition: TopicPartition,
    offset: int,
    size_max: int,
    max_wait_ms: int,
    *,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    rack: str = "",
    only_committed: bool = False,
) -> Any:
    schema = RequestSchema.of(ApiKey.FETCH, version)
    wanted = schema.FetchPartition(
        partition=partition.partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        log_start_offset=-1,
        partition_max_bytes=size_max,
    )
    return schema.FetchRequest(
        replica_id=-1,
        max_wait=milliseconds(max_wait_ms),
        min_bytes=1,
        max_bytes=size_max,
        isolation_level=int(only_committed),
        session_id=0,
        session_epoch=-1,
        topics=(schema.FetchTopic(topic=partition.topic, partitions=(wanted,)),),
        forgotten_topics_data=(),
        rack_id=rack,
    )


# Producers


async def new_producer_id(client: SimClient) -> int:
    schema = RequestSchema.of(ApiKey.INIT_PRODUCER_ID, 2)
    request = schema.InitProducerIdRequest(transactional_id=None, transaction_timeout=milliseconds(60_000))
    answer, error, _ = await client.insist(
        ApiKey.INIT_PRODUCER_ID, 2, request, lambda answer: ErrorCode(answer.error_code)
    )
    if error is not ErrorCode.none:
        raise Violation(f"InitProducerId answers {error.name}")
    return int(answer.producer_id)


class _Batch:
    __slots__ = ("answer", "attempts", "end_offset_at_retry", "first", "sequence", "values")

    def __init__(self, sequence: int, values: list[bytes]) -> None:
        self.sequence = sequence
        self.values = values
        self.attempts = 0
        self.end_offset_at_retry = -1
        self.answer: asyncio.Future[Any] | None = None


EndOffset: TypeAlias = Callable[[TopicPartition], int]


class IdempotentProducer:
    """Writes numbered values to one partition, up to five batches in flight, and repeats them until they are
    acknowledged, as the Java producer does.  `acknowledged` maps values to the offsets that were promised."""

    def __init__(
        self,
        client: SimClient,
        name: str,
        partition: TopicPartition,
        acks: int,
        end_offset: EndOffset,
        pauses_per_second: float = 30.0,
    ) -> None:
        self.name = name
        self.partition = partition
        self.acknowledged: dict[bytes, int] = {}
        self.producer_id = -1
        self.is_stopping = False
        self.seen: Counter[str] = Counter()
        self._client = client
        self._chance = client.chance
        self._acks = acks
        self._version = client.chance.choice((3, 7, 9, 12))
        self._pauses_per_second = pauses_per_second
        self._end_offset = end_offset  # of the log, as an observer sees it, to count duplicates
        self._sent = 0
        self._sequence = 0
        self._unacknowledged: deque[_Batch] = deque()
        self._connection: SimConnection | None = None

    async def run(self) -> None:
        """Until `is_stopping`, and then until the last batch is acknowledged."""
        self.producer_id = await new_producer_id(self._client)
        while self._unacknowledged or not self.is_stopping:
            connection = await self._client.connection()
            if connection is not self._connection:
                self._connection = connection
                for batch in self._unacknowledged:
                    if batch.answer is not None and (not batch.answer.done() or batch.answer.exception()):
                        batch.answer = None  # sent again in order, before anything new
            self._fill_window()
            for batch in self._unacknowledged:
                if batch.answer is None:
                    self._send(connection, batch)
            if self._unacknowledged:
                await self._settle_first(connection)
            if self._chance.random() < 0.5:
                await asyncio.sleep(self._chance.expovariate(self._pauses_per_second))

    def _fill_window(self) -> None:
        while not self.is_stopping and len(self._unacknowledged) < IN_FLIGHT_MAX and self._chance.random() < 0.8:
            values = []
            padding = b"x" * self._chance.randrange(self._chance.choice((20, 60, 250)))
            for _ in range(self._chance.randint(1, 4)):
                values.append(b"%s:%d:%s" % (self.name.encode(), self._sent, padding))
                self._sent += 1
            self._unacknowledged.append(_Batch(self._sequence, values))
            self._sequence += len(values)

    def _send(self, connection: SimConnection, batch: _Batch) -> None:
        builder = MemoryRecordsBuilder(
            producer_id=self.producer_id, producer_epoch=0, base_sequence=batch.sequence, compression=0
        )
        for value in batch.values:
            builder.append(1_700_000_000_000, None, value)
        batch.attempts += 1
        if batch.attempts > 1:
            batch.end_offset_at_retry = self._end_offset(self.partition)
        request = produce_request(self._version, self.partition, self._acks, bytes(builder.build()))
        batch.answer = connection.submit(ApiKey.PRODUCE, self._version, request)

    async def _settle_first(self, connection: SimConnection) -> None:
        batch = self._unacknowledged[0]
        assert batch.answer is not None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                answer = (await asyncio.shield(batch.answer)).responses[0].partition_responses[0]
        except (ConnectionError, TimeoutError):
            self.seen["produce unanswered"] += 1
            connection.close()
            self._client.on_refused()
            return
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.none:
            self._acknowledge(batch, int(answer.base_offset))
            return
        self.seen[f"produce {error.name}"] += 1
        if error not in self._client.retriable:
            raise Violation(f"{self.name}: sequence {batch.sequence} of {self.partition} answered {error.name}")
        await self._take_back()
        self._client.on_refused()
        await asyncio.sleep(BACKOFF_S)

    def _acknowledge(self, batch: _Batch, base_offset: int) -> None:
        self._unacknowledged.popleft()
        if base_offset < 0:
            raise Violation(f"{self.name}: sequence {batch.sequence} acknowledged at offset {base_offset}")
        if batch.attempts > 1 and base_offset < batch.end_offset_at_retry:
            self.seen["duplicate answered"] += 1
        for index, value in enumerate(batch.values):
            self.acknowledged[value] = base_offset + index

    async def _take_back(self) -> None:
        """The first batch was refused: it is sent again, and so is what was refused behind it.

        Some may have been taken: the refused one can be in the log already, from before a crash.
        """
        for batch in list(self._unacknowledged):
            assert batch.answer is not None
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    answer = (await asyncio.shield(batch.answer)).responses[0].partition_responses[0]
            except (ConnectionError, TimeoutError):
                batch.answer = None
                continue
            error = ErrorCode(answer.error_code)
            if error in self._client.retriable or error is ErrorCode.out_of_order_sequence_number:
                batch.answer = None
            elif error is not ErrorCode.none:
                raise Violation(f"{self.name}: sequence {batch.sequence} answered {error.name}")


# Reader


def record_values(data: bytes) -> Iterable[tuple[int, bytes]]:
    """Offset and value of every record, of whole and valid batches only."""
    for batch in batches(data):
        if not batch.is_crc_valid():
            raise Violation(f"the batch at {batch.base_offset} was served with a wrong CRC")
        for record in batch.records():
            yield record.offset, record.value or b""


class Reader:
    """Reads one partition from the beginning; offsets must be dense, and what was read once must stay."""

    def __init__(
        self,
        client: SimClient,
        partition: TopicPartition,
        *,
        sizes: Sequence[int] = (1, 500, 5_000, 1 << 20),
        version: int | None = None,
    ) -> None:
        self.partition = partition
        self.values: list[bytes] = []
        self.high_watermark = 0
        self.seen: Counter[str] = Counter()
        self._client = client
        self._sizes = sizes
        self._version = version or client.chance.choice((LEADER_ONLY, 11, 12))

    async def run(self) -> None:
        while True:
            await self.read_once(max_wait_ms=100)
            await asyncio.sleep(self._client.chance.expovariate(20.0))

    async def read_everything(self) -> None:
        """Up to the high watermark of now."""
        await self.read_once(max_wait_ms=0)
        while len(self.values) < self.high_watermark:
            await self.read_once(max_wait_ms=0)

    async def read_once(self, max_wait_ms: int) -> None:
        offset = len(self.values)
        size_max = self._client.chance.choice(self._sizes)
        request = fetch_request(self._version, self.partition, offset, size_max, max_wait_ms)
        answer, error, _ = await self._client.insist(ApiKey.FETCH, self._version, request, error_of_fetch)
        if error is not ErrorCode.none:
            raise Violation(f"a fetch of {self.partition} from {offset} answered {error.name}")
        data = answer.responses[0].partitions[0]
        self.high_watermark = int(data.high_watermark)
        if self.high_watermark < offset and self._version <= LEADER_ONLY:
            raise Violation(f"{self.partition}: read up to {offset}, the high watermark is {self.high_watermark}")
        for at, value in record_values(data.records or b""):
            if at < offset:
                continue  # a batch is served whole
            if at != len(self.values):
                raise Violation(f"{self.partition}: offset {at} follows {len(self.values) - 1}")
            self.values.append(value)


def error_of_fetch(answer: Any) -> ErrorCode:
    top = getattr(answer, "error_code", ErrorCode.none)
    return ErrorCode(top) or ErrorCode(answer.responses[0].partitions[0].error_code)


# Groups


class GroupCommitter:
    """Commits growing offsets of one group, as a consumer that assigns itself its partitions."""

    def __init__(self, client: SimClient, group: str, partition: TopicPartition) -> None:
        self.group = group
        self.partition = partition
        self.attempted = -1
        self.acknowledged = -1
        self.is_stopping = False
        self.seen: Counter[str] = Counter()
        self._client = client

    async def run(self) -> None:
        schema = RequestSchema.of(ApiKey.FIND_COORDINATOR, 3)
        request = schema.FindCoordinatorRequest(key=self.group, key_type=0)
        await self._client.insist(ApiKey.FIND_COORDINATOR, 3, request, lambda answer: ErrorCode(answer.error_code))
        while not self.is_stopping:
            await self._commit()
            if self._client.chance.random() < 0.2:
                await self.check()
            await asyncio.sleep(self._client.chance.expovariate(20.0))

    async def _commit(self) -> None:
        schema = RequestSchema.of(ApiKey.OFFSET_COMMIT, 7)
        self.attempted += 1
        offset = schema.OffsetCommitRequestPartition(
            partition_index=self.partition.partition,
            committed_offset=self.attempted,
            committed_leader_epoch=-1,
            committed_metadata=str(self.attempted),
        )
        request = schema.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=(schema.OffsetCommitRequestTopic(name=self.partition.topic, partitions=(offset,)),),
        )
        _, error, attempts = await self._client.insist(
            ApiKey.OFFSET_COMMIT, 7, request, lambda answer: ErrorCode(answer.topics[0].partitions[0].error_code)
        )
        if error is not ErrorCode.none:
            raise Violation(f"a commit of {self.group} answered {error.name}")
        self.seen["commit repeated"] += attempts > 1
        self.seen["commit"] += 1
        self.acknowledged = self.attempted

    async def check(self) -> None:
        """What was acknowledged must be there, or something newer that was sent."""
        schema = RequestSchema.of(ApiKey.OFFSET_FETCH, 7)
        topic = schema.OffsetFetchRequestTopic(name=self.partition.topic, partition_indexes=(self.partition.partition,))
        request = schema.OffsetFetchRequest(group_id=self.group, topics=(topic,), require_stable=False)
        answer, error, _ = await self._client.insist(ApiKey.OFFSET_FETCH, 7, request, _error_of_offset_fetch)
        if error is not ErrorCode.none:
            raise Violation(f"OffsetFetch of {self.group} answered {error.name}")
        found = answer.topics[0].partitions[0]
        if not self.acknowledged <= found.committed_offset <= self.attempted:
            raise Violation(
                f"{self.group}: committed {found.committed_offset}, acknowledged {self.acknowledged}, "
                f"sent {self.attempted}"
            )
        if found.committed_offset >= 0 and found.metadata != str(int(found.committed_offset)):
            raise Violation(f"{self.group}: offset {found.committed_offset} has metadata {found.metadata!r}")


def _error_of_offset_fetch(answer: Any) -> ErrorCode:
    return ErrorCode(answer.error_code) or ErrorCode(answer.topics[0].partitions[0].error_code)


# Topics


class TopicChurner:
    """Creates and deletes topics; knows which must be there, which must not, and which may.

    With names used again, an attempt nobody answered may be carried out after the next change of that name: such a
    topic is kept, and a name like that is not used again.
    """

    def __init__(self, client: SimClient, *, names: int = 0, replication_factor: int = 1, rate: float = 5.0) -> None:
        """`names`: so many are used again and again; 0: each topic has a new one.  `rate`: changes per second."""
        self.present: dict[str, Any] = {}  # name to topic id
        self.absent: dict[str, None] = {}
        self.is_stopping = False
        self.seen: Counter[str] = Counter()
        self._client = client
        self._number = 0
        self._names = names
        self._replication_factor = replication_factor
        self._rate = rate
        self._pool = [f"{CHURNED}{number}" for number in range(names)]
        self._kept: dict[str, None] = {}

    async def create(self, name: str, partitions: int, configs: dict[str, str], replication_factor: int = 1) -> None:
        schema = RequestSchema.of(ApiKey.CREATE_TOPICS, 7)
        topic = schema.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=(),
            configs=tuple(schema.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()),
        )
        request = schema.CreateTopicsRequest(topics=(topic,), timeout=milliseconds(3_000), validate_only=False)
        started = asyncio.get_running_loop().time()
        answer, error, attempts = await self._client.insist(ApiKey.CREATE_TOPICS, 7, request, _error_of_creation)
        self.seen["topic created"] += 1
        is_doubtful = attempts > 1 or self._client.is_forwarded
        if self._is_repeated(attempts, started) and name in self._pool:
            self._pool.remove(name)
            self._kept[name] = None
        if error is ErrorCode.none:
            self.present[name] = answer.topics[0].topic_id
        elif error is ErrorCode.topic_already_exists and is_doubtful:
            self.present[name] = None  # made by an attempt whose answer was lost
        else:
            raise Violation(f"CreateTopics of {name} answered {error.name} at attempt {attempts}")

    async def delete(self, name: str) -> None:
        schema = RequestSchema.of(ApiKey.DELETE_TOPICS, 4)
        request = schema.DeleteTopicsRequest(topic_names=(name,), timeout=milliseconds(3_000))
        del self.present[name]
        started = asyncio.get_running_loop().time()
        attempts = 0
        while True:
            attempts += 1
            try:
                answer = await self._client.ask_once(ApiKey.DELETE_TOPICS, 4, request)
            except (ConnectionError, TimeoutError):
                self._client.on_refused()
                continue
            error = ErrorCode(answer.responses[0].error_code)
            is_doubtful = attempts > 1 or self._client.is_forwarded
            if error is ErrorCode.none or (error is ErrorCode.unknown_topic_or_partition and is_doubtful):
                break
            if error not in self._client.retriable or error is ErrorCode.unknown_topic_or_partition:
                raise Violation(f"DeleteTopics of {name} answered {error.name}")
            await asyncio.sleep(BACKOFF_S)
        self.seen["topic deleted"] += 1
        if self._is_repeated(attempts, started) and name in self._pool:
            self._pool.remove(name)
        self.absent[name] = None

    async def run(self) -> None:
        while not self.is_stopping:
            mine = [name for name in self.present if name.startswith(CHURNED) and name not in self._kept]
            if mine and self._client.chance.random() < 0.3:
                await self.delete(self._client.chance.choice(mine))
            else:
                name = self._next_name()
                if name not in self.present:
                    self.absent.pop(name, None)
                    await self.create(name, 1, {}, self._replication_factor)
            await asyncio.sleep(self._client.chance.expovariate(self._rate))

    def _is_repeated(self, attempts: int, started: float) -> bool:
        """By us, or by a broker that had to wait for its controller: an earlier copy may still be under way."""
        return attempts > 1 or asyncio.get_running_loop().time() - started > FORWARDED_S

    def _next_name(self) -> str:
        self._number += 1
        if not self._names:
            return f"{CHURNED}{self._number}"
        while len(self._pool) < self._names:
            self._number += 1
            self._pool.append(f"{CHURNED}again-{self._number}")
        return self._pool[self._number % self._names]

    async def check(self) -> None:
        """Whether the broker knows what was acknowledged, now or soon: it follows the controller, who has promised."""
        for _ in range(100):
            if await self._complaint() is None:
                return
            await asyncio.sleep(0.1)
        raise Violation(await self._complaint())

    async def _complaint(self) -> str | None:
        schema = RequestSchema.of(ApiKey.METADATA, 12)
        request = schema.MetadataRequest(
            topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        answer, _, _ = await self._client.insist(ApiKey.METADATA, 12, request, lambda _: ErrorCode.none)
        found = {str(topic.name): topic for topic in answer.topics}
        for name, topic_id in self.present.items():
            if name not in found:
                return f"topic {name} was acknowledged and is gone"
            if topic_id is not None and found[name].topic_id != topic_id:
                return f"topic {name} has another id than was acknowledged"
            if any(partition.leader_id < 0 for partition in found[name].partitions):
                return f"topic {name} has no leader"
        for name in self.absent:
            if name in found:
                return f"topic {name} was deleted and is there"
        return None


def _error_of_creation(answer: Any) -> ErrorCode:
    error = ErrorCode(answer.topics[0].error_code)
    # The only broker is being shut down: as Apache Kafka says it.
    return ErrorCode.leader_not_available if error is ErrorCode.invalid_replication_factor else error


def parse_log(content: bytes, base_offset: int) -> list[RecordBatch]:
    """The batches of a `.log` file of a recovered log: whole, valid, without holes."""
    found = []
    position = 0
    for batch in batches(content):
        if not batch.is_crc_valid() or batch.base_offset != base_offset:
            raise Violation(f"batch at {batch.base_offset}, expected {base_offset}, crc valid {batch.is_crc_valid()}")
        base_offset = batch.next_offset
        position += batch.size_bytes
        found.append(batch)
    if position != len(content):
        raise Violation(f"{len(content) - position} bytes follow the last whole batch at {base_offset}")
    return found
