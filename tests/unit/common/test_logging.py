import io
import json
import sys
from collections.abc import Iterator

import pytest
import structlog

from broker.common.logging import configure_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_one_json_object_a_line_where_no_one_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging("info")
    log = structlog.get_logger()
    log.debug("request")
    log.info("isr_shrunk", removed=[3])
    try:
        raise ValueError("wrong")
    except ValueError:
        log.exception("failed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["removed"]) == ("isr_shrunk", "info", [3])
    assert first["timestamp"].endswith("Z")
    assert second["exception"].endswith("ValueError: wrong")


def test_plain_lines_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logging("warning")
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("disk_slow")
    assert "disk_slow" in stream.getvalue()
    assert "quiet" not in stream.getvalue()
    assert not stream.getvalue().startswith("{")
