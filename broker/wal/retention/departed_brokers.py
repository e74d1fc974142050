"""DepartedBrokers: brokers gone for so long that somebody else must delete what they left in the bucket of a zone."""

from collections.abc import Collection
from typing import NamedTuple

from broker.metadata.metadata_image import MetadataImage


class Zone(NamedTuple):
    """The brokers that are up (registered and not fenced): in the own zone, and in the whole cluster."""

    here: frozenset[int]
    anywhere: frozenset[int]

    @classmethod
    def of(cls, image: MetadataImage, rack: str | None) -> "Zone":
        """That of a rack; brokers without one are in one zone."""
        up = {broker_id: each for broker_id, each in image.brokers.items() if not each.fenced}
        here = frozenset(broker_id for broker_id, each in up.items() if each.rack == rack)
        return cls(here, frozenset(up))


class DepartedBrokers:
    """Times are seconds of the event loop.  It knows at most as many brokers as were ever registered meanwhile."""

    def __init__(self, broker_id: int, gone_after_seconds: float) -> None:
        self._broker_id = broker_id
        self._gone_after_seconds = gone_after_seconds
        self._gone_since: dict[int, float] = {}
        self._seen: set[int] = set()

    def observe(self, zone: Zone, now: float) -> None:
        """Who is up now; who was, or is to be found in the bucket, and is not, is gone from now on."""
        for broker_id in self._seen - zone.anywhere:
            self._gone_since.setdefault(broker_id, now)
        for broker_id in zone.anywhere & self._gone_since.keys():
            del self._gone_since[broker_id]
        self._seen = (self._seen | zone.here) - (zone.anywhere - zone.here)

    def found(self, broker_ids: Collection[int], zone: Zone, now: float) -> None:
        """Objects of these are in the bucket of this zone."""
        self._seen.update(broker_ids)
        self.observe(zone, now)

    def left_behind(self, zone: Zone, now: float) -> list[int]:
        """Whose objects this broker has to look after: one broker of a zone does it, that with the lowest id."""
        if self._broker_id != min(zone.here, default=None):
            return []
        return [broker for broker, since in self._gone_since.items() if now - since >= self._gone_after_seconds]

    def forget(self, broker_id: int) -> None:
        """Nothing of it is left."""
        self._gone_since.pop(broker_id, None)
        self._seen.discard(broker_id)
