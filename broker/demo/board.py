"""Board: the status on a terminal, made anew for each look at it."""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from broker.demo.events import OWN, Event
from broker.demo.figures import FALLBACK, FETCH, WAL, Figures, PathRow
from broker.demo.layout import CLASSIC_TOPIC, HOST, Layout
from broker.demo.status import (
    Status,
    TopicLatency,
    bytes_text,
    dollars_text,
    milliseconds_text,
    percentiles_text,
    rate_text,
    verdict,
)
from broker.demo.target import TargetKind

EVENTS_MIN: Final = 3
WIDE: Final = 100
_HOP_TITLES: Final = {
    "leader_append": "append",
    "combine_wait": "wait",
    "put": "put",
    "publish": "publish",
    "metadata_delivery": "deliver",
    "get": "get",
    "follower_append": "append",
    "follower_fetch": "fetch",
    "high_watermark": "commit",
    "end_to_end": "whole",
}
_STATES: Final = {"ready": "green", "down": "bold red"}


class Board:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def render(self, status: Status, width: int, height: int) -> RenderableType:
        """At most so many lines: events fill what is left.  80 columns are enough for the rest."""
        padding = 2 if width >= WIDE else 1
        parts: list[RenderableType] = [
            self._head(status),
            _brokers(status.figures, padding),
            _paths(status, padding),
            _hops(status.figures, padding),
            self._cost(status),
            _tiered(status.figures),
        ]
        used = 1 + (1 + len(status.figures.brokers)) + 4 + 3 + 3 + 1 + 2
        room = max(EVENTS_MIN, height - used - 1)
        return Group(*parts, self._events(status, room), *self._keys(status))

    def _head(self, status: Status) -> Text:
        rate = status.megabytes_per_second
        load = "no load" if rate is None else f"{rate:g} MB/s a topic"
        seconds = int(status.up_seconds)
        text = _line("")
        text.append("Wherry demo", style="bold cyan")
        text.append(f"  ready in {status.ready_seconds:.1f} s, up {seconds // 60}:{seconds % 60:02}, {load}")
        if status.broken:
            text.append(f"  BROKEN: {', '.join(map(str, status.broken))}", style="bold red")
        return text

    def _cost(self, status: Status) -> Group:
        cost = status.figures.cost
        items = {**{name: value for name, value in cost.items.items() if value >= 0.5}, "metadata": cost.metadata}
        here, classic = _line(""), _line("")
        here.append(f"{dollars_text(cost.here)} a month here", style="bold")
        here.append(": " + " ".join(f"{name} {value:.0f}" for name, value in items.items()))
        classic.append(f"{dollars_text(cost.classic_here)} for these bytes between zones", style="bold")
        classic.append(f"; {CLASSIC_TOPIC} {dollars_text(cost.other_topic)}")
        classic.append(f"; {cost.objects_per_month / 1e6:.0f} M objects/month")
        return Group(here, classic, _line(verdict(status), style="green" if cost.saving >= 0 else "yellow"))

    def _events(self, status: Status, room: int) -> Text:
        lines = [f"{event.time} {event.who}: {event.text}" for event in _newest(status.events, room)]
        lines += [""] * (room - len(lines))
        return _line("\n".join(lines), style="dim")

    def _keys(self, status: Status) -> Iterable[Text]:
        """What is broken is marked."""
        keys = {
            kind: [(target.key, target in status.broken) for target in self._layout.targets() if target.kind is kind]
            for kind in TargetKind
        }
        text = _line("break or heal: ")
        for kind, pressed in keys.items():
            text.append(f"{kind} ")
            for key, is_broken in pressed:
                text.append(f"{key} ", style="bold red" if is_broken else "bold")
            text.append("  ")
        yield text
        is_directory = next(iter(self._layout.fast_buckets.values())).is_directory
        prices = "S3 Express" if is_directory else "the bucket's"
        page = f"http://{HOST}:{self._layout.nodes[0].metrics_port}/"
        yield _line(f"+ - load   q or Ctrl-C ends it   prices: {prices}   {page}", style="dim")


