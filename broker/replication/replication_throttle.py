"""How fast a broker may send to, or fetch as, replicas that catch up (KIP-73: Kafka's ReplicationQuotaManager)."""

from collections import deque
from collections.abc import Callable, Collection
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder

ALL_REPLICAS: Final = "*"


class SampledRate:
    """Bytes per second over a window of samples (Kafka's SimpleRate): of the time since the oldest of them began."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()  # when it began, bytes; no more than the window has samples

    def record(self, size_bytes: int, now_ms: int, sample_ms: int) -> None:
        if self._samples and now_ms - self._samples[-1][0] < sample_ms:
            began_ms, recorded = self._samples[-1]
            self._samples[-1] = (began_ms, recorded + size_bytes)
        else:
            self._samples.append((now_ms, size_bytes))

    def measure(self, now_ms: int, sample_ms: int, sample_count: int) -> float:
        """Bytes per second; a window that has just begun counts as one whole sample."""
        while self._samples and now_ms - self._samples[0][0] >= sample_ms * sample_count:
            self._samples.popleft()
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0][0], sample_ms)
        return sum(recorded for _, recorded in self._samples) * 1000 / elapsed_ms


class ReplicationThrottle:
    """One direction of replication: which replicas it holds back is a setting of topics, the rate one of brokers.

    `rate_limit` reads the limit in bytes per second, so that it may change while the broker runs.
    """

    __slots__ = ("_config", "_local_broker_id", "_monotonic_ms", "_rate", "_rate_limit")

    def __init__(
        self,
        local_broker_id: int,
        config: ConfigHolder[BrokerConfig],
        monotonic_ms: Callable[[], int],
        rate_limit: Callable[[BrokerConfig], int],
    ) -> None:
        self._local_broker_id = local_broker_id
        self._config = config
        self._monotonic_ms = monotonic_ms
        self._rate_limit = rate_limit
        self._rate = SampledRate()

    def covers(self, partition: int, throttled_replicas: Collection[str]) -> bool:
        """Whether a topic's `*.replication.throttled.replicas` names the replica of this broker."""
        if not throttled_replicas:
            return False
        return ALL_REPLICAS in throttled_replicas or f"{partition}:{self._local_broker_id}" in throttled_replicas

    def record(self, size_bytes: int) -> None:
        """Count what was sent or received of a replica that the throttle covers."""
        sample_ms = self._config.current.replication_quota_window_size_seconds * 1000
        self._rate.record(size_bytes, self._monotonic_ms(), sample_ms)

    @property
    def byte_rate(self) -> float:
        """Bytes per second of late, of the covered replicas alone."""
        config = self._config.current
        sample_ms = config.replication_quota_window_size_seconds * 1000
        return self._rate.measure(self._monotonic_ms(), sample_ms, config.replication_quota_window_num)

    @property
    def is_exceeded(self) -> bool:
        """Whether replicas that are covered and not in sync have to wait."""
        return self.byte_rate > self._rate_limit(self._config.current)
