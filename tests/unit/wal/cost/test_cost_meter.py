import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from broker.common.chance import Chance
from broker.metrics.object_store_metrics import ObjectStoreMetrics, StoreUsage
from broker.metrics.registry import MetricsRegistry
from broker.objectstore.decorated import DecoratedObjectStore, Operation, Request
from broker.objectstore.errors import ObjectStoreError
from broker.objectstore.failing_object_store import FailingObjectStore, Fault, FaultPlan
from broker.objectstore.instrumented import InstrumentedObjectStore
from broker.objectstore.retrying import RetryingObjectStore
from broker.replication.topic_stats import ReplicationPath, TopicStats
from broker.wal.cost.cost_meter import CostItem, CostMeter, FollowerSpread, Traffic, spread_of
from broker.wal.cost.prices import GB, MONTH_SECONDS, PriceList, Prices
from broker.wal.remote_wal_stats import RemoteWalStats
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import SimLoop, simulate

T = TypeVar("T")

BUCKET = "s3://wal--use1-az4--x-s3"
ZONES = {1: "a", 2: "b", 3: "c", 4: "a", 5: None}
PUT, GET, UPLOAD, RETRIEVAL = 0.00113 / 1000, 0.00003 / 1000, 0.0032 / GB, 0.0006 / GB
CROSS_ZONE = 0.02 / GB


class World:
    """A meter of broker 1 in zone a, and everything it reads."""

    def __init__(
        self,
        prices: Prices | None = None,
        usage: dict[tuple[str, str], StoreUsage] | None = None,
        tiered_bucket: str | None = None,
    ) -> None:
        self.now = 1000.0
        self.usage = {} if usage is None else usage
        self.topics: dict[str, TopicStats] = {}
        self.stats = RemoteWalStats()
        self.live_bytes = 0
        self.spread = FollowerSpread(2, 2.0, 2.0)
        self.meter = CostMeter(
            own_bucket=BUCKET,
            own_zone="a",
            usage=self.usage,
            topics=self.topics,
            stats=self.stats,
            prices=prices or Prices(),
            zone_of=lambda broker_id: ZONES.get(broker_id),
            spread=lambda: self.spread,
            live_bytes=lambda: self.live_bytes,
            tiered_bucket=tiered_bucket,
            time=lambda: self.now,
        )

    def used(self, operation: Operation, requests: int, size_bytes: int = 0, store: str = BUCKET) -> None:
        usage = self.usage.setdefault((store, operation.value), StoreUsage())
        usage.requests += requests
        usage.bytes += size_bytes

    def upload(self, seconds: int, *, objects: int, size_bytes: int) -> None:
        """So many objects and bytes each second."""
        for _ in range(seconds):
            self.meter.traffic(False)
            self.now += 1
            self.stats.of("t").copy_bytes += size_bytes
            self.stats.objects_stored += objects


def test_requests_and_bytes_are_paid_by_kind() -> None:
    world = World()
    world.used(Operation.PUT_IF_ABSENT, 1000, GB)
    world.used(Operation.GET_RANGE, 2000, 2 * GB)
    world.used(Operation.HEAD, 10)
    world.used(Operation.PROBE, 10)
    world.used(Operation.LIST, 100)
    world.used(Operation.UPLOAD_PART, 5, GB)
    world.used(Operation.DELETE_MANY, 1_000_000)
    world.used(Operation.PUT, 1000, GB, "s3://another")
    world.used(Operation.PUT, 1000, GB, "file:///free")
    expected = dict.fromkeys(CostItem, 0.0) | {
        CostItem.PUT: pytest.approx(1005 * PUT + 1000 * 0.000005),
        CostItem.UPLOAD: pytest.approx(2 * 0.0032),
        CostItem.GET: pytest.approx(2020 * GET),
        CostItem.RETRIEVAL: pytest.approx(2 * 0.0006),
        CostItem.LIST: pytest.approx(100 * PUT),
    }
    assert world.meter.dollars() == expected


