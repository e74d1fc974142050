"""Latencies of the last seconds, and their percentiles."""

import asyncio
from collections import deque
from typing import Final

WINDOW_SECONDS: Final = 10.0
KEPT_MAX: Final = 20_000


class Latencies:
    def __init__(self) -> None:
        self._kept: deque[tuple[float, float]] = deque(maxlen=KEPT_MAX)

    def note(self, seconds: float) -> None:
        self._kept.append((_now(), seconds))

    def percentiles_ms(self, *parts: float) -> list[float | None]:
        """None where nothing was measured in the last seconds."""
        oldest = _now() - WINDOW_SECONDS
        while self._kept and self._kept[0][0] < oldest:
            self._kept.popleft()
        values = sorted(seconds for _, seconds in self._kept)
        return [values[int(part * (len(values) - 1))] * 1000 if values else None for part in parts]


def _now() -> float:
    return asyncio.get_running_loop().time()
