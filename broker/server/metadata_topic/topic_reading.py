"""TopicReading: one metadata partition that is read, and what its fetched bytes hold."""

from collections.abc import Iterator
from typing import Final

import structlog

from broker.common.buffers import Buffer
from broker.common.errors import CorruptMessageError, InvalidRecordError
from broker.common.identifiers import NO_EPOCH
from broker.common.metadata_topic import MetadataRecord
from broker.records.record_batch import RecordBatch, batches
from broker.server.metadata_topic.topic_positions import MetadataPosition

log = structlog.get_logger(__name__)

PORTION_BYTES: Final = 8 * 1024  # told at once: some fifty slices, a millisecond or two
UNREADABLE_MAX: Final = 3  # fetches of the same unreadable bytes, before what is there is left out


class TopicReading:
    """A new one each time a partition is begun: an answer to an older one finds that it is not it.

    `ends_at`: of history, the offset before which it ends; None for what is read on and on.
    """

    def __init__(self, topic: str, partition: int, *, may_resume: bool, ends_at: int | None = None) -> None:
        self.topic = topic
        self.partition = partition
        self.may_resume = may_resume
        self.ends_at = ends_at
        self.position: MetadataPosition | None = None
        self.end_offset: int | None = None
        self.due_at = 0.0  # loop time before which it is not asked for, after an error
        self.skipped_batches = 0
        self._live_from: int | None = None  # what is below was there when reading began
        self._unreadable = 0  # times in a row

    @property
    def lag(self) -> int:
        end_offset = self.end_offset if self.ends_at is None else self.ends_at
        if self.position is None or end_offset is None:
            return 0
        return max(0, end_offset - self.position.offset)

    @property
    def is_over(self) -> bool:
        """Whether all is told that was to be read."""
        return self.ends_at is not None and self.position is not None and self.position.offset >= self.ends_at

    @property
    def is_in_history(self) -> bool:
        """Whether what is read next was there before this broker began to read."""
        live_from = self._live_from if self.ends_at is None else self.ends_at
        return self.position is not None and live_from is not None and self.position.offset < live_from

    def begin_at(self, position: MetadataPosition) -> None:
        self.position = position
        if self._live_from is None:
            self._live_from = self.end_offset
        self._unreadable = 0

    def begin_anew(self) -> None:
        """What is at the position is gone, or another history."""
        self.position = None
        self.may_resume = False
        self._live_from = None

    def take(self, records: Buffer) -> Iterator[list[MetadataRecord]]:
        """The records from the position on, in portions; the position moves past a portion before it is told.

        Batches that cannot be read are passed over: what they told of is missing, and all that follows is not.
        Where `ends_at` rises while a batch is told, what that adds of the batch is left for the next fetch.
        """
        assert self.position is not None
        try:
            for batch in batches(records):
                if self.is_over:
                    return
                if batch.next_offset <= self.position.offset:
                    continue
                end_offset = batch.next_offset if self.ends_at is None else min(batch.next_offset, self.ends_at)
                for portion in _portions(self._records_of(batch, self.position.offset, end_offset)):
                    self.position = MetadataPosition(portion[-1].offset + 1, batch.partition_leader_epoch)
                    yield portion
                self.position = MetadataPosition(end_offset, batch.partition_leader_epoch)
                self._unreadable = 0
                if end_offset < batch.next_offset:
                    return
        except CorruptMessageError as error:
            self._pass_over_unreadable(error)

    def _records_of(self, batch: RecordBatch, first_offset: int, end_offset: int) -> list[MetadataRecord]:
        if batch.is_control:
            return []
        try:
            batch.ensure_valid()
            return [
                MetadataRecord(record.offset, record.timestamp, record.value)
                for record in batch.records()
                if record.value is not None and first_offset <= record.offset < end_offset
            ]
        except (CorruptMessageError, InvalidRecordError) as error:
            self.skipped_batches += 1
            log.error(
                "metadata_topic_batch_skipped",
                topic=self.topic,
                partition=self.partition,
                batch=repr(batch),
                error=str(error),
            )
            return []

    def _pass_over_unreadable(self, error: CorruptMessageError) -> None:
        """Not even where the next batch begins can be told: the end is the next place known."""
        assert self.position is not None
        self._unreadable += 1
        if self._unreadable < UNREADABLE_MAX or self.end_offset is None:
            return
        log.error(
            "metadata_topic_skipped_to_end",
            topic=self.topic,
            partition=self.partition,
            at=self.position.offset,
            error=str(error),
        )
        self.skipped_batches += 1
        self.begin_at(MetadataPosition(max(self.end_offset, self.position.offset), NO_EPOCH))


def _portions(records: list[MetadataRecord]) -> Iterator[list[MetadataRecord]]:
    portion: list[MetadataRecord] = []
    size = 0
    for record in records:
        portion.append(record)
        size += len(record.value)
        if size >= PORTION_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
