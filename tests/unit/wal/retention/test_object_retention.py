"""When an object may go: the three reasons, and what holds each of them back."""

from broker.wal.retention.object_retention import (
    KEEP_SLACK_MS,
    ObjectRetentionMode,
    RetentionPass,
    RetentionSettings,
)
from tests.unit.wal.sweep_world import FakeProgress
from tests.unit.wal.wal_world import BAR, FOO

HOUR_MS = 3_600_000
LOCAL = RetentionSettings()
REPLICATED = RetentionSettings(ObjectRetentionMode.REPLICATED, replicated_min_age_ms=600_000)
NOW_MS = 100 * HOUR_MS


def releases(
    progress: FakeProgress, age_ms: int, settings: RetentionSettings = LOCAL, *, is_early_allowed: bool = True
) -> bool:
    """An object with FOO up to 9 and BAR up to 4."""
    look = RetentionPass(settings, progress, NOW_MS, is_early_allowed=is_early_allowed)
    return look.releases({FOO: 9, BAR: 4}, NOW_MS - age_ms)


def test_it_goes_when_the_longest_of_its_local_retentions_is_over_and_ten_minutes_more() -> None:
    progress = FakeProgress()
    progress[FOO].local_retention_ms, progress[BAR].local_retention_ms = HOUR_MS // 2, HOUR_MS
    assert KEEP_SLACK_MS == 600_000
    assert not releases(progress, HOUR_MS + KEEP_SLACK_MS - 1)
    assert releases(progress, HOUR_MS + KEEP_SLACK_MS)
    assert releases(progress, HOUR_MS + KEEP_SLACK_MS, is_early_allowed=False)


def test_it_never_stays_longer_than_its_pointers() -> None:
    progress = FakeProgress()
    for settings, last_ms in ((LOCAL, 2 * HOUR_MS), (RetentionSettings(metadata_retention_ms=HOUR_MS), HOUR_MS)):
        for retention_ms in (None, 1 << 40):
            progress[FOO].local_retention_ms = retention_ms
            assert not releases(progress, last_ms + KEEP_SLACK_MS - 1, settings)
            assert releases(progress, last_ms + KEEP_SLACK_MS, settings)


def test_without_any_local_retention_it_stays_ten_minutes() -> None:
    progress = FakeProgress()
    progress[FOO].local_retention_ms = progress[BAR].local_retention_ms = 0
    assert not releases(progress, KEEP_SLACK_MS - 1)
    assert releases(progress, KEEP_SLACK_MS)


def test_it_goes_when_all_its_topics_are_deleted_and_not_when_one_is_left() -> None:
    progress = FakeProgress()
    progress[FOO].is_deleted = True
    assert not releases(progress, 0)
    progress[BAR].is_deleted = True
    assert releases(progress, 0)
    assert not releases(progress, 0, is_early_allowed=False)


def test_a_deleted_topic_keeps_nothing() -> None:
    progress = FakeProgress()
    progress[FOO].is_deleted = True
    progress[BAR].local_retention_ms = 0
    assert releases(progress, KEEP_SLACK_MS, is_early_allowed=False)


def test_it_goes_when_all_is_tiered_and_on_every_replica() -> None:
    progress = FakeProgress()
    progress.all_at(FOO, 10)
    progress.all_at(BAR, 5)
    progress[FOO].tiered, progress[BAR].tiered = 9, 4
    assert releases(progress, 0)
    assert not releases(progress, 0, is_early_allowed=False)


def test_one_record_that_is_not_tiered_keeps_it() -> None:
    progress = FakeProgress()
    progress.all_at(FOO, 10)
    progress.all_at(BAR, 5)
    progress[FOO].tiered, progress[BAR].tiered = 9, 3
    assert not releases(progress, 0)


def test_one_replica_that_lags_keeps_it() -> None:
    progress = FakeProgress()
    progress.all_at(FOO, 10)
    progress.all_at(BAR, 5)
    progress[FOO].tiered, progress[BAR].tiered = 9, 4
    progress[FOO].ends[3] = 9
    assert not releases(progress, 0)
    progress[FOO].ends[3] = -1  # it has not fetched in this epoch
    assert not releases(progress, 0)


def test_who_does_not_lead_a_partition_knows_nothing_of_its_replicas() -> None:
    progress = FakeProgress()
    progress.all_at(FOO, 10)
    progress.all_at(BAR, 5)
    progress[FOO].tiered, progress[BAR].tiered = 9, 4
    progress[BAR].is_led_here = False
    assert not releases(progress, 0)


def test_replicated_is_enough_in_that_mode_and_after_a_while() -> None:
    progress = FakeProgress()
    progress.all_at(FOO, 10)
    progress.all_at(BAR, 5)
    assert not releases(progress, 600_001, LOCAL)
    assert not releases(progress, 600_000, REPLICATED)
    assert releases(progress, 600_001, REPLICATED)
    assert not releases(progress, 600_001, REPLICATED, is_early_allowed=False)


def test_records_above_the_high_watermark_are_not_replicated_whoever_has_them() -> None:
    progress = FakeProgress()
    progress.all_at(FOO, 10)
    progress.all_at(BAR, 5)
    progress[FOO].high_watermark = 9
    assert not releases(progress, 600_001, REPLICATED)


def test_one_reason_per_slice_is_enough() -> None:
    progress = FakeProgress()
    progress.all_at(FOO, 10)
    progress[FOO].tiered = 9
    progress[BAR].is_deleted = True
    assert releases(progress, 0)
