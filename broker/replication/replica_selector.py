"""Which replica serves a consumer (KIP-392: Kafka's ReplicaSelector and RackAwareReplicaSelector)."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from broker.common.identifiers import NO_BROKER
from broker.config.replication_settings import RACK_AWARE_REPLICA_SELECTOR
from broker.metadata.metadata_cache import MetadataCache
from broker.replication.fetch_params import FetchParams, FetchPartition
from broker.replication.partition import Partition


class ReplicaSelector(Protocol):
    """Chooses another replica than the leader for a consumer."""

    def select(self, partition: Partition, params: FetchParams, request: FetchPartition) -> int:
        """The broker that should serve, -1 for the leader itself."""


class _Candidate(NamedTuple):
    """Compares as Kafka's ReplicaView: the most records, then the most recently caught up, then the highest id."""

    log_end_offset: int
    last_caught_up_time_ms: int
    broker_id: int


class RackAwareReplicaSelector:
    """The most caught-up in-sync replica in the consumer's rack, unless the leader is there, or nobody."""

    def __init__(self, local_broker_id: int, metadata_cache: MetadataCache, monotonic_ms: Callable[[], int]) -> None:
        self._local_broker_id = local_broker_id
        self._metadata_cache = metadata_cache
        self._monotonic_ms = monotonic_ms

    def select(self, partition: Partition, params: FetchParams, request: FetchPartition) -> int:
        rack = params.rack_id
        if not rack or self._rack_of(self._local_broker_id, params.listener_name) == rack:
            return NO_BROKER
        best: _Candidate | None = None
        isr = partition.isr
        for broker_id, replica in partition.remote_replicas.items():
            if (
                broker_id in isr
                and replica.log_end_offset >= request.fetch_offset >= replica.log_start_offset
                and self._rack_of(broker_id, params.listener_name) == rack
            ):
                is_caught_up = replica.log_end_offset == partition.log.log_end_offset
                caught_up_ms = self._monotonic_ms() if is_caught_up else replica.last_caught_up_time_ms
                candidate = _Candidate(replica.log_end_offset, caught_up_ms, broker_id)
                if best is None or candidate > best:
                    best = candidate
        return NO_BROKER if best is None else best.broker_id

    def _rack_of(self, broker_id: int, listener_name: str) -> str | None:
        """The rack of a broker the consumer can reach: alive, and with the listener it came through."""
        if self._metadata_cache.broker_endpoint(broker_id, listener_name) is None:
            return None
        broker = self._metadata_cache.broker(broker_id)
        return None if broker is None else broker.rack


def replica_selector(
    class_name: str | None, local_broker_id: int, metadata_cache: MetadataCache, monotonic_ms: Callable[[], int]
) -> ReplicaSelector | None:
    """The selector of `replica.selector.class`; None when every consumer is served by whom it asks."""
    if class_name != RACK_AWARE_REPLICA_SELECTOR:
        return None
    return RackAwareReplicaSelector(local_broker_id, metadata_cache, monotonic_ms)
