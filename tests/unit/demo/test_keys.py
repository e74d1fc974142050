import asyncio
import os
import pty
import termios
from collections.abc import Iterator

import pytest

from broker.demo.keys import key_presses


class Terminal:
    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return os.isatty(self._number)


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    """Who types, and the terminal."""
    typist, terminal = pty.openpty()
    yield typist, terminal
    os.close(terminal)
    os.close(typist)


async def test_keys_are_told_one_by_one_without_the_end_of_a_line(ends: tuple[int, int]) -> None:
    typist, terminal = ends
    before = termios.tcgetattr(terminal)
    pressed: asyncio.Queue[str] = asyncio.Queue()
    with key_presses(Terminal(terminal), pressed.put_nowait):
        os.write(typist, b"aZ")
        assert [await pressed.get(), await pressed.get()] == ["a", "Z"]
        os.write(typist, b"\x1b[A\x1b[15~\x1bOP\x1b1")  # an arrow, two keys with numbers, and escape
        assert await pressed.get() == "1"
        assert termios.tcgetattr(terminal)[3] & termios.ISIG, "Ctrl-C stays a signal"
    assert termios.tcgetattr(terminal) == before


async def test_without_a_terminal_nothing_is_read() -> None:
    read, write = os.pipe()
    os.write(write, b"a")
    pressed: list[str] = []
    with key_presses(Terminal(read), pressed.append):
        await asyncio.sleep(0)
    assert (pressed, os.read(read, 10)) == ([], b"a")
    os.close(read)
    os.close(write)


async def test_a_terminal_that_goes_is_let_go() -> None:
    typist, terminal = pty.openpty()
    pressed: list[str] = []
    with key_presses(Terminal(terminal), pressed.append):
        os.close(typist)
        for _ in range(100):  # a reader that stayed would be called each time
            await asyncio.sleep(0)
    assert pressed == []
    os.close(terminal)
