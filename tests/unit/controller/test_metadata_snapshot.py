from pathlib import Path

import pytest

from broker.common.file_system import OsFileSystem
from broker.controller import metadata_snapshot
from broker.controller.metadata_segment import MetadataLogCorruptError
from broker.controller.metadata_snapshot import SnapshotId, decode_batch, read_checkpoint, write_checkpoint
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import RecordBatch, batches
from broker.schemas.cluster_metadata import FeatureLevelRecord, MetadataRecord, TopicRecord
from tests.unit.controller.controller_support import directory_of

SNAPSHOT = SnapshotId(4711, 3)


def records(count: int) -> list[MetadataRecord]:
    level = FeatureLevelRecord(name="metadata.version", feature_level=29)
    return [level, *(TopicRecord(name=f"t{i}", topic_id=directory_of(i)) for i in range(count - 1))]


def write(directory: Path, count: int) -> Path:
    path = directory / SNAPSHOT.file_name
    write_checkpoint(OsFileSystem(), path, iter(records(count)), metadata_version=29, epoch=3, timestamp_ms=77)
    return path


def test_names_are_kafkas() -> None:
    assert SNAPSHOT.file_name == "00000000000000004711-0000000003.checkpoint"
    assert SnapshotId.parse(SNAPSHOT.file_name) == SNAPSHOT
    assert SnapshotId.parse("bootstrap.checkpoint") is None
    assert SnapshotId.parse(SNAPSHOT.file_name + ".part") is None
    assert SnapshotId(0, 0).is_bootstrap
    assert not SNAPSHOT.is_bootstrap


def test_written_and_read_again(tmp_path: Path) -> None:
    path = write(tmp_path, 10)
    assert read_checkpoint(OsFileSystem(), path) == records(10)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_header_data_and_footer_have_offsets_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_snapshot, "BATCH_RECORDS_MAX", 4)
    found = list(batches(write(tmp_path, 10).read_bytes()))
    assert [(each.is_control, each.base_offset, each.record_count) for each in found] == [
        (True, 0, 1),
        (False, 1, 4),
        (False, 5, 4),
        (False, 9, 2),
        (True, 11, 1),
    ]
    assert {each.partition_leader_epoch for each in found} == {3}
    assert {each.base_timestamp for each in found} == {77}


def test_batches_have_a_bound_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_snapshot, "BATCH_BYTES_MAX", 200)
    path = write(tmp_path, 20)
    assert len(list(batches(path.read_bytes()))) > 5
    assert read_checkpoint(OsFileSystem(), path) == records(20)


def test_a_snapshot_that_is_not_whole_is_refused_at_every_byte(tmp_path: Path) -> None:
    path = write(tmp_path, 3)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(MetadataLogCorruptError):
            read_checkpoint(OsFileSystem(), path)


def test_2_records_that_are_not_metadata_are_refused() -> None:
    for value in (None, b"", b"\x00\x0c\x00", b"\x01\x63\x00\x00"):
        with pytest.raises(MetadataLogCorruptError):
            decode_batch(RecordBatch.parse(records_batch((0, None, value))))
