"""WalObjectKey: the name of a combined object in its bucket."""

from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from broker.common.identifiers import uuid_from_text, uuid_to_text

_ROOT: Final = "wal"
_SUFFIX: Final = ".wal"
_SEQUENCE_DIGITS: Final = 16
_HOUR_FORMAT: Final = "%Y%m%d%H"
_HOUR_DIGITS: Final = 10


class WalObjectKey(NamedTuple):
    """`wal/{cluster}/{broker}/{broker epoch}/{hour, UTC}/{sequence}-{id}.wal`.

    Each process of each broker has a prefix of its own, so that a broker lists only what it wrote; hours make a sweep
    by age cheap; sequence and id make a key unique.  An object is never replaced under its key.
    """

    cluster_id: str
    broker_id: int
    broker_epoch: int
    hour: str
    sequence: int
    combined_segment_id: UUID

    @classmethod
    def at(
        cls, now_ms: int, *, cluster_id: str, broker_id: int, broker_epoch: int, sequence: int, combined_id: UUID
    ) -> "WalObjectKey":
        """The key of an object made at that wall time."""
        hour = datetime.fromtimestamp(now_ms // 1000, tz=UTC).strftime(_HOUR_FORMAT)
        return cls(cluster_id, broker_id, broker_epoch, hour, sequence, combined_id)

    def __str__(self) -> str:
        name = f"{self.sequence:0{_SEQUENCE_DIGITS}x}-{uuid_to_text(self.combined_segment_id)}{_SUFFIX}"
        return f"{broker_prefix(self.cluster_id, self.broker_id)}{self.broker_epoch}/{self.hour}/{name}"

    @classmethod
    def parse(cls, key: str) -> "WalObjectKey":
        """The inverse of `str`; ValueError for any other key."""
        parts = key.split("/")
        if len(parts) != 6 or parts[0] != _ROOT or not key.endswith(_SUFFIX):
            raise ValueError(f"{key!r} is not the key of a WAL object")
        _, cluster_id, broker_id, broker_epoch, hour, name = parts
        sequence, _, combined_id = name.removesuffix(_SUFFIX).partition("-")
        try:
            parsed = cls(
                cluster_id, int(broker_id), int(broker_epoch), hour, int(sequence, 16), uuid_from_text(combined_id)
            )
        except ValueError as error:
            raise ValueError(f"{key!r} is not the key of a WAL object: {error}") from error
        if str(parsed) != key or len(hour) != _HOUR_DIGITS or not hour.isdigit():
            raise ValueError(f"{key!r} is not the key of a WAL object")
        return parsed


def cluster_prefix(cluster_id: str) -> str:
    """What the keys of a cluster begin with; ends in "/"."""
    return f"{_ROOT}/{cluster_id}/"


def broker_prefix(cluster_id: str, broker_id: int) -> str:
    """What the keys of a broker begin with, in all its processes' lives; ends in "/"."""
    return f"{cluster_prefix(cluster_id)}{broker_id}/"
