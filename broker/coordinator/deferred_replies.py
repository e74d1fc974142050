"""DeferredReplies: answers that wait until the high watermark passes what they promise."""

import asyncio
from collections import deque
from collections.abc import Callable

from broker.common.errors import KafkaError, RequestTimedOutError

OnCommitted = Callable[[KafkaError | None], None]


class DeferredReplies:
    """In the order of their offsets (Kafka's DeferredEventQueue).

    `committed_offset` is the high watermark: everything below it is on every in-sync replica.
    """

    def __init__(self) -> None:
        self.committed_offset = 0
        self._waiting: deque[_DeferredReply] = deque()

    def add(self, end_offset: int, timeout_ms: int, on_committed: OnCommitted) -> None:
        """Call `on_committed(None)` once everything below `end_offset` is committed, which may be now.

        With an error instead: RequestTimedOutError after the timeout (what was written stays written), or the error
        of `fail_all`.
        """
        if end_offset <= self.committed_offset:
            on_committed(None)
            return
        while self._waiting and self._waiting[0].is_complete:  # expired: while nothing is committed they would pile up
            self._waiting.popleft()
        reply = _DeferredReply(end_offset, on_committed)
        reply.timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, reply.expire)
        self._waiting.append(reply)

    def commit(self, offset: int) -> None:
        """The high watermark has moved to `offset`; it never goes back."""
        if offset <= self.committed_offset:
            return
        self.committed_offset = offset
        while self._waiting and self._waiting[0].end_offset <= offset:
            self._waiting.popleft().complete(None)

    def fail_all(self, error: KafkaError) -> None:
        while self._waiting:
            self._waiting.popleft().complete(error)

    def __len__(self) -> int:
        return sum(not reply.is_complete for reply in self._waiting)


class _DeferredReply:
    __slots__ = ("_on_committed", "end_offset", "is_complete", "timer")

    def __init__(self, end_offset: int, on_committed: OnCommitted) -> None:
        self.end_offset = end_offset
        self.is_complete = False
        self.timer: asyncio.TimerHandle | None = None
        self._on_committed = on_committed

    def expire(self) -> None:
        self.complete(RequestTimedOutError("the record was not committed in time"))

    def complete(self, error: KafkaError | None) -> None:
        if self.is_complete:
            return
        self.is_complete = True
        if self.timer is not None:
            self.timer.cancel()
        self._on_committed(error)
