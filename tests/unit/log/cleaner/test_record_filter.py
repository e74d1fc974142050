"""RecordFilter: the rules for one batch, without a log."""

from typing import Any

import pytest

from broker.common.errors import InvalidRecordError
from broker.log.cleaner.cleaned_transactions import CleanedTransactions
from broker.log.cleaner.last_batches import last_batches
from broker.log.cleaner.offset_map import OffsetMap
from broker.log.cleaner.record_filter import RecordFilter, RetainedBatch
from broker.log.producer_state_entry import BatchMetadata, ProducerStateEntry
from broker.records.memory_records_builder import MemoryRecordsBuilder, empty_batch
from broker.records.record import Record
from broker.records.record_batch import RecordBatch
from tests.unit.log.cleaner.test_cleaned_transactions import aborted, data, marker

NOW_MS = 10_000
RETENTION_MS = 500


class Rules:
    """A map that reaches to offset 99, one producer (1) whose last batch ends at 50, and nothing aborted."""

    def __init__(self, **newest: int) -> None:
        self.map = OffsetMap(100)
        for key, offset in newest.items():
            self.map.put(key.encode(), offset)
        self.map.latest_offset = 99
        self.transactions = CleanedTransactions()
        self.entry = ProducerStateEntry(1)
        self.entry.producer_epoch = 0
        self.entry.add_batch(BatchMetadata(0, 50, 0, 0))

    @property
    def filter(self) -> RecordFilter:
        return RecordFilter(
            self.map,
            self.transactions,
            last_batches({1: self.entry}),
            now_ms=NOW_MS,
            delete_retention_ms=RETENTION_MS,
        )

    def apply(self, batch: RecordBatch) -> RetainedBatch | None:
        retained = self.filter.begin(batch)
        if retained is not None and not retained.drops_records:
            retained.take(batch.records())
        return retained


def batch(*entries: tuple[int, str | None, str | None], base_offset: int = 0, **keywords: Any) -> RecordBatch:
    """(offset, key, value) each."""
    builder = MemoryRecordsBuilder(base_offset, **keywords)
    for offset, key, value in entries:
        builder.append(
            7, None if key is None else key.encode(), None if value is None else value.encode(), offset=offset
        )
    return RecordBatch.parse(builder.build())


def outcome(retained: RetainedBatch | None) -> str:
    if retained is None:
        return "gone"
    found = [name for name in ("original", "builder", "empty") if getattr(retained, name)() is not None]
    assert len(found) <= 1, found
    return found[0] if found else "gone"


def kept(retained: RetainedBatch | None) -> list[int]:
    assert retained is not None
    return [record.offset for record in retained.kept]


def test_the_newest_of_each_key_and_keys_the_map_does_not_have() -> None:
    rules = Rules(a=1, b=5)
    retained = rules.apply(batch((0, "a", "1"), (1, "a", "2"), (2, "b", "1"), (3, "c", "1"), (4, None, "1")))
    assert kept(retained) == [1, 3]
    assert outcome(retained) == "builder"


def test_what_is_beyond_the_map_stays() -> None:
    rules = Rules(a=99)
    retained = rules.apply(batch((98, "a", "1"), (99, None, "1"), (100, "a", "1"), (101, None, "1"), base_offset=98))
    assert kept(retained) == [100, 101]


def test_a_whole_batch_is_its_own_copy_and_one_that_loses_all_is_gone() -> None:
    found = batch((0, "a", "1"), (1, "b", "1"))
    retained = Rules(a=0, b=1).apply(found)
    assert retained is not None
    assert retained.original() is found.buffer
    assert outcome(Rules(a=5, b=5).apply(found)) == "gone"


def test_37_a_tombstone_gets_its_time_once_and_goes_when_it_has_come() -> None:
    rules = Rules(a=0, b=1)
    retained = rules.apply(batch((0, "a", None), (1, "b", "1")))
    assert outcome(retained) == "builder"
    assert retained is not None
    builder = retained.builder()
    assert builder is not None
    for record in retained.kept:
        builder.append(record.timestamp, record.key, record.value, offset=record.offset)
    found = RecordBatch.parse(builder.build())
    assert found.delete_horizon_ms == NOW_MS + RETENTION_MS
    assert [record.timestamp for record in found.records()] == [7, 7]
    assert outcome(rules.apply(found)) == "original"
    due = batch((0, "a", None), (1, "b", "1"), delete_horizon_ms=NOW_MS)
    assert kept(rules.apply(due)) == [1]
    early = batch((0, "a", None), (1, "b", "1"), delete_horizon_ms=NOW_MS + 1)
    assert kept(rules.apply(early)) == [0, 1]


