import json
from pathlib import Path

import pytest

from broker.demo.events import KEPT, Events, LogTail, told
from tests.support.builders import SettableClock
from tests.unit.demo.demo_world import layout

NODE = layout().node(2)


def _line(event: str, level: str = "info", **details: object) -> str:
    return json.dumps({**details, "event": event, "level": level, "timestamp": "2026-11-30T06:06:14Z"}) + "\n"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (_line("wal_fallback_began", "warning", follower=3), "wal_fallback_began follower=3"),
        (_line("isr_shrunk", isr=[1, 2]), "isr_shrunk isr=[1, 2]"),
        (_line("fetcher_stopped"), None),
        (_line("bucket_faults_set", "warning"), None),
        ("wherry: port taken", "wherry: port taken"),
        ("  clients 127.0.0.1:9092", None),
        ("[1]", None),
        ("", None),
    ],
)
def test_what_is_worth_telling(line: str, text: str | None) -> None:
    assert told(line.encode()) == text


def test_long_events_are_cut() -> None:
    assert len(told(_line("x", "error", about="y" * 1000).encode()) or "") == 160


def test_a_log_is_read_from_its_end_on_line_by_line(tmp_path: Path) -> None:
    file, events = tmp_path / "broker.log", Events(SettableClock(1_700_000_000_000))
    tail = LogTail(NODE, file)
    tail.read_into(events)
    assert events.fresh() == [], "there is no file yet"
    line = _line("node_ready")
    file.write_text(_line("stopping") + line[:20])
    tail.read_into(events)
    with file.open("a") as log:
        log.write(line[20:])
    tail.read_into(events)
    assert [(event.time, event.who, event.text) for event in events.fresh()] == [
        ("22:13:20", "broker-2", "stopping"),
        ("22:13:20", "broker-2", "node_ready"),
    ]
    later = LogTail(NODE, file)
    later.read_into(events)
    assert events.fresh() == []
    assert [event.text for event in events.last(1)] == ["node_ready"]


def test_old_events_are_forgotten() -> None:
    events = Events(SettableClock())
    for number in range(KEPT + 5):
        events.tell(str(number))
    assert events.fresh()[0].text == "5"
    assert events.last(0) == []
    assert events.last(2)[-1].who == "demo"
