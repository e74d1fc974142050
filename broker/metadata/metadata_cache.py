"""MetadataCache: the current image, replaced in one assignment, and the questions handlers ask it."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

from broker.common.identifiers import TopicPartition
from broker.metadata.broker_registration import BrokerRegistration, Endpoint
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.partition_registration import PartitionRegistration
from broker.metadata.topics_image import TopicImage


class AliveBroker(NamedTuple):
    """An unfenced broker as clients of one listener see it."""

    id: int
    host: str
    port: int
    rack: str | None


class MetadataCache:
    """This node's view of the cluster.

    A request that asks several questions takes `image` once and asks that, so its answer comes from one cluster.
    """

    def __init__(self) -> None:
        self._image = MetadataImage.EMPTY
        self._listeners: dict[Callable[[MetadataImage], None], None] = {}

    @property
    def image(self) -> MetadataImage:
        return self._image

    def set_image(self, image: MetadataImage) -> None:
        """Publish the next image; listeners are told in the order in which they came."""
        self._image = image
        for listener in list(self._listeners):
            listener(image)

    def add_listener(self, listener: Callable[[MetadataImage], None]) -> None:
        """Call `listener` with each new image, for example to wake whoever waits for a topic to appear."""
        self._listeners[listener] = None

    def remove_listener(self, listener: Callable[[MetadataImage], None]) -> None:
        self._listeners.pop(listener, None)

    def topic(self, name: str) -> TopicImage | None:
        return self._image.topics.by_name.get(name)

    def topic_id(self, name: str) -> UUID | None:
        topic = self._image.topics.by_name.get(name)
        return topic.id if topic else None

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self._image.topics.by_id.get(topic_id)
        return topic.name if topic else None

    def partition(self, topic_partition: TopicPartition) -> PartitionRegistration | None:
        return self._image.topics.partition(topic_partition)

    def partition_count(self, topic: str) -> int | None:
        found = self._image.topics.by_name.get(topic)
        return len(found.partitions) if found else None

    def rack_of(self, broker_id: int) -> str | None:
        """Of a registered broker; None also while it names none."""
        registration = self.image.brokers.get(broker_id)
        return None if registration is None else registration.rack

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self._image.brokers.get(broker_id)

    def alive_brokers(self, listener: str) -> list[AliveBroker]:
        """Unfenced brokers that have the listener, by id."""
        return list(alive_brokers(self._image, listener))

    def broker_endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where an alive broker is reached on a listener."""
        broker = self._image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.listeners.get(listener)

    def topic_config_overrides(self, topic: str) -> Mapping[str, str]:
        return self._image.configs.properties(ConfigResourceType.TOPIC, topic)


def alive_brokers(image: MetadataImage, listener: str) -> Iterator[AliveBroker]:
    """Unfenced brokers of an image that have the listener, by id."""
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        endpoint = broker.listeners.get(listener)
        if endpoint is not None and not broker.fenced:
            yield AliveBroker(broker.id, endpoint.host, endpoint.port, broker.rack)
