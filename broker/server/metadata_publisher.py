"""Tells the broker what changed in the cluster, in the one order that is safe (Kafka's BrokerMetadataPublisher)."""

from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import TypeAlias

import structlog

from broker.common.identifiers import NO_OFFSET, Offset
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage

log = structlog.get_logger(__name__)

Subscriber: TypeAlias = Callable[[MetadataDelta, MetadataImage], None]
Preparation: TypeAlias = Callable[[MetadataDelta, MetadataImage], Awaitable[None]]


class PublishingStage(IntEnum):
    """When a subscriber hears of a change; the cache is swapped before all of them."""

    CONFIGS_BEFORE_REPLICAS = 0  # a new log is created with its topic's settings
    REPLICAS = 1
    COORDINATORS = 2
    CONFIGS = 3
    QUOTAS = 4
    CREDENTIALS = 5
    ACLS = 6
    LAST = 7


class MetadataPublisher:
    """Publishes images to the cache, then deltas to subscribers by stage; all within one run of the event loop.

    A subscriber that fails is counted and loud, and the others still hear: half of a broker that follows the cluster
    is better than none, as in Kafka, where the publishing fault handler of brokers does not halt.

    Between `hold` and `release` images reach the cache alone.  A broker that starts holds until the metadata knows its
    new registration (Kafka installs the publisher after the initial catch-up): an older image may make it the leader of
    an epoch of which a crash has taken records away, and a leader must not lose records within its epoch.
    """

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._subscribers: list[tuple[PublishingStage, str, Subscriber]] = []
        self._preparations: list[tuple[str, Preparation]] = []
        self._is_holding = False
        self.published_offset: Offset = NO_OFFSET
        self.error_count = 0

    def subscribe(self, stage: PublishingStage, name: str, subscriber: Subscriber) -> None:
        """Call `subscriber(delta, image)` with every change from now on, at its stage; equal stages in this order."""
        self._subscribers.append((stage, name, subscriber))
        self._subscribers.sort(key=lambda entry: entry[0])

    def prepare_with(self, name: str, preparation: Preparation) -> None:
        """Await `preparation(delta, image)` before each change is published, for what takes long and can be done
        ahead; it must be right without it."""
        self._preparations.append((name, preparation))

    def hold(self) -> None:
        """Tell subscribers nothing until `release`."""
        self._is_holding = True

    async def release(self) -> None:
        """Tell subscribers the whole image of now as one change, and from now on every change."""
        await self._prepare(MetadataDelta.between(MetadataImage.EMPTY, self._cache.image), self._cache.image)
        self._is_holding = False
        image = self._cache.image  # may be newer than the prepared one
        self.publish(MetadataDelta.between(MetadataImage.EMPTY, image), image)

    async def prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Do ahead what publishing this would take long for; call it before `publish`."""
        if not self._is_holding:
            await self._prepare(delta, image)

    async def _prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for name, preparation in self._preparations:
            try:
                await preparation(delta, image)
            except Exception:
                self.error_count += 1
                log.exception("metadata_not_prepared", preparation=name, offset=image.offset)

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Make an image the broker's view.  `published_offset` moves only when everybody has heard of it."""
        self._cache.set_image(image)
        for _, name, subscriber in () if self._is_holding else self._subscribers:
            try:
                subscriber(delta, image)
            except Exception:
                self.error_count += 1
                log.exception("metadata_not_applied", subscriber=name, offset=image.offset)
        self.published_offset = image.offset
