from types import ModuleType

from broker.metrics import reference
from broker.metrics.registry import MetricsRegistry


def test_a_module_is_found_by_its_class() -> None:
    module = ModuleType("broker.metrics.sample_area_metrics")
    module.SampleAreaMetrics = dict  # type: ignore[attr-defined]
    assert reference.metrics_class(module) is dict


def test_every_metric_has_its_section() -> None:
    lines = reference.metrics_page().splitlines()
    names = [definition.name for _, definitions in reference.all_metrics() for definition in definitions]
    assert [line for line in lines if line.startswith("### ")] == [f"### `{name}`" for name in names]


def test_gauges_that_wait_for_their_owner_are_there_too() -> None:
    names = [definition.name for _, definitions in reference.all_metrics() for definition in definitions]
    assert "broker_group_lag" in names
    assert "kafka_controller_kafkacontroller_activebrokercount" in names


def test_all_areas_fit_one_registry() -> None:
    registry = MetricsRegistry()
    for module in reference.metric_modules():
        reference.metrics_class(module)(registry)
    names = [definition.name for definition in registry.definitions]
    assert len(set(names)) == len(names)
