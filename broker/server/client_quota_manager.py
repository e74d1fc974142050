"""ClientQuotaManager: one kind of quota of all clients, whom it binds and how fast they are (Kafka's of that name)."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeAlias

from broker.common.quota_rate import DELAY_MS_MAX, MILLISECONDS, QuotaRate, throttle_ms
from broker.config.broker_config import BrokerConfig
from broker.metadata.metadata_image import QuotaEntity

IDLE_MS_MAX: Final = 3_600_000  # ClientQuotaManager.INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS
# A default quota gives every client id a client makes up a rate of its own: at most some 15 MB of them.
ENTITIES_MAX: Final = 10_000


class Part(Enum):
    """What stands in a quota's entity for a user or client id when it is no name."""

    ABSENT = 0
    DEFAULT = 1


EntityKey: TypeAlias = tuple[str | Part, str | Part]
"""User and client id, as a quota names them or as one rate is kept for them."""


class Usage:
    """The rate of those that share a quota."""

    __slots__ = ("rate", "used_ms")

    def __init__(self, rate: QuotaRate) -> None:
        self.rate = rate
        self.used_ms = 0


class ClientQuotaManager:
    """Everybody whom the same quota names by the same name shares one rate on this broker.

    A quota of a default is for each user, or client id, by itself.  What no quota binds is neither looked at nor kept.
    """

    def __init__(self, config: BrokerConfig, monotonic_ms: Callable[[], int], delay_ms_max: int = DELAY_MS_MAX) -> None:
        self._sample_ms = config.quota_window_size_seconds * MILLISECONDS
        self._sample_count = config.quota_window_num
        self._monotonic_ms = monotonic_ms
        self._delay_ms_max = delay_ms_max
        self._limits: Mapping[EntityKey, float] = {}
        self._usages: dict[EntityKey, Usage] = {}  # the one idle for longest first
        self.throttled_count = 0
        self.throttled_ms = 0
        self.recorded = 0.0

    @property
    def is_configured(self) -> bool:
        return bool(self._limits)

    @property
    def entity_count(self) -> int:
        """How many rates are kept."""
        return len(self._usages)

    def set_limits(self, limits: Mapping[EntityKey, float]) -> None:
        """The quotas of this kind, all of them; rates that go on to be limited go on as they are."""
        self._limits = limits
        if not limits:
            self._usages.clear()

    def limit(self, user: str, client_id: str) -> tuple[EntityKey, float] | None:
        """Whose rate counts, and the limit; the order is that of DefaultQuotaCallback."""
        limits = self._limits
        for key, entity in (
            ((user, client_id), (user, client_id)),
            ((user, Part.DEFAULT), (user, client_id)),
            ((user, Part.ABSENT), (user, Part.ABSENT)),
            ((Part.DEFAULT, client_id), (user, client_id)),
            ((Part.DEFAULT, Part.DEFAULT), (user, client_id)),
            ((Part.DEFAULT, Part.ABSENT), (user, Part.ABSENT)),
            ((Part.ABSENT, client_id), (Part.ABSENT, client_id)),
            ((Part.ABSENT, Part.DEFAULT), (Part.ABSENT, client_id)),
        ):
            limit = limits.get(key)
            if limit is not None:
                return entity, limit
        return None

    def record(self, user: str, client_id: str, value: float) -> int:
        """Count it, and say for how many milliseconds the client has to be quiet: 0 within its quota."""
        found = self.limit(user, client_id)
        if found is None:
            return 0
        entity, limit = found
        now_ms = self._monotonic_ms()
        rate = self._rate_of(entity, now_ms)
        rate.record(value, now_ms)
        self.recorded += value
        per_second, window_ms = rate.measure(now_ms)
        return min(throttle_ms(per_second, limit, window_ms), self._delay_ms_max)

    def take_back(self, user: str, client_id: str, value: float) -> None:
        """What was just recorded will not happen."""
        found = self.limit(user, client_id)
        if found is not None:
            now_ms = self._monotonic_ms()
            self._rate_of(found[0], now_ms).record(-value, now_ms)
            self.recorded -= value

    def count_delay(self, delay_ms: int) -> None:
        """A client was told to be quiet because of this kind of quota."""
        self.throttled_count += 1
        self.throttled_ms += delay_ms

    def window_value_max(self, user: str, client_id: str) -> float:
        """The most that can happen in one window without a delay; infinite without a quota."""
        found = self.limit(user, client_id)
        if found is None:
            return float("inf")
        return found[1] * (self._sample_count - 1) * self._sample_ms / MILLISECONDS

    def _rate_of(self, entity: EntityKey, now_ms: int) -> QuotaRate:
        usage = self._usages.pop(entity, None) or Usage(QuotaRate(self._sample_ms, self._sample_count))
        self._usages[entity] = usage
        usage.used_ms = now_ms
        first = next(iter(self._usages))
        while len(self._usages) > ENTITIES_MAX or now_ms - self._usages[first].used_ms > IDLE_MS_MAX:
            del self._usages[first]
            first = next(iter(self._usages))
        return usage.rate


def limits_of(quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str) -> dict[EntityKey, float]:
    """The quotas of one kind by whom they bind; those of addresses are of another kind."""
    limits: dict[EntityKey, float] = {}
    for entity, values in quotas.items():
        parts = dict(entity)
        if key in values and parts.keys() <= {"user", "client-id"}:
            limits[_part(parts, "user"), _part(parts, "client-id")] = values[key]
    return limits


def _part(parts: Mapping[str, str | None], kind: str) -> str | Part:
    if kind not in parts:
        return Part.ABSENT
    name = parts[kind]
    return Part.DEFAULT if name is None else name
