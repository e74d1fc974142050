"""IoThrottle: no more bytes per second than log.cleaner.io.max.bytes.per.second says (Kafka: Throttler)."""

import asyncio
from collections.abc import Callable


class IoThrottle:
    """Who has read or written waits until that was allowed.  Idle time is not saved up."""

    def __init__(self, bytes_per_second: Callable[[], float]) -> None:
        self._bytes_per_second = bytes_per_second
        self._free_at = 0.0  # the loop's time when what was spent is paid for

    async def spend(self, size: int) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._free_at = max(self._free_at, now) + size / self._bytes_per_second()
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)
