"""What the next fetch of a fetcher asks for, kept up to date by what has changed and not by looking at everything."""

from collections.abc import Callable, Iterator
from typing import Final

from broker.common.errors import NotLeaderOrFollowerError
from broker.common.identifiers import TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.replication.leader_endpoint import FollowerFetch
from broker.replication.partition_fetch_state import PartitionFetchState
from broker.replication.replication_throttle import ReplicationThrottle

LOOK_AT_ALL_SECONDS: Final = 1.0  # retention moves log starts, and settings change, without anybody telling
THROTTLED_SECONDS: Final = 0.1  # until the rate is looked at again

OnError = Callable[[PartitionFetchState, Exception], None]


class FetchPlan:
    """The partitions of one fetcher.  Of thousands a round moves a few: these alone cost anything.

    `on_error` is told of what a log refused; it may remove the partition.  Times are those of the loop, in seconds.
    """

    def __init__(self, config: ConfigHolder[BrokerConfig], throttle: ReplicationThrottle, on_error: OnError) -> None:
        self._config = config
        self._throttle = throttle
        self._on_error = on_error
        self._states: dict[TopicPartition, PartitionFetchState] = {}
        self._requests: dict[TopicPartition, FollowerFetch] = {}  # least recently served first
        self._unsettled: dict[PartitionFetchState, None] = {}  # to be looked at: moved, or left out for a while
        self._look_at_all_at = 0.0

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[PartitionFetchState]:
        return iter(self._states.values())

    def get(self, topic_partition: TopicPartition) -> PartitionFetchState | None:
        return self._states.get(topic_partition)

    def holds(self, state: PartitionFetchState) -> bool:
        """Whether this very state is still followed here."""
        return self._states.get(state.topic_partition) is state

    def add(self, state: PartitionFetchState) -> None:
        """In the place of another state of that partition, if there is one."""
        self.remove(state.topic_partition)
        self._states[state.topic_partition] = state
        self._unsettled[state] = None

    def remove(self, topic_partition: TopicPartition) -> None:
        state = self._states.pop(topic_partition, None)
        if state is not None:
            self._requests.pop(topic_partition, None)
            self._unsettled.pop(state, None)
            state.stop()

    def touch(self, state: PartitionFetchState) -> None:
        """It has moved, or is to be left out for a while: look at it before the next fetch."""
        if self.holds(state):
            self._unsettled[state] = None

    def is_covered(self, state: PartitionFetchState) -> bool:
        """Whether the throttle of followers holds this partition back (KIP-73)."""
        throttled = state.replica.log.config.follower_replication_throttled_replicas
        return self._throttle.covers(state.topic_partition.partition, throttled)

    def next_due(self, now: float) -> float | None:
        """When the first of those that are left out for a while is to be asked for again."""
        delays = [state.delayed_until for state in self._unsettled if state.delayed_until > now]
        return min(delays) if delays else None

    def requests(self, now: float) -> dict[TopicPartition, FollowerFetch]:
        """What to ask for now, what has moved or come back last: the plan's own, and not to be changed.

        Truncates what has to be cut first."""
        if now >= self._look_at_all_at:
            self._look_at_all_at = now + LOOK_AT_ALL_SECONDS
            self._unsettled |= dict.fromkeys(self._states.values())
        if self._unsettled:
            max_bytes = self._config.current.replica_fetch_max_bytes
            is_throttled = self._throttle.is_exceeded
            for state in list(self._unsettled):
                try:
                    self._settle(state, now, max_bytes, is_throttled)
                except NotLeaderOrFollowerError:  # the metadata has moved on, and is about to take it away
                    self._leave_out(state)
                except Exception as error:
                    self._leave_out(state)
                    self._on_error(state, error)
        return self._requests

    def _settle(self, state: PartitionFetchState, now: float, max_bytes: int, is_throttled: bool) -> None:
        if state.is_truncating:
            state.truncate_to(state.fetch_offset)
        if is_throttled and not state.is_in_sync and self.is_covered(state):
            state.delay(now, THROTTLED_SECONDS)
        if not state.is_ready(now):
            self._leave_out(state)
            return
        request = state.request(max_bytes)
        if self._requests.get(state.topic_partition) is not request:
            self._leave_out(state)
            self._requests[state.topic_partition] = request
        del self._unsettled[state]

    def _leave_out(self, state: PartitionFetchState) -> None:
        self._requests.pop(state.topic_partition, None)
