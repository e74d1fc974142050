"""WalMetadataTopic: `__remote_wal_log_metadata` over the wire, in one piece: created, appended to, read.

Kafka's TopicBasedRemoteLogMetadataManager, of which it is the half below the metadata.  It is no internal topic: as
with Kafka's own of KIP-405, clients with the right to may read and write it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.errors import ErrorCode
from broker.common.identifiers import BrokerId
from broker.common.tasks import BackgroundTasks
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.metadata_version import METADATA_VERSION_FEATURE, MINIMUM_METADATA_VERSION
from broker.network.broker_client import BrokerClient
from broker.network.byte_stream import Network
from broker.replication.leader_endpoint import LeaderUnavailableError
from broker.replication.offset_lookup import LATEST_TIMESTAMP
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.forwarding_manager import ForwardingManager
from broker.server.wal.wal_metadata_consumer import WalMetadataConsumer
from broker.server.wal.wal_metadata_endpoint import WalMetadataEndPoint
from broker.server.wal.wal_metadata_positions import WalMetadataPositions
from broker.server.wal.wal_metadata_producer import WalMetadataProducer
from broker.server.wal.wal_metadata_routes import WalMetadataRoutes
from broker.server.wal.wal_metadata_topic_creator import WalMetadataTopicCreator
from broker.wal.announce.metadata_topic import MetadataTopicError, OnMetadata

ACKS: Final = {"all": -1, "-1": -1, "1": 1}


class WalMetadataTopic:
    """The port `MetadataTopic`.  Nothing of the broker waits for `running` to have got anywhere."""

    def __init__(
        self,
        local_broker_id: BrokerId,
        config: ConfigHolder[BrokerConfig],
        cache: MetadataCache,
        forwarding: ForwardingManager,
        address_of: Callable[[BrokerId], LeaderAddress | None],
        positions: WalMetadataPositions,
        on_metadata: OnMetadata,
        *,
        network: Network,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._local_broker_id = local_broker_id
        self._config = config
        self._cache = cache
        self._network = network
        self._routes = WalMetadataRoutes(cache, address_of)
        self._creator = WalMetadataTopicCreator(cache, forwarding, config, chance)
        settings = config.current
        self.producer = WalMetadataProducer(
            self._routes,
            self._connect,
            ACKS[settings.rwlmm_config_remote_wal_log_metadata_producer_acks],
            clock,
        )
        self.consumer = WalMetadataConsumer(
            self._routes,
            self._connect_to_read,
            positions,
            clock,
            on_metadata,
            retention_ms=settings.rwlmm_config_remote_wal_log_metadata_topic_retention_ms,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WalMetadataTopic"]:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(BackgroundTasks("wal-metadata"))
            tasks.start("create-topic", self._creator.run())
            await stack.enter_async_context(self.producer.running())
            await stack.enter_async_context(self.consumer.running())
            self._cache.add_listener(self._on_image)
            stack.callback(self._cache.remove_listener, self._on_image)
            self._on_image(self._cache.image)
            yield self

    @property
    def partition_count(self) -> int | None:
        return self._routes.partition_count

    @property
    def lag(self) -> int:
        return self.consumer.lag

    @property
    def append_error_count(self) -> int:
        """Attempts that failed; each was, or will be, repeated."""
        return self.producer.error_count

    @property
    def skipped_batch_count(self) -> int:
        """Batches that could not be read."""
        return self.consumer.skipped_batches

    def append(self, partition: int, values: Sequence[bytes], *, may_linger: bool = False) -> "asyncio.Future[None]":
        return self.producer.append(partition, values, may_linger=may_linger)

    def assign(self, partitions: Collection[int], *, unhurried: Collection[int] = ()) -> None:
        self.consumer.assign(partitions, unhurried=unhurried)

    def read_again(self, partition: int) -> None:
        self.consumer.read_again(partition)

    def position(self, partition: int) -> int | None:
        return self.consumer.position(partition)

    async def end_offset(self, partition: int) -> int:
        """Over a connection of its own: it is asked seldom, and the others may be waiting for records."""
        route = self._routes.route(partition)
        if route is None:
            raise MetadataTopicError(f"partition {partition} has no leader that can be reached")
        endpoint = self._connect_to_read(route.leader)
        try:
            answer = (await endpoint.list_offsets({partition: route.leader_epoch}, LATEST_TIMESTAMP)).get(partition)
        except LeaderUnavailableError as error:
            raise MetadataTopicError(f"the leader of partition {partition} does not answer: {error}") from error
        finally:
            await endpoint.close()
        if answer is None or answer.error is not ErrorCode.none:
            reason = "nothing" if answer is None else answer.error.name
            raise MetadataTopicError(f"the leader of partition {partition} answers {reason}")
        return answer.offset

    def _on_image(self, image: MetadataImage) -> None:
        self.producer.reroute()
        self.consumer.reroute()

    def _connect(self, leader: LeaderAddress) -> BrokerClient:
        client_id = f"broker-{self._local_broker_id}-wal-metadata"
        return BrokerClient(leader.host, leader.port, client_id, network=self._network)

    def _connect_to_read(self, leader: LeaderAddress) -> WalMetadataEndPoint:
        return WalMetadataEndPoint(self._connect(leader), config=self._config, metadata_version=self._metadata_version)

    def _metadata_version(self) -> int:
        return self._cache.image.features.finalized.get(METADATA_VERSION_FEATURE, MINIMUM_METADATA_VERSION)
