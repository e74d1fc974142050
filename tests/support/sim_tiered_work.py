"""Clients of a simulated cluster whose topics are tiered: readers of all there is, transactions, and administrators."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_EPOCH, TopicPartition
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.records.append_origin import AppendOrigin
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.records.record_batch import RecordBatch
from broker.replication.append_request import AppendRequest
from broker.replication.produce_result import PartitionProduceResult
from tests.support.sim_client import TopicChurner, Violation, produce_request
from tests.support.sim_cluster import SimCluster
from tests.support.sim_cluster_client import AnyBroker, LeaderClient
from tests.support.sim_cluster_work import ClusterReader, set_topic_configs
from tests.support.sim_node import PowerCut

EARLIEST: Final = -2
TRANSACTIONS_PER_S: Final = 1.5
SWITCHES_PER_S: Final = 0.3
FIRST_PRODUCER_ID: Final = 1_000_000_000  # no broker is given these
ANSWER_S: Final = 4.0
FILL_S: Final = 30.0
# A bucket that is away, metadata that is not read yet, a replica that is just being built.
RETRIABLE_WHEN_TIERED: Final = frozenset({ErrorCode.unknown_server_error, ErrorCode.replica_not_available})


class TieredLeaderClient(LeaderClient):
    """What a Java client reads again after is read again."""

    retriable = LeaderClient.retriable | RETRIABLE_WHEN_TIERED


async def earliest_offset(client: LeaderClient) -> int | None:
    """As its leader says; None when it does not."""
    schema = RequestSchema.of(ApiKey.LIST_OFFSETS, 4)
    partition = schema.ListOffsetsPartition(
        partition_index=client.partition.partition, current_leader_epoch=-1, timestamp=EARLIEST
    )
    topic = schema.ListOffsetsTopic(name=client.partition.topic, partitions=(partition,))
    request = schema.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))
    try:
        answer = await client.ask_once(ApiKey.LIST_OFFSETS, 4, request)
    except (ConnectionError, TimeoutError):
        client.on_refused()
        return None
    found = answer.topics[0].partitions[0]
    error = ErrorCode(found.error_code)
    if error is ErrorCode.none:
        return int(found.offset)
    if error not in client.retriable:
        raise Violation(f"the earliest offset of {client.partition} was answered {error.name}")
    client.on_refused()
    await client.pause()
    return None


class TieredReader(ClusterReader):
    """Goes on at the log start where records have expired meanwhile; may be shown committed records alone."""

    def __init__(
        self, client: LeaderClient, rack: str, gone_below: Callable[[], int], *, only_committed: bool = False
    ) -> None:
        super().__init__(client, rack, gone_below)
        self.only_committed = only_committed
        self.epochs: dict[int, int] = {}  # of batches, by base offset

    async def skip(self, offset: int) -> None:
        earliest = await earliest_offset(self._client)
        if earliest is not None and earliest > offset:
            self.seen["records expired before they were read"] += 1
            self.values.extend([None] * (earliest - offset))
            self._last_epoch = NO_EPOCH

    def hides(self, batch: RecordBatch, data: Any) -> bool:
        self.epochs[batch.base_offset] = batch.partition_leader_epoch
        if not self.only_committed:
            return batch.is_control
        return batch.is_control or (batch.is_transactional and _is_aborted(batch, data.aborted_transactions or ()))


def _is_aborted(batch: RecordBatch, aborted: Sequence[Any]) -> bool:
    """As the Java consumer, for producers that have one transaction each: who aborts is told with the records."""
    return any(each.producer_id == batch.producer_id and each.first_offset <= batch.last_offset for each in aborted)


class HistoryReader:
    """Reads a partition from its start to its end, and then again: what was read once is what is read ever after."""

    def __init__(self, client: LeaderClient, rack: str, gone_below: Callable[[], int]) -> None:
        self.seen: Counter[str] = Counter()
        self.partition = client.partition
        self._client, self._rack, self._gone_below = client, rack, gone_below
        self._known: dict[int, bytes] = {}
        self.hidden: set[int] = set()  # offsets that were not shown to who asks for committed records

    async def run(self) -> None:
        while True:
            start = await earliest_offset(self._client)
            if start is None:
                continue
            if start > self._gone_below():
                raise Violation(
                    f"{self.partition} begins at {start}, and nothing may be gone from {self._gone_below()}"
                )
            only_committed = self._client.chance.random() < 0.5
            reader = TieredReader(self._client, self._rack, self._gone_below, only_committed=only_committed)
            reader.values.extend([None] * start)
            for _ in range(self._client.chance.choice((3, 10, 40))):
                await reader.read_once(max_wait_ms=100)
                if 0 <= reader.high_watermark <= len(reader.values):
                    self.seen["history read to its end"] += 1
                    break
            self._compare(start, reader)
            self.seen += reader.seen
            await asyncio.sleep(self._client.chance.expovariate(4.0))

    def _compare(self, start: int, reader: TieredReader) -> None:
        for offset in range(start, len(reader.values)):
            value = reader.values[offset]
            if value is None:
                continue
            if value == b"" and reader.only_committed:
                self.hidden.add(offset)
                continue
            if value and self._known.setdefault(offset, value) != value:
                raise Violation(
                    f"{self.partition}: offset {offset} was {self._known[offset][:20]!r}, and is {value[:20]!r}"
                )


class _TransactionalAppend(AppendRequest):
    def __init__(self) -> None:
        super().__init__(-1, 3_000, AppendOrigin.CLIENT)
        self.answered: asyncio.Future[PartitionProduceResult] = asyncio.get_running_loop().create_future()

    def on_complete(self, results: list[PartitionProduceResult]) -> None:
        if not self.answered.done():
            self.answered.set_result(results[0])


class TransactionalWriter:
    """Transactions as a producer and its coordinator write them, one producer id each, one after the other.

    There is no coordinator yet, and brokers refuse such batches from clients: they are handed to the leader, and the
    markers sent to it.
    """

    def __init__(self, cluster: SimCluster, client: LeaderClient, name: str) -> None:
        self.name = name
        self.is_stopping = False
        self.seen: Counter[str] = Counter()
        self.committed: dict[bytes, int] = {}  # acknowledged, and then committed; with their offsets
        self.aborted: set[bytes] = set()  # whether or not they were acknowledged
        self._cluster, self._client = cluster, client
        self._number = 0

    async def run(self) -> None:
        while not self.is_stopping:
            await asyncio.sleep(self._client.chance.expovariate(TRANSACTIONS_PER_S))
            await self._transaction()

    async def _transaction(self) -> None:
        chance = self._client.chance
        self._number += 1
        producer_id = FIRST_PRODUCER_ID + self._number * 100 + self._client.partition.partition
        is_commit, sequence = chance.random() < 0.5, 0
        acknowledged: dict[bytes, int] = {}
        for _ in range(chance.randint(1, 3)):
            values = [b"%s.%d:%d:" % (self.name.encode(), self._number, sequence + each) for each in range(2)]
            if not is_commit:
                self.aborted.update(values)
            base_offset = await self._append(producer_id, sequence, values)
            if base_offset is None:
                break  # it may be there, or not; nothing of this producer comes any more
            acknowledged.update({value: base_offset + index for index, value in enumerate(values)})
            sequence += len(values)
            await asyncio.sleep(chance.expovariate(5.0))
        await self._end(producer_id, is_commit=is_commit)
        if is_commit:
            self.committed.update(acknowledged)
        self.seen["transaction committed" if is_commit else "transaction aborted"] += bool(acknowledged)

    async def _append(self, producer_id: int, sequence: int, values: Sequence[bytes]) -> int | None:
        """The offset of the first that was acknowledged."""
        leader = self._cluster.leader_of(self._client.partition)
        node = None if leader is None else self._cluster.nodes[leader]
        if node is None or not node.is_on or node.node is None or node.node.broker is None:
            return None
        builder = MemoryRecordsBuilder(
            producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
        )
        for value in values:
            builder.append(1_700_000_000_000, None, value)
        append = _TransactionalAppend()
        entry = (self._client.partition, RecordBatch.parse(builder.build()))
        try:
            node.call(node.node.broker.replicas.append_records, append, [entry])
            async with asyncio.timeout(ANSWER_S):
                result = await append.answered
        except (PowerCut, TimeoutError):
            return None
        return int(result.base_offset) if result.error is ErrorCode.none else None

    async def _end(self, producer_id: int, *, is_commit: bool) -> None:
        schema = RequestSchema.of(ApiKey.WRITE_TXN_MARKERS, 1)
        topic = schema.WritableTxnMarkerTopic(
            name=self._client.partition.topic, partition_indexes=(self._client.partition.partition,)
        )
        marker = schema.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=is_commit,
            topics=(topic,),
            coordinator_epoch=0,
        )
        request = schema.WriteTxnMarkersRequest(markers=(marker,))
        _, error, _ = await self._client.insist(
            ApiKey.WRITE_TXN_MARKERS,
            1,
            request,
            lambda answer: ErrorCode(answer.markers[0].topics[0].partitions[0].error_code),
        )
        if error is not ErrorCode.none:
            raise Violation(f"{self.name}: the end of a transaction was answered {error.name}")


class TieringSwitch:
    """Sets configs that tiering goes by, and sets them back, at times at once: copies stop and go on, or all of tiering
    does."""

    def __init__(
        self, client: AnyBroker, topic: str, off: Mapping[str, str | None], on: Mapping[str, str | None]
    ) -> None:
        self.is_stopping = False
        self.seen: Counter[str] = Counter()
        self._client, self._topic = client, topic
        self._values = (off, on)

    async def run(self) -> None:
        """It ends with `on`."""
        while not self.is_stopping:
            for values in self._values:
                if values is self._values[0] or self._client.chance.random() < 0.7:
                    await asyncio.sleep(self._client.chance.expovariate(SWITCHES_PER_S))
                name = next(iter(values))
                self.seen[f"{name}={values[name]}"] += await set_topic_configs(self._client, self._topic, values)


class TieredChurner(TopicChurner):
    """Topics that are tiered, written to, and deleted soon after, often before all is copied."""

    def __init__(
        self, client: AnyBroker, writer: Callable[[TopicPartition], LeaderClient], configs: dict[str, str]
    ) -> None:
        super().__init__(client, names=2, replication_factor=3, rate=0.5)
        self._writer, self._configs = writer, configs

    async def create(self, name: str, partitions: int, configs: dict[str, str], replication_factor: int = 1) -> None:
        await super().create(name, partitions, configs or self._configs, replication_factor)
        if not configs:
            client = self._writer(TopicPartition(name, 0))
            with contextlib.suppress(TimeoutError):  # an earlier deletion that nobody answered may have come late
                async with asyncio.timeout(FILL_S):
                    await self._fill(client, TopicPartition(name, 0))
            client.close()

    async def _fill(self, client: LeaderClient, partition: TopicPartition) -> None:
        for number in range(self._client.chance.randint(2, 12)):
            builder = MemoryRecordsBuilder()
            builder.append(1_700_000_000_000, None, b"%d:" % number + b"y" * 600)
            request = produce_request(7, partition, -1, bytes(builder.build()))
            try:
                answer = await client.ask_once(ApiKey.PRODUCE, 7, request)
            except (ConnectionError, TimeoutError):
                client.on_refused()
                continue
            if ErrorCode(answer.responses[0].partition_responses[0].error_code) is not ErrorCode.none:
                client.on_refused()
