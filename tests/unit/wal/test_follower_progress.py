import random
from collections import deque

import pytest

from broker.replication.replica_state import NEVER_MS, ReplicaState
from broker.wal.follower_progress import CaughtUpMark, PreJoin, PreJoinState

LAG_TIME_MAX_MS = 30_000


def test_a_follower_at_the_log_end_is_caught_up_now() -> None:
    mark = CaughtUpMark()
    assert mark.last_caught_up_time_ms == NEVER_MS
    mark.fetched(10, 10, 500)
    assert (mark.last_caught_up_time_ms, mark.lag_ms(530)) == (500, 30)


def test_h1_the_mark_stays_until_it_is_reached() -> None:
    mark = CaughtUpMark(last_caught_up_time_ms=0)
    mark.fetched(0, 10, 100)  # the mark: 10 at 100
    mark.fetched(5, 20, 200)
    mark.fetched(9, 30, 300)
    assert mark.last_caught_up_time_ms == 0
    mark.fetched(12, 40, 400)  # the mark: 40 at 400
    assert mark.last_caught_up_time_ms == 100
    mark.fetched(39, 50, 500)
    assert mark.last_caught_up_time_ms == 100
    mark.fetched(40, 60, 600)
    assert mark.last_caught_up_time_ms == 400


def test_a_follower_that_stands_still_is_noticed() -> None:
    mark = CaughtUpMark(last_caught_up_time_ms=0)
    for now_ms in range(0, 40_000, 5):
        mark.fetched(3, 10 + now_ms, now_ms)
    assert mark.lag_ms(40_000) == 40_000


def test_time_does_not_go_back() -> None:
    mark = CaughtUpMark(last_caught_up_time_ms=1000)
    mark.fetched(5, 10, 100)
    mark.fetched(10, 20, 200)
    assert mark.last_caught_up_time_ms == 1000


class Pipeline:
    """A leader and a follower behind a bucket, in steps of a millisecond; the follower fetches every five."""

    def __init__(self, period_ms: int, delay_ms: int, seed: int = 1) -> None:
        self.chance = random.Random(seed)
        self.period_ms, self.delay_ms = period_ms, delay_ms
        self.now_ms = 0
        self.leader_end = self.follower_end = 0
        self.next_append_ms = 0.0
        self.on_their_way: deque[tuple[float, int]] = deque()

    def step(self) -> bool:
        """Whether the follower fetches now."""
        self.now_ms += 1
        while self.now_ms >= self.next_append_ms:
            self.leader_end += 1
            arrival_ms = self.now_ms + self.delay_ms * (1 + self.chance.random() / 2)
            self.on_their_way.append((arrival_ms, self.leader_end))
            self.next_append_ms += self.period_ms * (0.5 + self.chance.random())
        while self.on_their_way and self.on_their_way[0][0] <= self.now_ms:
            self.follower_end = self.on_their_way.popleft()[1]
        return self.now_ms % 5 == 0


@pytest.mark.parametrize("delay_ms", [25, 40, 60])
@pytest.mark.parametrize("period_ms", [1, 2, 5, 10, 25])
def test_h1_under_steady_load_a_follower_stays_in_the_isr(period_ms: int, delay_ms: int) -> None:
    pipeline = Pipeline(period_ms, delay_ms)
    mark = CaughtUpMark(last_caught_up_time_ms=0)
    worst_lag_ms = 0
    while pipeline.now_ms < 5000:
        if pipeline.step():
            mark.fetched(pipeline.follower_end, pipeline.leader_end, pipeline.now_ms)
        worst_lag_ms = max(worst_lag_ms, mark.lag_ms(pipeline.now_ms))
    assert worst_lag_ms < 4 * delay_ms + 50


