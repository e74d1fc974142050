"""RemoteQuota: how fast this broker may copy to remote storage, or read from it (Kafka: RLMQuotaManager)."""

import asyncio
from collections.abc import Callable
from typing import Final

from broker.common.observations import Observations
from broker.common.quota_rate import MILLISECONDS, QuotaRate, throttle_ms
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.tiering.remote_log_stats import RemoteLogStats

RECHECK_MS_MAX: Final = 1000  # how soon a limit that is raised releases those who wait


class RemoteQuota:
    """Bytes a second of all partitions together; `limit` is asked each time, so a change counts at once.

    `throttled` sees, in milliseconds, how long the quota held something back.
    """

    def __init__(
        self, limit: Callable[[], int], throttled: Observations, *, window_num: int, window_size_seconds: int
    ) -> None:
        self._limit = limit
        self._throttled = throttled
        self._rate = QuotaRate(window_size_seconds * MILLISECONDS, window_num)
        self._turns = asyncio.Semaphore(1)  # first come, first served

    @classmethod
    def for_copies(cls, config: ConfigHolder[BrokerConfig], stats: RemoteLogStats) -> "RemoteQuota":
        """remote.log.manager.copy.max.bytes.per.second."""
        return cls(
            lambda: config.current.remote_log_manager_copy_max_bytes_per_second,
            stats.copy_throttle_ms,
            window_num=config.current.remote_log_manager_copy_quota_window_num,
            window_size_seconds=config.current.remote_log_manager_copy_quota_window_size_seconds,
        )

    @classmethod
    def for_fetches(cls, config: ConfigHolder[BrokerConfig], stats: RemoteLogStats) -> "RemoteQuota":
        """remote.log.manager.fetch.max.bytes.per.second."""
        return cls(
            lambda: config.current.remote_log_manager_fetch_max_bytes_per_second,
            stats.fetch_throttle_ms,
            window_num=config.current.remote_log_manager_fetch_quota_window_num,
            window_size_seconds=config.current.remote_log_manager_fetch_quota_window_size_seconds,
        )

    @property
    def byte_rate(self) -> float:
        """Bytes a second, over the window."""
        return self._rate.measure(_now_ms())[0]

    @property
    def is_exceeded(self) -> bool:
        """Whether nothing more may begin now."""
        return self.throttle_ms > 0

    @property
    def throttle_ms(self) -> int:
        """How long nothing more may begin; 0 while it may."""
        rate, window_ms = self._rate.measure(_now_ms())
        return throttle_ms(rate, self._limit(), window_ms)

    def record(self, size_bytes: int) -> None:
        """So many bytes went through: reads are charged when they are done."""
        self._rate.record(size_bytes, _now_ms())

    def observe_throttle(self) -> None:
        """Something was turned away because the quota is exceeded."""
        self._throttled.observe(self.throttle_ms)

    async def acquire(self, size_bytes: int) -> None:
        """Wait until something may begin, and charge it: copies are charged before their first byte.

        Who waited longest goes first.  Each is let through whole, however large, once the rate is below its limit.
        """
        began_ms = _now_ms()
        async with self._turns:
            while True:
                wait_ms = self.throttle_ms
                if not wait_ms:
                    break
                await asyncio.sleep(min(wait_ms, RECHECK_MS_MAX) / MILLISECONDS)
            self.record(size_bytes)
        if (waited_ms := _now_ms() - began_ms) > 0:
            self._throttled.observe(waited_ms)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * MILLISECONDS)
