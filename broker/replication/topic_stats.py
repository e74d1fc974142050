"""Numbers by topic that the produce and fetch paths count (Kafka's BrokerTopicStats), read at scrape."""

from enum import StrEnum
from typing import Final

_BROKER_COUNT_MAX: Final = 1000  # brokers whose bytes are told apart; a cluster is smaller


class ReplicationPath(StrEnum):
    """How records came to a follower; a label value of `broker_replication_bytes_total`."""

    FETCH = "fetch"  # from the leader, in the answer to a fetch
    WAL = "wal"  # from a bucket
    FALLBACK = "fallback"  # from the leader, although the partition is followed through a bucket


class TopicStats:
    """Plain counts since the topic was first seen here; never reset."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "invalid_message_crc_records",
        "invalid_offset_or_sequence_records",
        "messages_in",
        "no_key_compacted_topic_records",
        "received_bytes",
        "replication_bytes_in",
        "replication_bytes_out",
        "sent_bytes",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0  # to consumers; followers count as replication
        self.bytes_rejected = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0
        self.total_produce_requests = 0
        self.total_fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0
        self.no_key_compacted_topic_records = 0
        self.invalid_message_crc_records = 0
        self.invalid_offset_or_sequence_records = 0
        self.received_bytes: dict[tuple[ReplicationPath, int], int] = {}  # as follower, by path and sending broker
        self.sent_bytes: dict[tuple[ReplicationPath, int], int] = {}  # as leader, by path and following broker

    def count_received(self, path: ReplicationPath, broker_id: int, size_bytes: int) -> None:
        """A follower here appended bytes that the broker `broker_id` sent, or uploaded to the bucket they came from."""
        _count(self.received_bytes, (path, broker_id), size_bytes)
        if path is not ReplicationPath.WAL:
            self.replication_bytes_in += size_bytes

    def count_sent(self, path: ReplicationPath, broker_id: int, size_bytes: int) -> None:
        """A leader here answers a fetch of the follower `broker_id` with records."""
        _count(self.sent_bytes, (path, broker_id), size_bytes)
        self.replication_bytes_out += size_bytes


def _count(bytes_by: dict[tuple[ReplicationPath, int], int], key: tuple[ReplicationPath, int], size_bytes: int) -> None:
    if key in bytes_by or len(bytes_by) < _BROKER_COUNT_MAX:
        bytes_by[key] = bytes_by.get(key, 0) + size_bytes


class BrokerTopicStats:
    """The stats of every topic that has a partition here.

    Requests for other names are counted together under `unknown`: their number is not bounded by anything of ours.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicStats] = {}
        self.unknown = TopicStats()

    def of(self, topic: str) -> TopicStats:
        """The stats of a topic hosted here; created at the first call."""
        stats = self.topics.get(topic)
        if stats is None:
            stats = self.topics[topic] = TopicStats()
        return stats

    def find(self, topic: str) -> TopicStats:
        """The stats of a topic if it is hosted here, else those of all unknown ones."""
        return self.topics.get(topic, self.unknown)

    def remove(self, topic: str) -> None:
        self.topics.pop(topic, None)
