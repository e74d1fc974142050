"""What the tests of metadata topics share: a cluster that has the topic, and who leads what of it."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC
from broker.common.metadata_topic import MetadataRecord
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.metadata_topic.topic_routes import TopicRoutes
from tests.unit.server.link_support import broker_record, image_with, partition_record, topic_records

TOPIC_ID = UUID(int=0xC0C0)
EPOCH = 3


def address(broker_id: int) -> LeaderAddress:
    return LeaderAddress(broker_id, f"host-{broker_id}", 9000 + broker_id)


def cluster(*leaders: int, topic_id: UUID = TOPIC_ID, epoch: int = EPOCH) -> MetadataImage:
    """Brokers 1 to 3, and a partition for each leader named (-1: none)."""
    partitions: list[Any] = [
        partition_record(topic_id, index, (1, 2, 3), leader=leader, leader_epoch=epoch)
        for index, leader in enumerate(leaders)
    ]
    topic = topic_records(REMOTE_WAL_LOG_METADATA_TOPIC, topic_id) if leaders else []
    return image_with(*(broker_record(each) for each in (1, 2, 3)), *topic, *partitions)


class World:
    """The metadata of one broker; `lead` changes it."""

    def __init__(self, *leaders: int) -> None:
        self.cache = MetadataCache()
        self.cache.set_image(cluster(*leaders))
        self.reachable = {1, 2, 3}
        self.routes = TopicRoutes(REMOTE_WAL_LOG_METADATA_TOPIC, self.cache, self.address_of)

    def address_of(self, broker_id: int) -> LeaderAddress | None:
        return address(broker_id) if broker_id in self.reachable else None

    def lead(self, *leaders: int, **options: Any) -> None:
        self.cache.set_image(cluster(*leaders, **options))


def metadata(*values: str, first_offset: int = 0, timestamp_ms: int = 1_000) -> list[MetadataRecord]:
    return [MetadataRecord(first_offset + n, timestamp_ms, value.encode()) for n, value in enumerate(values)]


def encoded(values: Sequence[str]) -> list[bytes]:
    return [value.encode() for value in values]
