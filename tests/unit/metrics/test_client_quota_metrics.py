from types import SimpleNamespace

from broker.metrics.client_quota_metrics import ClientQuotaMetrics
from broker.metrics.registry import MetricsRegistry

PREFIX = "broker_client_quota"


def quota(number: int) -> SimpleNamespace:
    return SimpleNamespace(
        entity_count=number, throttled_count=number * 10, throttled_ms=number * 500, recorded=number * 1000.5
    )


def test_what_quotas_do_is_read_from_their_owner() -> None:
    registry = MetricsRegistry()
    metrics = ClientQuotaMetrics(registry)
    value = registry.prometheus.get_sample_value
    assert value(f"{PREFIX}_entities", {"quota": "produce"}) is None
    assert value(f"{PREFIX}_exempt_seconds_total") is None
    metrics.observe(SimpleNamespace(produce=quota(1), fetch=quota(2), request=quota(3), exempt_seconds=1.25))
    assert [value(f"{PREFIX}_entities", {"quota": kind}) for kind in ("produce", "fetch", "request")] == [1, 2, 3]
    assert value(f"{PREFIX}_throttles_total", {"quota": "fetch"}) == 20
    assert value(f"{PREFIX}_throttle_seconds_total", {"quota": "request"}) == 1.5
    assert value(f"{PREFIX}_recorded_total", {"quota": "produce"}) == 1000.5
    assert value(f"{PREFIX}_exempt_seconds_total") == 1.25
