"""Memory to read files and large requests into, used again as soon as nobody looks at it any more.

A new bytearray is filled with zeros before the bytes come over them, which adds half to the price of a read from the
page cache; and memory that was used a moment ago is still in the processor's caches.
"""

from collections import deque
from typing import Final

SMALLEST_BYTES: Final = 16 * 1024  # below it, zeros cost nothing to speak of
LARGEST_BYTES: Final = 2 << 20
KEPT_BYTES_MAX: Final = 16 << 20


class ReadBuffers:
    """Lends buffers by size, rounded up to a power of two.

    Nobody gives a buffer back.  It is lent as long as a view of it lives, wherever that has got to, and the buffer
    knows: a bytearray refuses to change its length meanwhile.
    """

    def __init__(self) -> None:
        self.kept_bytes = 0
        self._kept: dict[int, deque[bytearray]] = {}  # the one lent longest ago comes first

    def lend(self, size_bytes: int) -> memoryview:
        """Exactly that many bytes, with anything in them."""
        if not SMALLEST_BYTES <= size_bytes <= LARGEST_BYTES:
            return memoryview(bytearray(size_bytes))
        capacity = 1 << (size_bytes - 1).bit_length()
        kept = self._kept.setdefault(capacity, deque())
        if kept and _is_free(kept[0]):
            kept.rotate(-1)
            return memoryview(kept[-1])[:size_bytes]
        buffer = _new_buffer(capacity)
        if self.kept_bytes + capacity <= KEPT_BYTES_MAX:
            self.kept_bytes += capacity
            kept.append(buffer)
        return memoryview(buffer)[:size_bytes]


def _new_buffer(capacity: int) -> bytearray:
    """With room for the byte that `_is_free` adds, so that nothing is moved then."""
    buffer = bytearray(capacity + 8)
    del buffer[capacity:]
    return buffer


def _is_free(buffer: bytearray) -> bool:
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
