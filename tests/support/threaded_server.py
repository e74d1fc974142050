"""Servers written for asyncio, served from a thread while a test that is not waits for processes."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

from tests.support.patience import PATIENCE_S

Server = TypeVar("Server")


@contextmanager
def in_thread(server: AbstractAsyncContextManager[Server]) -> Iterator[Server]:
    """Entered and left on a loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="server", daemon=True)
    thread.start()
    try:
        entered = asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(PATIENCE_S)
        try:
            yield entered
        finally:
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(PATIENCE_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
