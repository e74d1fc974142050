"""Status: all that is shown at one moment, on a board or in a line."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.demo.events import Event
from broker.demo.figures import Figures
from broker.demo.target import Target

MEGABYTE: Final = 1_000_000


@dataclass(frozen=True)
class TopicLatency:
    """Milliseconds, measured by the clients of the demonstration; None when nothing was measured lately."""

    acknowledged_p50: float | None = None
    acknowledged_p99: float | None = None
    read_p50: float | None = None
    read_p99: float | None = None


@dataclass(frozen=True)
class Status:
    ready_seconds: float
    up_seconds: float
    megabytes_per_second: float | None  # of each topic; None without a load
    figures: Figures
    wal_latency: TopicLatency = field(default_factory=TopicLatency)
    classic_latency: TopicLatency = field(default_factory=TopicLatency)
    broken: Sequence[Target] = ()
    events: Sequence[Event] = ()
    fresh_events: Sequence[Event] = ()  # those since the status before


def milliseconds_text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def percentiles_text(p50: float | None, p99: float | None) -> str:
    return f"{milliseconds_text(p50)}/{milliseconds_text(p99)}"


def bytes_text(size: float) -> str:
    """In decimal units, as rates are."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"


def rate_text(bytes_per_second: float) -> str:
    if bytes_per_second == float("inf"):
        return "no load"
    return f"{bytes_per_second / MEGABYTE:.2f} MB/s"


def dollars_text(dollars: float) -> str:
    return f"-${-dollars:,.0f}" if dollars <= -0.5 else f"${abs(dollars):,.0f}"


def verdict(status: Status) -> str:
    """Whether buckets pay at this load, and from which load on they do at the present number of requests."""
    cost = status.figures.cost
    if not cost.produced or not cost.break_even:
        return "break-even: known once records are uploaded"
    now, least = rate_text(cost.produced), rate_text(cost.break_even)
    if cost.saving >= 0:
        return f"{now} saves {dollars_text(cost.saving)} a month; below the break-even of {least} it would not"
    return f"{now} costs {dollars_text(-cost.saving)} a month more; it saves from the break-even of {least} on"
