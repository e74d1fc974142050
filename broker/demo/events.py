"""Events: the last of what happened, from the brokers' logs and from whoever pressed a key."""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker.common.clock import Clock
from broker.demo.layout import DemoNode

OWN: Final = "demo"  # who tells what the demonstration itself did
KEPT: Final = 200
READ_BYTES_MAX: Final = 1 << 20  # of one log at a time
DETAIL_LENGTH_MAX: Final = 160

# What is worth a line although nothing is wrong.
_TOLD: Final = frozenset(
    {
        *("bucket_available", "wal_fallback_ended", "wal_fallback_spread"),
        *("isr_shrunk", "isr_expanded", "broker_fenced", "broker_unfenced", "metadata_quorum_leader"),
        *("node_ready", "stopping", "log_recovered", "log_segments_deleted", "remote_segment_copied"),
    }
)
_SAID: Final = frozenset({"bucket_faults_set"})  # the demonstration said so itself
_NOT_DETAILS: Final = frozenset({"event", "level", "timestamp"})


class Event(NamedTuple):
    at_ms: int
    who: str
    text: str

    @property
    def time(self) -> str:
        return datetime.fromtimestamp(self.at_ms / 1000, UTC).strftime("%H:%M:%S")


class Events:
    """`fresh()` gives each event once, `last` the newest again and again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._fresh: deque[Event] = deque(maxlen=KEPT)

    def tell(self, text: str, who: str = OWN) -> None:
        event = Event(self._clock.now_ms(), who, text)
        self._kept.append(event)
        self._fresh.append(event)

    def last(self, count: int) -> Sequence[Event]:
        return list(self._kept)[-count:] if count > 0 else []

    def fresh(self) -> list[Event]:
        fresh = list(self._fresh)
        self._fresh.clear()
        return fresh


class LogTail:
    """What one broker has added to its log since it was read last; begins at the end there is now."""

    def __init__(self, node: DemoNode, file: Path) -> None:
        self._who = f"broker-{node.node_id}"
        self._file = file
        self._position = _size(file)
        self._rest = b""

    def read_into(self, events: Events) -> None:
        for text in self.read():
            events.tell(text, self._who)

    def read(self) -> Iterator[str]:
        try:
            with self._file.open("rb") as log:
                log.seek(self._position)
                data = log.read(READ_BYTES_MAX)
        except OSError:
            return
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = told(line)
            if text is not None:
                yield text


def told(line: bytes) -> str | None:
    """The event of a line of a log in a few words; None when it need not be told."""
    try:
        event = json.loads(line)
    except ValueError:
        sentence = line.decode(errors="replace")
        return sentence if sentence.startswith("wherry: ") else None
    if not isinstance(event, dict) or not _is_told(event):
        return None
    details = " ".join(f"{name}={value}" for name, value in event.items() if name not in _NOT_DETAILS)
    return f"{event.get('event')} {details}".strip()[:DETAIL_LENGTH_MAX]


def _is_told(event: dict[str, Any]) -> bool:
    name = event.get("event")
    return name not in _SAID and (event.get("level") not in ("info", "debug") or name in _TOLD)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
