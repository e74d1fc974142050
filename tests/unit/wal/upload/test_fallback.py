"""When followers get their records from the leader."""

import pytest

from broker.wal.upload.fallback import (
    GONE_AFTER_MS,
    HEALTHY_FOR_MS,
    FallbackDecision,
    FallbackEnd,
    FallbackPolicy,
    FallbackReason,
    PartitionFallback,
    UploadProgress,
)

FOLLOWER = 2
HEALTHY = UploadProgress(
    covered_from=100,
    announced_to=200,
    log_end_offset=210,
    unannounced_ms=20,
    is_metadata_failing=False,
    is_shutting_down=False,
)
BUCKET, LEADER = FallbackDecision(False), FallbackDecision(True)


class Asked:
    """A partition whose follower asks."""

    def __init__(self, *, is_enabled: bool = True) -> None:
        self.now_ms = 1000
        self.fallback = PartitionFallback(FallbackPolicy(is_enabled, 5000), self.now_ms)

    def at(self, offset: int, progress: UploadProgress = HEALTHY, after_ms: int = 0) -> FallbackDecision:
        self.now_ms += after_ms
        return self.fallback.decide(FOLLOWER, offset, progress, self.now_ms)

    def stands(self, offset: int, for_ms: int) -> FallbackDecision:
        """Asking as often as followers do."""
        for _ in range(for_ms // 500):
            decision = self.at(offset, after_ms=500)
        return self.at(offset, after_ms=for_ms % 500) if for_ms % 500 else decision

    def settle(self, progress: UploadProgress = HEALTHY, after_ms: int = 0) -> FallbackEnd | None:
        """It did not ask for so long."""
        self.now_ms += after_ms
        return self.fallback.settle(FOLLOWER, progress, self.now_ms)


def test_a_healthy_bucket_serves() -> None:
    asked = Asked()
    for offset in range(100, 210, 10):
        assert asked.at(offset, after_ms=1000) == BUCKET
    assert not asked.fallback.is_active


@pytest.mark.parametrize("is_enabled", [True, False])
def test_what_the_bucket_never_held_comes_from_the_leader_until_the_follower_is_past_it(is_enabled: bool) -> None:
    asked = Asked(is_enabled=is_enabled)
    assert asked.at(0) == FallbackDecision(True, began=FallbackReason.NOT_IN_BUCKET)
    assert asked.at(99, after_ms=10) == LEADER
    assert asked.fallback.is_active
    asked.fallback.sent(FOLLOWER, 1234)
    ended = asked.at(100, after_ms=10)
    assert ended == FallbackDecision(False, ended=FallbackEnd(FOLLOWER, FallbackReason.NOT_IN_BUCKET, 1234))
    assert not asked.fallback.is_active
    assert asked.at(100) == BUCKET


def test_uploads_that_are_late_and_a_metadata_topic_that_fails() -> None:
    late = HEALTHY._replace(unannounced_ms=4999)
    asked = Asked()
    assert asked.at(200, late) == BUCKET
    assert asked.at(200, late._replace(unannounced_ms=5000)) == FallbackDecision(
        True, began=FallbackReason.UPLOADS_LATE
    )
    asked = Asked()
    failing = HEALTHY._replace(is_metadata_failing=True)
    assert asked.at(200, failing._replace(unannounced_ms=None)) == BUCKET  # nothing of this partition waits for it
    assert asked.at(200, failing) == FallbackDecision(True, began=FallbackReason.METADATA_TOPIC)


def test_it_ends_ten_seconds_after_announcements_are_in_time_again() -> None:
    asked = Asked()
    late = HEALTHY._replace(unannounced_ms=6000)
    asked.at(200, late)
    assert asked.at(210, HEALTHY, after_ms=500) == LEADER
    assert asked.at(210, HEALTHY._replace(unannounced_ms=1000), after_ms=HEALTHY_FOR_MS - 1) == LEADER  # not yet
    assert asked.at(210, HEALTHY, after_ms=500) == LEADER
    assert asked.at(210, HEALTHY, after_ms=HEALTHY_FOR_MS - 501) == LEADER
    assert asked.at(210, HEALTHY, after_ms=1).ended == FallbackEnd(FOLLOWER, FallbackReason.UPLOADS_LATE, 0)


def test_a_bucket_that_has_recovered_while_nobody_asked_is_used_at_once() -> None:
    asked = Asked()
    asked.at(200, HEALTHY._replace(unannounced_ms=6000))
    asked.fallback.was_late(asked.now_ms + 1500)  # what waited is announced
    idle = HEALTHY._replace(announced_to=210, unannounced_ms=None)
    assert asked.at(210, idle, after_ms=1500 + HEALTHY_FOR_MS - 1) == LEADER
    asked = Asked()
    asked.at(200, HEALTHY._replace(unannounced_ms=6000))
    asked.fallback.was_late(asked.now_ms + 1500)
    ended = asked.at(205, HEALTHY, after_ms=1500 + HEALTHY_FOR_MS)  # its first question since
    assert ended == FallbackDecision(False, ended=FallbackEnd(FOLLOWER, FallbackReason.UPLOADS_LATE, 0))


def test_it_does_not_end_below_what_can_be_found() -> None:
    asked = Asked()
    asked.at(150, HEALTHY._replace(unannounced_ms=6000))
    moved = HEALTHY._replace(covered_from=180)
    assert asked.at(170, moved, after_ms=20_000) == LEADER
    assert asked.at(179, moved, after_ms=HEALTHY_FOR_MS) == LEADER
    assert asked.at(180, moved).ended == FallbackEnd(FOLLOWER, FallbackReason.UPLOADS_LATE, 0)


def test_a_follower_that_stands_still_before_announced_records() -> None:
    asked = Asked()
    assert asked.at(150) == BUCKET
    assert asked.stands(150, 4999) == BUCKET
    assert asked.at(151, after_ms=1) == BUCKET  # it moved
    assert asked.stands(151, 4999) == BUCKET
    assert asked.at(151, after_ms=1) == FallbackDecision(True, began=FallbackReason.FOLLOWER_STUCK)
    assert asked.at(160, after_ms=HEALTHY_FOR_MS - 1) == LEADER  # announcements were in time all along
    assert asked.at(160, after_ms=1).ended == FallbackEnd(FOLLOWER, FallbackReason.FOLLOWER_STUCK, 0)


def test_standing_still_counts_only_while_there_is_something_to_find() -> None:
    asked = Asked()
    nothing = HEALTHY._replace(announced_to=150, unannounced_ms=None, log_end_offset=150)
    for _ in range(20):
        assert asked.at(150, nothing, after_ms=1000) == BUCKET
    assert asked.at(150, after_ms=4999) == BUCKET
    assert asked.stands(150, 4999) == BUCKET
    assert asked.at(150, after_ms=1).began is FallbackReason.FOLLOWER_STUCK


def test_a_follower_that_was_away_did_not_stand_still_meanwhile() -> None:
    asked = Asked()
    asked.at(150)
    for _ in range(9):
        assert asked.at(150, after_ms=500) == BUCKET
    assert asked.at(150, after_ms=20_000) == BUCKET  # it is back, and has yet to look into the bucket
    assert asked.at(151, after_ms=500) == BUCKET
    asked = Asked()
    asked.at(150)
    assert asked.at(150, after_ms=20_000) == BUCKET
    for _ in range(9):
        assert asked.at(150, after_ms=500) == BUCKET
    assert asked.at(150, after_ms=500).began is FallbackReason.FOLLOWER_STUCK


def test_where_it_is_forbidden_what_is_stuck_is_to_be_uploaded_again_each_time() -> None:
    asked = Asked(is_enabled=False)
    assert asked.at(150, HEALTHY._replace(unannounced_ms=60_000, is_metadata_failing=True)) == BUCKET
    assert asked.stands(150, 4999) == BUCKET
    assert asked.at(150, after_ms=1) == FallbackDecision(False, republish=True)
    assert asked.stands(150, 4999) == BUCKET
    assert asked.at(150, after_ms=1) == FallbackDecision(False, republish=True)


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_leader_that_goes_serves_what_it_has(is_enabled: bool) -> None:
    asked = Asked(is_enabled=is_enabled)
    going = HEALTHY._replace(is_shutting_down=True)
    assert asked.at(210, going) == BUCKET  # caught up
    assert asked.at(200, going) == FallbackDecision(True, began=FallbackReason.SHUTDOWN)


def test_followers_are_apart_and_those_that_are_gone_do_not_count() -> None:
    asked = Asked()
    asked.at(0)
    asked.fallback.sent(FOLLOWER, 7)
    assert asked.fallback.decide(3, 150, HEALTHY, asked.now_ms) == BUCKET
    assert asked.fallback.followers == frozenset({FOLLOWER, 3}) and asked.fallback.served == [(FOLLOWER, 0)]
    assert asked.settle(after_ms=29_999) is None
    assert asked.settle(after_ms=1) == FallbackEnd(FOLLOWER, FallbackReason.NOT_IN_BUCKET, 7)
    assert not asked.fallback.is_active
    assert asked.at(0).began is FallbackReason.NOT_IN_BUCKET  # it is back
    assert asked.fallback.forget([3, FOLLOWER]) == [FallbackEnd(FOLLOWER, FallbackReason.NOT_IN_BUCKET, 0)]
    assert (asked.fallback.is_active, asked.fallback.followers) == (False, frozenset())


def test_a_follower_that_has_everything_need_not_ask_for_it_to_end() -> None:
    asked = Asked()
    asked.at(200, HEALTHY._replace(unannounced_ms=6000))
    asked.at(210, HEALTHY._replace(unannounced_ms=6500), after_ms=500)
    waiting = HEALTHY._replace(announced_to=200, unannounced_ms=60_000)
    assert asked.settle(waiting, after_ms=60_000) is None  # the bucket is as it was, and so is who would serve
    idle = HEALTHY._replace(announced_to=210, unannounced_ms=None)
    assert asked.settle(idle, after_ms=HEALTHY_FOR_MS - 1) is None
    assert asked.settle(idle, after_ms=1) == FallbackEnd(FOLLOWER, FallbackReason.UPLOADS_LATE, 0)


def test_a_follower_is_not_gone_because_it_had_nothing_to_ask_for() -> None:
    asked = Asked()
    waiting = HEALTHY._replace(unannounced_ms=6000)
    asked.at(200, waiting)
    asked.at(210, waiting)
    for _ in range(60):
        assert asked.settle(waiting, after_ms=1000) is None
    more = waiting._replace(log_end_offset=211)
    assert asked.settle(more, after_ms=1000) is None
    assert asked.settle(more, after_ms=GONE_AFTER_MS) is not None
