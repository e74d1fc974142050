from datetime import UTC, datetime, timedelta

import pytest

from broker.protocol.durations import NO_THROTTLE, from_instant, milliseconds, to_instant, to_milliseconds


@pytest.mark.parametrize("count", [0, 1, -1, 1001, (1 << 31) - 1, -(1 << 31), 1_764_451_155_123])
def test_milliseconds_survive_the_way_there_and_back(count: int) -> None:
    assert to_milliseconds(milliseconds(count)) == count


def test_no_throttle_is_zero() -> None:
    assert timedelta(0) == NO_THROTTLE


@pytest.mark.parametrize("timestamp_ms", [0, 1, 1_764_451_155_123, 253_402_300_799_999])
def test_instants_survive_the_way_there_and_back(timestamp_ms: int) -> None:
    assert from_instant(to_instant(timestamp_ms)) == timestamp_ms


def test_no_timestamp_is_none() -> None:
    assert to_instant(-1) is None
    assert from_instant(None) == -1
    assert to_instant(1) == datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
