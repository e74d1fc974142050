"""DeadlineObjectStore: no request of a store takes for ever."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from broker.objectstore.decorated import DecoratedObjectStore, Operation, Request
from broker.objectstore.errors import Unavailable
from broker.objectstore.object_store import ObjectStore

T = TypeVar("T")

SLOWEST_BYTES_PER_SECOND: Final = 4 << 20  # a large body gets that much more time
_WRITES: Final = frozenset({Operation.PUT, Operation.PUT_IF_ABSENT, Operation.UPLOAD_PART, Operation.COMPLETE_UPLOAD})


class DeadlineObjectStore(DecoratedObjectStore):
    """`Unavailable` when the time of a request is over: whether a write was done is then unknown.

    It stands next to the store, so that waiting for a turn does not count.
    """

    def __init__(self, inner: ObjectStore, *, write_ms: int, read_ms: int) -> None:
        super().__init__(inner)
        self._write_seconds = write_ms / 1000
        self._read_seconds = read_ms / 1000

    async def _around(self, request: Request, call: Callable[[], Awaitable[T]]) -> T:
        seconds = self._write_seconds if request.operation in _WRITES else self._read_seconds
        seconds += len(request.body) / SLOWEST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(seconds) as deadline:
                return await call()
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise Unavailable(
                f"{self.name}: {request.operation} {request.key}: no answer within {seconds:.1f} s"
            ) from error
        raise AssertionError("the deadline swallows nothing")
