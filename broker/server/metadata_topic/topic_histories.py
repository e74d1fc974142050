"""TopicHistories: what is read of metadata partitions beside the present: what was there before.

It has connections of its own, which end with it: the present waits for none of it.
"""

from collections.abc import Callable, Sequence

from broker.common.metadata_topic import MetadataRecord, OnMetadata
from broker.common.tasks import BackgroundTasks
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.metadata_topic.topic_fetcher import MetadataLeader
from broker.server.metadata_topic.topic_positions import MetadataPosition
from broker.server.metadata_topic.topic_reading import TopicReading
from broker.server.metadata_topic.topic_readings import TopicReadings
from broker.server.metadata_topic.topic_routes import Route, TopicRoutes


class TopicHistories(TopicReadings):
    """Each ends where the present began.  Who wants one while it is read waits for its end, and what was told by then
    is told once more: so nobody who comes puts it back for others."""

    def __init__(
        self,
        routes: TopicRoutes,
        connect: Callable[[LeaderAddress], MetadataLeader],
        tasks: BackgroundTasks,
        oldest_timestamp: Callable[[], int],
        on_metadata: OnMetadata,
    ) -> None:
        super().__init__(routes, connect, tasks, "history")
        self._oldest_timestamp = oldest_timestamp
        self._on_metadata = on_metadata
        self._again: dict[int, int] = {}  # by partition, the offset below which it is to be read once more

    def __contains__(self, partition: int) -> bool:
        return partition in self._readings

    def position(self, partition: int) -> MetadataPosition | None:
        """Behind what is told of it; None when nothing is, or not to all."""
        return None if partition in self._again else self._readings[partition].position

    def begin(self, partition: int, beginning: MetadataPosition, ends_at: int) -> None:
        """Read [beginning, ends_at), and nothing else of the partition."""
        self.drop(partition)
        reading = self._new_reading(partition, ends_at)
        reading.begin_at(beginning)
        self._begin(reading)
        self._wake_fetchers()

    def read(self, partition: int, ends_at: int) -> None:
        """Read all of use below that offset."""
        reading = self._readings.get(partition)
        if reading is None:
            self._begin(self._new_reading(partition, ends_at))
            return
        if reading.position is not None:
            self._again[partition] = max(reading.position.offset, self._again.get(partition, 0))
        reading.ends_at = ends_at

    def drop(self, partition: int) -> None:
        self._end(partition)
        self._again.pop(partition, None)

    def reroute(self) -> None:
        """Leaders, or what is read, may have changed."""
        self._wake_fetchers()

    def _new_reading(self, partition: int, ends_at: int) -> TopicReading:
        return TopicReading(self.topic, partition, may_resume=False, ends_at=ends_at)

    # For fetchers

    def is_unhurried(self, reading: TopicReading) -> bool:
        return False

    def remembered(self, reading: TopicReading, route: Route) -> MetadataPosition | None:
        return None

    def oldest_timestamp(self) -> int:
        return self._oldest_timestamp()

    def place(self, reading: TopicReading, beginning: MetadataPosition, end_offset: int) -> None:
        reading.begin_at(beginning)

    def finished(self, reading: TopicReading) -> None:
        partition = reading.partition
        if self._readings.get(partition) is not reading:
            return  # another one was begun
        again_until = self._again.pop(partition, None)
        self._end(partition)
        if again_until is not None:
            self._begin(self._new_reading(partition, again_until))
            self._wake_fetchers()

    def tell(self, partition: int, records: Sequence[MetadataRecord]) -> None:
        self._on_metadata(partition, records)
