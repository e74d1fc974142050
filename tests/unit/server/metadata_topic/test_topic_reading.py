import pytest

from broker.common.metadata_topic import MetadataRecord
from broker.records.compression import CompressionType
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import set_crc
from broker.server.metadata_topic import topic_reading
from broker.server.metadata_topic.topic_positions import MetadataPosition
from broker.server.metadata_topic.topic_reading import TopicReading
from tests.unit.server.metadata_topic_support import metadata


def reading_at(offset: int) -> TopicReading:
    reading = TopicReading("topic", 4, may_resume=True)
    reading.begin_at(MetadataPosition(offset, 2))
    return reading


def batch(base_offset: int, *values: str | None, epoch: int = 3, control: bool = False) -> bytes:
    entries = [(1_000, None, None if value is None else value.encode()) for value in values]
    return bytes(
        records_batch(
            *entries,
            base_offset=base_offset,
            partition_leader_epoch=epoch,
            compression=CompressionType.LZ4,
            is_control=control,
        )
    )


def take(reading: TopicReading, records: bytes) -> list[list[MetadataRecord]]:
    return list(reading.take(records))


def test_batches_are_told_one_by_one_and_the_position_moves() -> None:
    reading = reading_at(10)
    told = []
    for records in reading.take(batch(10, "a", "b") + batch(12, "c", epoch=5)):
        told.append((records, reading.position))
    assert told == [
        (metadata("a", "b", first_offset=10), MetadataPosition(12, 3)),
        (metadata("c", first_offset=12), MetadataPosition(13, 5)),
    ]


def test_a_large_batch_is_told_in_portions_and_the_position_says_what_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_reading, "PORTION_BYTES", 3)
    reading = reading_at(10)
    told = []
    for records in reading.take(batch(9, "x", "a", "bb", "ccc", "d", None)):
        told.append((records, reading.position))
    assert told == [
        (metadata("a", "bb", first_offset=10), MetadataPosition(12, 3)),
        (metadata("ccc", first_offset=12), MetadataPosition(13, 3)),
        (metadata("d", first_offset=13), MetadataPosition(14, 3)),
    ]
    assert reading.position == MetadataPosition(15, 3)


def test_in_the_midst_of_a_batch_it_is_read_on_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_reading, "PORTION_BYTES", 1)
    reading = reading_at(10)
    records = batch(10, "a", "b", "c")
    assert next(reading.take(records)) == metadata("a", first_offset=10)
    assert take(reading, records) == [metadata("b", first_offset=11), metadata("c", first_offset=12)]


def test_what_is_before_the_position_was_told() -> None:
    reading = reading_at(11)
    assert take(reading, batch(8, "x", "y") + batch(10, "a", "b")) == [metadata("b", first_offset=11)]
    assert reading.position == MetadataPosition(12, 3)


def test_nothing_is_told_of_control_batches_and_records_without_a_value() -> None:
    reading = reading_at(0)
    control = batch(0, "marker", control=True)
    assert take(reading, control + batch(1, None, "a")) == [metadata("a", first_offset=2)]
    assert take(reading, batch(3, None)) == []
    assert (reading.position, reading.skipped_batches) == (MetadataPosition(4, 3), 0)


def test_a_batch_cut_short_is_left_for_the_next_fetch() -> None:
    reading = reading_at(0)
    assert take(reading, batch(0, "a") + batch(1, "b")[:-1]) == [metadata("a")]
    assert reading.position == MetadataPosition(1, 3)


def test_a_corrupt_batch_is_passed_over() -> None:
    reading = reading_at(0)
    corrupt = bytearray(batch(1, "b" * 40))
    corrupt[-1] ^= 1
    assert take(reading, batch(0, "a") + corrupt + batch(2, "c")) == [metadata("a"), metadata("c", first_offset=2)]
    assert reading.skipped_batches == 1


def test_records_that_cannot_be_unpacked_are_passed_over() -> None:
    reading = reading_at(0)
    wrong = bytearray(records_batch((1_000, None, b"a")))
    wrong[22] |= CompressionType.LZ4  # says so, and is not
    set_crc(wrong)
    assert take(reading, bytes(wrong) + batch(1, "b")) == [metadata("b", first_offset=1)]
    assert reading.skipped_batches == 1


