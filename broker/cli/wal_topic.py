"""WalTopicReader: reads the whole metadata topic of a cluster, as any consumer could."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from broker.common.errors import CorruptMessageError, ErrorCode
from broker.common.identifiers import NO_EPOCH, REMOTE_WAL_LOG_METADATA_TOPIC
from broker.common.metadata_topic import MetadataRecord, MetadataTopicError
from broker.config.value_types import HostPort
from broker.network.broker_client import BrokerClient
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.response_schema import RequestSchema
from broker.records.record_batch import batches
from broker.server.remote_leader_endpoint import LeaderConnection

T = TypeVar("T")

METADATA_VERSION: Final = 12
LIST_OFFSETS_VERSION: Final = 7
FETCH_VERSION: Final = 12  # the last that names topics
CLIENT_ID: Final = "wherry-wal"
REQUEST_TIMEOUT_MS: Final = 30_000
FETCH_WAIT_MS: Final = 500
PARTITION_BYTES_MAX: Final = 1 << 20
ATTEMPTS_MAX: Final = 20  # a leader may be about to change
RETRY_SECONDS: Final = 0.25
EARLIEST: Final = -2
LATEST: Final = -1

OnRecords = Callable[[int, Sequence[MetadataRecord]], None]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a broker says of its cluster; `leaders` are those of the metadata topic, empty when it is not there."""

    cluster_id: str
    topic_ids: frozenset[UUID]
    brokers: dict[int, HostPort] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)


class WalTopicReader:
    """MetadataTopicError when the cluster does not answer, or not in time."""

    def __init__(
        self,
        bootstrap: Sequence[HostPort],
        connect: Callable[[HostPort], LeaderConnection] = lambda at: BrokerClient(at.host, at.port, CLIENT_ID),
    ) -> None:
        self._bootstrap = bootstrap
        self._connect = connect
        self._clients: dict[HostPort, LeaderConnection] = {}
        self._view: ClusterView | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WalTopicReader"]:
        try:
            yield self
        finally:
            for client in self._clients.values():
                await client.close()

    async def cluster(self) -> ClusterView:
        """Asks one server after the other."""
        schema = RequestSchema.of(ApiKey.METADATA, METADATA_VERSION)
        request = schema.MetadataRequest(
            topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        reason = "no server is named"
        for address in self._bootstrap:
            try:
                answer = await self._send(address, ApiKey.METADATA, METADATA_VERSION, request)
            except MetadataTopicError as error:
                reason = str(error)
                continue
            brokers = {int(each.node_id): HostPort(each.host, each.port) for each in answer.brokers}
            return ClusterView(
                cluster_id=answer.cluster_id or "",
                topic_ids=frozenset(topic.topic_id for topic in answer.topics if topic.topic_id is not None),
                brokers=brokers,
                leaders={
                    partition.partition_index: int(partition.leader_id)
                    for topic in answer.topics
                    if topic.name == REMOTE_WAL_LOG_METADATA_TOPIC
                    for partition in topic.partitions
                },
            )
        raise MetadataTopicError(reason)

    async def read_all(self, on_records: OnRecords) -> None:
        """Every record that is there when the partition is begun, in order of offset per partition."""
        for partition in sorted((await self.cluster()).leaders):
            await self._read(partition, on_records)

    async def _read(self, partition: int, on_records: OnRecords) -> None:
        end = await self._ask(partial(self._list_offset, partition, LATEST))
        position = await self._ask(partial(self._list_offset, partition, EARLIEST))
        while position < end:
            found, position = await self._ask(partial(self._fetch, partition, position))
            on_records(partition, found)

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer, after some attempts: leaders move."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return await question()
            except MetadataTopicError:
                if attempt == ATTEMPTS_MAX:
                    raise
                self._view = None
                await asyncio.sleep(RETRY_SECONDS)
        raise AssertionError("an attempt returns or raises")

    async def _list_offset(self, partition: int, timestamp: int) -> int:
        schema = RequestSchema.of(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION)
        asked = schema.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=NO_EPOCH, timestamp=timestamp
        )
        topic = schema.ListOffsetsTopic(name=REMOTE_WAL_LOG_METADATA_TOPIC, partitions=(asked,))
        request = schema.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,))
        answer = await self._send(await self._leader(partition), ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request)
        row = answer.topics[0].partitions[0]
        self._check(row.error_code, partition)
        return int(row.offset)

    async def _fetch(self, partition: int, position: int) -> tuple[list[MetadataRecord], int]:
        """Records from `position` on, or from the log's start when that has moved, and where to go on."""
        schema = RequestSchema.of(ApiKey.FETCH, FETCH_VERSION)
        asked = schema.FetchPartition(
            partition=partition, fetch_offset=position, partition_max_bytes=PARTITION_BYTES_MAX
        )
        request = schema.FetchRequest(
            max_wait=milliseconds(FETCH_WAIT_MS),
            min_bytes=1,
            topics=(schema.FetchTopic(topic=REMOTE_WAL_LOG_METADATA_TOPIC, partitions=(asked,)),),
            forgotten_topics_data=(),
        )
        answer = await self._send(await self._leader(partition), ApiKey.FETCH, FETCH_VERSION, request)
        self._check(answer.error_code, partition)
        row = answer.responses[0].partitions[0]
        if row.error_code is ErrorCode.offset_out_of_range:
            return [], max(position, await self._list_offset(partition, EARLIEST))
        self._check(row.error_code, partition)
        if not row.records:
            raise MetadataTopicError(f"{REMOTE_WAL_LOG_METADATA_TOPIC}-{partition}: nothing at offset {position} yet")
        records: list[MetadataRecord] = []
        try:
            for batch in batches(row.records):
                position = batch.next_offset
                if batch.is_control:
                    continue
                batch.ensure_valid()
                records += (
                    MetadataRecord(record.offset, record.timestamp, record.value)
                    for record in batch.records()
                    if record.value is not None
                )
        except CorruptMessageError as error:
            raise MetadataTopicError(f"{REMOTE_WAL_LOG_METADATA_TOPIC}-{partition}: {error}") from error
        return records, position

    async def _leader(self, partition: int) -> HostPort:
        if self._view is None:
            self._view = await self.cluster()
        view = self._view
        leader = view.brokers.get(view.leaders.get(partition, -1))
        if leader is None:
            raise MetadataTopicError(f"{REMOTE_WAL_LOG_METADATA_TOPIC}-{partition} has no leader")
        return leader

    @staticmethod
    def _check(error: Any, partition: int) -> None:
        if error:
            raise MetadataTopicError(f"{REMOTE_WAL_LOG_METADATA_TOPIC}-{partition}: {error.name}")

    async def _send(self, address: HostPort, api_key: ApiKey, version: int, request: Any) -> Any:
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = self._connect(address)
        try:
            return await client.send(int(api_key), version, request, REQUEST_TIMEOUT_MS)
        except (OSError, TimeoutError) as error:
            raise MetadataTopicError(f"{address}: {error}") from error
