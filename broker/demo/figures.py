"""Figures: what the board shows, reckoned from what the brokers' metrics say and from nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.demo.layout import CLASSIC_TOPIC, WAL_TOPIC, DemoNode
from broker.demo.scrape import Scrape
from broker.demo.watch import View

MONTH_SECONDS: Final = 30 * 86_400

_TOPICS: Final = "kafka_server_brokertopicmetrics"
LEADERS: Final = "kafka_server_replicamanager_leadercount"
REPLICAS: Final = "kafka_server_replicamanager_partitioncount"
IN_SYNC: Final = "kafka_cluster_partition_insyncreplicascount"
OF_REPLICAS: Final = "kafka_cluster_partition_replicascount"
CONTROLLER: Final = "kafka_controller_kafkacontroller_activecontrollercount"
FENCED: Final = "broker_fenced"
COPIED: Final = "broker_replication_bytes_total"
LAG_RECORDS: Final = "broker_replication_lag_records"
LAG_SECONDS: Final = "broker_replication_lag_seconds"
PRODUCED: Final = f"{_TOPICS}_bytesin_total"
FALLBACK_PARTITIONS: Final = f"{_TOPICS}_remotewalfallbackpartitions"
CIRCUITS: Final = "broker_wal_bucket_circuit_open"
HOPS: Final = "broker_wal_hop_seconds"
BUCKET_REQUESTS: Final = "broker_objectstore_requests_total"
FETCHES: Final = "kafka_server_fetcherstats_requests_total"
DOLLARS: Final = "broker_cost_dollars_total"
SPARED: Final = "broker_cost_saved_dollars_total"
BREAK_EVEN: Final = "broker_cost_break_even_bytes_per_second"
TIERED_BYTES: Final = f"{_TOPICS}_remotelogsizebytes"
TIERED_COPIED: Final = f"{_TOPICS}_remotecopybytes_total"
TIERED_READ: Final = f"{_TOPICS}_remotefetchbytes_total"
TIERED_LAG: Final = f"{_TOPICS}_remotecopylagbytes"
LOCAL_BYTES: Final = "kafka_log_log_size"

METRICS: Final = frozenset(
    {
        *(LEADERS, REPLICAS, IN_SYNC, OF_REPLICAS, CONTROLLER, FENCED, COPIED, LAG_RECORDS, LAG_SECONDS, PRODUCED),
        *(FALLBACK_PARTITIONS, CIRCUITS, HOPS, BUCKET_REQUESTS, FETCHES, DOLLARS, SPARED, BREAK_EVEN),
        *(TIERED_BYTES, TIERED_COPIED, TIERED_READ, TIERED_LAG, LOCAL_BYTES),
    }
)

# In the order of the way; the last two are the whole of it.
HOP_NAMES: Final = (
    *("leader_append", "combine_wait", "put", "publish", "metadata_delivery", "get", "follower_append"),
    *("follower_fetch", "high_watermark", "end_to_end"),
)
WAL, FALLBACK, FETCH = "wal", "fallback", "fetch"
_OWN_TOPICS: Final = "__remote_"  # metadata of replication through buckets, and of tiered storage
_BUCKET_ITEMS: Final = ("put", "get", "list", "upload", "retrieval", "storage", "fallback")


@dataclass(frozen=True)
class BrokerRow:
    node: DemoNode
    role: str
    state: str
    leaders: int = 0
    replicas: int = 0
    in_sync: int = 0  # of the partitions it leads
    of_replicas: int = 0
    fallback_partitions: int = 0
    open_circuits: int = 0


@dataclass(frozen=True)
class PathRow:
    """Records of a topic on one way to its followers."""

    topic: str
    path: str
    total_bytes: float
    bytes_per_second: float
    lag_records: float
    lag_seconds: float


@dataclass(frozen=True)
class HopRow:
    """Milliseconds; None when nothing passed in the last seconds."""

    name: str
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True)
class CostFigures:
    """Dollars for 30 days of traffic like that of the last seconds.

    `here` is what the topic through buckets costs: its requests, its bytes, what it kept, what the leaders had to send,
    and the metadata of it; `classic_here` what the same bytes would have cost between zones.  `break_even` is the
    traffic, in bytes a second, that pays for the requests there are now.
    """

    items: Mapping[str, float] = field(default_factory=dict)
    metadata: float = 0.0
    classic_here: float = 0.0
    other_topic: float = 0.0
    break_even: float = 0.0
    produced: float = 0.0  # bytes a second
    objects_per_month: float = 0.0

    @property
    def here(self) -> float:
        return sum(self.items.values()) + self.metadata

    @property
    def saving(self) -> float:
        return self.classic_here - self.here


@dataclass(frozen=True)
class TieredFigures:
    """Bytes of the topic through buckets."""

    in_bucket: float = 0.0
    copied: float = 0.0
    read: float = 0.0
    copy_lag: float = 0.0
    on_disks: float = 0.0


@dataclass(frozen=True)
class Figures:
    brokers: Sequence[BrokerRow] = ()
    paths: Sequence[PathRow] = ()
    hops: Sequence[HopRow] = ()
    puts_per_second: float = 0.0
    gets_per_second: float = 0.0
    fetches_per_second: float = 0.0
    cost: CostFigures = field(default_factory=CostFigures)
    tiered: TieredFigures = field(default_factory=TieredFigures)

    @property
    def ready(self) -> int:
        return sum(row.state == "ready" for row in self.brokers)

    @property
    def in_sync(self) -> str:
        """Of the partitions that have a leader."""
        return f"{sum(row.in_sync for row in self.brokers)}/{sum(row.of_replicas for row in self.brokers)}"

    def path(self, topic: str, path: str) -> PathRow:
        return next(row for row in self.paths if (row.topic, row.path) == (topic, path))

    def hop(self, name: str) -> HopRow:
        return next(row for row in self.hops if row.name == name)


def figures_of(view: View, nodes: Sequence[DemoNode], running: Mapping[int, bool]) -> Figures:
    """`running` tells which processes there are."""
    now = view.now
    ways = ((WAL_TOPIC, WAL), (WAL_TOPIC, FALLBACK), (CLASSIC_TOPIC, FETCH))
    return Figures(
        brokers=[_broker_row(node, view, running.get(node.node_id, False)) for node in nodes],
        paths=[_path_row(topic, path, now, view) for topic, path in ways],
        hops=[_hop_row(name, view.increase) for name in HOP_NAMES],
        puts_per_second=view.rate(BUCKET_REQUESTS, operation="put_if_absent"),
        gets_per_second=view.rate(BUCKET_REQUESTS, operation="get_range"),
        fetches_per_second=view.rate(FETCHES),
        cost=_cost(now, view),
        tiered=TieredFigures(
            in_bucket=now.total(TIERED_BYTES, topic=WAL_TOPIC),
            copied=now.total(TIERED_COPIED, topic=WAL_TOPIC),
            read=now.total(TIERED_READ, topic=WAL_TOPIC),
            copy_lag=now.total(TIERED_LAG, topic=WAL_TOPIC),
            on_disks=now.total(LOCAL_BYTES, topic=WAL_TOPIC),
        ),
    )


def _broker_row(node: DemoNode, view: View, is_running: bool) -> BrokerRow:
    scrape = view.brokers.get(node.node_id)
    role = "broker, controller" if node.has_controller else "broker"
    if scrape is None or not is_running:
        return BrokerRow(node, role, "starting" if is_running else "down")
    state = "ready" if node.node_id in view.ready else "fenced" if scrape.total(FENCED) else "not ready"
    return BrokerRow(
        node,
        role,
        state,
        leaders=int(scrape.total(LEADERS)),
        replicas=int(scrape.total(REPLICAS)),
        in_sync=int(scrape.total(IN_SYNC)),
        of_replicas=int(scrape.total(OF_REPLICAS)),
        fallback_partitions=int(scrape.total(FALLBACK_PARTITIONS)),
        open_circuits=int(scrape.total(CIRCUITS)),
    )


def _path_row(topic: str, path: str, now: Scrape, view: View) -> PathRow:
    """Lags are the worst of any broker."""
    brokers = view.brokers.values()
    return PathRow(
        topic,
        path,
        total_bytes=now.total(COPIED, topic=topic, path=path),
        bytes_per_second=view.rate(COPIED, topic=topic, path=path),
        lag_records=max((each.highest(LAG_RECORDS, topic=topic, path=path) for each in brokers), default=0.0),
        lag_seconds=max((each.highest(LAG_SECONDS, topic=topic, path=path) for each in brokers), default=0.0),
    )


def _hop_row(name: str, increase: Scrape) -> HopRow:
    p50, p99 = (increase.quantile(HOPS, part, hop=name) for part in (0.5, 0.99))
    return HopRow(name, None if p50 is None else p50 * 1000, None if p99 is None else p99 * 1000)


def _cost(now: Scrape, view: View) -> CostFigures:
    monthly = {item: view.rate(DOLLARS, item=item) * MONTH_SECONDS for item in _BUCKET_ITEMS}
    fetched = view.rate(DOLLARS, item="fetch") * MONTH_SECONDS
    crossing = _crossing_bytes(view.increase)
    share = fetched / sum(crossing.values()) if sum(crossing.values()) else 0.0
    metadata = sum(size for topic, size in crossing.items() if topic.startswith(_OWN_TOPICS)) * share
    return CostFigures(
        items=monthly,
        metadata=metadata,
        classic_here=view.rate(SPARED) * MONTH_SECONDS + monthly["fallback"],
        other_topic=crossing.get(CLASSIC_TOPIC, 0.0) * share,
        break_even=now.total(BREAK_EVEN),
        produced=view.rate(PRODUCED, topic=WAL_TOPIC),
        objects_per_month=view.rate(BUCKET_REQUESTS, operation="put_if_absent", outcome="ok") * MONTH_SECONDS,
    )


def _crossing_bytes(increase: Scrape) -> dict[str, float]:
    """What leaders sent to other zones, by topic; what they sent instead of a bucket is told apart."""
    rows = increase.by(COPIED, "topic", "zone_from", "zone_to", path=FETCH)
    found: dict[str, float] = {}
    for (topic, zone_from, zone_to), size in rows.items():
        if zone_from and zone_to and zone_from != zone_to:
            found[topic] = found.get(topic, 0.0) + size
    return found
