"""ObjectIdentities: the names and ids of the objects one broker makes."""

from collections.abc import Callable

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.identifiers import NO_TIMESTAMP
from broker.wal.objects.combined_segment import ObjectIdentity
from broker.wal.objects.object_key import WalObjectKey


class ObjectIdentities:
    """No two objects have the same key: a process has its broker epoch, an object in it its number.

    `broker_epoch` is that of now: a broker that registers again goes on counting under its new epoch.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        broker_id: int,
        broker_epoch: Callable[[], int],
        bucket: str,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._bucket = bucket
        self._clock = clock
        self._chance = chance
        self._sequence = 0

    def make(self, oldest_wait_ms: int | None) -> ObjectIdentity:
        """For an object that is made now, of records that were appended up to `oldest_wait_ms` ago; None: the event
        does not tell."""
        now_ms, broker_epoch, combined_id = self._clock.now_ms(), self._broker_epoch(), self._chance.uuid()
        self._sequence += 1
        key = WalObjectKey.at(
            now_ms,
            cluster_id=self._cluster_id,
            broker_id=self._broker_id,
            broker_epoch=broker_epoch,
            sequence=self._sequence,
            combined_id=combined_id,
        )
        oldest_append_ms = NO_TIMESTAMP if oldest_wait_ms is None else now_ms - oldest_wait_ms
        return ObjectIdentity(
            combined_id, self._broker_id, broker_epoch, now_ms, self._bucket, str(key), oldest_append_ms
        )
