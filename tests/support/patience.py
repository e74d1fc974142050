"""How long tests wait for what must happen in real time, and how.

A wait that succeeds returns at once, so patience costs only runs that fail; with less of it a slow or busy machine
fails although nothing is wrong.  Waits that are meant to run out, and virtual time, have their own, short, times.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar

PATIENCE_S: Final = 180.0  # a minute is too little for three JVMs that start beside other work on two cores
POLL_S: Final = 0.05

PATIENCE_MS: Final = int(1000 * PATIENCE_S)  # as clients take it
PATIENCE: Final = timedelta(seconds=PATIENCE_S)  # as requests say it

Value = TypeVar("Value")


def until(
    is_so: Callable[[], Value],
    what: str,
    found: Callable[[], object] | None = None,
    *,
    patience_s: float = PATIENCE_S,
    every_s: float = POLL_S,
) -> Value:
    """What `is_so` returns once that is true; fails with what was waited for, and with what `found` shows instead."""
    deadline = time.monotonic() + patience_s
    while not (value := is_so()):
        if time.monotonic() > deadline:
            raise AssertionError(_in_vain(what, found, patience_s))
        time.sleep(every_s)
    return value


async def eventually(
    is_so: Callable[[], Value | Awaitable[Value]],
    what: str,
    found: Callable[[], object] | None = None,
    *,
    patience_s: float = PATIENCE_S,
    every_s: float = POLL_S,
) -> Value:
    """`until` for tests on an event loop, which goes on meanwhile; `is_so` may be a coroutine."""
    deadline = time.monotonic() + patience_s
    while not (value := await _awaited(is_so())):
        if time.monotonic() > deadline:
            raise AssertionError(_in_vain(what, found, patience_s))
        await asyncio.sleep(every_s)
    return value


async def _awaited(value: Value | Awaitable[Value]) -> Value:
    return await value if inspect.isawaitable(value) else value


def _in_vain(what: str, found: Callable[[], object] | None, patience_s: float) -> str:
    return f"not within {patience_s:g} s: {what}" + ("" if found is None else f"; but {found()}")
