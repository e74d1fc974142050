"""What boards consist of, and the expressions that come again and again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MONTH_SECONDS: Final = 30 * 86_400

Line = tuple[str, str]  # an expression, and a legend


@dataclass(frozen=True)
class Panel:
    title: str
    lines: Sequence[Line]
    unit: str = "short"
    width: int = 8
    height: int = 7
    kind: str = "timeseries"
    about: str = ""
    is_stacked: bool = False
    red_from: float | None = None  # of a number that should be lower


@dataclass(frozen=True)
class Row:
    """A heading over panels, which flow from left to right."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Board:
    uid: str
    title: str
    rows: Sequence[Row]
    about: str = ""


def number(
    title: str, expression: str, unit: str = "short", *, red_from: float | None = None, about: str = ""
) -> Panel:
    return Panel(title, [(expression, "")], unit, 4, 4, "stat", about, red_from=red_from)


def graph(title: str, *lines: Line, unit: str = "short", about: str = "", width: int = 8) -> Panel:
    return Panel(title, lines, unit, width, about=about)


def stack(title: str, *lines: Line, unit: str = "short", about: str = "", width: int = 8) -> Panel:
    return Panel(title, lines, unit, width, about=about, is_stacked=True)


def quantiles(
    title: str, metric: str, labels: str = "{I}", *, unit: str = "s", about: str = "", width: int = 8
) -> Panel:
    """Of a histogram, over all brokers."""
    lines = [(quantile(part, f"{metric}_bucket{labels}"), f"p{part * 100:g}") for part in (0.5, 0.99, 0.999)]
    return graph(title, *lines, unit=unit, about=about, width=width)


def quantile(part: float, buckets: str, by: str = "") -> str:
    return f"histogram_quantile({part}, sum by ({', '.join(filter(None, ('le', by)))}) (rate({buckets}[R])))"


def rate(counter: str, by: str = "") -> str:
    """Per second, of a counter with its selector."""
    return f"sum{f' by ({by})' if by else ''} (rate({counter}[R]))"


def mean(histogram: str, labels: str, by: str) -> str:
    return f"{rate(f'{histogram}_sum{labels}', by)} / {rate(f'{histogram}_count{labels}', by)}"


def per_month(expression: str) -> str:
    """Of something per second."""
    return f"({expression}) * {MONTH_SECONDS}"
