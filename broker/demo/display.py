"""Where the status is shown: on a board that fills the terminal, or line by line."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

from rich.console import Console
from rich.live import Live

from broker.demo.board import Board
from broker.demo.layout import Layout
from broker.demo.lines import line_of
from broker.demo.status import Status

Tell = Callable[[str], None]


class Display(Protocol):
    def show(self, status: Status) -> None:
        """OSError when nobody can see it any more."""


class LineDisplay:
    """For pipes and files."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def show(self, status: Status) -> None:
        for event in status.fresh_events:
            self._tell(f"event {event.time} {event.who}: {event.text}")
        self._tell(line_of(status))


class BoardDisplay:
    """On the terminal's other screen, so that what was said before is there again at the end."""

    def __init__(self, live: Live, board: Board) -> None:
        self._live = live
        self._board = board

    def show(self, status: Status) -> None:
        width, height = self._live.console.size
        self._live.update(self._board.render(status, width, height), refresh=True)


@contextlib.contextmanager
def display_for(console: Console, layout: Layout, tell: Tell) -> Iterator[Display]:
    """The board if the console is a terminal."""
    if not console.is_terminal:
        yield LineDisplay(tell)
        return
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        yield BoardDisplay(live, Board(layout))
