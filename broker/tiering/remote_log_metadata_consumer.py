"""RemoteLogMetadataConsumer: from records of `__remote_log_metadata` to what is known (Kafka: ConsumerTask).

A user partition's events are all in one metadata partition.  Those are read that have something of a partition with a
replica here, and a partition that is new here makes its metadata partition be read from the beginning once more.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence

import structlog

from broker.common.errors import CorruptMessageError, UnsupportedVersionError
from broker.common.identifiers import NO_OFFSET, TopicIdPartition
from broker.common.metadata_topic import MetadataRecord, MetadataTopic
from broker.schemas.remote_metadata_partitioner import metadata_partition_of
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_log_metadata_events import decode_event
from broker.tiering.remote_partition_metadata_store import RemotePartitionMetadataStore

log = structlog.get_logger(__name__)


class _Progress:
    """How far one user partition has been told; `waiting` are offsets that somebody waits for."""

    __slots__ = ("applied_offset", "metadata_partition", "waiting")

    def __init__(self, metadata_partition: int) -> None:
        self.metadata_partition = metadata_partition
        self.applied_offset = NO_OFFSET
        self.waiting: list[tuple[int, asyncio.Future[None]]] = []

    def advance(self, offset: int) -> None:
        self.applied_offset = offset
        if not self.waiting:
            return
        reached = [answer for awaited, answer in self.waiting if awaited <= offset]
        self.waiting = [each for each in self.waiting if each[0] > offset]
        for answer in reached:
            if not answer.done():
                answer.set_result(None)

    def give_up(self, error: Exception) -> None:
        for _, answer in self.waiting:
            if not answer.done():
                answer.set_exception(error)
        self.waiting.clear()


class RemoteLogMetadataConsumer:
    """Tells the store.  `unsettled` is set while there are partitions of which not everything is known."""

    def __init__(self, topic: MetadataTopic, store: RemotePartitionMetadataStore) -> None:
        self._topic = topic
        self._store = store
        self._partition_count: int | None = None
        self._early: dict[TopicIdPartition, None] = {}  # assigned before the topic was known
        self._progress: dict[TopicIdPartition, _Progress] = {}
        self._places: dict[int, set[TopicIdPartition]] = {}  # by metadata partition
        self._next_offsets: dict[int, int] = {}  # behind what was told last, by metadata partition
        self._seen_offsets: dict[int, int] = {}  # behind the furthest that was ever told
        self._unsettled_places: set[int] = set()
        self.unsettled = asyncio.Event()
        self.unreadable_events = 0  # records that are no events this broker knows; each counts once

    # What is assigned

    def begin(self, partition_count: int) -> None:
        """The topic is there: what was assigned before is read now."""
        self._partition_count = partition_count
        early, self._early = list(self._early), {}
        self._place(early)

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        """These are here too."""
        new = [each for each in dict.fromkeys(partitions) if each not in self._progress and each not in self._early]
        if not new:
            return
        self._store.assign(new)
        if self._partition_count is None:
            self._early.update(dict.fromkeys(new))
        else:
            self._place(new)

    def unassign(self, partitions: Collection[TopicIdPartition]) -> None:
        """These are here no more; whoever waits for one of them is told so."""
        self._store.unassign(partitions)
        left = set()
        for partition in partitions:
            self._early.pop(partition, None)
            progress = self._progress.pop(partition, None)
            if progress is None:
                continue
            progress.give_up(_not_here(partition))
            place = self._places[progress.metadata_partition]
            place.discard(partition)
            if not place:
                left.add(progress.metadata_partition)
        if left:
            for metadata_partition in left:
                del self._places[metadata_partition]
                self._next_offsets.pop(metadata_partition, None)
                self._seen_offsets.pop(metadata_partition, None)
                self._settled(metadata_partition)
            self._topic.assign(list(self._places))

    def close(self) -> None:
        """Nothing is told any more."""
        for progress in self._progress.values():
            progress.give_up(RemoteStorageError("The broker stops"))

    def metadata_partition(self, partition: TopicIdPartition) -> int:
        """Where its events are.  RemoteStorageError: it is not here, or there is no topic yet."""
        progress = self._progress.get(partition)
        if progress is not None:
            return progress.metadata_partition
        if partition in self._early:
            raise RemoteStorageError("The topic of remote log metadata is not there yet")
        raise _not_here(partition)

    def applied(self, partition: TopicIdPartition, offset: int) -> "asyncio.Future[None]":
        """Done when the partition's event at that offset, or a later one, has been applied.  RemoteStorageError."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        progress = self._progress.get(partition)
        if progress is None:
            answer.set_exception(_not_here(partition))
        elif progress.applied_offset >= offset:
            answer.set_result(None)
        else:
            progress.waiting = [each for each in progress.waiting if not each[1].done()]
            progress.waiting.append((offset, answer))
        return answer

    def _place(self, partitions: Sequence[TopicIdPartition]) -> None:
        assert self._partition_count is not None
        before, concerned = set(self._places), set()
        for partition in partitions:
            place = metadata_partition_of(partition.topic_id, partition.partition, self._partition_count)
            self._progress[partition] = _Progress(place)
            self._places.setdefault(place, set()).add(partition)
            concerned.add(place)
        if concerned - before:
            self._topic.assign(list(self._places))
        for place in sorted(concerned & before):
            self._next_offsets.pop(place, None)
            self._topic.read_again(place)
        self._not_settled(concerned)

    # What is told

    def on_metadata(self, metadata_partition: int, records: Sequence[MetadataRecord]) -> None:
        """See `OnMetadata`."""
        if metadata_partition not in self._places or not records:
            return
        if records[0].offset < self._next_offsets.get(metadata_partition, 0):
            self._begin_anew(metadata_partition)
        for record in records:
            self._read(metadata_partition, record)
        self._next_offsets[metadata_partition] = next_offset = records[-1].offset + 1
        self._seen_offsets[metadata_partition] = max(next_offset, self._seen_offsets.get(metadata_partition, 0))
        if metadata_partition in self._unsettled_places:
            self._settle(metadata_partition)

    def on_replaced(self) -> None:
        """See `OnReplaced`: that events are lost would else be noticed where new ones come, and only then."""
        for metadata_partition, partitions in self._places.items():
            for partition in partitions:
                self._progress[partition].give_up(RemoteStorageError("The topic of remote log metadata was made again"))
            self._next_offsets.pop(metadata_partition, None)
            self._begin_anew(metadata_partition)

    def settle(self) -> None:
        """Look whether all is known by now: of a metadata partition without records nobody is told."""
        for metadata_partition in list(self._unsettled_places):
            self._settle(metadata_partition)

    def _settle(self, metadata_partition: int) -> None:
        if self._topic.has_caught_up(metadata_partition):
            for partition in self._places[metadata_partition]:
                self._store.mark_initialized(partition)
            self._settled(metadata_partition)

    def _read(self, metadata_partition: int, record: MetadataRecord) -> None:
        try:
            event = decode_event(record.value)
        except (CorruptMessageError, UnsupportedVersionError) as error:
            self._pass_over(metadata_partition, record, error)
            return
        progress = self._progress.get(event.partition)
        if progress is None or progress.metadata_partition != metadata_partition:
            return  # another broker's business
        if record.offset > progress.applied_offset:
            self._store.apply(event)
            progress.advance(record.offset)

    def _pass_over(self, metadata_partition: int, record: MetadataRecord, error: Exception) -> None:
        """Kafka's reader ends here, and its broker then answers questions from the past for ever."""
        if record.offset < self._seen_offsets.get(metadata_partition, 0):
            return
        self.unreadable_events += 1
        say = log.error if self.unreadable_events == 1 else log.debug  # whoever writes nonsense may write a lot of it
        say(
            "remote_log_metadata_event_unreadable",
            metadata_partition=metadata_partition,
            offset=record.offset,
            size=len(record.value),
            error=str(error),
        )

    def _begin_anew(self, metadata_partition: int) -> None:
        """Nobody has asked for it: what was told is not in the topic any more.

        What the topic has now is what other brokers know and what the next start of this one finds, so nothing else
        counts here either: a copy that is forgotten is made again while its records are still on this disk.
        """
        partitions = self._places[metadata_partition]
        log.error("remote_log_metadata_lost", metadata_partition=metadata_partition, partitions=len(partitions))
        self._store.unassign(partitions)
        self._store.assign(partitions)
        for partition in partitions:
            self._progress[partition].applied_offset = NO_OFFSET
        self._seen_offsets.pop(metadata_partition, None)
        self._not_settled((metadata_partition,))

    def _not_settled(self, metadata_partitions: Iterable[int]) -> None:
        self._unsettled_places.update(metadata_partitions)
        if self._unsettled_places:
            self.unsettled.set()

    def _settled(self, metadata_partition: int) -> None:
        self._unsettled_places.discard(metadata_partition)
        if not self._unsettled_places:
            self.unsettled.clear()


def _not_here(partition: TopicIdPartition) -> RemoteStorageError:
    return RemoteStorageError(f"{partition.topic_partition} has no replica here")
