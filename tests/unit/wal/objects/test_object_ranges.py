import pytest

from broker.wal.objects.object_ranges import COMBINED_EVENT_GAP_MAX, SLICE_EVENT_GAP_MAX, plan_ranges
from broker.wal.objects.slice_verifier import CorruptSliceError
from tests.unit.wal.wal_world import BUCKET, OTHER_BUCKET, entry

KIB = 1024


def test_56_interleaved_slices_of_one_object_are_one_get() -> None:
    wanted = [entry(0, 0, position=index * 2000, size=1000) for index in range(20)]
    (got,) = plan_ranges(reversed(wanted))
    assert (got.bucket, got.object_key, got.start, got.end, got.size) == (BUCKET, "wal/k", 0, 39_000, 39_000)
    assert got.entries == tuple(wanted)


def test_a_large_gap_is_not_fetched() -> None:
    first = entry(0, 0, position=100, size=100)
    at_the_limit = entry(0, 0, position=200 + COMBINED_EVENT_GAP_MAX, size=50)
    beyond = entry(0, 0, position=250 + 2 * COMBINED_EVENT_GAP_MAX + 1, size=50)
    ranges = plan_ranges([beyond, first, at_the_limit])
    assert [(each.start, each.end) for each in ranges] == [(100, 250 + 64 * KIB), (251 + 128 * KIB, 301 + 128 * KIB)]
    assert [each.entries for each in ranges] == [(first, at_the_limit), (beyond,)]


def test_slices_known_one_by_one_have_a_smaller_gap() -> None:
    first, second = entry(0, 0, position=0, size=10), entry(0, 0, position=10 + 16 * KIB, size=10)
    assert len(plan_ranges([first, second], SLICE_EVENT_GAP_MAX)) == 1
    third = entry(0, 0, position=11 + 16 * KIB, size=10)
    assert len(plan_ranges([first, third], SLICE_EVENT_GAP_MAX)) == 2


def test_objects_are_not_mixed() -> None:
    wanted = [
        entry(0, 0, key="wal/b", position=100),
        entry(0, 0, key="wal/a"),
        entry(0, 0, key="wal/b"),
        entry(0, 0, key="wal/a", bucket=OTHER_BUCKET),
    ]
    ranges = plan_ranges(wanted)
    assert [(each.bucket, each.object_key, each.start, each.end) for each in ranges] == [
        (BUCKET, "wal/b", 0, 200),
        (BUCKET, "wal/a", 0, 100),
        (OTHER_BUCKET, "wal/a", 0, 100),
    ]
    assert plan_ranges([]) == []


def test_a_slice_within_another_does_not_shorten_the_range() -> None:
    """Nobody writes that; a wrong event must not make us cut the bytes of a good one."""
    (got,) = plan_ranges([entry(0, 0, position=0, size=100), entry(0, 0, position=10, size=10)])
    assert (got.start, got.end) == (0, 100)


def test_27_each_slice_finds_its_bytes_in_the_answer_or_the_answer_is_short() -> None:
    first, second = entry(0, 0, position=100, size=3), entry(0, 0, position=105, size=2)
    (got,) = plan_ranges([first, second])
    assert bytes(got.bytes_of(first, b"abc__de")) == b"abc"
    assert bytes(got.bytes_of(second, b"abc__de")) == b"de"
    for answer in (b"", b"abc__d", b"abc__de+"):
        with pytest.raises(CorruptSliceError):
            got.bytes_of(first, answer)
