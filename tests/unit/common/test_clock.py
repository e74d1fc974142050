import time

from broker.common.clock import SystemClock


def test_the_system_clock_tells_milliseconds_since_the_epoch() -> None:
    before = int(time.time() * 1000)
    now = SystemClock().now_ms()
    after = int(time.time() * 1000)
    assert before <= now <= after
