"""What a scrape shows, as a dictionary."""

from prometheus_client import generate_latest

from broker.metrics.registry import MetricsRegistry


def scrape(registry: MetricsRegistry) -> dict[str, float]:
    """Value by series, such as `name{label="x"}`."""
    lines = generate_latest(registry.prometheus).decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}
