"""The text a scrape gets, made in small parts: whoever serves it lets the event loop run between them.

The client library's own writer takes ten microseconds for a line, and writes tens of thousands of lines at once; this
one takes one, and a test holds both equal byte for byte.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client.utils import floatToGoString

from broker.metrics.registry import PAUSE, Histogram, MetricFamily, MetricsRegistry

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LINES_MAX: Final = 500  # some milliseconds of work, with reading the values
SMALL_NUMBER: Final = 1_000_000  # from here on the format has an exponent


def text_parts(registry: MetricsRegistry, lines_max: int = LINES_MAX) -> Iterator[bytes]:
    """The whole text of the registry, in the text format 0.0.4, so many lines at a time.

    Values are read when the part that shows them is asked for.
    """
    for family in registry.families:
        part: list[str] = []
        for line in _lines(family):
            if line is not PAUSE:
                part.append(line)
            if line is PAUSE or len(part) >= lines_max:
                yield "".join(part).encode()
                part = []
        if part:
            yield "".join(part).encode()


def _lines(family: MetricFamily) -> Iterator[str | None]:
    definition = family.definition
    name = definition.name
    documentation = definition.documentation.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {name} {documentation}\n# TYPE {name} {definition.kind}\n"
    braces = _braces_of(definition.labels)
    for row in family.rows():
        if row is PAUSE:
            yield PAUSE
            continue
        values, value = row
        if isinstance(value, Histogram):
            yield from _histogram_lines(name, list(zip(definition.labels, values, strict=True)), value)
        else:
            yield f"{name}{braces(values)} {_number(value)}\n"


def _histogram_lines(name: str, labels: Sequence[tuple[str, str]], histogram: Histogram) -> Iterator[str]:
    running = 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        running += count
        yield f"{name}_bucket{_braces([*labels, ('le', bound)])} {_number(running)}\n"
    yield f"{name}_count{_braces(labels)} {_number(running)}\n"
    yield f"{name}_sum{_braces(labels)} {_number(histogram.total)}\n"


def _number(value: float) -> str:
    if type(value) is int and -SMALL_NUMBER < value < SMALL_NUMBER:
        return f"{value}.0"
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text


def _braces_of(names: Sequence[str]) -> Callable[[Sequence[str]], str]:
    """What writes the labels of a family."""
    if names == ("topic", "partition"):  # nearly all of the lines of a broker with many partitions
        return lambda values: f'{{partition="{_escape(values[1])}",topic="{_escape(values[0])}"}}'
    return lambda values: _braces(list(zip(names, values, strict=True)))


def _braces(labels: Sequence[tuple[str, str]]) -> str:
    """Labels in order of their names."""
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_escape(value)}"' for name, value in sorted(labels)]) + "}"


def _escape(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value
