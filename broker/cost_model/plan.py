"""Plan: a cluster and its load, as far as they decide about requests, bytes and dollars."""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final

from broker.config.setting import ConfigError
from broker.records.record_batch import BATCH_HEADER_SIZE
from broker.wal.retention.object_retention import ObjectRetentionMode
from broker.wal.upload.upload_pace import CostPolicy
from broker.wal.upload.upload_queue import UploadLimits

MEGABYTE: Final = 1_000_000
HOUR_SECONDS: Final = 3600
RECORD_OVERHEAD_BYTES: Final = 9  # lengths, deltas, attributes and an absent key, as varints, of a record of kilobytes


class Acks(StrEnum):
    """Of the producers: ALL waits for followers."""

    ONE = "1"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`mbps` are 1,000,000 bytes of record values a second, as they are sent (after compression), over all partitions
    alike.  Brokers, partitions and zones are those of the whole cluster, and replicas are spread over zones as Kafka
    does.

    `linger_ms` and `batch_bytes_max` are the producers'; `upload` has the brokers'.  `consumers` is how often each
    record is read.
    """

    mbps: float = 50.0
    record_bytes: int = 1600
    batch_bytes_max: int = 16_384
    producer_linger_ms: float = 5.0
    producers: int = 1  # that write to the same partition
    acks: Acks = Acks.ALL
    brokers: int = 3
    zones: int = 3
    partitions: int = 60
    replication_factor: int = 3
    consumers: float = 1.0
    rack_aware_consumers: bool = False
    store: str = "s3-express"
    upload: UploadLimits = field(default_factory=UploadLimits)
    policy: CostPolicy = CostPolicy.BALANCED
    economy_linger_ms: int = 100
    slice_events: bool = True
    metadata_partitions: int = 50
    metadata_replication_factor: int = 3
    metadata_retention_hours: float = 2.0
    object_retention: ObjectRetentionMode = ObjectRetentionMode.LOCAL
    object_retention_min_hours: float = 1 / 6
    retention_hours: float = 168.0
    local_retention_hours: float = 1.0  # where the topics are tiered
    segment_bytes: int = 1 << 30
    topic: str = "orders"  # names that stand in events
    bucket: str = "s3://wal--use1-az4--x-s3"

    def __post_init__(self) -> None:
        """ConfigError with a sentence for each number that cannot be."""
        numbers = {each.name: getattr(self, each.name) for each in fields(self)}
        wrong = [
            f"{_told(name)}={value}: it must {'not be negative' if name in _MAY_BE_ZERO else 'be above 0'}."
            for name, value in numbers.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and not _is_possible(name, value)
        ]
        wrong += [
            f"{_told(name)}={numbers[name]}: there are only {self.brokers} brokers."
            for name in ("replication_factor", "zones")
            if numbers[name] > self.brokers
        ]
        if self.record_bytes > self.upload.max_bytes:
            wrong.append(f"record-bytes={self.record_bytes}: an object takes {self.upload.max_bytes}.")
        if wrong:
            raise ConfigError(*wrong)

    # -- what producers do --------------------------------------------------------------------------------------------

    @property
    def records_per_second(self) -> float:
        """Of the whole cluster."""
        return self.mbps * MEGABYTE / self.record_bytes

    @property
    def records_per_batch(self) -> float:
        """Of one producer and partition: the record that opens a batch, and those of its linger."""
        rate = self.records_per_second / (self.partitions * self.producers)
        most = max(1, self.batch_bytes_max // (self.record_bytes + RECORD_OVERHEAD_BYTES))
        return min(1 + rate * self.producer_linger_ms / 1000, most)

    @property
    def batch_bytes(self) -> float:
        """In the log."""
        return self.records_per_batch * (self.record_bytes + RECORD_OVERHEAD_BYTES) + BATCH_HEADER_SIZE

    @property
    def batches_per_second(self) -> float:
        """Of the whole cluster."""
        return self.records_per_second / self.records_per_batch

    @property
    def log_bytes_per_second(self) -> float:
        """Of the whole cluster, one copy."""
        return self.batches_per_second * self.batch_bytes

    # -- where replicas are -------------------------------------------------------------------------------------------

    @property
    def followers(self) -> int:
        """Of one partition."""
        return self.replication_factor - 1

    @property
    def cross_zone_followers(self) -> float:
        """Of one partition on average, of its leader's replication."""
        return cross_zone_followers(self.replication_factor, self.zones)

    @property
    def led_partitions(self) -> float:
        """By one broker."""
        return self.partitions / self.brokers

    @property
    def hosted_partitions(self) -> float:
        """By one broker."""
        return self.partitions * self.replication_factor / self.brokers

    @property
    def other_zones(self) -> float:
        """Which part of the brokers is in another zone than a given one."""
        return 1 - 1 / self.zones


_MAY_BE_ZERO: Final = ("producer_linger_ms", "consumers")


def _is_possible(name: str, value: float) -> bool:
    return 0 <= value < float("inf") and (value > 0 or name in _MAY_BE_ZERO)


def _told(name: str) -> str:
    return name.replace("_", "-")


def cross_zone_followers(replication_factor: int, zones: int) -> float:
    """Replicas outside the leader's zone, when replicas are spread evenly over the zones."""
    return replication_factor - max(1.0, replication_factor / zones)
