import pytest

from broker.config.broker_config import BrokerConfig
from broker.server.client_quota_manager import ENTITIES_MAX, IDLE_MS_MAX, ClientQuotaManager, EntityKey, Part, limits_of
from tests.unit.controller.controller_support import broker_config

ABSENT, DEFAULT = Part.ABSENT, Part.DEFAULT


class QuotaWorld:
    def __init__(self, config: BrokerConfig | None = None, **more: int) -> None:
        self.now_ms = 0
        self.quotas = ClientQuotaManager(config or broker_config(), lambda: self.now_ms, **more)

    def record(self, value: float, user: str = "ANONYMOUS", client_id: str = "app") -> int:
        return self.quotas.record(user, client_id, value)


def test_delays_are_those_of_kafka() -> None:
    """ClientQuotaManagerTest.testQuotaViolation."""
    world = QuotaWorld()
    world.quotas.set_limits({(ABSENT, "app"): 500.0})
    for second in range(10):
        world.now_ms = second * 1000
        assert world.record(400) == 0
    world.now_ms = 10_500
    assert world.record(2300) == 2100
    world.now_ms += 2100
    for _ in range(10):
        world.record(400)
        world.now_ms += 1000
    assert world.record(0) == 0  # the burst has left the window


def test_a_share_of_the_time_makes_nobody_wait_longer_than_a_sample() -> None:
    """ClientRequestQuotaManagerTest.testRequestPercentageQuotaViolation: 1 % is 10 ms per second."""
    world = QuotaWorld(delay_ms_max=1000)
    world.quotas.set_limits({(ABSENT, "app"): 1.0})
    for second in range(10):
        world.now_ms = second * 1000
        assert world.record(0.4) == 0
    world.now_ms = 10_500
    assert world.record(6.71) == 210
    assert world.record(50.0) == 1000


def test_the_window_is_a_setting() -> None:
    world = QuotaWorld(broker_config(quota__window__num="3", quota__window__size__seconds="2"))
    world.quotas.set_limits({(ABSENT, "app"): 100.0})
    assert world.record(800) == 4000  # twice as fast over two samples of two seconds
    assert world.quotas.window_value_max("any", "app") == 400.0


PRECEDENCE: list[tuple[EntityKey, EntityKey]] = [
    (("alice", "app"), ("alice", "app")),
    (("alice", DEFAULT), ("alice", "app")),
    (("alice", ABSENT), ("alice", ABSENT)),
    ((DEFAULT, "app"), ("alice", "app")),
    ((DEFAULT, DEFAULT), ("alice", "app")),
    ((DEFAULT, ABSENT), ("alice", ABSENT)),
    ((ABSENT, "app"), (ABSENT, "app")),
    ((ABSENT, DEFAULT), (ABSENT, "app")),
]


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_specific_quota_binds(first: int) -> None:
    world = QuotaWorld()
    world.quotas.set_limits({key: 1.0 + rank for rank, (key, _) in enumerate(PRECEDENCE) if rank >= first})
    assert world.quotas.limit("alice", "app") == (PRECEDENCE[first][1], 1.0 + first)


def test_quotas_of_others_bind_nobody() -> None:
    world = QuotaWorld()
    world.quotas.set_limits({("bob", ABSENT): 1.0, ("alice", "other"): 1.0, (ABSENT, "x"): 1.0})
    assert world.quotas.limit("alice", "app") is None
    assert world.record(1e9, "alice") == 0
    assert world.quotas.window_value_max("alice", "app") == float("inf")
    assert (world.quotas.entity_count, world.quotas.recorded) == (0, 0.0)


def test_a_client_without_an_id_has_only_what_is_for_all() -> None:
    world = QuotaWorld()
    world.quotas.set_limits({("alice", ABSENT): 1.0, ("alice", DEFAULT): 2.0})
    assert world.quotas.limit("alice", "") == (("alice", ""), 2.0)


def test_who_shares_a_quota_shares_a_rate() -> None:
    world = QuotaWorld()
    world.quotas.set_limits({("alice", ABSENT): 100.0, (ABSENT, DEFAULT): 100.0})
    assert world.record(1000, "alice", "one") == 0
    assert world.record(1000, "alice", "two") == 10_000
    assert world.record(1000, "bob", "one") == 0  # a default is for each client id by itself
    assert world.record(1000, "bob", "two") == 0
    assert world.record(1000, "carol", "two") == 10_000
    assert world.quotas.entity_count == 3


def test_a_new_limit_judges_the_old_rate() -> None:
    world = QuotaWorld()
    world.quotas.set_limits({(ABSENT, "app"): 100.0})
    assert world.record(1000) == 0
    world.quotas.set_limits({(ABSENT, "app"): 50.0})
    assert world.record(0) == 10_000
    world.quotas.set_limits({})
    assert not world.quotas.is_configured
    assert world.quotas.entity_count == 0


def test_what_is_taken_back_does_not_count() -> None:
    world = QuotaWorld()
    world.quotas.set_limits({(ABSENT, "app"): 100.0})
    assert world.record(2000) == 10_000
    world.quotas.take_back("ANONYMOUS", "app", 2000)
    assert world.record(1000) == 0
    assert world.quotas.recorded == 1000


def test_idle_rates_are_forgotten_after_an_hour() -> None:
    world = QuotaWorld()
    world.quotas.set_limits({(ABSENT, DEFAULT): 100.0})
    world.record(1, client_id="early")
    world.now_ms = 1000
    world.record(1, client_id="late")
    world.now_ms = IDLE_MS_MAX
    world.record(1, client_id="late")
    assert world.quotas.entity_count == 2
    world.now_ms += 1
    world.record(1, client_id="late")
    assert world.quotas.entity_count == 1


def test_the_number_of_rates_is_bounded() -> None:
    world = QuotaWorld()
    world.quotas.set_limits({(ABSENT, DEFAULT): 100.0})
    world.record(2000, client_id="0")
    for number in range(1, ENTITIES_MAX):
        world.record(1, client_id=str(number))
    assert world.record(0, client_id="0") == 10_000
    world.record(1, client_id="one more")
    assert world.quotas.entity_count == ENTITIES_MAX
    assert world.record(0, client_id="0") == 10_000  # not the one that was idle for longest


def test_quotas_of_the_metadata() -> None:
    quotas = {
        (("client-id", "app"), ("user", None)): {"producer_byte_rate": 1.0, "request_percentage": 9.0},
        (("user", "alice"),): {"producer_byte_rate": 2.0},
        (("client-id", None),): {"consumer_byte_rate": 3.0},
        (("ip", "10.0.0.1"),): {"producer_byte_rate": 4.0, "connection_creation_rate": 5.0},
    }
    assert limits_of(quotas, "producer_byte_rate") == {(DEFAULT, "app"): 1.0, ("alice", ABSENT): 2.0}
    assert limits_of(quotas, "consumer_byte_rate") == {(ABSENT, DEFAULT): 3.0}
