from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import OffsetOutOfRangeError
from broker.common.file_system import OsFileSystem
from broker.controller.metadata_log import VALID_POSITION, FetchPosition, MetadataLog, OffsetAndEpoch
from broker.controller.metadata_segment import MetadataLogCorruptError
from broker.controller.metadata_snapshot import SnapshotId, write_checkpoint
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import batches
from broker.schemas.cluster_metadata import FeatureLevelRecord, NoOpRecord, encode

LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=29)


def opened(directory: Path, snapshots: list[Any] | None = None) -> MetadataLog:
    log = MetadataLog(OsFileSystem(), directory)
    log.open(lambda records, snapshot: (snapshots if snapshots is not None else []).append((records, snapshot)))
    log.advance_high_watermark(log.end_offset)
    return log


def append(log: MetadataLog, count: int, epoch: int, *, is_durable: bool = True) -> None:
    for _ in range(count):
        value = encode(NoOpRecord())
        log.append(records_batch((5, None, value), base_offset=log.end_offset, partition_leader_epoch=epoch))
    if is_durable:
        log.advance_high_watermark(log.end_offset)


def snapshot(log: MetadataLog, end_offset: int, epoch: int) -> list[str]:
    """Written and added; answers the names of what may go."""
    wanted = SnapshotId(end_offset, epoch)
    path = log.snapshot_path(wanted)
    write_checkpoint(OsFileSystem(), path, [LEVEL], metadata_version=29, epoch=epoch, timestamp_ms=5)
    obsolete = log.add_snapshot(wanted)
    for each in obsolete:
        each.unlink()
    log.roll()
    return [each.name for each in obsolete]


def test_an_empty_directory_gets_a_first_segment(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert [each.name for each in log.directory.iterdir()] == ["00000000000000000000.log"]
    assert (log.start_offset, log.end_offset, log.last_epoch, log.latest_snapshot) == (0, 0, -1, None)


def test_only_what_is_durable_is_read(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 3, 1)
    append(log, 2, 1, is_durable=False)
    assert [each.base_offset for each in batches(log.read(0, 1 << 20))] == [0, 1, 2]
    assert log.read(3, 1 << 20) == b""
    woken: list[int] = []
    log.high_watermark_listeners[lambda: woken.append(log.high_watermark)] = None
    log.advance_high_watermark(5)
    log.advance_high_watermark(5)
    assert woken == [5]


def test_reads_cross_segments_one_at_a_time(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 3, 1)
    log.roll()
    log.roll()  # an empty segment is not followed by another
    append(log, 3, 1)
    assert [each.base_offset for each in batches(log.read(1, 1 << 20))] == [1, 2]
    assert [each.base_offset for each in batches(log.read(3, 1 << 20))] == [3, 4, 5]
    assert len(list(log.directory.glob("*.log"))) == 2


def test_epochs_and_their_ends(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 3, 1)
    append(log, 2, 4)
    log.close()
    log = opened(tmp_path)
    assert log.last_epoch == 4
    assert log.end_offset_for_epoch(1) == OffsetAndEpoch(3, 1)
    assert log.end_offset_for_epoch(3) == OffsetAndEpoch(3, 1)
    assert log.end_offset_for_epoch(4) == OffsetAndEpoch(5, 4)
    assert log.end_offset_for_epoch(9) == OffsetAndEpoch(5, 4)
    assert log.end_offset_for_epoch(0) == OffsetAndEpoch(0, 0)


def test_10_positions_that_diverge(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 3, 1)
    append(log, 2, 4)
    assert log.check_position(0, 0) == VALID_POSITION
    assert log.check_position(3, 1) == VALID_POSITION
    assert log.check_position(5, 4) == VALID_POSITION
    assert log.check_position(4, 1) == FetchPosition(diverging=OffsetAndEpoch(3, 1))
    assert log.check_position(1_000_000, 4) == FetchPosition(diverging=OffsetAndEpoch(5, 4))
    assert log.check_position(4, 3) == FetchPosition(diverging=OffsetAndEpoch(3, 1))


def test_11_positions_before_the_log_get_the_snapshot(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 3, 1)
    assert snapshot(log, 3, 1) == []
    append(log, 3, 2)
    assert log.check_position(0, 0) == FetchPosition(snapshot=SnapshotId(3, 1))
    assert log.check_position(2, 1) == VALID_POSITION
    assert snapshot(log, 6, 2) == ["00000000000000000000.log"]
    append(log, 1, 2)
    assert snapshot(log, 7, 2) == [SnapshotId(3, 1).file_name, "00000000000000000003.log"]
    assert log.start_offset == 6
    append(log, 1, 2)
    latest = FetchPosition(snapshot=SnapshotId(7, 2))
    assert log.check_position(0, 0) == latest
    assert log.check_position(2, 1) == latest
    assert log.check_position(6, 1) == latest
    assert log.check_position(6, 2) == VALID_POSITION
    assert log.check_position(8, 2) == VALID_POSITION
    with pytest.raises(OffsetOutOfRangeError):
        log.read(2, 100)


def test_recovery_begins_at_the_latest_whole_snapshot(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 3, 1)
    snapshot(log, 3, 1)
    append(log, 2, 1)
    snapshot(log, 5, 1)
    append(log, 2, 1)
    log.close()
    (log.directory / "x.checkpoint.part").write_bytes(b"x")
    found: list[Any] = []
    log = MetadataLog(OsFileSystem(), tmp_path)
    rest = log.open(lambda records, which: found.append((records, which)))
    assert found == [([LEVEL], SnapshotId(5, 1))]
    assert [each.base_offset for each in rest] == [5, 6]
    assert not list(log.directory.glob("*.part"))
    log.close()
    path = log.snapshot_path(SnapshotId(5, 1))
    path.write_bytes(path.read_bytes()[:-1])
    found.clear()
    rest = MetadataLog(OsFileSystem(), tmp_path).open(lambda records, which: found.append((records, which)))
    assert found == [([LEVEL], SnapshotId(3, 1))]
    assert [each.base_offset for each in rest] == [3, 4, 5, 6]


def test_a_log_that_ends_before_its_snapshot_starts_over_there(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 3, 1)
    snapshot(log, 3, 1)
    log.close()
    for path in log.directory.glob("*.log"):
        path.unlink()
    log = opened(tmp_path)
    assert (log.start_offset, log.end_offset, log.last_epoch) == (3, 3, 1)


def test_holes_refuse_to_start(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 3, 1)
    log.roll()
    append(log, 3, 1)
    log.roll()
    append(log, 3, 1)
    log.close()
    (log.directory / "00000000000000000003.log").unlink()
    with pytest.raises(MetadataLogCorruptError, match="does not follow offset 3"):
        opened(tmp_path)
    (log.directory / "00000000000000000000.log").unlink()
    with pytest.raises(MetadataLogCorruptError, match="has no snapshot before it"):
        opened(tmp_path)


def test_11_snapshots_are_read_in_pieces(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 3, 1)
    snapshot(log, 3, 1)
    wanted = SnapshotId(3, 1)
    whole = log.snapshot_path(wanted).read_bytes()
    pieces = b""
    while len(pieces) < len(whole):
        size, piece = log.read_snapshot(wanted, len(pieces), 7)
        assert size == len(whole)
        pieces += piece
    assert pieces == whole
    assert log.has_snapshot(wanted)
    assert not log.has_snapshot(SnapshotId(2, 1))


def test_bytes_since_the_snapshot(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 3, 1)
    assert log.bytes_since_snapshot == log.size_bytes > 0
    log.close()
    assert opened(tmp_path).bytes_since_snapshot == log.size_bytes
