"""The short form of `make soak`."""

from pathlib import Path

import pytest

from tests.cluster.wal_soak import Soak

pytestmark = pytest.mark.interop


def test_faulty_buckets_leave_neither_lag_nor_objects_behind(tmp_path: Path) -> None:
    result = Soak(tmp_path, seconds=120, rate=300, seed=1).run()
    assert result.problems == [], result
    assert result.acknowledged == result.read > 0
    assert result.faults.keys() == {"slow_down", "reset"}
    assert result.received["wal"] > 0