def _newest(events: Sequence[Event], count: int) -> list[Event]:
    """With the demonstration's own last word, which answers a key: brokers say much when one of them comes back."""
    newest = list(events[-count:])
    own = next((event for event in reversed(events) if event.who == OWN), None)
    return newest if own is None or own in newest else [own, *newest[1:]]


def _brokers(figures: Figures, padding: int) -> Table:
    numbers = _right("leaders", "replicas", "in sync", "fallback", "circuits")
    table = _table(padding, "broker", "zone", "role", "state", *numbers)
    for row in figures.brokers:
        is_whole = row.in_sync == row.of_replicas
        table.add_row(
            f"{row.node.node_id} :{row.node.port}",
            row.node.rack,
            "+controller" if row.node.has_controller else "broker",
            Text(row.state, style=_STATES.get(row.state, "yellow")),
            str(row.leaders),
            str(row.replicas),
            Text(f"{row.in_sync}/{row.of_replicas}", style="" if is_whole else "yellow"),
            Text(str(row.fallback_partitions), style="yellow" if row.fallback_partitions else ""),
            Text(str(row.open_circuits), style="bold red" if row.open_circuits else ""),
        )
    return table


def _paths(status: Status, padding: int) -> Table:
    figures = status.figures
    columns = _right("bytes", "MB/s", "requests/s", "lag", "lag s", "read ms", "ack ms")
    table = _table(padding, "p50/p99", *columns)
    requests = {
        WAL: f"{figures.puts_per_second:.0f} put {figures.gets_per_second:.0f} get",
        FETCH: f"{figures.fetches_per_second:.0f} fetch",
    }
    for row in figures.paths:
        latency = status.classic_latency if row.path == FETCH else status.wal_latency
        table.add_row(*_path_cells(row, requests.get(row.path, ""), latency), style=_path_style(row))
    return table


def _hops(figures: Figures, padding: int) -> Table:
    table = _table(padding, "ms by hop", *_right(*(_HOP_TITLES[row.name] for row in figures.hops)))
    table.add_row("p50", *(milliseconds_text(row.p50_ms) for row in figures.hops))
    table.add_row("p99", *(milliseconds_text(row.p99_ms) for row in figures.hops))
    return table


def _tiered(figures: Figures) -> Text:
    tiered = figures.tiered
    return _line(
        f"tiered: {bytes_text(tiered.in_bucket)} in its bucket, {bytes_text(tiered.on_disks)} on disks, "
        f"{bytes_text(tiered.copy_lag)} to copy, {bytes_text(tiered.read)} read"
    )


def _path_cells(row: PathRow, requests: str, latency: TopicLatency) -> Sequence[str]:
    is_measured = row.path != FALLBACK
    return (
        f"{row.topic} {row.path}",
        bytes_text(row.total_bytes),
        rate_text(row.bytes_per_second).removesuffix(" MB/s"),
        requests,
        f"{row.lag_records:.0f}",
        f"{row.lag_seconds:.1f}",
        percentiles_text(latency.read_p50, latency.read_p99) if is_measured else "",
        percentiles_text(latency.acknowledged_p50, latency.acknowledged_p99) if is_measured else "",
    )


def _path_style(row: PathRow) -> str:
    return "yellow" if row.path == FALLBACK and row.bytes_per_second > 0 else ""


def _right(*titles: str) -> list[tuple[str, str]]:
    return [(title, "right") for title in titles]


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _table(padding: int, *columns: str | tuple[str, str]) -> Table:
    table = Table(box=None, padding=(0, padding, 0, 0), header_style="bold", pad_edge=False)
    for column in columns:
        title, justify = column if isinstance(column, tuple) else (column, "left")
        table.add_column(title, justify="right" if justify == "right" else "left", no_wrap=True)
    return table
