"""Requests and connections: how long, how many, which errors (Kafka's RequestMetrics and socket-server metrics)."""

from collections.abc import Callable
from time import perf_counter
from typing import Final

from broker.metrics.registry import RECENT_MAX, Counter, Histogram, MetricsRegistry

PHASES: Final = ("queue", "local", "remote", "response", "total")

# Why this broker closes a connection.
MALFORMED: Final = "malformed"
TOO_LARGE: Final = "too_large"
UNSUPPORTED: Final = "unsupported"
IDLE: Final = "idle"
STALLED: Final = "stalled"
REFUSED_SILENTLY: Final = "refused_silently"
FAILED: Final = "failed"
SHUTDOWN: Final = "shutdown"
CLOSE_REASONS: Final = frozenset({MALFORMED, TOO_LARGE, UNSUPPORTED, IDLE, STALLED, REFUSED_SILENTLY, FAILED, SHUTDOWN})


class RouteMetrics:
    """The numbers of one API at one version; the histograms are shared by the API's versions.

    Nothing is shown of an API that nobody has used.  A request leaves its five readings here; what its phases took is
    worked out for many at once.
    """

    __slots__ = ("_errors", "_phases", "_recent", "_seconds", "count", "request", "version")

    def __init__(self, seconds: Histogram, errors: Counter, request: str, version: int) -> None:
        self._seconds = seconds
        self._errors = errors
        self._phases: list[Histogram] = []
        self._recent: list[tuple[float, float, float, float, float]] = []
        self.request = request
        self.version = version
        self.count = 0

    def count_error(self, error: str, by: int = 1) -> None:
        """`error` is the protocol's name of the code, in capitals."""
        self._errors.labels(self.request, error).increment(by)

    def observe(
        self, received_at: float, started_at: float, returned_at: float, filled_at: float, sent_at: float
    ) -> None:
        """One answered request, by the stopwatch's readings."""
        self.count += 1
        recent = self._recent
        recent.append((received_at, started_at, returned_at, filled_at, sent_at))
        if len(recent) >= RECENT_MAX or not self._phases:
            self._count_recent()

    def phase(self, name: str) -> Histogram:
        """The histogram of one of PHASES; of a request that was answered before its handler returned nothing was
        remote."""
        return self._seconds.labels(self.request, name)

    def _count_recent(self) -> None:
        if not self._phases:
            self._phases = [self.phase(name) for name in PHASES]
            for phase in self._phases:
                phase.before_look.append(self._count_recent)
        recent, self._recent = self._recent, []
        durations = [
            (
                started - received,
                min(returned, filled) - started,
                max(filled - returned, 0.0),
                sent - filled,
                sent - received,
            )
            for received, started, returned, filled, sent in recent
        ]
        for phase, seconds in zip(self._phases, zip(*durations, strict=True), strict=False):
            phase.observe_all(seconds)


