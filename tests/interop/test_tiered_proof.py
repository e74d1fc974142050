"""The short form of `make tiered-proof`."""

from pathlib import Path

import pytest

from tests.cluster.tiered_proof import MB, Plan, Proof

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1200)]


def test_two_gigabytes_go_through_small_disks_and_nothing_is_lost(tmp_path: Path) -> None:
    result = Proof(tmp_path, Plan(size_bytes=2000 * MB, segment_bytes=16 * MB, fault_seconds=5)).run()
    assert result.problems == [], result
    assert result.read_mb == result.produced_mb >= 2000
    assert 0 < result.disk_mb_max <= result.disk_mb_allowed < result.produced_mb / 3
    assert result.read_remotely_mb > 0.8 * result.read_mb
    assert result.rejoined_mb["wal"] > 0
