"""ListOffsets that waits for what remote storage has of timestamps (KIP-1075; Kafka's DelayedRemoteListOffsets)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import structlog

from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import TopicPartition
from broker.common.purgatory import DelayedOperation
from broker.log.log_segment import TimestampAndOffset
from broker.replication.offset_lookup import NOT_FOUND, ListedOffset, RemoteOffsetLookup

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from broker.replication.remote_log import RemoteLog

log = structlog.get_logger(__name__)

OnListed = Callable[[list[ListedOffset]], None]
Answer = asyncio.Future[TimestampAndOffset | None]


class _Asked(NamedTuple):
    """A question that remote storage has not answered yet; `place` is that of its result."""

    place: int
    lookup: RemoteOffsetLookup
    answer: Answer


class DelayedRemoteListOffsets(DelayedOperation):
    """The partitions of one request, no partition twice; listens to those that remote storage is asked about.

    `results` has the answers, in the order of the request, of all that have one.
    """

    __slots__ = ("_asked", "_lookup_error", "_on_expired", "_on_listed", "_on_settled", "_remote_log", "results")

    def __init__(
        self,
        outcomes: Sequence[ListedOffset | RemoteOffsetLookup],
        remote_log: "RemoteLog",
        *,
        lookup_error: Callable[[TopicPartition], ErrorCode],
        on_settled: "Callable[[DelayedRemoteListOffsets], object]",
        on_expired: "Callable[[Partition], object]",
        on_listed: OnListed,
    ) -> None:
        """`on_expired` is called for each partition that gets no answer in time, before `on_listed`."""
        super().__init__()
        self._remote_log = remote_log
        self._lookup_error = lookup_error
        self._on_settled = on_settled
        self._on_expired = on_expired
        self._on_listed = on_listed
        self._asked: dict[TopicPartition, _Asked] = {}
        self.results: list[ListedOffset] = []
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, ListedOffset):
                self.results.append(outcome)
            else:
                self.results.append(NOT_FOUND)
                self._begin(place, outcome)

    def _begin(self, place: int, lookup: RemoteOffsetLookup) -> None:
        lookup.partition.add_listener(self)
        try:
            self._ask(place, lookup, lookup.log.log_start_offset)
        except KafkaError as error:
            self._settle(place, lookup.partition, ListedOffset(error=error.code))

    def _ask(self, place: int, lookup: RemoteOffsetLookup, starting_offset: int) -> None:
        """KafkaError when it cannot be asked now."""
        local_start_offset = lookup.log.local_log_start_offset
        answer = self._remote_log.find_offset(lookup.partition, lookup.query.timestamp, starting_offset)
        self._asked[lookup.partition.topic_partition] = _Asked(place, lookup, answer)
        answer.add_done_callback(lambda done: self._on_answer(place, lookup, local_start_offset, done))

    def _on_answer(self, place: int, lookup: RemoteOffsetLookup, local_start_offset: int, answer: Answer) -> None:
        """Remote storage has answered; the local log began at `local_start_offset` when it was asked."""
        error = None if answer.cancelled() else answer.exception()
        if lookup.partition.topic_partition not in self._asked:
            return  # settled otherwise
        try:
            if answer.cancelled() or error is not None:
                raise error or KafkaError("Remote storage has dropped the question")
            found = answer.result()
            if found is None and lookup.log.local_log_start_offset > local_start_offset:
                self._ask(place, lookup, local_start_offset)  # what has left this disk meanwhile may have it
                return
            listed = lookup.conclude(found)
        except KafkaError as refusal:
            listed = ListedOffset(error=refusal.code)
        except Exception:
            log.exception("remote_offset_not_found", partition=str(lookup.partition.topic_partition))
            listed = ListedOffset(error=ErrorCode.unknown_server_error)
        self._settle(place, lookup.partition, listed)
        if not self._asked:
            self._on_settled(self)

    def _settle(self, place: int, partition: "Partition", listed: ListedOffset) -> None:
        self._asked.pop(partition.topic_partition, None)
        partition.remove_listener(self)
        self.results[place] = listed

    def cancel(self) -> None:
        """Take all open questions back."""
        for topic_partition, asked in list(self._asked.items()):
            del self._asked[topic_partition]
            asked.lookup.partition.remove_listener(self)
            asked.answer.cancel()

    # As a DelayedOperation

    def try_complete(self) -> bool:
        return not self._asked

    def on_complete(self, expired: bool) -> None:
        for asked in self._asked.values():
            self.results[asked.place] = ListedOffset(error=ErrorCode.request_timed_out)
            self._on_expired(asked.lookup.partition)
        self.cancel()
        self._on_listed(self.results)

    # As a PartitionListener

    def on_high_watermark_updated(self, topic_partition: TopicPartition, offset: int) -> None: ...

    def on_becoming_follower(self, topic_partition: TopicPartition) -> None:
        self._on_partition_changed(topic_partition)

    def on_deleted(self, topic_partition: TopicPartition) -> None:
        self._on_partition_changed(topic_partition)

    def _on_partition_changed(self, topic_partition: TopicPartition) -> None:
        """Tell the client at once that the partition is lost, if it is for this query."""
        asked = self._asked.get(topic_partition)
        if asked is None:
            return
        error = self._lookup_error(topic_partition)
        if error is ErrorCode.none:
            try:
                _ = asked.lookup.log
            except KafkaError as lost:
                error = lost.code
            else:
                return
        self._settle(asked.place, asked.lookup.partition, ListedOffset(error=error))
        asked.answer.cancel()
        if not self._asked:
            self._on_settled(self)
