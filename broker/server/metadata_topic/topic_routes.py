"""Where the partitions of a metadata topic are, as this broker's metadata has it."""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

import structlog

from broker.common.identifiers import BrokerId, TopicPartition
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.topics_image import TopicImage
from broker.replication.replica_fetcher_manager import LeaderAddress

log = structlog.get_logger(__name__)


class Route(NamedTuple):
    """Who leads a partition of which incarnation of the topic."""

    topic_partition: TopicPartition
    topic_id: UUID
    leader: LeaderAddress
    leader_epoch: int


class TopicRoutes:
    """One for both halves; what it knows is made anew with each image."""

    def __init__(
        self, topic: str, cache: MetadataCache, address_of: Callable[[BrokerId], LeaderAddress | None]
    ) -> None:
        self.topic = topic
        self._cache = cache
        self._address_of = address_of
        self._image: MetadataImage | None = None
        self._topic_image: TopicImage | None = None
        self._partition_count = 0
        self._routes: dict[int, Route | None] = {}

    @property
    def topic_id(self) -> UUID | None:
        """None while there is no topic."""
        self._refresh()
        return None if self._topic_image is None else self._topic_image.id

    @property
    def partition_count(self) -> int | None:
        """None while there is no topic.

        As long as this process knows the topic it is what it was first: partitions added later are nobody's, for
        events of one user partition must stay in one place.
        """
        self._refresh()
        return None if self._topic_image is None else self._partition_count

    def route(self, partition: int) -> Route | None:
        """None for a partition without a leader, or with one that cannot be reached."""
        self._refresh()
        if partition not in self._routes:
            self._routes[partition] = self._look_up(partition)
        return self._routes[partition]

    def leads_any(self, leader: LeaderAddress) -> bool:
        """Whether a partition is led there."""
        routes = (self.route(partition) for partition in range(self.partition_count or 0))
        return any(route is not None and route.leader == leader for route in routes)

    def _refresh(self) -> None:
        if self._image is self._cache.image:
            return
        before, self._image = self._topic_image, self._cache.image
        self._topic_image = topic = self._cache.topic(self.topic)
        self._routes = {}
        if topic is None:
            return
        if before is None or before.id != topic.id:
            self._partition_count = len(topic.partitions)
        elif len(topic.partitions) != len(before.partitions):
            log.error(
                "metadata_topic_partitions_added",
                topic=self.topic,
                used=self._partition_count,
                there=len(topic.partitions),
            )

    def _look_up(self, partition: int) -> Route | None:
        topic = self._topic_image
        registration = None if topic is None else topic.partitions.get(partition)
        if topic is None or registration is None or registration.leader < 0:
            return None
        address = self._address_of(registration.leader)
        if address is None:
            return None
        topic_partition = TopicPartition(self.topic, partition)
        return Route(topic_partition, topic.id, address, registration.leader_epoch)
