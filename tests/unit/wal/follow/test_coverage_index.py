from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.leader_epoch_file_cache import EpochEntry
from broker.wal.follow.coverage_index import CoverageIndex, CoverageRun, OffsetRange, gaps
from broker.wal.follow.lineage import Lineage
from tests.unit.wal.wal_world import BUCKET, OTHER_BUCKET, entry

MINUTE = 60_000
OWN = Lineage.of_own_log(5, [EpochEntry(1, 0), EpochEntry(3, 100), EpochEntry(5, 150)], 0, 200)


def ranges(index: CoverageIndex, unreachable: frozenset[str] = frozenset(), now_ms: int = 0) -> list[tuple[int, int]]:
    return [tuple(each) for each in index.valid_ranges(OWN, unreachable, now_ms)]  # type: ignore[misc]


def test_neighbours_of_the_same_kind_become_one() -> None:
    index = CoverageIndex()
    for start in (0, 20, 10, 5):
        index.add(entry(start, start + 9, leader_epoch=1), 10 * MINUTE)
    assert index.runs == (CoverageRun(0, 30, 1, BUCKET, 10 * MINUTE),)
    index.add(entry(50, 59, leader_epoch=1), 10 * MINUTE)
    index.add(entry(55, 56, leader_epoch=1), 10 * MINUTE)
    assert [run[:2] for run in index.runs] == [(0, 30), (50, 60)]
    index.add(entry(0, 100, leader_epoch=1), 10 * MINUTE)
    assert [run[:2] for run in index.runs] == [(0, 101)]


def test_others_stay_apart() -> None:
    index = CoverageIndex()
    index.add(entry(0, 9, leader_epoch=1), 10 * MINUTE)
    index.add(entry(10, 19, leader_epoch=1, bucket=OTHER_BUCKET), 10 * MINUTE)
    index.add(entry(20, 29, leader_epoch=1, timestamp=2 * MINUTE), 10 * MINUTE)
    index.add(entry(30, 39, leader_epoch=2), 10 * MINUTE)
    assert len(index.runs) == 4


def test_what_is_covered_depends_on_the_batches_epochs() -> None:
    index = CoverageIndex()
    index.add(entry(80, 119, leader_epoch=2, epochs=[(1, 80), (2, 90)]), MINUTE)  # 2 is not in the lineage
    index.add(entry(130, 160, leader_epoch=3, epochs=[(3, 130)]), MINUTE)  # 3 ended at 150
    assert ranges(index) == [(80, 90), (130, 150)]


def test_unreachable_buckets_and_expired_objects_cover_nothing() -> None:
    index = CoverageIndex()
    index.add(entry(0, 9, leader_epoch=1), 10 * MINUTE)
    index.add(entry(20, 29, leader_epoch=1, bucket=OTHER_BUCKET), 20 * MINUTE)
    assert ranges(index, frozenset({BUCKET})) == [(20, 30)]
    assert ranges(index, now_ms=10 * MINUTE) == [(20, 30)]
    index.drop_expired(10 * MINUTE)
    assert [run[:2] for run in index.runs] == [(20, 30)]
    index.clear()
    assert index.runs == ()


def test_what_is_deleted_is_not_covered() -> None:
    index = CoverageIndex()
    index.add(entry(0, 9, leader_epoch=1), MINUTE)
    index.add(entry(20, 29, leader_epoch=1), MINUTE)
    index.drop_below(25)
    assert [run[:2] for run in index.runs] == [(25, 30)]


def test_gaps() -> None:
    covered = [OffsetRange(20, 30), OffsetRange(0, 5), OffsetRange(25, 40), OffsetRange(90, 200)]
    assert gaps(0, 100, covered) == [(5, 20), (40, 90)]
    assert gaps(10, 15, covered) == [(10, 15)]
    assert gaps(20, 40, covered) == []
    assert gaps(5, 5, covered) == []
    assert gaps(0, 10, []) == [(0, 10)]
    assert gaps(38, 95, covered) == [(40, 90)]
    assert gaps(0, 10, [OffsetRange(5, 5)]) == [(0, 10)]


RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


@settings(max_examples=80)
@given(RANGES)
def test_merged_runs_say_the_same_as_the_slices(slices: list[tuple[int, int]]) -> None:
    index = CoverageIndex()
    expected: set[int] = set()
    for start, length in slices:
        index.add(entry(start, start + length, leader_epoch=1), MINUTE)
        expected |= set(range(start, start + length + 1))
    assert {offset for run in index.runs for offset in range(run.start_offset, run.end_offset)} == expected
    assert all(one.end_offset < other.start_offset for one, other in zip(index.runs, index.runs[1:], strict=False))
    missing = {offset for each in gaps(0, 60, index.valid_ranges(OWN, frozenset(), 0)) for offset in range(*each)}
    assert missing == set(range(60)) - expected
