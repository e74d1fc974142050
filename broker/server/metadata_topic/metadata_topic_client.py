"""MetadataTopicClient: a topic of the brokers' own over the wire, in one piece: created, appended to, read.

Kafka's TopicBasedRemoteLogMetadataManager, of which it is the half below the metadata.  It is no internal topic:
clients with the right to may read and write it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.errors import ErrorCode
from broker.common.identifiers import BrokerId
from broker.common.metadata_topic import MetadataTopicError, OnMetadata, OnReplaced
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
from broker.server.metadata_topic.starting_policy import StartingPolicy
from broker.server.metadata_topic.topic_consumer import TopicConsumer
from broker.server.metadata_topic.topic_creator import TopicCreator
from broker.server.metadata_topic.topic_endpoint import TopicEndPoint
from broker.server.metadata_topic.topic_producer import TopicProducer
from broker.server.metadata_topic.topic_routes import TopicRoutes
from broker.server.topic_spec import TopicSpec


class MetadataTopicClient:
    """The port `MetadataTopic`.  Nothing of the broker waits for `running` to have got anywhere.

    `acks` as in Produce: -1 or 1.  `client_id` is how it calls itself to other brokers.
    """

    def __init__(
        self,
        spec: TopicSpec,
        local_broker_id: BrokerId,
        config: ConfigHolder[BrokerConfig],
        cache: MetadataCache,
        forwarding: ForwardingManager,
        address_of: Callable[[BrokerId], LeaderAddress | None],
        start: StartingPolicy,
        on_metadata: OnMetadata,
        on_replaced: OnReplaced,
        *,
        client_id: str,
        acks: int,
        network: Network,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._local_broker_id = local_broker_id
        self._client_id = client_id
        self._config = config
        self._cache = cache
        self._network = network
        self._routes = TopicRoutes(spec.name, cache, address_of)
        self._creator = TopicCreator(spec, cache, forwarding, config, chance)
        self.producer = TopicProducer(self._routes, self._connect, acks, clock)
        self.consumer = TopicConsumer(self._routes, self._connect_to_read, start, on_metadata, on_replaced)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["MetadataTopicClient"]:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(BackgroundTasks("metadata-topic"))
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
    def could_exist(self) -> bool:
        """Whether the topic could be created now: this broker is part of the cluster, and there are enough of them."""
        local = self._cache.image.brokers.get(self._local_broker_id)
        return local is not None and not local.fenced and self._creator.missing_brokers() is None

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

    def append(self, partition: int, values: Sequence[bytes], *, may_linger: bool = False) -> "asyncio.Future[int]":
        return self.producer.append(partition, values, may_linger=may_linger)

    def assign(self, partitions: Collection[int], *, unhurried: Collection[int] = ()) -> None:
        self.consumer.assign(partitions, unhurried=unhurried)

    def read_again(self, partition: int) -> None:
        self.consumer.read_again(partition)

    def position(self, partition: int) -> int | None:
        return self.consumer.position(partition)

    def has_caught_up(self, partition: int) -> bool:
        return self.consumer.has_caught_up(partition)

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
        return BrokerClient(leader.host, leader.port, self._client_id, network=self._network)

    def _connect_to_read(self, leader: LeaderAddress) -> TopicEndPoint:
        return TopicEndPoint(
            self._routes.topic, self._connect(leader), config=self._config, metadata_version=self._metadata_version
        )

    def _metadata_version(self) -> int:
        return self._cache.image.features.finalized.get(METADATA_VERSION_FEATURE, MINIMUM_METADATA_VERSION)
