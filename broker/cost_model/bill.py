"""Bills: what a cluster costs in a month, by architecture and by what is paid for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from broker.config.price_book import PriceBook, StorePriceList
from broker.config.setting import ConfigError
from broker.cost_model.objects import Objects
from broker.cost_model.plan import HOUR_SECONDS, Plan
from broker.cost_model.traffic import Traffic, traffic_of
from broker.objectstore.objects import PartSizes
from broker.wal.cost.prices import GB, MONTH_SECONDS, StorePrices
from broker.wal.retention.object_retention import KEEP_SLACK_MS, ObjectRetentionMode

TIER_STORE: Final = "s3-standard"
SMALL_OBJECTS_PER_SEGMENT: Final = 4  # indexes, producers and leader epochs, beside the log
SWEEP_SECONDS: Final = 60.0  # remote.wal.gc.interval.ms
LOAD_MIN_MBPS: Final = 0.01
LOAD_MAX_MBPS: Final = 1_000_000.0
_STEPS_PER_DECADE: Final = 6
_BISECTIONS: Final = 24


class Architecture(StrEnum):
    """How records reach followers, and where old ones are."""

    CLASSIC = "classic"
    CLASSIC_TIERED = "classic, tiered"
    WAL = "buckets"
    WAL_TIERED = "buckets, tiered"

    @property
    def is_through_buckets(self) -> bool:
        return self in (Architecture.WAL, Architecture.WAL_TIERED)

    @property
    def is_tiered(self) -> bool:
        return self in (Architecture.CLASSIC_TIERED, Architecture.WAL_TIERED)


class Item(StrEnum):
    """What is paid for."""

    REPLICATION = "replication between zones"
    PUT = "PUT"
    GET = "GET"
    UPLOAD = "upload"
    RETRIEVAL = "retrieval"
    KEPT = "objects kept"
    METADATA = "metadata between zones"
    PRODUCERS = "producers between zones"
    CONSUMERS = "consumers between zones"
    DISKS = "local disks"
    TIER_REQUESTS = "tier: requests"
    TIER_KEPT = "tier: kept"


OF_REPLICATION: Final = (
    Item.REPLICATION,
    Item.PUT,
    Item.GET,
    Item.UPLOAD,
    Item.RETRIEVAL,
    Item.KEPT,
    Item.METADATA,
)


@dataclass(frozen=True, slots=True)
class Bill:
    """Dollars in 30 days."""

    items: Mapping[Item, float]

    @property
    def replication(self) -> float:
        """All that is paid for followers to have the records."""
        return sum(self.items[item] for item in OF_REPLICATION)

    @property
    def total(self) -> float:
        return sum(self.items.values())


def traffic_at(plan: Plan, book: PriceBook) -> Traffic:
    """As brokers with these prices would do it.  ConfigError for a store without prices."""
    return traffic_of(plan, StorePrices.of(_listed(plan.store, book)), book.cross_zone_per_gb / GB)


def bill_of(traffic: Traffic, architecture: Architecture, book: PriceBook) -> Bill:
    """What the traffic costs with the prices of the book."""
    plan = traffic.plan
    cross_zone = MONTH_SECONDS * book.cross_zone_per_gb / GB
    items = dict.fromkeys(Item, 0.0)
    items[Item.PRODUCERS] = traffic.produced_cross_zone_bytes * cross_zone
    items[Item.CONSUMERS] = traffic.consumed_cross_zone_bytes * cross_zone
    if not architecture.is_through_buckets:
        items[Item.REPLICATION] = traffic.cross_zone_bytes * cross_zone
    elif plan.followers:
        own = StorePrices.of(_listed(plan.store, book))
        items[Item.PUT] = traffic.puts * own.put * MONTH_SECONDS
        items[Item.GET] = traffic.gets * own.get * MONTH_SECONDS
        items[Item.UPLOAD] = traffic.uploaded_bytes * own.upload * MONTH_SECONDS
        items[Item.RETRIEVAL] = traffic.retrieved_bytes * own.retrieval * MONTH_SECONDS
        kept_seconds = object_life_seconds(plan, traffic.objects, is_tiered=architecture.is_tiered)
        items[Item.KEPT] = traffic.uploaded_bytes * kept_seconds * own.storage * MONTH_SECONDS
        items[Item.METADATA] = traffic.metadata_cross_zone_bytes * cross_zone
    items.update(_of_old_records(plan, architecture, book))
    return Bill(items)


def object_life_seconds(plan: Plan, objects: Objects, *, is_tiered: bool) -> float:
    """How long an object stays in the fast bucket (`RetentionPass`).

    Never longer than its pointers or the local records, and the slack; in mode `replicated` until its least age; where
    topics are tiered only until the last of its segments is copied, for which it must first be full.
    """
    local_hours = plan.local_retention_hours if is_tiered else plan.retention_hours
    life = min(local_hours, plan.metadata_retention_hours) * HOUR_SECONDS + KEEP_SLACK_MS / 1000
    if plan.object_retention is ObjectRetentionMode.REPLICATED:
        life = min(life, plan.object_retention_min_hours * HOUR_SECONDS)
    if is_tiered:
        full_seconds = plan.segment_bytes * plan.partitions / plan.log_bytes_per_second
        # Segments of its partitions are at any point of their lives: the last of n evenly spread ones ends at n/(n+1).
        life = min(life, full_seconds * objects.partitions / (objects.partitions + 1))
    return life + SWEEP_SECONDS / 2


def _of_old_records(plan: Plan, architecture: Architecture, book: PriceBook) -> dict[Item, float]:
    written = plan.log_bytes_per_second
    local_hours = (
        min(plan.local_retention_hours, plan.retention_hours) if architecture.is_tiered else plan.retention_hours
    )
    on_disks = written * local_hours * HOUR_SECONDS * plan.replication_factor
    items = {Item.DISKS: on_disks / GB * book.disk_per_gb_month}
    if architecture.is_tiered:
        tier = StorePrices.of(_listed(TIER_STORE, book))
        segments = written / plan.segment_bytes * MONTH_SECONDS
        items[Item.TIER_REQUESTS] = segments * requests_per_segment(plan.segment_bytes) * tier.put
        items[Item.TIER_KEPT] = written * plan.retention_hours * HOUR_SECONDS * tier.storage * MONTH_SECONDS
    return items


def requests_per_segment(segment_bytes: int) -> int:
    """That write: a large log goes up in parts, between a request that begins and one that completes it."""
    parts = math.ceil(segment_bytes / PartSizes().part_size_for(segment_bytes))
    return SMALL_OBJECTS_PER_SEGMENT + (1 if parts == 1 else parts + 2)


def break_even_mbps(plan: Plan, book: PriceBook, *, is_tiered: bool = False) -> float | None:
    """From which load on replication through buckets is the cheaper one, all else as in the plan; None when it never
    is up to LOAD_MAX_MBPS."""
    steps = round(math.log10(LOAD_MAX_MBPS / LOAD_MIN_MBPS) * _STEPS_PER_DECADE)
    loads = [LOAD_MIN_MBPS * 10 ** (step / _STEPS_PER_DECADE) for step in range(steps + 1)]
    dearer = [load for load in loads if saving(replace(plan, mbps=load), book, is_tiered=is_tiered) <= 0]
    if not dearer:
        return loads[0]
    low = dearer[-1]
    if low == loads[-1]:
        return None
    high = loads[loads.index(low) + 1]
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        if saving(replace(plan, mbps=middle), book, is_tiered=is_tiered) > 0:
            high = middle
        else:
            low = middle
    return high


def saving(plan: Plan, book: PriceBook, *, is_tiered: bool = False) -> float:
    """Dollars of a month's replication that buckets spare; negative when they cost more."""
    traffic = traffic_at(plan, book)
    pair = (
        (Architecture.CLASSIC_TIERED, Architecture.WAL_TIERED)
        if is_tiered
        else (Architecture.CLASSIC, Architecture.WAL)
    )
    classic, wal = (bill_of(traffic, each, book).replication for each in pair)
    return classic - wal


def _listed(store: str, book: PriceBook) -> StorePriceList:
    try:
        return book.stores[store]
    except KeyError:
        raise ConfigError(f"store={store}: the prices have {', '.join(book.stores)}.") from None
