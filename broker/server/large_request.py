"""A request too large for the shared receive buffer, while its bytes arrive into memory of its own."""

from collections.abc import Callable
from typing import Final

FIRST_BUFFER_BYTES: Final = 128 * 1024
EAGER_BUFFER_BYTES_MAX: Final = 1 << 20  # max.request.size of the Java producer: its requests are hardly ever moved
EAGERNESS: Final = 8
PACE: Final = 8  # under pressure, a part of this size of what it holds has to arrive from one look to the next
NOT_LOOKED: Final = -1


class LargeRequest:
    """Its memory grows with the bytes that arrive, so that who announces much and sends little holds little.

    Up to 1 MiB it may be eight times what has arrived, so that bytes are seldom moved; above, twice.
    """

    __slots__ = ("_lend", "_seen_bytes", "buffer", "filled_bytes", "size_bytes")

    _seen_bytes: int  # when somebody last asked for its pace

    def __init__(self, size_bytes: int, received: memoryview, lend: Callable[[int], memoryview]) -> None:
        """`size_bytes` is what the client has announced, `lend` where memory comes from."""
        self._lend = lend
        self.size_bytes = size_bytes
        self.filled_bytes = len(received)
        self.buffer = lend(self._capacity())
        self.buffer[: self.filled_bytes] = received
        self.begin_pace()

    @property
    def memory_bytes(self) -> int:
        return len(self.buffer)

    @property
    def is_whole(self) -> bool:
        return self.filled_bytes == self.size_bytes

    @property
    def is_full(self) -> bool:
        return self.filled_bytes == len(self.buffer)

    def rest(self) -> memoryview:
        """Where to receive next."""
        return self.buffer[self.filled_bytes :]

    def grow(self) -> int:
        """Move into more memory; returns how many bytes more it holds now."""
        smaller = self.buffer
        self.buffer = self._lend(self._capacity())
        self.buffer[: self.filled_bytes] = smaller[: self.filled_bytes]
        return len(self.buffer) - len(smaller)

    def begin_pace(self) -> None:
        """From now on the client can send: what was too slow before does not count."""
        self._seen_bytes = NOT_LOOKED

    def is_slow(self) -> bool:
        """Whether too little has arrived since this was last asked."""
        seen, self._seen_bytes = self._seen_bytes, self.filled_bytes
        return seen != NOT_LOOKED and (self.filled_bytes - seen) * PACE < len(self.buffer)

    def _capacity(self) -> int:
        filled = self.filled_bytes
        wanted = max(FIRST_BUFFER_BYTES, min(EAGERNESS * filled, EAGER_BUFFER_BYTES_MAX), 2 * filled)
        return min(self.size_bytes, wanted)