def test_bytes_without_any_batch_are_fetched_three_times_and_then_left_out() -> None:
    reading = reading_at(0)
    reading.end_offset = 50
    garbage = b"\xff" * 100
    for _ in range(2):
        assert take(reading, garbage) == []
        assert reading.position == MetadataPosition(0, 2)
    assert take(reading, garbage) == []
    assert (reading.position, reading.skipped_batches) == (MetadataPosition(50, -1), 1)


def test_one_good_fetch_between_unreadable_ones_counts_anew() -> None:
    reading = reading_at(0)
    reading.end_offset = 50
    garbage = b"\xff" * 100
    for records in (garbage, garbage, batch(0, "a"), garbage, garbage):
        take(reading, records)
    assert reading.position == MetadataPosition(1, 3)


def test_the_lag_is_what_is_not_read_as_far_as_known() -> None:
    reading = TopicReading("topic", 4, may_resume=True)
    assert reading.lag == 0
    reading.end_offset = 50
    assert reading.lag == 0
    reading.begin_at(MetadataPosition(20, 1))
    assert reading.lag == 30
    reading.begin_anew()
    assert (reading.position, reading.may_resume) == (None, False)


def test_what_was_there_when_reading_began_is_history() -> None:
    reading = TopicReading("topic", 0, may_resume=True)
    assert not reading.is_in_history
    reading.end_offset = 5
    reading.begin_at(MetadataPosition(3, 0))
    assert reading.is_in_history
    reading.end_offset = 100  # what came since is live
    reading.begin_at(MetadataPosition(5, 0))
    assert not reading.is_in_history


def test_where_a_position_is_lost_all_that_is_there_is_history() -> None:
    reading = TopicReading("topic", 0, may_resume=True)
    reading.end_offset = 50
    reading.begin_at(MetadataPosition(60, 0))
    reading.begin_anew()
    reading.end_offset = 7  # another leader knows less
    reading.begin_at(MetadataPosition(0, 0))
    assert reading.is_in_history
    reading.begin_at(MetadataPosition(7, 0))
    assert not reading.is_in_history


def test_where_the_end_rises_while_a_batch_is_told_the_rest_of_it_is_told_by_the_next_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_reading, "PORTION_BYTES", 2)
    reading = TopicReading("topic", 4, may_resume=False, ends_at=5)
    reading.begin_at(MetadataPosition(0, 2))
    records = batch(0, *"abcdefgh") + batch(8, "later", epoch=4)
    told: list[MetadataRecord] = []
    for portion in reading.take(records):
        told += portion
        reading.ends_at = 7
    assert told == metadata(*"abcde")
    assert (reading.position, reading.is_over) == (MetadataPosition(5, 3), False)
    assert take(reading, records) == [metadata("f", "g", first_offset=5)]
    assert (reading.position, reading.is_over) == (MetadataPosition(7, 3), True)


def test_history_that_ends_between_batches_stands_behind_the_one_before() -> None:
    reading = TopicReading("topic", 4, may_resume=False, ends_at=2)
    reading.begin_at(MetadataPosition(0, 2))
    assert take(reading, batch(0, "a", "b") + batch(2, "later", epoch=4)) == [metadata("a", "b")]
    assert (reading.position, reading.is_over) == (MetadataPosition(2, 3), True)


def test_history_ends_where_it_is_said_to() -> None:
    reading = TopicReading("topic", 4, may_resume=False, ends_at=12)
    assert (reading.lag, reading.is_in_history, reading.is_over) == (0, False, False)
    reading.begin_at(MetadataPosition(10, 2))
    assert (reading.lag, reading.is_in_history, reading.is_over) == (2, True, False)
    assert take(reading, batch(9, "x", "a", "b", "later") + batch(13, "later")) == [metadata("a", "b", first_offset=10)]
    assert (reading.lag, reading.is_in_history, reading.is_over) == (0, False, True)
    reading.begin_anew()
    assert not reading.is_over
