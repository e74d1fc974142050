import shutil
from pathlib import Path
from types import SimpleNamespace

from broker.metrics.disk_metrics import DiskMetrics
from broker.metrics.registry import MetricsRegistry
from tests.unit.metrics.scrape import scrape


def test_the_volume_is_asked_at_each_scrape() -> None:
    registry = MetricsRegistry()
    metrics = DiskMetrics(registry)
    assert "broker_disk_free_bytes" not in scrape(registry)
    volume = SimpleNamespace(total=1000, free=400)
    metrics.observe(lambda: volume)
    assert scrape(registry)["broker_disk_free_bytes"] == 400
    volume.free = 300
    found = scrape(registry)
    assert (found["broker_disk_free_bytes"], found["broker_disk_size_bytes"]) == (300, 1000)


def test_of_a_volume_that_cannot_be_asked_nothing_is_told(tmp_path: Path) -> None:
    registry = MetricsRegistry()
    DiskMetrics(registry).observe(lambda: shutil.disk_usage(tmp_path / "gone"))
    assert not [name for name in scrape(registry) if name.startswith("broker_disk_")]
