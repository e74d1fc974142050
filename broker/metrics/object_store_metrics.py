"""ObjectStoreMetrics: requests to buckets, their bytes and times; what a store's bill is made of."""

from collections.abc import Collection

from broker.metrics.registry import MetricsRegistry


class StoreUsage:
    """What a store bills for one kind of request: those it answered, and the bytes of those it accepted."""

    __slots__ = ("bytes", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0


class ObjectStoreMetrics:
    """Moved by `InstrumentedObjectStore`; `store` is the URL of a bucket, so there are as many as zones."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self.usage: dict[tuple[str, str], StoreUsage] = {}  # by store and operation
        self.requests = registry.counter(
            "broker_objectstore_requests_total",
            "Requests to a bucket, repeated ones as well, by how they ended: ok, not_found, precondition_failed, "
            "throttled, unavailable, access_denied, corrupt, or failed when the broker gave up first.",
            ("store", "operation", "outcome"),
            action="throttled: fewer, larger objects or a higher limit of the bucket. unavailable: the way to the "
            "store, or the store. access_denied: the broker's credentials or their policy.",
        )
        self.bytes = registry.counter(
            "broker_objectstore_bytes_total",
            "Bytes of objects sent to a bucket or received from it; those of requests that failed count when sent.",
            ("store", "operation"),
        )
        self.queue_full = registry.counter(
            "broker_objectstore_queue_full_total",
            "Requests that were not made because too many to the same bucket waited already.",
            ("store",),
            action="The bucket has been slow for long: see broker_objectstore_request_seconds.",
        )
        self.circuit_opened = registry.counter(
            "broker_objectstore_circuit_opened_total",
            "Times a bucket had failed so often that it was left alone for a while.",
            ("store",),
            action="bucket_unavailable in the log names the last error; a probe every 5 s finds the bucket again.",
        )
        self.request_seconds = registry.histogram(
            "broker_objectstore_request_seconds",
            "Time from a request to the end of its answer.",
            ("store", "operation"),
            action="Compare with the store's usual times: a bucket in another zone or a full pool of connections is "
            "slower.",
        )

    @property
    def stores(self) -> Collection[str]:
        """The URLs of the buckets that were asked something."""
        return sorted({labels[0] for labels, _ in self.requests.samples() if labels})
