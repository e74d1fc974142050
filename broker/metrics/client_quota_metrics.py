"""ClientQuotaMetrics: what clients were held to by their quotas, read at scrape.  No client is a label."""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from broker.metrics.registry import MetricsRegistry, Sample

MILLISECONDS: Final = 1000


class MeasuredQuota(Protocol):
    """What a scrape reads of one kind of quota."""

    @property
    def entity_count(self) -> int: ...
    @property
    def throttled_count(self) -> int: ...
    @property
    def throttled_ms(self) -> int: ...
    @property
    def recorded(self) -> float: ...


class MeasuredQuotas(Protocol):
    @property
    def produce(self) -> MeasuredQuota: ...
    @property
    def fetch(self) -> MeasuredQuota: ...
    @property
    def request(self) -> MeasuredQuota: ...
    @property
    def exempt_seconds(self) -> float: ...


class ClientQuotaMetrics:
    """Nothing is counted here: `observe` names the owner."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._quotas: MeasuredQuotas | None = None

        def by_kind(read: Callable[[MeasuredQuota], float]) -> Callable[[], Iterable[Sample]]:
            return lambda: [((kind,), read(quota)) for kind, quota in self._by_kind()]

        registry.collected(
            "broker_client_quota_throttles_total",
            "counter",
            "Answers that told a client to be quiet, by the kind of quota it was over.",
            ("quota",),
            by_kind(lambda quota: quota.throttled_count),
            bean="kafka.server:type=Produce|Fetch|Request,user=*,client-id=*",
            action="Quotas at work; kafka-configs --describe --entity-type clients tells who is bound.",
        )
        registry.collected(
            "broker_client_quota_throttle_seconds_total",
            "counter",
            "Time clients were told to be quiet for.",
            ("quota",),
            by_kind(lambda quota: quota.throttled_ms / MILLISECONDS),
            bean="kafka.server:type=Produce|Fetch|Request,user=*,client-id=*:throttle-time",
        )
        registry.collected(
            "broker_client_quota_recorded_total",
            "counter",
            "What clients with quotas used of them: bytes of produce and fetch; of request, hundredths of a second.",
            ("quota",),
            by_kind(lambda quota: quota.recorded),
            bean="kafka.server:type=Produce|Fetch|Request,user=*,client-id=*:byte-rate, request-time",
        )
        registry.collected(
            "broker_client_quota_entities",
            "gauge",
            "Users, client ids and pairs of them whose rate is kept: 10000 of each kind at most, an hour if idle.",
            ("quota",),
            by_kind(lambda quota: quota.entity_count),
            action="At the bound, those idle for longest are forgotten: a default quota and clients that make up ids.",
        )
        registry.collected(
            "broker_client_quota_exempt_seconds_total",
            "counter",
            "Time of requests of other brokers, which no quota binds; counted while there are quotas.",
            (),
            lambda: [] if self._quotas is None else [((), self._quotas.exempt_seconds)],
            bean="kafka.server:type=Request:exempt-request-time",
        )

    def observe(self, quotas: MeasuredQuotas) -> None:
        self._quotas = quotas

    def _by_kind(self) -> list[tuple[str, MeasuredQuota]]:
        quotas = self._quotas
        if quotas is None:
            return []
        return [("produce", quotas.produce), ("fetch", quotas.fetch), ("request", quotas.request)]
