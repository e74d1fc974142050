import pytest

from broker.replication.fetcher_stats import FetcherStats, FetchRate


def test_a_rate_is_that_of_the_last_minute() -> None:
    rate = FetchRate(100.0)
    for second in range(30):
        rate.mark(100.0 + second)
        rate.mark(100.0 + second)
    assert rate.per_second(130.0) == pytest.approx(2.0)
    assert rate.per_second(160.0) == pytest.approx(1.0)  # sixty seconds, thirty of them without a fetch
    assert rate.per_second(250.0) == 0.0


def test_a_rate_keeps_few_numbers_however_often_it_is_marked() -> None:
    rate = FetchRate(0.0)
    for tick in range(20_000):
        rate.mark(tick * 0.01)
    assert len(rate._slices) <= 14
    assert rate.per_second(200.0) == pytest.approx(100, rel=0.1)


def test_stats_begin_at_zero() -> None:
    stats = FetcherStats()
    assert (stats.requests, stats.bytes) == (0, 0)