def test_tiered_storage_is_paid_beside_replication() -> None:
    world = World(tiered_bucket="s3://tiered")
    for store in ("s3://tiered", BUCKET):
        world.used(Operation.PUT, 1000, GB, store)
        world.used(Operation.GET_RANGE, 2000, GB, store)
        world.used(Operation.LIST, 10, 0, store)
        world.used(Operation.DELETE_MANY, 1_000_000, 0, store)
    dollars = world.meter.dollars()
    assert dollars[CostItem.TIERED] == pytest.approx(1010 * 0.000005 + 2000 * 0.0000004)
    assert dollars[CostItem.PUT] == pytest.approx(1000 * PUT)
    shared = World(tiered_bucket=BUCKET)  # nobody can tell whose a request is
    shared.used(Operation.PUT, 1000)
    assert shared.meter.dollars()[CostItem.PUT] == pytest.approx(1000 * PUT)


def test_what_is_kept_is_paid_by_the_second() -> None:
    world = World()
    world.live_bytes = 6 * GB
    for _ in range(10):
        world.now += 86_400
        world.meter.dollars()
    assert world.meter.dollars()[CostItem.STORAGE] == pytest.approx(2 * 0.11)


def test_bytes_between_zones_are_paid_by_path_and_those_of_a_bucket_are_avoided() -> None:
    world = World()
    topic = world.topics["t"] = TopicStats()
    topic.count_received(ReplicationPath.FETCH, 2, 10 * GB)
    topic.count_received(ReplicationPath.FETCH, 4, 70 * GB)  # of the same zone
    topic.count_received(ReplicationPath.FALLBACK, 3, 5 * GB)
    topic.count_received(ReplicationPath.WAL, 2, 40 * GB)
    topic.count_received(ReplicationPath.WAL, 3, 60 * GB)
    topic.count_received(ReplicationPath.WAL, 4, 70 * GB)
    topic.count_received(ReplicationPath.WAL, 5, 70 * GB)  # nobody knows where that one is
    dollars = world.meter.dollars()
    assert dollars[CostItem.FETCH] == pytest.approx(0.2)
    assert dollars[CostItem.FALLBACK] == pytest.approx(0.1)
    assert world.meter.avoided_dollars() == pytest.approx(2.0)


def test_traffic_is_what_an_object_costs_and_what_its_bytes_would() -> None:
    world = World()
    assert world.meter.traffic(True) == Traffic(PUT + 2 * GET, 0.0, True)
    world.upload(5, objects=20, size_bytes=1_000_000)
    now = world.meter.traffic(False)
    assert now.classic_price_per_second == pytest.approx(1_000_000 * 2 * CROSS_ZONE)
    assert (now.object_price, now.someone_waits_for_all) == (PUT + 2 * GET, False)


def test_rates_are_those_of_the_last_ten_seconds() -> None:
    world = World()
    world.upload(60, objects=100, size_bytes=50_000_000)
    world.upload(20, objects=1, size_bytes=1000)
    assert world.meter.traffic(False).classic_price_per_second == pytest.approx(1000 * 2 * CROSS_ZONE)


def test_a_deleted_topic_is_not_negative_traffic() -> None:
    world = World()
    world.upload(5, objects=20, size_bytes=1_000_000)
    world.stats.remove("t")
    world.now += 1
    assert world.meter.traffic(False).classic_price_per_second == 0
    world.upload(2, objects=20, size_bytes=500)
    assert world.meter.traffic(False).classic_price_per_second == pytest.approx(500 * 2 * CROSS_ZONE)


