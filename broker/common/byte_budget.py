"""A bounded number of bytes in flight: whoever cannot get its bytes waits its turn instead of filling memory."""

import sys
from collections.abc import Callable


class ByteBudget:
    """Bytes that may be in flight at once.

    `acquire` never refuses (a frame that is already half-received cannot be given back); it tells whether the budget
    is now overdrawn, and the caller then stops reading until its `on_available` is called.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: dict[Callable[[], None], None] = {}
        self._overdrawing: Callable[[], None] | None = None

    @property
    def is_exhausted(self) -> bool:
        return self.limit_bytes > 0 and self.used_bytes >= self.limit_bytes

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def left_bytes(self) -> int:
        return max(self.limit_bytes - self.used_bytes, 0) if self.limit_bytes > 0 else sys.maxsize

    def acquire(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, f"more bytes released than acquired: {self.used_bytes}"
        while self._waiting and not self.is_exhausted:
            on_available = next(iter(self._waiting))
            del self._waiting[on_available]
            on_available()

    def wait(self, on_available: Callable[[], None]) -> None:
        """Call back once, in order of waiting, when bytes are available again."""
        self._waiting[on_available] = None

    def stop_waiting(self, on_available: Callable[[], None]) -> None:
        """It is gone: an overdraft of its ends, too."""
        self._waiting.pop(on_available, None)
        self.end_overdraft(on_available)

    def may_overdraw(self, on_available: Callable[[], None]) -> bool:
        """Whether it may acquire although nothing is left: one at a time may.

        For those that hold bytes which they cannot give back before they got more; or they would all wait for each
        other.
        """
        if self._overdrawing is None:
            self._overdrawing = on_available
        return self._overdrawing == on_available

    def end_overdraft(self, on_available: Callable[[], None]) -> None:
        """Who overdrew has given its bytes back: whoever waits may look whether it is the next."""
        if self._overdrawing is None or self._overdrawing != on_available:
            return
        self._overdrawing = None
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            each()
