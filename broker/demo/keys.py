"""Keys: single key presses of a terminal, while the board is on it."""

import asyncio
import contextlib
import os
import re
import termios
import tty
from collections.abc import Callable, Iterator
from typing import Final, Protocol

READ_BYTES: Final = 64
_SEQUENCE: Final = re.compile("\x1b(?:[\\[O][0-9;]*[A-Za-z~])?")  # arrows and the like


class Terminal(Protocol):
    """Standard input."""

    def fileno(self) -> int: ...
    def isatty(self) -> bool: ...


@contextlib.contextmanager
def key_presses(terminal: Terminal, press: Callable[[str], None]) -> Iterator[None]:
    """Tell of each key, without waiting for the end of a line; nothing where there is no terminal.

    Ctrl-C stays a signal.  The terminal is as before afterwards.
    """
    if not terminal.isatty():
        yield
        return
    number, loop = terminal.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(number)

    def read() -> None:
        try:
            data = os.read(number, READ_BYTES)
        except OSError:
            data = b""
        if not data:
            loop.remove_reader(number)  # the terminal has gone
        for character in _SEQUENCE.sub("", data.decode(errors="replace")):
            press(character)

    tty.setcbreak(number)
    loop.add_reader(number, read)
    try:
        yield
    finally:
        loop.remove_reader(number)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(number, termios.TCSADRAIN, before)
