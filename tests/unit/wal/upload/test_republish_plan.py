import pytest

from broker.wal.follow.coverage_index import OffsetRange
from broker.wal.upload.republish_plan import RepublishMode, needed_range, next_backfill


def needed(
    mode: str, *, start: int = 10, tiered: int = -1, retained: int = 0, announced: int | None = 0, upload: int = 100
) -> tuple[int, int]:
    return needed_range(
        RepublishMode(mode),
        local_log_start_offset=start,
        highest_tiered_offset=tiered,
        retained_from_offset=retained,
        first_announced_offset=announced,
        upload_start_offset=upload,
    )


@pytest.mark.parametrize(("mode", "start"), [("untiered", 41), ("local-retention", 60), ("none", 100)])
def test_the_mode_says_from_where_on(mode: str, start: int) -> None:
    assert needed(mode, tiered=40, retained=60) == (start, 100)


def test_never_below_what_is_on_the_disk() -> None:
    assert needed("untiered") == (10, 100)
    assert needed("untiered", tiered=5) == (10, 100)
    assert needed("local-retention", retained=3) == (10, 100)


def test_what_was_never_in_a_bucket_comes_from_the_leader_unless_it_is_to_be_tiered() -> None:
    assert needed("untiered", announced=30) == (30, 100)
    assert needed("untiered", announced=120) == (100, 100)
    assert needed("untiered", announced=None) == (100, 100)  # switched on a moment ago
    assert needed("untiered", tiered=20, announced=30) == (21, 100)
    assert needed("untiered", tiered=20, announced=None) == (21, 100)
    assert needed("local-retention", retained=3, announced=None) == (10, 100)


@pytest.mark.parametrize("mode", list(RepublishMode))
def test_h12_what_goes_out_live_is_not_backfill(mode: RepublishMode) -> None:
    assert needed(mode.value, tiered=150, retained=150) == (100, 100)
    assert needed(mode.value, start=50, tiered=20, retained=20, upload=50) == (50, 50)


def test_backfill_goes_in_offset_order() -> None:
    uncovered = [OffsetRange(50, 60), OffsetRange(10, 20), OffsetRange(30, 30)]
    assert next_backfill(uncovered, 0) == (10, 20)
    assert next_backfill(uncovered, 15) == (15, 20)
    assert next_backfill(uncovered, 20) == (50, 60)
    assert next_backfill(uncovered, 60) is None
    assert next_backfill([], 0) is None
