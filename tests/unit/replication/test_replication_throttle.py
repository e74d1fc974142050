from broker.config.config_holder import ConfigHolder
from broker.replication.replication_throttle import ReplicationThrottle, SampledRate
from tests.support.builders import broker_config


class Setup:
    def __init__(self, **properties: str) -> None:
        self.now_ms = 5_000
        given = {name.replace("_", "."): value for name, value in properties.items()}
        self.config = ConfigHolder(broker_config(given))
        self.throttle = ReplicationThrottle(
            7, self.config, lambda: self.now_ms, lambda config: config.leader_replication_throttled_rate
        )


def test_a_rate_is_of_the_time_since_the_oldest_sample() -> None:
    rate = SampledRate()
    assert rate.measure(0, 1000, 3) == 0
    rate.record(500, 0, 1000)
    assert rate.measure(10, 1000, 3) == 500  # as if it had been spread over a whole sample
    rate.record(500, 900, 1000)
    rate.record(1000, 1500, 1000)
    assert rate.measure(2000, 1000, 3) == 1000
    assert rate.measure(2999, 1000, 3) == 2000 * 1000 / 2999
    assert rate.measure(3000, 1000, 3) == 1000 * 1000 / 1500  # the first sample has left the window
    assert rate.measure(4500, 1000, 3) == 0


def test_which_replicas_are_covered() -> None:
    covers = Setup().throttle.covers
    assert not covers(0, ())
    assert covers(0, ("*",))
    assert covers(0, ("1:7", "0:7"))
    assert not covers(0, ("0:8", "1:7"))


def test_the_rate_may_change_while_the_broker_runs() -> None:
    setup = Setup(leader_replication_throttled_rate="1000")
    setup.throttle.record(1_000)
    assert (setup.throttle.byte_rate, setup.throttle.is_exceeded) == (1_000, False)
    setup.throttle.record(1)
    assert setup.throttle.is_exceeded
    setup.config.update(setup.config.current.with_overrides({"leader.replication.throttled.rate": "2000"}))
    assert not setup.throttle.is_exceeded


def test_without_a_rate_nobody_waits() -> None:
    setup = Setup()
    setup.throttle.record(1 << 40)
    assert not setup.throttle.is_exceeded


def test_the_window_is_a_setting() -> None:
    setup = Setup(replication_quota_window_num="2", replication_quota_window_size_seconds="3")
    setup.throttle.record(3_000)
    assert setup.throttle.byte_rate == 1_000  # over one sample of three seconds
    setup.now_ms += 5_999
    assert setup.throttle.byte_rate == 3_000 * 1000 / 5_999
    setup.now_ms += 1
    assert setup.throttle.byte_rate == 0
