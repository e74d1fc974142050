import dataclasses

import pytest

from broker.common.identifiers import TopicIdPartition
from broker.common.metadata_topic import MetadataRecord
from broker.schemas.remote_wal_metadata import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentState,
    RemoteWalCombinedLogSegmentMetadataRecord,
    RemoteWalLogSegmentMetadataUpdateRecord,
    RemoteWalMetadataRecord,
    RemoteWalPartitionInvalidateRecord,
    TopicIdPartitionEntry,
    encode,
    slice_records,
)
from broker.wal.announce import remote_wal_metadata_reader
from broker.wal.announce.remote_wal_metadata_reader import RemoteWalMetadataReader
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.follow.wal_partitions import Placement, WalPartitions
from broker.wal.remote_wal_stats import RemoteWalStats, WalHop
from tests.support.builders import SettableClock
from tests.unit.wal.wal_world import BAR, BUCKET, FOO, log_bytes, make_object, make_slice, new_id

COMBINED = make_object(
    [make_slice(log_bytes((0, 3)), partition=FOO), make_slice(log_bytes((0, 2), start=5), start=5, partition=BAR)]
).metadata


class Reading:
    """FOO is here, BAR is elsewhere."""

    def __init__(self, began_ms: int = 2_000, local_broker_id: int = 9) -> None:
        self.stats = RemoteWalStats()
        self.clock = SettableClock(began_ms)
        self.objects: list[RemoteWalCombinedLogSegmentMetadataRecord] = []
        self.reader = RemoteWalMetadataReader(local_broker_id, self.clock, self.stats, self.objects.append)
        self.clock.time_ms = 2_007
        self.partitions = WalPartitions(
            lambda partition: WalIntervalMap(BUCKET, 1_000, lambda bucket: True), lambda partition: Placement.ELSEWHERE
        )
        self.partitions.host(FOO)

    def read(self, *events: RemoteWalMetadataRecord | bytes, place: int = 7, offset: int = 40) -> set[TopicIdPartition]:
        values = [event if isinstance(event, bytes) else encode(event) for event in events]
        records = [MetadataRecord(offset + index, 2_000, value) for index, value in enumerate(values)]
        return self.reader.read(place, records, self.partitions)

    def known(self, partition: TopicIdPartition = FOO) -> int:
        found = self.partitions.map_of(partition)
        assert found is not None
        return len(found)


def test_of_an_object_the_slices_of_partitions_here_become_known() -> None:
    reading = Reading()

    assert reading.read(COMBINED) == {FOO}

    assert reading.known() == 1
    assert reading.objects == [COMBINED]
    assert (reading.stats.hops[WalHop.METADATA_DELIVERY].count, reading.reader.read_count) == (1, 1)
    assert reading.stats.hops[WalHop.METADATA_DELIVERY].total == pytest.approx(0.007)


def test_what_was_told_of_an_object_is_not_decoded_again_of_its_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading()
    reading.read(COMBINED)
    monkeypatch.setattr(remote_wal_metadata_reader, "decode", lambda value: pytest.fail("decoded"))
    foo = next(each for each in slice_records(COMBINED) if each.end_offset == 2)

    assert reading.read(foo, place=8) == set()
    assert (reading.known(), reading.reader.repeated_count) == (1, 1)


def test_whoever_reads_again_is_told_again() -> None:
    reading = Reading()
    foo = next(each for each in slice_records(COMBINED) if each.end_offset == 2)
    reading.read(foo, place=8)
    reading.read(COMBINED)
    reading.partitions.drop(FOO)
    reading.partitions.host(FOO)
    reading.reader.begins([8])

    assert reading.read(foo, place=8) == {FOO}
    assert reading.known() == 1


def test_history_between_what_is_new_makes_nothing_be_told_twice_or_late() -> None:
    reading = Reading()
    reading.reader.begins([7])  # at 2,007
    foo = next(each for each in slice_records(COMBINED) if each.end_offset == 2)
    new = dataclasses.replace(COMBINED, event_timestamp_ms=2_008, object_key="wal/new")
    reading.clock.time_ms = 2_009
    for offset in (10, 90, 11, 91):
        reading.read(new if offset >= 90 else COMBINED, place=7, offset=offset)
    assert reading.stats.hops[WalHop.METADATA_DELIVERY].count == 2
    assert reading.read(foo, place=8) == set()
    assert reading.reader.repeated_count == 1