class RequestMetrics:
    """One per process.  Labels are bounded by what is listed: API names, versions and the protocol's error names."""

    def __init__(self, registry: MetricsRegistry, stopwatch: Callable[[], float] = perf_counter) -> None:
        self.stopwatch = stopwatch
        self.connections: dict[str, int] = {}  # open ones by listener, kept by the socket servers
        self.in_flight_bytes: list[Callable[[], int]] = []  # one reader per socket server
        self.unsent_bytes: list[Callable[[], int]] = []
        self.throttled_connections: list[Callable[[], int]] = []
        self._seconds = registry.histogram(
            "broker_request_seconds",
            "Time of a request by phase: queue (received to started), local (in its handler), remote (parked until "
            "others or data arrived), response (answered to handed to the socket), total.",
            ("request", "phase"),
            bean="kafka.network:type=RequestMetrics,name=TotalTimeMs,request=*",
            action="See which phase grew: queue and local mean a busy broker, remote is waiting for replicas or data.",
        )
        self._routes: dict[tuple[str, int], RouteMetrics] = {}
        registry.collected(
            "kafka_network_requestmetrics_requests_total",
            "counter",
            "Requests answered, by API and version.",
            ("request", "version"),
            lambda: [
                ((route.request, str(route.version)), route.count) for route in self._routes.values() if route.count
            ],
            bean="kafka.network:type=RequestMetrics,name=RequestsPerSec,request=*,version=*",
        )
        self.frames = registry.counter(
            "broker_frames_received_total",
            "Requests handed to a handler, by listener.",
            ("listener",),
        )
        self._errors = registry.counter(
            "kafka_network_requestmetrics_errors_total",
            "Errors told to clients, by API and the protocol's name of the error.",
            ("request", "error"),
            bean="kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=*,error=*",
            action="Many errors are ordinary (a client on an old leader); a rate that stays up is not.",
        )
        self.unexpected_errors = registry.counter(
            "broker_request_handler_failures_total",
            "Exceptions nobody expected in a handler, answered with UNKNOWN_SERVER_ERROR.",
            ("request",),
            action="A defect: the log has the traceback.",
        )
        self.connections_opened = registry.counter(
            "broker_connections_opened_total", "Connections accepted, by listener.", ("listener",)
        )
        self.connections_refused = registry.counter(
            "broker_connections_refused_total",
            "Connections closed at once because of a bound (max.connections, max.connections.per.ip).",
            ("listener", "reason"),
            bean="kafka.network:type=Acceptor",
            action="Find the client that opens so many, or raise the bound.",
        )
        self._closed = registry.counter(
            "broker_connections_closed_total",
            "Connections this broker closed, by reason: malformed, too_large, unsupported, idle, stalled (in the "
            "middle of a request: nothing came, too little while others waited for memory, or no answer was read), "
            "refused_silently (an error on acks=0), failed, shutdown.",
            ("reason",),
            action="malformed and unsupported point to a client that is no Kafka client, or newer than this broker.",
        )
        registry.collected(
            "kafka_server_socketservermetrics_connectioncount",
            "gauge",
            "Open connections, by listener.",
            ("listener",),
            lambda: [((listener,), count) for listener, count in self.connections.items()],
            bean="kafka.server:type=socket-server-metrics,name=connection-count",
        )
        registry.gauge(
            "broker_requests_in_flight_bytes",
            "Memory of requests that are received, half or whole, and not answered yet (queued.max.request.bytes).",
            lambda: sum(read() for read in self.in_flight_bytes),
            bean="kafka.network:type=SocketServer,name=MemoryPoolUsed",
            action="Near the bound, requests over 32 KiB are no longer read: see which phase of which request is slow.",
        )
        registry.gauge(
            "broker_throttled_connections",
            "Connections that are not read for now, because their client is over a quota.",
            lambda: sum(read() for read in self.throttled_connections),
            bean="kafka.server:type=Produce,name=queue-size",
            action="Quotas at work: raise the client's, or let it be slow.",
        )
        registry.gauge(
            "broker_unsent_response_bytes",
            "Bytes of answers that wait for clients to take them, beyond 1 MiB each, or are being read from the disk.",
            lambda: sum(read() for read in self.unsent_bytes),
            action="At 256 MiB fetches get one batch at a time: find the clients that fetch and do not read.",
        )

    def route(self, request: str, version: int) -> RouteMetrics:
        """The same object for the same API and version: the broker's and the controller's listeners share it."""
        known = self._routes.get((request, version))
        if known is None:
            known = self._routes[request, version] = RouteMetrics(self._seconds, self._errors, request, version)
        return known

    def count_closed(self, reason: str) -> None:
        """A reason that is none of the known ones is a handler's words for an error on acks=0."""
        self._closed.labels(reason if reason in CLOSE_REASONS else REFUSED_SILENTLY).increment()

    def closed_count(self, reason: str) -> int:
        return int(self._closed.labels(reason).value)

    def count_error(self, request: str, error: str, by: int = 1) -> None:
        """`error` is the protocol's name of the code, in capitals."""
        self._errors.labels(request, error).increment(by)
