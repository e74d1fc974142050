"""RemoteLogStats: what tiered storage counts and times (KIP-405), read at scrape by `RemoteLogMetrics`.

Plain numbers owned by the event loop's thread.  Counts by topic are never reset while the topic is here; gauges are by
partition, of those led here, and add up to those of their topic.
"""

from broker.common.identifiers import TopicPartition
from broker.common.observations import Observations


class RemoteTopicStats:
    """Plain counts of one topic: add to them where it happens."""

    __slots__ = (
        "build_aux_state_errors",
        "build_aux_state_requests",
        "copy_bytes",
        "copy_errors",
        "copy_requests",
        "delete_errors",
        "delete_requests",
        "fetch_bytes",
        "fetch_errors",
        "fetch_requests",
    )

    def __init__(self) -> None:
        self.fetch_bytes = 0  # of records read from remote storage for consumers
        self.fetch_requests = 0  # reads of one partition
        self.fetch_errors = 0  # of these, but for offsets that are out of range
        self.copy_bytes = 0  # of segments copied, log files alone
        self.copy_requests = 0  # segments whose copy was begun
        self.copy_errors = 0
        self.delete_requests = 0  # segments whose deletion was begun
        self.delete_errors = 0
        self.build_aux_state_requests = 0  # replicas that began with what remote storage has of their log
        self.build_aux_state_errors = 0


class RemotePartitionStats:
    """Gauges of one partition led here: set them where the number is known."""

    __slots__ = (
        "copy_lag_bytes",
        "copy_lag_segments",
        "delete_lag_bytes",
        "delete_lag_segments",
        "metadata_count",
        "size_bytes",
        "size_computation_ms",
    )

    def __init__(self) -> None:
        self.copy_lag_bytes = 0  # of closed segments that are not copied
        self.copy_lag_segments = 0
        self.delete_lag_bytes = 0  # of remote segments that are due and not deleted
        self.delete_lag_segments = 0
        self.metadata_count = 0  # segments listed, in any state
        self.size_bytes = 0  # of the remote log
        self.size_computation_ms = 0  # how long it took to find that out


class RemoteLogStats:
    """The stats of one broker."""

    def __init__(self) -> None:
        self.topics: dict[str, RemoteTopicStats] = {}
        self.unknown = RemoteTopicStats()  # what happens for topics that are not hosted here any more
        self.partitions: dict[TopicPartition, RemotePartitionStats] = {}
        self.fetch_throttle_ms = Observations()  # how long the quota of reads wants a fetch to wait
        self.copy_throttle_ms = Observations()  # how long the quota of copies made a copy wait
        self.read_seconds = Observations()  # of one read of remote records, without the time in the queue
        self.copy_tasks_busy = 0
        self.copy_tasks_max = 0  # at once; 0 while none can run
        self.readers_busy = 0
        self.readers_max = 0
        self.read_queue_size = 0  # reads that wait for a reader
        self.leaked_topics = 0  # unknown ones that remote storage has something of, when it was last looked
        self.leaked_partitions_deleted = 0  # of such topics
        self.sweep_errors = 0

    def topic(self, name: str) -> RemoteTopicStats:
        """The counts of a topic hosted here; created at the first call."""
        stats = self.topics.get(name)
        if stats is None:
            stats = self.topics[name] = RemoteTopicStats()
        return stats

    def partition(self, partition: TopicPartition) -> RemotePartitionStats:
        """The gauges of a partition led here; created at the first call."""
        stats = self.partitions.get(partition)
        if stats is None:
            stats = self.partitions[partition] = RemotePartitionStats()
        return stats

    def forget_partition(self, partition: TopicPartition) -> None:
        """It is not led here any more, or not tiered."""
        self.partitions.pop(partition, None)

    def forget_topic(self, name: str) -> None:
        """No partition of the topic is here any more."""
        self.topics.pop(name, None)