def test_the_break_even_line() -> None:
    world = World()
    assert world.meter.break_even_bytes_per_second() == 0
    world.upload(10, objects=200, size_bytes=1_000_000)  # three brokers at 15 ms would be 67 each
    expected = 200 * (PUT + 2 * GET) / (2 * CROSS_ZONE - UPLOAD - 2 * RETRIEVAL)
    assert world.meter.break_even_bytes_per_second() == pytest.approx(expected)
    assert 6.5e6 < expected < 7.5e6  # the line is near 6.7 MB/s
    world.spread = FollowerSpread(2, 2.0, 0.0)  # all in one zone
    world.upload(5, objects=200, size_bytes=1_000_000)
    assert world.meter.break_even_bytes_per_second() == pytest.approx(expected)  # it is looked at now and then
    world.upload(10, objects=200, size_bytes=1_000_000)
    assert world.meter.break_even_bytes_per_second() == float("inf")


def test_the_saving_of_a_month() -> None:
    world = World()
    world.live_bytes = GB
    world.upload(10, objects=200, size_bytes=100 * 1_000_000)
    per_second = 1e8 * (2 * CROSS_ZONE - UPLOAD - 2 * RETRIEVAL) - 200 * (PUT + 2 * GET)
    assert world.meter.monthly_saving_dollars() == pytest.approx(per_second * MONTH_SECONDS - 0.11)
    world.upload(30, objects=200, size_bytes=1000)
    assert world.meter.monthly_saving_dollars() < 0


def test_where_followers_are() -> None:
    spread = spread_of([(1, 2, 3), (1, 2, 4), (5, 1)], 1, ZONES.get)
    assert spread == FollowerSpread(4, 5 / 3, 3 / 3)
    assert spread_of([], 1, ZONES.get) == FollowerSpread(0, 0, 0)


class CountingStore(DecoratedObjectStore):
    """The store's own books: the requests it answered, the bytes it took and gave."""

    def __init__(self, inner: MemoryObjectStore) -> None:
        super().__init__(inner)
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    async def _around(self, request: Request, call: Callable[[], Awaitable[T]]) -> T:
        self.requests[request.operation.value] += 1
        result = await call()
        self.bytes[request.operation.value] += len(request.body)
        if isinstance(result, bytes):
            self.bytes[request.operation.value] += len(result)
        return result


@pytest.mark.parametrize("seed", range(5))
def test_the_meter_reckons_with_what_the_store_counted(seed: int) -> None:
    async def story(loop: SimLoop) -> None:
        chance = Chance(seed)
        metrics = ObjectStoreMetrics(MetricsRegistry())
        world = World(Prices(PriceList.S3_EXPRESS), usage=metrics.usage)
        books = CountingStore(MemoryObjectStore(BUCKET))
        faults = {Fault.SLOW_DOWN: 0.03, Fault.RESET: 0.02, Fault.LOST_REPLY: 0.005, Fault.SHORT_READ: 0.005}
        failing = FailingObjectStore(books, chance, FaultPlan(probabilities=faults))
        store = RetryingObjectStore(InstrumentedObjectStore(failing, metrics), chance)
        sizes: list[int] = []  # by number of the object
        for _ in range(3000):
            with contextlib.suppress(ObjectStoreError):
                match chance.below(8):
                    case 0 | 1 | 2:
                        size = 1 + chance.below(300_000)
                        await store.put_if_absent(f"wal/{len(sizes)}", bytes(size))
                        sizes.append(size)
                    case 7:
                        await store.list_page("wal/")
                    case _ if sizes:
                        number = chance.below(len(sizes))
                        await store.get_range(f"wal/{number}", 0, 1 + chance.below(sizes[number]))
        dollars = world.meter.dollars()
        expected = {
            CostItem.PUT: books.requests["put_if_absent"] * PUT,
            CostItem.LIST: books.requests["list"] * PUT,
            CostItem.GET: (books.requests["get_range"] + books.requests["head"]) * GET,
            CostItem.UPLOAD: books.bytes["put_if_absent"] * UPLOAD,
            CostItem.RETRIEVAL: books.bytes["get_range"] * RETRIEVAL,
        }
        assert failing.occurred.keys() == faults.keys()
        for item, paid in expected.items():
            assert dollars[item] == pytest.approx(paid, rel=0.02), item
        assert sum(dollars.values()) == pytest.approx(sum(expected.values()), rel=0.02)

    simulate(story)
