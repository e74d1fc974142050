"""OffsetMap: the newest offset of each key in the part of a log that is to be compacted (Kafka: OffsetMap)."""

import hashlib
from collections.abc import Iterator
from typing import Final

from broker.common.identifiers import NO_OFFSET

DIGEST_BYTES: Final = 16
TABLES: Final = 256  # some thousand entries each when the map is full, which move within a millisecond

# Measured on CPython 3.11 to 3.13: 110 to 140 bytes for a digest, its offset and their slot, and up to 171 while the
# dictionary moves to a larger table.
ENTRY_BYTES: Final = 176


def entries_in(buffer_bytes: int, load_factor: float) -> int:
    """How many keys log.cleaner.dedupe.buffer.size has room for, at least one: a pass must get somewhere."""
    return max(1, int(buffer_bytes * load_factor) // ENTRY_BYTES)


class OffsetMap:
    """Filled in the order of offsets.  Short keys stand for themselves, longer ones are known by a digest that nobody
    can make two keys for: who could would have a record deleted for another's sake.

    Invariant: of every key with a record in the range that was read, up to `latest_offset`, the newest one is known.
    Many small tables, because a large one grows, and is given back, in one go that holds the event loop.
    """

    __slots__ = ("_count", "_tables", "entries_max", "latest_offset")

    def __init__(self, entries_max: int) -> None:
        self.entries_max = entries_max
        self.latest_offset = NO_OFFSET
        self._count = 0
        self._tables: list[dict[bytes, int]] = [{} for _ in range(TABLES)]

    def __len__(self) -> int:
        return self._count

    @property
    def utilization(self) -> float:
        """The part of its room that is taken, 0 to 1."""
        return self._count / self.entries_max

    def put(self, key: bytes, offset: int) -> bool:
        """Whether there was room: a key that is known always has some.  If not, the pass ends below `offset`."""
        name = _name_of(key)
        table = self._tables[hash(name) % TABLES]
        if name not in table:
            if self._count >= self.entries_max:
                return False
            self._count += 1
        table[name] = offset
        self.latest_offset = offset
        return True

    def reach(self, offset: int) -> None:
        """Everything up to `offset`, which may be part of a hole, has been read."""
        self.latest_offset = max(self.latest_offset, offset)

    def newest_offset(self, key: bytes) -> int:
        """-1 for a key that is not in the range."""
        name = _name_of(key)
        return self._tables[hash(name) % TABLES].get(name, NO_OFFSET)

    def give_back(self) -> Iterator[None]:
        """The memory, a table at each step.  Nothing may be asked any more."""
        while self._tables:
            self._tables.pop()
            yield


def _name_of(key: bytes) -> bytes:
    return key if len(key) < DIGEST_BYTES else hashlib.blake2b(key, digest_size=DIGEST_BYTES).digest()
