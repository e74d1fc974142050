"""Wall time, which is written into records and compared with retention.

Durations need no port: asyncio asks the event loop, and in tests the loop is ours.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch; may jump in either direction."""


class SystemClock:
    def now_ms(self) -> int:
        return int(time.time() * 1000)  # noqa: TID251  the one place that reads the wall clock
