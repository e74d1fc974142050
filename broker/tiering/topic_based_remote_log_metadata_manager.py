"""TopicBasedRemoteLogMetadataManager: which remote segments there are, kept in `__remote_log_metadata` (KIP-405).

What changes something is appended to the topic, and is done when this broker has read it there like all the others.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import structlog

from broker.common.identifiers import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition
from broker.common.metadata_topic import MetadataRecord, MetadataTopic, MetadataTopicError
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_log_metadata_consumer import RemoteLogMetadataConsumer
from broker.tiering.remote_log_metadata_events import RemoteLogMetadataEvent, encode_event
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager
from broker.tiering.remote_log_segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)
from broker.tiering.remote_partition_metadata_store import OnLost, RemotePartitionMetadataStore

log = structlog.get_logger(__name__)


class TopicBasedSettings(NamedTuple):
    """As TopicBasedRemoteLogMetadataManagerConfig; all times in milliseconds."""

    partition_count: int
    consume_wait_ms: int
    initialization_max_ms: int
    initialization_interval_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> "TopicBasedSettings":
        return cls(
            partition_count=config.rlmm_config_remote_log_metadata_topic_num_partitions,
            consume_wait_ms=config.rlmm_config_remote_log_metadata_consume_wait_ms,
            initialization_max_ms=config.rlmm_config_remote_log_metadata_initialization_retry_max_timeout_ms,
            initialization_interval_ms=config.rlmm_config_remote_log_metadata_initialization_retry_interval_ms,
        )


class TopicBasedRemoteLogMetadataManager(RemoteLogMetadataManager):
    """`on_metadata` and `on_replaced` are what the topic's client is to tell; the client runs within `running`.

    `on_fatal` is told once, and no question is ever answered after that: the topic has another number of partitions
    than this broker is told, so that events would be in the wrong places; or there is none in all the time in which
    there could have been.  That is while `could_exist` says so: this broker is part of the cluster, and there are as
    many brokers as replicas are asked for.  Kafka counts all time, and stops a broker that others are late for.
    """

    def __init__(
        self,
        topic: MetadataTopic,
        settings: TopicBasedSettings,
        *,
        could_exist: Callable[[], bool],
        on_fatal: Callable[[Exception], None],
    ) -> None:
        self._topic = topic
        self._settings = settings
        self._could_exist = could_exist
        self._on_fatal = on_fatal
        self._store = RemotePartitionMetadataStore()
        self._consumer = RemoteLogMetadataConsumer(topic, self._store)
        self._tasks = BackgroundTasks("remote-log-metadata")
        self.publish_errors = 0  # events of which it is not known that they are in the topic

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TopicBasedRemoteLogMetadataManager"]:
        async with self._topic.running(), self._tasks:
            self._tasks.start("initialize", self._initialize())
            try:
                yield self
            finally:
                self._consumer.close()

    def on_metadata(self, metadata_partition: int, records: Sequence[MetadataRecord]) -> None:
        """See `OnMetadata`."""
        self._consumer.on_metadata(metadata_partition, records)

    def on_replaced(self) -> None:
        """See `OnReplaced`.  One of another size is told of and not fatal: producers and consumers of what is on the
        local disks need none, and all brokers would stop at once."""
        self._consumer.on_replaced()
        count, configured = self._topic.partition_count, self._settings.partition_count
        if count != configured:
            log.error("remote_log_metadata_topic_misfit", partitions=count, needed=configured)

    @property
    def lag(self) -> int:
        """Records of the topic that are not read yet."""
        return self._topic.lag

    @property
    def unreadable_events(self) -> int:
        """Records of the topic that are no events this broker knows; they are passed over."""
        return self._consumer.unreadable_events

    # Changes

    async def add_remote_log_segment_metadata(self, segment: RemoteLogSegmentMetadata) -> None:
        if segment.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError(f"a segment is added in COPY_SEGMENT_STARTED, not in {segment.state.name}")
        await self._publish(segment)

    async def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        if update.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
            raise ValueError("an update cannot begin a copy: COPY_SEGMENT_STARTED is for segments that are added")
        await self._publish(update)

    async def put_remote_partition_delete_metadata(self, deletion: RemotePartitionDeleteMetadata) -> None:
        await self._publish(deletion)

    async def _publish(self, event: RemoteLogMetadataEvent) -> None:
        value = encode_event(event)
        try:
            async with asyncio.timeout(self._settings.consume_wait_ms / 1000):
                offset = await self._topic.append(self._consumer.metadata_partition(event.partition), [value])
                await self._consumer.applied(event.partition, offset)
        except TimeoutError as error:
            self.publish_errors += 1
            waited = f"{self._settings.consume_wait_ms} ms"
            raise RemoteStorageError(
                f"An event of {event.partition.topic_partition} was not read back from the topic within {waited}"
            ) from error
        except MetadataTopicError as error:
            self.publish_errors += 1
            raise RemoteStorageError(
                f"An event of {event.partition.topic_partition} was not appended to the topic: {error}"
            ) from error
        except RemoteStorageError:
            self.publish_errors += 1
            raise

    # Questions

    async def remote_log_segment_metadata(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return self._store.remote_log_segment_metadata(partition, epoch, offset)

    async def highest_offset_for_epoch(self, partition: TopicIdPartition, epoch: int) -> int | None:
        return self._store.highest_offset_for_epoch(partition, epoch)

    async def list_remote_log_segments(
        self, partition: TopicIdPartition, epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        return self._store.list_remote_log_segments(partition, epoch)

    async def remote_log_size(self, partition: TopicIdPartition, epoch: int) -> int:
        return self._store.remote_log_size(partition, epoch)

    # What is here

    def on_partition_leadership_changes(
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        self._consumer.assign([*leaders, *followers])

    def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:
        self._consumer.unassign(partitions)

    def watch_losses(self, on_lost: OnLost) -> None:
        self._store.watch_losses(on_lost)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self._store.is_initialized(partition)

    # The topic

    async def _initialize(self) -> None:
        """Wait for the topic; from then on see to partitions of which nothing is told because there is nothing."""
        problem = await self._wait_for_topic()
        if problem is not None:
            log.error("remote_log_metadata_not_initialized", reason=problem)
            self._on_fatal(RemoteStorageError(problem))
            return
        self._consumer.begin(self._settings.partition_count)
        while True:
            await self._consumer.unsettled.wait()
            self._consumer.settle()
            await self._pause()

    async def _wait_for_topic(self) -> str | None:
        """None when it is there and as it should be, else why it cannot be used."""
        configured, waited_s = self._settings.partition_count, 0.0
        while (count := self._topic.partition_count) is None:
            if waited_s > self._settings.initialization_max_ms / 1000:
                return f"{REMOTE_LOG_METADATA_TOPIC} is not there after {self._settings.initialization_max_ms} ms"
            could_exist = self._could_exist()
            began_s = self._now()
            await self._pause()
            if could_exist:
                waited_s += self._now() - began_s
        if count != configured:
            return f"{REMOTE_LOG_METADATA_TOPIC} has {count} partitions, and the settings say {configured}"
        return None

    async def _pause(self) -> None:
        await asyncio.sleep(self._settings.initialization_interval_ms / 1000)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
