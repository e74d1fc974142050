"""CostMeter: what replication costs in dollars by what the store and other zones ask for, and what it would cost else.

It owns no count: requests and bytes are those of the instrumented stores, bytes between brokers those of the topics.
Every broker reckons its own part: a leader pays for puts, uploads and storage, a follower for gets, retrieval and what
it fetched across zones.  Sums over the brokers are the cluster's.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from broker.metrics.object_store_metrics import StoreUsage
from broker.objectstore.decorated import Operation
from broker.replication.topic_stats import ReplicationPath, TopicStats
from broker.wal.cost.prices import MONTH_SECONDS, Prices
from broker.wal.remote_wal_stats import RemoteWalStats

RATE_WINDOW_SECONDS: Final = 10.0
SAMPLE_SECONDS: Final = 1.0
SPREAD_SECONDS: Final = 10.0  # to find it all partitions are looked at


@dataclass(frozen=True, slots=True)
class Traffic:
    """What goes through the bucket now, and the prices: of all requests one object causes, and of the bytes of one
    second if followers fetched them across zones."""

    object_price: float
    classic_price_per_second: float
    someone_waits_for_all: bool


class CostItem(StrEnum):
    """What is paid for; a label value of `broker_cost_dollars_total`."""

    PUT = "put"  # requests that write, and parts of them
    GET = "get"  # requests that read
    LIST = "list"
    UPLOAD = "upload"  # bytes
    RETRIEVAL = "retrieval"  # bytes
    STORAGE = "storage"  # bytes over time
    FETCH = "fetch"  # bytes from leaders in other zones
    FALLBACK = "fallback"  # the same, of topics that are followed through a bucket
    TIERED = "tiered"  # requests and bytes of the bucket of tiered storage, which is no part of replication


class FollowerSpread(NamedTuple):
    """Where the followers of what this broker leads through the bucket are.

    `brokers`: how many brokers read its objects.  `followers`, `cross_zone`: of one partition on average, those of
    other zones among them.
    """

    brokers: int = 0
    followers: float = 0.0
    cross_zone: float = 0.0


def spread_of(
    replica_sets: Iterable[tuple[int, ...]], own_id: int, zone_of: Callable[[int], str | None]
) -> FollowerSpread:
    """Of partitions led by `own_id`, each given by its replicas; ten thousand of them have few different ones."""
    brokers: set[int] = set()
    partitions = followers = cross_zone = 0
    for replicas, count in Counter(replica_sets).items():
        partitions += count
        for broker_id in replicas:
            if broker_id != own_id:
                brokers.add(broker_id)
                followers += count
                cross_zone += count * crosses_zones(zone_of(own_id), zone_of(broker_id))
    divisor = max(partitions, 1)
    return FollowerSpread(len(brokers), followers / divisor, cross_zone / divisor)


def crosses_zones(one: str | None, other: str | None) -> bool:
    """Whether bytes between them are paid for: a broker without `broker.rack` is taken to be in every zone."""
    return one is not None and other is not None and one != other


_READS: Final = (Operation.GET_RANGE, Operation.HEAD, Operation.PROBE)
_FREE: Final = (Operation.DELETE_MANY, Operation.ABORT_UPLOAD)


class _Sample(NamedTuple):
    at: float
    bytes: int
    objects: int


class _Rates(NamedTuple):
    """Per second."""

    bytes: float = 0.0
    objects: float = 0.0


class CostMeter:
    """`usage` and `topics` are read whenever somebody asks; `live_bytes` tells what this broker has in its bucket.

    `tiered_bucket` is the URL of the bucket of tiered storage, where there is one.
    """

    def __init__(
        self,
        *,
        own_bucket: str,
        own_zone: str | None,
        usage: Mapping[tuple[str, str], StoreUsage],
        topics: Mapping[str, TopicStats],
        stats: RemoteWalStats,
        prices: Prices,
        zone_of: Callable[[int], str | None],
        spread: Callable[[], FollowerSpread],
        live_bytes: Callable[[], int] = lambda: 0,
        tiered_bucket: str | None = None,
        time: Callable[[], float],
    ) -> None:
        """`time` is the loop's, in seconds; `zone_of` tells a broker's rack."""
        self._own_bucket = own_bucket
        self._own_zone = own_zone
        self._usage = usage
        self._topics = topics
        self._stats = stats
        self._prices = prices
        self._zone_of = zone_of
        self._spread_now = spread
        self._spread = FollowerSpread()
        self._spread_due_at = time()
        self._live_bytes = live_bytes
        self._tiered_bucket = tiered_bucket
        self._time = time
        self._samples: deque[_Sample] = deque()
        self._storage_dollars = 0.0
        self._stored_until = time()

    # -- what was paid ----------------------------------------------------------------------------------------------

    def dollars(self) -> dict[CostItem, float]:
        """Since the start, by item."""
        self._sample()
        paid = dict.fromkeys(CostItem, 0.0)
        for (store, operation), used in list(self._usage.items()):
            is_tiered = store == self._tiered_bucket != self._own_bucket
            for item, dollars in self._prices_of(store, operation, used):
                paid[CostItem.TIERED if is_tiered else item] += dollars
        paid[CostItem.STORAGE] = self._storage_dollars
        paid[CostItem.FETCH] = self._crossing_bytes(ReplicationPath.FETCH) * self._prices.cross_zone
        paid[CostItem.FALLBACK] = self._crossing_bytes(ReplicationPath.FALLBACK) * self._prices.cross_zone
        return paid

    def _prices_of(self, store: str, operation: str, used: StoreUsage) -> Iterator[tuple[CostItem, float]]:
        """Of requests of one kind, and of their bytes."""
        prices = self._prices.of_store(store)
        if operation in _READS:
            yield CostItem.GET, used.requests * prices.get
            yield CostItem.RETRIEVAL, used.bytes * prices.retrieval
        elif operation not in _FREE:
            yield CostItem.LIST if operation == Operation.LIST else CostItem.PUT, used.requests * prices.put
            yield CostItem.UPLOAD, used.bytes * prices.upload

    def avoided_dollars(self) -> float:
        """What the bytes that came from buckets of other zones would have cost, had the leaders sent them."""
        return self._crossing_bytes(ReplicationPath.WAL) * self._prices.cross_zone

    # -- what is paid now -------------------------------------------------------------------------------------------

    def traffic(self, someone_waits_for_all: bool) -> Traffic:
        """For the pace of uploads; cheap enough to be asked for every object."""
        self._sample()
        classic = self._rates().bytes * self._spread.cross_zone * self._prices.cross_zone
        return Traffic(self._object_price(), classic, someone_waits_for_all)

    def break_even_bytes_per_second(self) -> float:
        """From how many bytes a second on the bucket is the cheaper way, at so many objects a second as now.

        Infinite when it never is; 0 while nothing is uploaded.
        """
        self._sample()
        for_requests = self._rates().objects * self._object_price()
        if for_requests == 0:
            return 0.0
        gain = self._spread.cross_zone * self._prices.cross_zone - self._byte_price()
        return for_requests / gain if gain > 0 else float("inf")

    def monthly_saving_dollars(self) -> float:
        """Of what this broker leads, its followers' part included, if it went on for 30 days as in the last seconds;
        negative when the bucket is dearer."""
        self._sample()
        rates, own = self._rates(), self._prices.of_store(self._own_bucket)
        classic = rates.bytes * self._spread.cross_zone * self._prices.cross_zone
        bucket = rates.objects * self._object_price() + rates.bytes * self._byte_price()
        return (classic - bucket - self._live_bytes() * own.storage) * MONTH_SECONDS

    def _object_price(self) -> float:
        """Of all requests one object causes: its PUT, and a GET of each broker that follows."""
        own = self._prices.of_store(self._own_bucket)
        return own.put + self._spread.brokers * own.get

    def _byte_price(self) -> float:
        own = self._prices.of_store(self._own_bucket)
        return own.upload + self._spread.followers * own.retrieval

    def _crossing_bytes(self, path: ReplicationPath) -> int:
        return sum(
            size
            for topic in list(self._topics.values())
            for (way, broker_id), size in topic.received_bytes.items()
            if way is path and crosses_zones(self._zone_of(broker_id), self._own_zone)
        )

    def _rates(self) -> _Rates:
        if len(self._samples) < 2:
            return _Rates()
        first, last = self._samples[0], self._samples[-1]
        seconds = last.at - first.at
        return _Rates((last.bytes - first.bytes) / seconds, (last.objects - first.objects) / seconds)

    def _sample(self) -> None:
        """Note where the counts are, once a second at most."""
        now = self._time()
        if self._samples and now - self._samples[-1].at < SAMPLE_SECONDS:
            return
        self._storage_dollars += (
            self._live_bytes() * self._prices.of_store(self._own_bucket).storage * (now - self._stored_until)
        )
        self._stored_until = now
        copied = sum(topic.copy_bytes for topic in self._stats.topics.values())
        if now >= self._spread_due_at or not self._spread.brokers:
            self._spread = self._spread_now()
            self._spread_due_at = now + SPREAD_SECONDS
        if self._samples and copied < self._samples[-1].bytes:
            self._samples.clear()  # a topic has gone with its counts
        self._samples.append(_Sample(now, copied, self._stats.objects_stored))
        while now - self._samples[0].at > RATE_WINDOW_SECONDS:
            self._samples.popleft()
