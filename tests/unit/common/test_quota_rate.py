"""The delays are those of Kafka's ClientQuotaManagerTest and RateTest, to the millisecond."""

import pytest

from broker.common.quota_rate import DELAY_MS_MAX, QuotaRate, throttle_ms


def test_a_burst_on_top_of_a_steady_rate() -> None:
    """(400 * 10 + 2300) bytes in 10.5 s are 600 per second, a fifth over 500: a fifth of the window to wait."""
    rate = QuotaRate(1000, 11)
    for second in range(10):
        rate.record(400, second * 1000)
        measured, window_ms = rate.measure(second * 1000)
        assert throttle_ms(measured, 500, window_ms) == 0
    rate.record(2300, 10_500)
    assert rate.measure(10_500) == (600.0, 10_500)
    assert throttle_ms(600.0, 500, 10_500) == 2100


def test_the_first_burst_counts_over_all_samples_but_one() -> None:
    rate = QuotaRate(1000, 11)
    rate.record(6000, 123)
    assert rate.measure(123) == (600.0, 10_000)
    rate.record(0, 400)
    measured, window_ms = rate.measure(400)
    assert (measured, window_ms) == (pytest.approx(6_000_000 / 10_277), 10_277)
    assert rate.measure(123 + 2500)[1] == 10_500


def test_samples_leave_the_window_by_when_they_were_last_recorded_to() -> None:
    rate = QuotaRate(1000, 11)
    rate.record(1000, 0)
    rate.record(1000, 999)  # the same sample, which so lasts until 11,999
    assert rate.measure(11_998) == (pytest.approx(2_000_000 / 11_998), 11_998)
    assert rate.measure(11_999) == (0.0, 10_000)
    rate.record(5, 12_500)  # into the sample that began anew when it was measured
    assert rate.measure(12_500) == (pytest.approx(5000 / 10_501), 10_501)


def test_one_sample_more_than_the_window_has_is_kept() -> None:
    rate = QuotaRate(1000, 3)
    for second in range(10):
        rate.record(10, second * 1000)
    assert rate.measure(9000) == (pytest.approx(30 * 1000 / 2000), 2000)
    rate.record(-10, 9000)
    assert rate.measure(9000) == (10.0, 2000)


def test_nothing_recorded_is_no_rate() -> None:
    assert QuotaRate(1000, 11).measure(5) == (0.0, 10_000)
    assert QuotaRate(1000, 1).measure(5) == (0.0, 1)


@pytest.mark.parametrize(
    ("rate", "limit", "window_ms", "delay_ms"),
    [
        (10.0, 10.0, 1000, 0),
        (10.2, 10.0, 10_500, 210),
        (10.5, 10.0, 10, 1),  # half a millisecond is rounded up
        (10.49, 10.0, 10, 0),
        (1.0, 0.0, 1000, DELAY_MS_MAX),
        (1e300, 1e-300, 1000, DELAY_MS_MAX),
    ],
)
def test_how_long_to_wait(rate: float, limit: float, window_ms: int, delay_ms: int) -> None:
    assert throttle_ms(rate, limit, window_ms) == delay_ms
