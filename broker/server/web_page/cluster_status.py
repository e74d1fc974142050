"""ClusterStatus: the cluster as a broker's metadata has it, for people to look at."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from broker.common.identifiers import BrokerId
from broker.metadata.broker_registration import BrokerRegistration
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.topics_image import TopicImage

TOPICS_MAX: Final = 100  # a person looks at; the rest is counted
PARTITIONS_PER_PAUSE: Final = 1000  # looked at before others may run
_INTERNAL: Final = "__"


class TopicSettings(Protocol):
    """What is asked of a topic's settings."""

    @property
    def remote_wal_enable(self) -> bool: ...
    @property
    def remote_storage_enable(self) -> bool: ...


@dataclass
class _Counts:
    """Of all partitions."""

    leads: Counter[BrokerId] = field(default_factory=Counter)
    replicas: Counter[BrokerId] = field(default_factory=Counter)
    in_sync: Counter[BrokerId] = field(default_factory=Counter)
    partitions: int = 0
    without_leader: int = 0
    under_replicated: int = 0


class ClusterStatus:
    """Makes the description of an image when somebody asks; while the image stays, it is made once."""

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        controller_id: Callable[[], BrokerId | None],
        topic_settings: Callable[[str], TopicSettings] | None = None,
    ) -> None:
        """`controller_id` is who leads the metadata quorum, None while nobody is known to; without `topic_settings`
        nobody knows which way a topic's records go."""
        self._image = image
        self._controller_id = controller_id
        self._topic_settings = topic_settings
        self._described: tuple[MetadataImage, dict[str, Any]] | None = None

    async def describe(self) -> dict[str, Any]:
        """Brokers, topics and sums, as JSON has them."""
        image = self._image()
        if self._described is None or self._described[0] is not image:
            self._described = (image, await self._describe(image))
        return {"controller_id": self._controller_id(), **self._described[1]}

    async def _describe(self, image: MetadataImage) -> dict[str, Any]:
        counts = _Counts()
        topics = sorted(image.topics.by_id.values(), key=lambda topic: (topic.name.startswith(_INTERNAL), topic.name))
        shown: list[dict[str, Any]] = []
        pause_at = PARTITIONS_PER_PAUSE
        for topic in topics:
            if counts.partitions >= pause_at:
                pause_at = counts.partitions + PARTITIONS_PER_PAUSE
                await asyncio.sleep(0)
            row = self._topic_row(topic, counts)
            if len(shown) < TOPICS_MAX:
                shown.append({**row, **self._way(topic.name)})
        return {
            "brokers": [_broker_row(image.brokers[broker_id], counts) for broker_id in sorted(image.brokers)],
            "topic_count": len(topics),
            "partition_count": counts.partitions,
            "without_leader": counts.without_leader,
            "under_replicated": counts.under_replicated,
            "topics": shown,
            "metadata_offset": image.offset,
        }

    def _topic_row(self, topic: TopicImage, counts: _Counts) -> dict[str, Any]:
        without_leader = under_replicated = 0
        for partition in topic.partitions.values():
            counts.replicas.update(partition.replicas)
            counts.in_sync.update(partition.isr)
            counts.leads[partition.leader] += 1
            without_leader += not partition.has_leader
            under_replicated += len(partition.isr) < len(partition.replicas)
        counts.partitions += len(topic.partitions)
        counts.without_leader += without_leader
        counts.under_replicated += under_replicated
        return {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
            "without_leader": without_leader,
            "under_replicated": under_replicated,
        }

    def _way(self, topic: str) -> dict[str, bool | None]:
        if self._topic_settings is None:
            return {"through_bucket": None, "tiered": None}
        settings = self._topic_settings(topic)
        return {"through_bucket": settings.remote_wal_enable, "tiered": settings.remote_storage_enable}


def _broker_row(broker: BrokerRegistration, counts: _Counts) -> dict[str, Any]:
    return {
        "id": broker.id,
        "rack": broker.rack,
        "state": _state(broker),
        "listeners": {name: f"{endpoint.host}:{endpoint.port}" for name, endpoint in broker.listeners.items()},
        "leads": counts.leads[broker.id],
        "replicas": counts.replicas[broker.id],
        "in_sync": counts.in_sync[broker.id],
    }


def _state(broker: BrokerRegistration) -> str:
    if broker.fenced:
        return "fenced"
    return "shutting down" if broker.in_controlled_shutdown else "serving"