def test_38_the_last_batch_of_a_producer_is_kept_without_its_records() -> None:
    keywords: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 3, "base_offset": 50}
    rules = Rules(a=90)
    retained = rules.apply(batch((50, "a", "1"), **keywords))
    assert outcome(retained) == "empty"
    assert retained is not None
    content = retained.empty()
    assert content is not None
    found = RecordBatch.parse(content)
    assert (found.base_offset, found.last_offset, found.base_sequence, found.record_count) == (50, 50, 3, 0)
    assert (found.max_timestamp, found.base_timestamp) == (7, -1)
    assert outcome(rules.apply(found)) == "original", "as it is the next time"
    rules.entry.add_batch(BatchMetadata(1, 60, 0, 0))
    assert outcome(rules.apply(found)) == "gone"
    assert outcome(rules.apply(batch((50, "a", "1"), **{**keywords, "producer_id": 2}))) == "gone", "nobody knows it"


def test_38_the_batch_that_ends_the_range_is_kept() -> None:
    rules = Rules(a=99, b=99)
    assert outcome(rules.apply(batch((97, "a", "1"), (98, "b", "1"), base_offset=97))) == "gone"
    assert outcome(rules.apply(batch((98, "a", "1"), (99, None, "1"), base_offset=98))) == "empty"
    ended = RecordBatch.parse(empty_batch(98, 99, max_timestamp=3))
    assert outcome(rules.apply(ended)) == "original"


def test_36_aborted_records_are_not_even_looked_at() -> None:
    rules = Rules(k=4)
    rules.transactions.add_aborted([aborted(5, 4, 6)])
    assert rules.apply(data(4, 5)) is None
    assert kept(Rules(k=4).apply(data(4, 5))) == [4]
    rules = Rules(k=4)
    rules.transactions.add_aborted([aborted(1, 50, 60)])
    retained = rules.apply(data(50, 1))
    assert retained is not None
    assert retained.drops_records
    assert outcome(retained) == "empty", "the last one of its producer"


def test_a_marker_without_anything_to_mark_gets_its_time_and_goes() -> None:
    rules = Rules()
    assert outcome(rules.apply(marker(4, 5, commit=True))) == "builder"
    rules.transactions.saw_batch(data(3, 5))
    assert outcome(rules.apply(marker(4, 5, commit=True))) == "original"
    for horizon_ms, expected in ((NOW_MS, "gone"), (NOW_MS + 1, "original")):
        builder = MemoryRecordsBuilder(
            4, producer_id=5, producer_epoch=0, is_transactional=True, is_control=True, delete_horizon_ms=horizon_ms
        )
        record = next(iter(marker(4, 5, commit=True).records()))
        builder.append(record.timestamp, record.key, record.value)
        assert outcome(rules.apply(RecordBatch.parse(builder.build()))) == expected


def test_the_last_marker_of_a_producer_that_is_known_by_it_alone_stays_empty() -> None:
    rules = Rules()
    rules.entry.batches.clear()
    builder = MemoryRecordsBuilder(
        4, producer_id=1, producer_epoch=0, is_transactional=True, is_control=True, delete_horizon_ms=NOW_MS
    )
    record = next(iter(marker(4, 1, commit=True).records()))
    builder.append(record.timestamp, record.key, record.value)
    found = RecordBatch.parse(builder.build())
    assert outcome(rules.apply(found)) == "empty"
    rules.entry.producer_epoch = 1
    assert outcome(rules.apply(found)) == "gone"


def test_records_out_of_order_are_refused() -> None:
    retained = Rules().filter.begin(batch((0, "a", "1"), (1, "b", "1")))
    assert retained is not None
    for offsets in ((1, 1), (1, 0), (0, 2)):
        with pytest.raises(InvalidRecordError, match="out of order"):
            retained.take([Record(offset, 0, b"k", b"v") for offset in offsets])
