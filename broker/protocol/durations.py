"""Durations and instants as kio's classes want them, from and to whole milliseconds without rounding."""

from datetime import UTC, datetime, timedelta
from typing import Final

_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

NO_THROTTLE: Final = timedelta(0)


def milliseconds(count: int) -> timedelta:
    return timedelta(milliseconds=count)


def to_milliseconds(duration: timedelta) -> int:
    return duration // _MILLISECOND


def to_instant(timestamp_ms: int) -> datetime | None:
    """A timestamp as kio wants it: None for every negative one, which the wire writes as -1."""
    return _EPOCH + timedelta(milliseconds=timestamp_ms) if timestamp_ms >= 0 else None


def from_instant(instant: datetime | None) -> int:
    """Milliseconds since the epoch, -1 for None."""
    return -1 if instant is None else (instant - _EPOCH) // _MILLISECOND
