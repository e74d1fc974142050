from broker.metrics.cost_metrics import CostMetrics
from broker.metrics.registry import MetricsRegistry


class Meter:
    def dollars(self) -> dict[str, float]:
        return {"put": 1.5, "get": 0.25}

    def avoided_dollars(self) -> float:
        return 20.0

    def break_even_bytes_per_second(self) -> float:
        return 6.7e6

    def monthly_saving_dollars(self) -> float:
        return -3.0


def test_before_anything_is_observed_all_is_zero_or_absent() -> None:
    registry = MetricsRegistry()
    CostMetrics(registry)
    value = registry.prometheus.get_sample_value
    assert value("broker_cost_dollars_total", {"item": "put"}) is None
    assert value("broker_cost_saved_dollars_total") is None
    assert value("broker_cost_break_even_bytes_per_second") == 0


def test_every_value_is_read_from_the_meter() -> None:
    registry = MetricsRegistry()
    CostMetrics(registry).observe(Meter())
    value = registry.prometheus.get_sample_value
    assert value("broker_cost_dollars_total", {"item": "put"}) == 1.5
    assert value("broker_cost_dollars_total", {"item": "get"}) == 0.25
    assert value("broker_cost_saved_dollars_total") == 20
    assert value("broker_cost_break_even_bytes_per_second") == 6.7e6
    assert value("broker_cost_monthly_saving_dollars") == -3
