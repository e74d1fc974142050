"""LogSegments: an ordered map of segments."""

from pathlib import Path

import pytest

from broker.log.log_segment import LogSegment
from broker.log.log_segments import LogSegments
from broker.log.segment_cache import SegmentCache
from tests.support.sim_disk import SimFileSystem


def make_segments(*bases: int) -> LogSegments:
    disk = SimFileSystem()
    disk.make_directories(Path("/d"))
    segments = LogSegments()
    for base in bases:
        segments.add(
            LogSegment.create(
                disk,
                SegmentCache(),
                Path("/d"),
                base,
                index_size_max=1000,
                created_ms=0,
                index_interval_bytes=4096,
            )
        )
    return segments


def test_order_and_neighbours() -> None:
    segments = make_segments(10, 0, 30)
    assert segments.base_offsets == [0, 10, 30]
    assert segments.first.base_offset == 0
    assert segments.active.base_offset == 30
    floors = [segments.floor(offset) for offset in (-1, 0, 9, 10, 29, 99)]
    assert [floor and floor.base_offset for floor in floors] == [None, 0, 0, 10, 10, 30]
    assert segments.higher(0).base_offset == 10  # type: ignore[union-attr]
    assert segments.higher(30) is None
    assert segments.get(10) is not None
    assert segments.get(11) is None
    assert [segment.base_offset for segment in segments.from_offset(15)] == [10, 30]
    assert [segment.base_offset for segment in segments.from_offset(-1)] == [0, 10, 30]


def test_removal_moves_the_active_one() -> None:
    segments = make_segments(0, 10)
    segments.remove(10)
    assert segments.active.base_offset == 0
    assert len(segments) == 1
    with pytest.raises(AssertionError):
        segments.remove(10)
    with pytest.raises(AssertionError):
        segments.add(segments.first)


def test_iteration_survives_removal() -> None:
    segments = make_segments(0, 10, 20)
    for segment in segments:
        segments.remove(segment.base_offset)
    assert len(segments) == 0
    assert segments.size_bytes == 0
