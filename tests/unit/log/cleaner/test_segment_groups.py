"""Groups of segments: what fits together, and what must not."""

from types import SimpleNamespace
from typing import Any, cast

from broker.log.cleaner.segment_groups import SEGMENTS_MAX, group_segments
from broker.log.log_segment import LogSegment

FAR = 2**31


def segment(base_offset: int, size: int, offset_index: int = 8, time_index: int = 12) -> Any:
    return SimpleNamespace(
        base_offset=base_offset,
        size_bytes=size,
        offset_index=SimpleNamespace(size_bytes=offset_index),
        time_index=SimpleNamespace(size_bytes=time_index),
    )


def bases(*segments: Any, end_offset: int = 100, size_max: int = 100, index_size_max: int = 100) -> list[list[int]]:
    groups = group_segments(
        cast("list[LogSegment]", list(segments)), end_offset, size_max=size_max, index_size_max=index_size_max
    )
    return [[each.base_offset for each in group] for group in groups]


def test_by_size() -> None:
    assert bases(segment(0, 50), segment(10, 50), segment(20, 1), segment(30, 99), segment(40, 200)) == [
        [0, 10],
        [20, 30],
        [40],
    ]


def test_by_either_index() -> None:
    assert bases(segment(0, 1, 60), segment(10, 1, 40), segment(20, 1, 1)) == [[0, 10], [20]]
    assert bases(segment(0, 1, 1, 60), segment(10, 1, 1, 41), segment(20, 1, 1, 59)) == [[0], [10, 20]]


def test_by_the_distance_of_offsets() -> None:
    assert bases(segment(0, 1), segment(10, 1), end_offset=FAR) == [[0, 10]]
    assert bases(segment(0, 1), segment(10, 1), end_offset=FAR + 1) == [[0], [10]]
    assert bases(segment(5, 1), segment(10, 1), segment(FAR + 6, 1), end_offset=FAR + 7) == [[5], [10, FAR + 6]]
    assert bases(segment(0, 1), segment(10, 0), segment(FAR, 1), end_offset=FAR + 10) == [[0, 10], [FAR]]


def test_an_empty_one_is_taken_along_however_far_it_reaches() -> None:
    assert bases(segment(0, 1), segment(10, 0), end_offset=FAR + 10) == [[0, 10]]


def test_not_too_many_for_one_turn_of_the_loop() -> None:
    groups = bases(*(segment(number, 0, 0, 0) for number in range(2 * SEGMENTS_MAX + 1)), end_offset=FAR)
    assert [len(group) for group in groups] == [SEGMENTS_MAX, SEGMENTS_MAX, 1]
