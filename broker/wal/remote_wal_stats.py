"""RemoteWalStats: what replication through a bucket counts and times, read at scrape by `RemoteWalMetrics`.

Plain numbers owned by the event loop's thread.  Counts by topic are never reset while the topic is here; a request
that serves several topics counts once for each of them, so sums over topics may exceed the store's own count
(`broker_objectstore_requests_total` has that one).
"""

from enum import StrEnum
from typing import Final

from broker.common.observations import Observations

_BROKER_COUNT_MAX: Final = 1000  # leaders whose bytes are told apart; a cluster is smaller


class WalHop(StrEnum):
    """One leg of the way of a record from its leader to acks=all; a label value of `broker_wal_hop_seconds`."""

    LEADER_APPEND = "leader_append"  # one append to the leader's log; the next one timed is after it is committed
    COMBINE_WAIT = "combine_wait"  # from the append of a slice's first byte to the begin of its upload
    PUT = "put"  # of one object, with its retries
    PUBLISH = "publish"  # from the stored object to the acknowledgement of its metadata
    METADATA_DELIVERY = "metadata_delivery"  # from the making of an object to its event at a follower, with the put
    GET = "get"  # of one range of an object, with its retries
    FOLLOWER_APPEND = "follower_append"  # one append to a follower's log
    FOLLOWER_FETCH = "follower_fetch"  # from that append to the answer of the fetch that tells the leader of it
    HIGH_WATERMARK = "high_watermark"  # from an append at the leader to the high watermark beyond it
    END_TO_END = "end_to_end"  # from the newest timestamp of a slice to its append at a follower


class RemoteWalTopicStats:
    """Plain counts of one topic: add to them where it happens."""

    __slots__ = (
        "copy_bytes",
        "copy_errors",
        "copy_requests",
        "corrupt",
        "delete_errors",
        "delete_requests",
        "fallback_bytes",
        "fenced_metadata",
        "fetch_bytes",
        "fetch_bytes_from",
        "fetch_errors",
        "fetch_requests",
        "republish_bytes",
        "stale_metadata",
    )

    def __init__(self) -> None:
        self.copy_bytes = 0  # of slices in stored objects, without their tables
        self.copy_requests = 0  # objects stored with a slice of this topic
        self.copy_errors = 0  # objects given up
        self.fetch_bytes = 0  # read from buckets for this topic
        self.fetch_requests = 0
        self.fetch_errors = 0
        self.delete_requests = 0  # objects deleted that held a slice of this topic
        self.delete_errors = 0
        self.stale_metadata = 0  # entries whose object was not there or could not be reached
        self.fenced_metadata = 0  # entries outside the current leader's lineage
        self.corrupt = 0  # slices whose bytes were not what their entry says
        self.fallback_bytes = 0  # sent to followers by this leader as in classic replication
        self.republish_bytes = 0  # uploaded again for what no reachable bucket holds
        self.fetch_bytes_from: dict[int, int] = {}  # fetch_bytes by the broker that uploaded them

    def count_fetched(self, broker_id: int, size_bytes: int) -> None:
        """Bytes read from the bucket of the broker `broker_id`; adds to `fetch_bytes` as well."""
        self.fetch_bytes += size_bytes
        by_broker = self.fetch_bytes_from
        if broker_id in by_broker or len(by_broker) < _BROKER_COUNT_MAX:
            by_broker[broker_id] = by_broker.get(broker_id, 0) + size_bytes


class RemoteWalStats:
    """The stats of one broker."""

    def __init__(self) -> None:
        self.topics: dict[str, RemoteWalTopicStats] = {}
        self.hops: dict[WalHop, Observations] = {each: Observations() for each in WalHop}
        self.object_sizes = Observations()
        self.slice_counts = Observations()
        self.objects_stored = 0
        self.unreadable_events = 0  # records of the metadata topic that are none of ours, or of a newer broker
        self.orphans_deleted = 0  # objects the sweep removed that no metadata names

    def of(self, topic: str) -> RemoteWalTopicStats:
        """The stats of a topic hosted here; created at the first call."""
        stats = self.topics.get(topic)
        if stats is None:
            stats = self.topics[topic] = RemoteWalTopicStats()
        return stats

    def remove(self, topic: str) -> None:
        """No partition of the topic is here any more."""
        self.topics.pop(topic, None)

    def hop(self, hop: WalHop, seconds: float) -> None:
        """One passage of a hop; never negative, whatever the clocks of two brokers say."""
        self.hops[hop].observe(max(0.0, seconds))

    def object_size(self, size_bytes: int) -> None:
        """One object was stored."""
        self.objects_stored += 1
        self.object_sizes.observe(size_bytes)

    def slices_per_object(self, count: int) -> None:
        self.slice_counts.observe(count)
