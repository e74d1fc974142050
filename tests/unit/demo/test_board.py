from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from broker.demo.board import Board
from broker.demo.events import Event
from broker.demo.status import Status, TopicLatency
from broker.demo.target import Target, TargetKind
from tests.unit.demo.demo_world import figures, layout, status
from tests.unit.demo.test_figures import INCREASE, ONE, TWO


def text_of(shown: Status, width: int = 140, height: int = 40) -> str:
    console = Console(width=width, height=height, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(Board(layout(Path("/demo"))).render(shown, width, height))
    return captured.get()


SHOWN = status(
    figures({1: ONE, 2: TWO}, INCREASE),
    wal_latency=TopicLatency(1.0, 2.0, 80.0, 200.0),
    classic_latency=TopicLatency(0.5, 0.9, 3.0, 7.0),
    broken=[Target(TargetKind.ZONE, "c")],
    events=[Event(1_700_000_000_000 + number * 1000, "broker-1", f"thing {number}") for number in range(50)],
)


def _line(text: str, beginning: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(beginning)).split()


def test_what_is_on_it() -> None:
    text = text_of(SHOWN)
    assert "ready in 3.2 s, up 1:15, 2 MB/s a topic  BROKEN: zone-c" in text
    assert _line(text, "1 :9092") == ["1", ":9092", "zone-a", "broker", "ready", "4", "12", "2/3", "1", "1"]
    assert _line(text, "3 :9094")[2:6] == ["zone-c", "+controller", "down", "0"]
    assert _line(text, "orders wal")[2:4] == ["1.2", "kB"]
    assert _line(text, "orders wal")[-2:] == ["80/200", "1.0/2.0"]
    assert _line(text, "orders-classic fetch")[-2:] == ["3.0/7.0", "0.5/0.9"]
    assert "$648 a month here: put 259 fallback 130 metadata 259" in text
    assert "$1,166 for these bytes between zones; orders-classic $2,333; 8 M objects/month" in text
    assert "2.00 MB/s saves $518 a month; below the break-even of 0.50 MB/s it would not" in text
    assert "tiered: 0 B in its bucket" in text


def test_every_key_is_named() -> None:
    text = text_of(SHOWN)
    assert "break or heal: bucket a b c   broker 1 2 3   zone A B C" in text
    assert "q or Ctrl-C ends it   prices: S3 Express   http://127.0.0.1:9404/" in text


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (200, 60)])
def test_it_fits_the_terminal(width: int, height: int) -> None:
    lines = text_of(SHOWN, width, height).rstrip("\n").splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert "thing 49" in "\n".join(lines), "the newest event"
    assert lines[-2].startswith("break or heal: bucket a b c ")
    assert not [line for line in lines if "\u2026" in line], "nothing is cut off"


def test_larger_terminals_show_more_events() -> None:
    assert text_of(SHOWN, height=40).count("thing") > text_of(SHOWN, height=24).count("thing") >= 3


def test_what_a_key_did_is_not_pushed_out() -> None:
    told = Event(1_700_000_000_000, "demo", "broker-1 is healed")
    for events in ([told, *SHOWN.events], [*SHOWN.events, told]):
        shown = text_of(replace(SHOWN, events=events)).splitlines()
        assert [line.strip() for line in shown if "is healed" in line] == ["22:13:20 demo: broker-1 is healed"]


def test_without_load_and_before_anything_was_seen() -> None:
    text = text_of(Status(1.0, 0.0, None, figures({})))
    assert "up 0:00, no load" in text
    assert "break-even: known once records are uploaded" in text
