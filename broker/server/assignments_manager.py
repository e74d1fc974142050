"""Tells the controller in which log directory this broker's replicas are (KIP-858: Kafka's AssignmentsManager).

A broker has one directory, and the controller names it when it places a replica.  It names another one only for
replicas that were placed before the directory got its id: when the directory was replaced, or when the cluster did
not know directories yet.  A replica in a directory that is not registered counts as lost, and cannot lead.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Final, TypeAlias
from uuid import UUID

import structlog

from broker.common.errors import ErrorCode
from broker.common.tasks import BackgroundTasks
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.metadata_version import MetadataVersion
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.server.broker_identity import BrokerIdentity
from broker.server.node_to_controller_channel import NodeToControllerChannel

log = structlog.get_logger(__name__)

ASSIGNMENTS_PER_REQUEST: Final = 2_250  # AssignReplicasToDirsRequest.MAX_ASSIGNMENTS_PER_REQUEST
BACKOFF_MIN_MS: Final = 100
BACKOFF_MAX_MS: Final = 10_000
ASSIGN_REPLICAS_TO_DIRS_VERSION: Final = 0

ReplicaKey: TypeAlias = tuple[UUID, int]


class AssignmentsManager:
    """Keeps the replicas whose recorded directory is another than ours until the controller has taken note.

    What is queued is looked up again in the metadata before it is sent, so nothing is told of a replica that has
    left, and there are never more entries than replicas.
    """

    def __init__(
        self,
        channel: NodeToControllerChannel,
        identity: BrokerIdentity,
        broker_epoch: Callable[[], int],
        cache: MetadataCache,
        *,
        assignments_per_request: int = ASSIGNMENTS_PER_REQUEST,
    ) -> None:
        self._channel = channel
        self._identity = identity
        self._broker_epoch = broker_epoch
        self._cache = cache
        self._assignments_per_request = assignments_per_request
        self._queued: dict[ReplicaKey, None] = {}
        self._arrived = asyncio.Event()
        self._told = asyncio.Event()
        self._told.set()
        self._tasks = BackgroundTasks("assignments")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["AssignmentsManager"]:
        async with self._tasks:
            self._tasks.start("sender", self._send_forever())
            yield self

    def __len__(self) -> int:
        """Replicas the controller has still to hear of."""
        return len(self._queued)

    async def wait_until_told(self, timeout_ms: int) -> None:
        """Until the controller has noted every replica, so that those without a leader can be led once we are unfenced.

        A controller that refuses them must not keep the broker from serving the others: the wait ends then.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._told.wait()
        except TimeoutError:
            log.warning("assignments_not_noted", replicas=len(self._queued), waited_ms=timeout_ms)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Note the replicas of this broker that a change has placed in another directory than ours."""
        if not _knows_directories(image):
            return
        if not _knows_directories(delta.image):  # the cluster has just learnt of them: every replica is to be told
            self._queued.update(dict.fromkeys(self._wrong_replicas(image)))
        else:
            changes = delta.topics_delta.local_changes(self._identity.node_id)
            for placed in (changes.leaders, changes.followers):
                for key, registration in placed.items():
                    if registration.directory(self._identity.node_id) != self._identity.directory_id:
                        self._queued[(key.topic_id, key.partition)] = None
        if self._queued:
            self._told.clear()
            self._arrived.set()

    def _wrong_replicas(self, image: MetadataImage) -> Iterable[ReplicaKey]:
        return (
            (topic.id, index)
            for topic in image.topics.by_id.values()
            for index in topic.partitions
            if self._is_wrong((topic.id, index), image)
        )

    def _is_wrong(self, key: ReplicaKey, image: MetadataImage) -> bool:
        topic = image.topics.by_id.get(key[0])
        registration = None if topic is None else topic.partitions.get(key[1])
        node_id = self._identity.node_id
        return (
            registration is not None
            and node_id in registration.replicas
            and registration.directory(node_id) != self._identity.directory_id
        )

    async def _send_forever(self) -> None:
        backoff_ms = BACKOFF_MIN_MS
        while True:
            batch = self._next_batch()
            if not batch:
                self._told.set()
                self._arrived.clear()
                await self._arrived.wait()
                continue
            response = await self._channel.send(self._request(batch))
            if self._take_answers(batch, response):
                backoff_ms = BACKOFF_MIN_MS
            else:
                await asyncio.sleep(backoff_ms / 1000)
                backoff_ms = min(backoff_ms * 2, BACKOFF_MAX_MS)

    def _next_batch(self) -> list[ReplicaKey]:
        image = self._cache.image
        for settled in [key for key in self._queued if not self._is_wrong(key, image)]:
            del self._queued[settled]
        return list(islice(self._queued, self._assignments_per_request))

    def _take_answers(self, batch: Iterable[ReplicaKey], response: Any) -> bool:
        """Drop what the controller has noted; returns whether that was all."""
        if response.error_code != ErrorCode.none:
            log.warning("assignments_refused", error=response.error_code.name)
            return False
        errors = {
            (topic.topic_id, partition.partition_index): partition.error_code
            for directory in response.directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        noted = [key for key in batch if errors.get(key) == ErrorCode.none]
        for key in noted:
            self._queued.pop(key, None)
        refused = {error.name for error in errors.values() if error != ErrorCode.none}
        log.info("assignments_noted", replicas=len(noted), errors=sorted(refused))
        return all(key not in self._queued for key in batch)

    def _request(self, batch: Iterable[ReplicaKey]) -> Any:
        schema = RequestSchema.of(ApiKey.ASSIGN_REPLICAS_TO_DIRS, ASSIGN_REPLICAS_TO_DIRS_VERSION)
        topics: dict[UUID, list[Any]] = {}
        for topic_id, index in batch:
            topics.setdefault(topic_id, []).append(schema.PartitionData(partition_index=index))
        directory = schema.DirectoryData(
            id_=self._identity.directory_id,
            topics=tuple(
                schema.TopicData(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
        )
        return schema.AssignReplicasToDirsRequest(
            broker_id=self._identity.node_id, broker_epoch=self._broker_epoch(), directories=(directory,)
        )


def _knows_directories(image: MetadataImage) -> bool:
    return image.features.metadata_version >= MetadataVersion.IBP_3_7_IV2