def test_h1_kafkas_rule_would_drop_it() -> None:
    """Why there is a rule of our own: the follower is 40 to 60 ms behind, and counts as never caught up."""
    pipeline = Pipeline(5, 40)
    replica = ReplicaState(2)
    replica.reset(now_ms=0, is_in_sync=True)
    while pipeline.now_ms < 35_000:
        if pipeline.step():
            replica.update_fetch_state(
                fetch_offset=pipeline.follower_end,
                log_start_offset=0,
                leader_log_end_offset=pipeline.leader_end,
                now_ms=pipeline.now_ms,
                broker_epoch=1,
            )
    assert pipeline.now_ms - replica.last_caught_up_time_ms > LAG_TIME_MAX_MS


@pytest.mark.parametrize("delay_ms", [25, 60])
@pytest.mark.parametrize("period_ms", [1, 2, 5, 10, 25])
def test_h1_under_steady_load_a_follower_rejoins_the_isr(period_ms: int, delay_ms: int) -> None:
    pipeline = Pipeline(period_ms, delay_ms)
    mark, join = CaughtUpMark(), PreJoin()
    high_watermark = 0
    while join.state is not PreJoinState.PROPOSED:
        assert pipeline.now_ms < 2000
        if pipeline.step():
            mark.fetched(pipeline.follower_end, pipeline.leader_end, pipeline.now_ms)
            join.advance(
                mark,
                fetch_offset=pipeline.follower_end,
                high_watermark=high_watermark,
                epoch_start_offset=0,
                now_ms=pipeline.now_ms,
            )
        # The leader alone is in the ISR: its log end is the high watermark, unless the follower holds it.
        in_reach = min(pipeline.leader_end, pipeline.follower_end) if join.holds_high_watermark else pipeline.leader_end
        high_watermark = max(high_watermark, in_reach)
        if join.holds_high_watermark:
            assert high_watermark <= max(join.frozen_high_watermark, pipeline.follower_end)
    assert pipeline.follower_end >= join.frozen_high_watermark
    assert high_watermark <= pipeline.follower_end  # everything that counts as committed is there
    assert pipeline.now_ms < 10 * delay_ms


def behind(mark: CaughtUpMark, join: PreJoin, now_ms: int, *, offset: int = 50, high: int = 100) -> PreJoinState:
    return join.advance(mark, fetch_offset=offset, high_watermark=high, epoch_start_offset=10, now_ms=now_ms)


def test_h1_who_lags_or_is_below_the_epoch_start_does_not_begin() -> None:
    join = PreJoin()
    assert behind(CaughtUpMark(0), join, 1000) is PreJoinState.OUT
    assert behind(CaughtUpMark(500), join, 1000, offset=9) is PreJoinState.OUT
    assert not join.holds_high_watermark
    assert behind(CaughtUpMark(1), join, 1000) is PreJoinState.JOINING
    assert (join.holds_high_watermark, join.frozen_high_watermark) == (True, 100)


def test_h1_a_join_takes_a_second_at_most_and_is_not_repeated_for_five() -> None:
    join = PreJoin()
    assert behind(CaughtUpMark(0), join, 0) is PreJoinState.JOINING
    assert behind(CaughtUpMark(900), join, 999, offset=99) is PreJoinState.JOINING
    assert behind(CaughtUpMark(1000), join, 1000, offset=99) is PreJoinState.OUT
    assert behind(CaughtUpMark(5900), join, 5999) is PreJoinState.OUT
    assert behind(CaughtUpMark(5900), join, 6000, high=200) is PreJoinState.JOINING
    assert join.frozen_high_watermark == 200


def test_h1_the_controller_is_asked_once_the_frozen_high_watermark_is_reached() -> None:
    join = PreJoin()
    behind(CaughtUpMark(0), join, 0)
    assert behind(CaughtUpMark(0), join, 60, offset=100) is PreJoinState.PROPOSED
    assert behind(CaughtUpMark(0), join, 5000, offset=70) is PreJoinState.PROPOSED  # until it answers
    join.dropped(5000)
    assert behind(CaughtUpMark(9000), join, 9999, offset=100) is PreJoinState.OUT
    assert behind(CaughtUpMark(9999), join, 10_000, offset=100) is PreJoinState.PROPOSED  # at once: it has everything
    join.joined()
    assert not join.holds_high_watermark
    assert behind(CaughtUpMark(10_000), join, 10_001) is PreJoinState.JOINING