def test_only_so_many_slices_are_known_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_wal_metadata_reader, "TOLD_MAX", 1)
    reading = Reading()
    reading.partitions.host(BAR)
    reading.read(COMBINED)

    reading.read(*slice_records(COMBINED), place=8)

    assert (reading.reader.repeated_count, reading.reader.read_count) == (1, 2)


def test_a_slice_event_alone_is_enough() -> None:
    reading = Reading()
    foo, _ = sorted(slice_records(COMBINED), key=lambda each: -each.end_offset + each.start_offset)

    assert reading.read(foo) == {FOO}
    assert reading.known() == 1


def test_slices_of_partitions_elsewhere_are_not_even_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading()
    reading.partitions.drop(FOO)
    foo, bar = slice_records(COMBINED)
    monkeypatch.setattr(remote_wal_metadata_reader, "decode", lambda value: pytest.fail("decoded"))

    assert reading.read(foo, bar) == set()
    assert (reading.reader.elsewhere_count, reading.reader.read_count) == (2, 0)


def test_a_slice_becomes_void_by_its_update_and_by_a_new_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading()
    update = RemoteWalLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=RemoteLogSegmentIdEntry(
            topic_id_partition=TopicIdPartitionEntry.of(FOO), id=COMBINED.slices[0].remote_log_segment_id.id
        ),
        broker_id=1,
        leader_epoch=0,
        event_timestamp_ms=2_000,
        remote_log_segment_state=RemoteLogSegmentState.DELETE_SEGMENT_FINISHED,
    )
    voided = RemoteWalPartitionInvalidateRecord(
        topic_id_partition=TopicIdPartitionEntry.of(FOO),
        broker_id=1,
        leader_epoch=1,
        from_offset=0,
        event_timestamp_ms=2_000,
    )
    told: list[object] = []
    monkeypatch.setattr(reading.partitions, "update", told.append)
    monkeypatch.setattr(reading.partitions, "invalidate", told.append)

    assert reading.read(update, voided) == {FOO}
    assert told == [update, voided]


def test_what_cannot_be_read_is_counted_and_stops_nothing() -> None:
    reading = Reading()
    foreign = dataclasses.replace(COMBINED, combined_segment_id=new_id())
    of_the_future = b"\x01\x63\x00" + b"?" * 20
    newer_version = b"\x01\x05\x07" + b"?" * 20
    cut_short = encode(slice_records(foreign)[0])[:-3]
    hardly_begun = b"\x01\x05\x00\x04fo"
    not_a_name = b"\x01\x05\x00\x04\xff\xfe\xfd" + bytes(40)

    assert reading.read(of_the_future, newer_version, cut_short, hardly_begun, not_a_name, b"", foreign) == {FOO}

    assert (reading.reader.unknown_count, reading.reader.malformed_count, reading.reader.read_count) == (2, 4, 1)
    assert reading.stats.unreadable_events == 6


def test_what_a_broker_hears_of_its_own_objects_is_no_delivery() -> None:
    reading = Reading(local_broker_id=COMBINED.broker_id)
    assert reading.read(COMBINED) == {FOO}
    assert (reading.objects, reading.stats.hops[WalHop.METADATA_DELIVERY].count) == ([COMBINED], 0)


def test_history_is_no_delivery() -> None:
    def delivered(reading: Reading) -> int:
        return reading.stats.hops[WalHop.METADATA_DELIVERY].count

    before = Reading(began_ms=2_001)
    before.read(COMBINED, offset=40)  # made while this broker was away
    assert delivered(before) == 0

    reading = Reading()
    reading.read(COMBINED, place=7, offset=40)
    reading.reader.begins([7])
    reading.read(COMBINED, place=7, offset=40)  # from its past on, once more
    assert delivered(reading) == 1
    reading.reader.begins([8])
    reading.read(COMBINED, place=8)
    assert delivered(reading) == 1
    reading.clock.time_ms += 100_000
    late = dataclasses.replace(COMBINED, event_timestamp_ms=2_007)
    reading.read(late, place=8, offset=41)
    assert delivered(reading) == 2
    assert reading.stats.hops[WalHop.METADATA_DELIVERY].total == pytest.approx(0.007 + 100)
