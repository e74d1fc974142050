"""Numbers by topic that the produce and fetch paths count (Kafka's BrokerTopicStats), read at scrape."""


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
        "replication_bytes_in",
        "replication_bytes_out",
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
