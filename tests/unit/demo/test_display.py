import io
from pathlib import Path

from rich.console import Console

from broker.demo.display import BoardDisplay, LineDisplay, display_for
from broker.demo.events import Event
from broker.demo.lines import line_of
from tests.unit.demo.demo_world import figures, layout, status


def test_without_a_terminal_there_are_lines_and_each_event_once() -> None:
    told: list[str] = []
    with display_for(Console(file=io.StringIO()), layout(Path("/demo")), told.append) as display:
        assert isinstance(display, LineDisplay)
        shown = status(figures({}), fresh_events=[Event(1_700_000_000_000, "demo", "bucket-a is broken")])
        display.show(shown)
    assert told == ["event 22:13:20 demo: bucket-a is broken", line_of(shown)]


def test_on_a_terminal_the_board_is_on_a_screen_of_its_own() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=30, color_system=None)
    told: list[str] = []
    with display_for(console, layout(Path("/demo")), told.append) as display:
        assert isinstance(display, BoardDisplay)
        display.show(status(figures({})))
    assert "\x1b[?1049h" in out.getvalue(), "the other screen"
    assert out.getvalue().rstrip().endswith("\x1b[?25h\x1b[?1049l"), "and the first one again, with its cursor"
    assert "Wherry demo" in out.getvalue()
    assert told == []
