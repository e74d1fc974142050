"""The text a scrape gets, made in small parts: whoever serves it lets the event loop run between them."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from broker.metrics.registry import MetricsRegistry

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
ROWS_MAX: Final = 250  # 1 to 4 ms of work on a slow core, histograms being the dearest


class _OnePart(CollectorRegistry):
    """A registry of one part of one family, for the text writer of Prometheus' client library."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


def text_parts(registry: MetricsRegistry, rows_max: int = ROWS_MAX) -> Iterator[bytes]:
    """The whole text of the registry, a few rows at a time; a family's heading comes once."""
    for family in registry.families:
        for index, metric in enumerate(family.collect_in_parts(rows_max)):
            text = generate_latest(_OnePart(metric))
            yield text if index == 0 else _without_heading(text)


def _without_heading(text: bytes) -> bytes:
    """A part after the first: its `# HELP` and `# TYPE` lines are its first, and have been said."""
    position = 0
    while text.startswith(b"#", position):
        position = text.index(b"\n", position) + 1
    return text[position:]
