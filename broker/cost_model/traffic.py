"""Traffic: what a cluster of a plan does in a second, replicated through buckets and replicated as ever."""

from dataclasses import dataclass

from broker.cost_model.metadata import Metadata, metadata_of
from broker.cost_model.objects import Objects, objects_of
from broker.cost_model.plan import Plan, cross_zone_followers
from broker.cost_model.reading import Reads, candidates_of, expected_brokers, reads_of
from broker.wal.cost.prices import StorePrices


@dataclass(frozen=True, slots=True)
class Traffic:
    """Per second of the whole cluster.  `cross_zone_bytes` are what leaders of the plan's topics send to followers in
    other zones when nothing goes through buckets."""

    plan: Plan
    objects: Objects
    reads: Reads  # of one object
    metadata: Metadata

    @property
    def puts(self) -> float:
        return self.objects.per_second * self.plan.brokers if self.plan.followers else 0.0

    @property
    def gets(self) -> float:
        return self.puts * self.reads.gets

    @property
    def uploaded_bytes(self) -> float:
        return self.puts * (self.objects.record_bytes + self.metadata.table_bytes)

    @property
    def retrieved_bytes(self) -> float:
        return self.plan.log_bytes_per_second * self.plan.followers * self.reads.amplification

    @property
    def replicated_bytes(self) -> float:
        """To all followers."""
        return self.plan.log_bytes_per_second * self.plan.followers

    @property
    def cross_zone_bytes(self) -> float:
        return self.plan.log_bytes_per_second * self.plan.cross_zone_followers

    @property
    def metadata_cross_zone_bytes(self) -> float:
        """Events on their way to the leaders of their partitions, to its followers, and to all who read them."""
        plan, metadata = self.plan, self.metadata
        told = metadata.bytes * plan.other_zones
        replication_factor = min(plan.metadata_replication_factor, plan.brokers)
        copied = metadata.bytes * cross_zone_followers(replication_factor, plan.zones)
        return told + copied + metadata.bytes_read * plan.brokers * plan.other_zones

    @property
    def consumed_bytes(self) -> float:
        return self.plan.log_bytes_per_second * self.plan.consumers

    @property
    def consumed_cross_zone_bytes(self) -> float:
        """Aware of racks, only consumers in zones without a replica read across."""
        plan = self.plan
        if plan.rack_aware_consumers:
            return self.consumed_bytes * (1 - min(plan.replication_factor, plan.zones) / plan.zones)
        return self.consumed_bytes * plan.other_zones

    @property
    def produced_cross_zone_bytes(self) -> float:
        return self.plan.log_bytes_per_second * self.plan.other_zones


@dataclass(frozen=True, slots=True)
class BrokerBytes:
    """Per second of one broker.  What goes to a bucket and comes from it is not between brokers."""

    produced: float
    consumed: float
    to_followers: float
    from_leaders: float
    uploaded: float
    retrieved: float
    metadata_written: float
    metadata_read: float


def traffic_of(plan: Plan, store: StorePrices | None = None, cross_zone_price: float = 0.0) -> Traffic:
    """Prices, by request and by byte, decide only where `remote.wal.cost.policy` lets them."""
    object_price = 0.0
    if store is not None:
        candidates = candidates_of(plan.brokers, plan.zones, plan.followers)
        object_price = store.put + store.get * expected_brokers(plan.led_partitions, plan.followers, candidates)
    objects = objects_of(plan, object_price, cross_zone_price)
    reads = reads_of(
        slices=objects.partitions,
        slice_bytes=objects.record_bytes / objects.partitions,
        brokers=plan.brokers,
        zones=plan.zones,
        followers=plan.followers,
    )
    return Traffic(plan, objects, reads, metadata_of(plan, objects))


def broker_bytes(traffic: Traffic, *, through_buckets: bool) -> BrokerBytes:
    """Of each of the plan's brokers."""
    plan = traffic.plan
    replicated = traffic.replicated_bytes / plan.brokers
    consumed = traffic.consumed_bytes / plan.brokers
    produced = plan.log_bytes_per_second / plan.brokers
    if not through_buckets:
        return BrokerBytes(produced, consumed, replicated, replicated, 0.0, 0.0, 0.0, 0.0)
    return BrokerBytes(
        produced=produced,
        consumed=consumed,
        to_followers=0.0,
        from_leaders=0.0,
        uploaded=traffic.uploaded_bytes / plan.brokers,
        retrieved=traffic.retrieved_bytes / plan.brokers,
        metadata_written=traffic.metadata.bytes * min(plan.metadata_replication_factor, plan.brokers) / plan.brokers,
        metadata_read=traffic.metadata.bytes_read,
    )
