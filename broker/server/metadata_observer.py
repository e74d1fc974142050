"""Follows `__cluster_metadata` as an observer of the quorum, whoever leads it (KIP-595, KIP-630).

The leader serves records that are not committed yet: they wait here until the high watermark passes them, and a new
leader may take them back.  Nothing above the high watermark is ever applied.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog

from broker.common.errors import CorruptMessageError, ErrorCode
from broker.common.identifiers import (
    CLUSTER_METADATA_TOPIC,
    METADATA_TOPIC_ID,
    Offset,
)
from broker.common.tasks import BackgroundTasks
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_fault import MetadataFault
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.metadata_loader import LoadedMetadata, MetadataLoader
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.response_schema import RequestSchema
from broker.records.record_batch import RecordBatch, batches
from broker.schemas.cluster_metadata import MetadataRecord, decode
from broker.schemas.framing import UnknownRecordError
from broker.schemas.message_codec import MalformedRecordError
from broker.server.broker_identity import BrokerIdentity
from broker.server.controller_finder import ControllerFinder, Endpoint, InconsistentLeaderError, NodeIdTakenError
from broker.server.metadata_publisher import MetadataPublisher
from broker.server.metadata_tail import MetadataDivergedError, MetadataTail
from broker.server.node_to_controller_channel import ConnectToController, ControllerConnection

log = structlog.get_logger(__name__)

FETCH_VERSIONS: Final = range(13, 19)  # 18 carries the high watermark we know, so that the leader answers when it moves
FIRST_WITH_REPLICA_STATE: Final = 15
FETCH_SNAPSHOT_VERSIONS: Final = range(2)
FETCH_WAIT_MS: Final = 500  # the leader answers earlier when there is something new
FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
STALL_SECONDS_MAX: Final = 0.01  # of loading without letting others run

_LEADER_ERRORS: Final = frozenset(
    {
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.not_leader_or_follower,
        ErrorCode.broker_not_available,
    }
)


class ClusterIdMismatchError(Exception):
    """The controllers belong to another cluster than our data directory."""


class MetadataObserver:
    """One task that fetches, keeps the uncommitted tail, loads what is committed and publishes it.

    It is also how the leader is found: every answer names it, and `finder` hears of it.
    """

    def __init__(
        self,
        *,
        finder: ControllerFinder,
        connect: ConnectToController,
        publisher: MetadataPublisher,
        identity: BrokerIdentity,
        fetch_timeout_ms: int = 2_000,
        request_timeout_ms: int = 2_000,
        retry_backoff_ms: int = 20,
    ) -> None:
        """`fetch_timeout_ms`: how long the leader may be silent; `request_timeout_ms` bounds all other requests."""
        self._finder = finder
        self._connect = connect
        self._publisher = publisher
        self._identity = identity
        self._fetch_timeout_ms = fetch_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._loader = MetadataLoader()
        self._tail = MetadataTail()
        self._has_seen_records = False
        self._connection: ControllerConnection | None = None
        self._connected_to: Endpoint | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._refusal: ErrorCode | None = None
        self._tasks = BackgroundTasks("metadata")
        self.is_caught_up = False
        self.fault: Exception | None = None
        self.load_error_count = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["MetadataObserver"]:
        """Follow until left.  A fault of the quorum itself goes to the loop's exception handler, to end the broker."""
        self._tasks.start("follow", self._follow())
        try:
            yield self
        finally:
            await self._tasks.cancel_all()
            await self._disconnect()

    @property
    def applied_offset(self) -> Offset:
        """The last offset everybody on this broker knows of; -1 before the first publication."""
        return self._publisher.published_offset

    @property
    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        """What the controller we follow offers, by key; None before the first connection."""
        return self._versions or None

    @property
    def finalized_features(self) -> Mapping[str, int]:
        """The levels the cluster runs at, as far as the log was read: known before anything is published."""
        return self._loader.image.features.finalized

    @property
    def lag(self) -> int:
        """Committed records not applied yet, as far as we know."""
        return self._tail.lag

    async def _follow(self) -> None:
        while self.fault is None:
            try:
                progressed = await self.fetch_once()
            except (MetadataFault, UnknownRecordError, MalformedRecordError) as error:
                self._stop_applying(error)
                return
            except (ClusterIdMismatchError, InconsistentLeaderError, MetadataDivergedError, NodeIdTakenError) as error:
                self._end_broker(error)
                return
            except CorruptMessageError as error:
                self.load_error_count += 1
                log.error("metadata_fetch_corrupt", error=str(error))
                progressed = False
            if not progressed:
                await asyncio.sleep(self._retry_backoff_ms / 1000)

    def _stop_applying(self, error: Exception) -> None:
        """Going on would be guessing, so the broker keeps its last good view and says that it is not ready."""
        self.fault = error
        self.load_error_count += 1
        log.error("metadata_fault", error=str(error), applied_offset=self.applied_offset)

    def _end_broker(self, error: Exception) -> None:
        """Expected, and said in one sentence; the loop's handler ends the process."""
        self.fault = error
        log.error("metadata_quorum_unusable", reason=str(error))
        asyncio.get_running_loop().call_exception_handler({"message": str(error), "exception": error})

    async def fetch_once(self) -> bool:
        """One fetch and all that follows from it; False when it is better to wait before the next.

        Raises MetadataFault, UnknownRecordError, MalformedRecordError or CorruptMessageError for what cannot be
        applied, and the errors of a broken quorum.
        """
        loop = asyncio.get_running_loop()
        timeout_ms = self._fetch_timeout_ms + FETCH_WAIT_MS
        started = loop.time()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = await self._connected()
                version = self._version(ApiKey.FETCH, FETCH_VERSIONS)
                request = self._fetch_request(version)
                response = await connection.send(int(ApiKey.FETCH), version, request, timeout_ms)
        except (OSError, TimeoutError) as error:
            await self._lost(error)
            return False
        return await self._handle_fetch(response, waited_ms=(loop.time() - started) * 1000)

    async def _handle_fetch(self, response: Any, waited_ms: float) -> bool:
        if response.error_code != ErrorCode.none:
            self._raise_if_other_cluster(response.error_code)
            self._fetch_refused(response.error_code)
            return False
        partition = response.responses[0].partitions[0]
        leader_changed = self._observe_leader(partition, response.node_endpoints if self._has_endpoints else ())
        if partition.error_code in _LEADER_ERRORS:
            if leader_changed:
                return True
            await self._lost(ConnectionError(f"not the leader: {partition.error_code.name}"))
            return False
        if partition.error_code != ErrorCode.none:
            self._fetch_refused(partition.error_code)
            return False
        self._refusal = None
        if partition.diverging_epoch.epoch >= 0:
            was = self._tail.end_offset
            self._tail.truncate(partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset)
            log.info("metadata_truncated", was=was, now=self._tail.end_offset, epoch=partition.diverging_epoch.epoch)
            return True
        if partition.snapshot_id.end_offset >= 0:
            return await self._fetch_snapshot(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
        has_records = self._tail.append(partition.records or b"")
        has_committed = self._tail.advance_high_watermark(partition.high_watermark)
        await self._load_committed()
        return has_records or has_committed or waited_ms * 2 > FETCH_WAIT_MS

    def _fetch_refused(self, error: ErrorCode) -> None:
        """Said once: it is tried again fifty times a second."""
        if error != self._refusal:
            log.warning("metadata_fetch_refused", error=error.name, endpoint=str(self._connected_to))
        self._refusal = error

    @property
    def _has_endpoints(self) -> bool:
        return self._versions.get(ApiKey.FETCH, (0, 0))[1] >= 16

    def _observe_leader(self, partition: Any, node_endpoints: Sequence[Any]) -> bool:
        endpoints = {int(node.node_id): Endpoint(node.host, int(node.port)) for node in node_endpoints}
        leader = partition.current_leader
        return self._finder.observe(int(leader.leader_id), int(leader.leader_epoch), endpoints)

    def _raise_if_other_cluster(self, error: ErrorCode) -> None:
        if error == ErrorCode.inconsistent_cluster_id:
            raise ClusterIdMismatchError(
                f"the controller at {self._connected_to} belongs to another cluster than {self._identity.cluster_id}, "
                "which meta.properties of this broker names"
            )

    def _fetch_request(self, version: int) -> Any:
        schema = RequestSchema.of(ApiKey.FETCH, version)
        partition = schema.FetchPartition(
            partition=0,
            current_leader_epoch=self._finder.epoch,
            fetch_offset=self._tail.end_offset,
            last_fetched_epoch=self._tail.last_epoch,
            log_start_offset=0,
            partition_max_bytes=FETCH_BYTES_MAX,
            replica_directory_id=self._identity.directory_id,
            high_watermark=self._tail.high_watermark,
        )
        topic = schema.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
        return schema.FetchRequest(
            cluster_id=self._identity.cluster_id,
            **self._replica(schema),
            max_wait=milliseconds(FETCH_WAIT_MS),
            min_bytes=0,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=(topic,),
            forgotten_topics_data=(),
            rack_id="",
        )

    def _replica(self, schema: RequestSchema) -> dict[str, Any]:
        """Who asks, in the field this version has for it (KIP-903)."""
        node_id = self._identity.node_id
        if schema.version < FIRST_WITH_REPLICA_STATE:
            return {"replica_id": node_id}
        return {"replica_state": schema.ReplicaState(replica_id=node_id, replica_epoch=-1)}

    async def _load_committed(self) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        while (batch := self._tail.take_committed()) is not None:
            await self._load(batch)
            if loop.time() - started > STALL_SECONDS_MAX:
                await asyncio.sleep(0)
                started = loop.time()
        await self._catch_up()

    async def _load(self, batch: RecordBatch) -> None:
        records = () if batch.is_control else tuple(_metadata_records(batch))
        loaded = self._loader.load_batch(records, batch.last_offset, batch.partition_leader_epoch)
        self._has_seen_records = self._has_seen_records or bool(records)
        if loaded is not None and self.is_caught_up:
            await self._publish(loaded)

    async def _catch_up(self) -> None:
        """The first publication waits until nothing committed is missing, so that nobody acts on the past."""
        if self.is_caught_up or not self._has_seen_records or self.lag > 0:
            return
        image = self._loader.image
        if image.is_empty:
            return
        self.is_caught_up = True
        log.info("metadata_caught_up", offset=image.offset, topics=len(image.topics), brokers=len(image.brokers))
        await self._publish(LoadedMetadata(MetadataDelta.between(MetadataImage.EMPTY, image), image))

    async def _publish(self, loaded: LoadedMetadata) -> None:
        await self._publisher.prepare(loaded.delta, loaded.image)
        self._publisher.publish(loaded.delta, loaded.image)

    async def _fetch_snapshot(self, end_offset: Offset, epoch: int) -> bool:
        """Replace our image by the leader's snapshot; False when it could not be read, and the next fetch decides."""
        log.info("metadata_snapshot", end_offset=end_offset, epoch=epoch)
        try:
            content = await self._download_snapshot(end_offset, epoch)
        except (OSError, TimeoutError) as error:
            await self._lost(error)
            return False
        if content is None:
            return False
        records: list[MetadataRecord] = []
        loop = asyncio.get_running_loop()
        started = loop.time()
        for batch in batches(bytes(content)):
            batch.ensure_valid()
            if not batch.is_control:
                records += _metadata_records(batch)
            if loop.time() - started > STALL_SECONDS_MAX:
                await asyncio.sleep(0)
                started = loop.time()
        loaded = self._loader.load_snapshot(records, end_offset - 1, epoch)
        self._tail.restart_at(end_offset, epoch)
        self._has_seen_records = True
        if self.is_caught_up:
            await self._publish(loaded)
        return True

    async def _download_snapshot(self, end_offset: Offset, epoch: int) -> bytearray | None:
        content = bytearray()
        while True:
            async with asyncio.timeout(self._request_timeout_ms / 1000):
                connection = await self._connected()
                version = self._version(ApiKey.FETCH_SNAPSHOT, FETCH_SNAPSHOT_VERSIONS)
                request = self._snapshot_request(version, end_offset, epoch, len(content))
                key = int(ApiKey.FETCH_SNAPSHOT)
                response = await connection.send(key, version, request, self._request_timeout_ms)
            self._raise_if_other_cluster(response.error_code)
            if response.error_code != ErrorCode.none:
                log.warning("metadata_snapshot_refused", error=response.error_code.name)
                return None
            partition = response.topics[0].partitions[0]
            if partition.error_code != ErrorCode.none or partition.position != len(content):
                log.warning("metadata_snapshot_refused", error=partition.error_code.name, position=partition.position)
                return None
            chunk = partition.unaligned_records or b""
            content += chunk
            if len(content) >= partition.size:
                return content
            if not chunk:
                log.warning("metadata_snapshot_ends_early", size=partition.size, received=len(content))
                return None

    def _snapshot_request(self, version: int, end_offset: Offset, epoch: int, position: int) -> Any:
        schema = RequestSchema.of(ApiKey.FETCH_SNAPSHOT, version)
        partition = schema.PartitionSnapshot(
            partition=0,
            current_leader_epoch=self._finder.epoch,
            snapshot_id=schema.SnapshotId(end_offset=end_offset, epoch=epoch),
            position=position,
            replica_directory_id=self._identity.directory_id,
        )
        return schema.FetchSnapshotRequest(
            cluster_id=self._identity.cluster_id,
            replica_id=self._identity.node_id,
            max_bytes=FETCH_BYTES_MAX,
            topics=(schema.TopicSnapshot(name=CLUSTER_METADATA_TOPIC, partitions=(partition,)),),
        )

    async def _connected(self) -> ControllerConnection:
        """A connection to the leader, or to the next bootstrap server while there is none."""
        leader = self._finder.leader
        if self._connection is not None and (leader is None or leader.endpoint == self._connected_to):
            return self._connection
        await self._disconnect()
        endpoint = leader.endpoint if leader is not None else self._finder.next_bootstrap_endpoint()
        self._connection, self._connected_to = self._connect(endpoint), endpoint
        self._versions = await self._connection.versions(self._request_timeout_ms)
        return self._connection

    def _version(self, api_key: ApiKey, ours: range) -> int:
        low, high = self._versions.get(api_key, (-1, -1))
        version = min(high, ours[-1])
        if version < max(low, ours[0]):
            raise ConnectionError(f"{self._connected_to} offers {api_key.title} {low} to {high}")
        return version

    async def _lost(self, error: Exception) -> None:
        log.debug("metadata_fetch_failed", endpoint=str(self._connected_to), error=str(error) or type(error).__name__)
        leader = self._finder.leader
        if leader is not None and leader.endpoint == self._connected_to:
            self._finder.leader_unreachable()
        await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection, self._connected_to = self._connection, None, None
        if connection is not None:
            await connection.close()


def _metadata_records(batch: RecordBatch) -> Iterator[MetadataRecord]:
    for record in batch.records():
        if record.value is None:
            raise MetadataFault(f"the record at offset {record.offset} of the metadata log has no value")
        yield decode(record.value)


__all__ = [
    "ClusterIdMismatchError",
    "InconsistentLeaderError",
    "MetadataDivergedError",
    "MetadataObserver",
    "NodeIdTakenError",
]
