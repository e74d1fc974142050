from pathlib import Path

import pytest

from broker.cli import wal_logs
from broker.cli.wal_logs import LogComparison, PartitionLogs
from broker.common.file_system import OsFileSystem
from broker.common.identifiers import TopicIdPartition
from broker.config.setting import ConfigError
from broker.log.partition_metadata_file import PartitionMetadataFile
from broker.records.record_batch import batches
from broker.wal.objects.wal_entry import entries_of
from tests.support.wal_directory import wal_slice
from tests.unit.wal.wal_world import log_bytes

from .wal_look_world import BAR, FOO, LookWorld


def write_log(data: Path, partition: TopicIdPartition, segments: dict[int, bytes]) -> Path:
    directory = data / str(partition.topic_partition)
    directory.mkdir(parents=True, exist_ok=True)
    PartitionMetadataFile(OsFileSystem(), directory).write(partition.topic_id)
    for base, content in segments.items():
        (directory / f"{base:020d}.log").write_bytes(content)
    return directory


def compare(logs: PartitionLogs, records: bytes, partition: TopicIdPartition = FOO) -> LogComparison:
    built = LookWorld().build(wal_slice(partition, 1, records, leader_epoch=9), sequence=99)
    (entry,) = entries_of(built.metadata)
    return logs.compare(entry, list(batches(records)))


WHOLE = log_bytes((0, 3), (1, 2), (1, 4), (2, 1))


@pytest.mark.parametrize("chunk", [80, 1 << 20])
def test_equal_batches_in_one_segment_or_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(wal_logs, "READ_SIZE", chunk)
    write_log(tmp_path, FOO, {0: log_bytes((0, 3), (1, 2)), 5: log_bytes((1, 4), (2, 1), start=5)})
    assert compare(PartitionLogs([tmp_path]), WHOLE) == LogComparison(equal=4)
    assert compare(PartitionLogs([tmp_path]), log_bytes((1, 4), start=5)) == LogComparison(equal=1)


def test_other_epochs_and_other_places_are_superseded(tmp_path: Path) -> None:
    write_log(tmp_path, FOO, {0: log_bytes((0, 3), (2, 2), (2, 4))})
    assert compare(PartitionLogs([tmp_path]), log_bytes((0, 3), (1, 2))) == LogComparison(equal=1, superseded=1)
    assert compare(PartitionLogs([tmp_path]), log_bytes((1, 1), start=4)) == LogComparison(superseded=1)


def test_what_is_deleted_or_not_yet_there_is_absent(tmp_path: Path) -> None:
    write_log(tmp_path, FOO, {5: log_bytes((1, 4), start=5)})
    assert compare(PartitionLogs([tmp_path]), WHOLE) == LogComparison(equal=1, absent=3)


def test_the_same_offset_and_epoch_with_other_bytes_is_different(tmp_path: Path) -> None:
    directory = write_log(tmp_path, FOO, {0: log_bytes((0, 3), value=b"w")})
    assert compare(PartitionLogs([tmp_path]), log_bytes((0, 3), value=b"v")) == LogComparison(
        different=[f"offset 0 of epoch 0 has other bytes in {directory}/00000000000000000000.log"]
    )


def test_a_log_that_grows_is_read_on(tmp_path: Path) -> None:
    directory = write_log(tmp_path, FOO, {0: log_bytes((0, 3))})
    logs = PartitionLogs([tmp_path])
    assert compare(logs, WHOLE) == LogComparison(equal=1, absent=3)
    (directory / f"{0:020d}.log").write_bytes(log_bytes((0, 3), (1, 2)) + log_bytes((1, 4), start=5)[:70])
    (directory / f"{5:020d}.log").write_bytes(b"")
    assert compare(logs, log_bytes((0, 3), (1, 2))) == LogComparison(equal=2)
    (directory / f"{5:020d}.log").write_bytes(log_bytes((1, 4), (2, 1), start=5))
    assert compare(logs, log_bytes((1, 4), (2, 1), start=5)) == LogComparison(equal=2)


def test_other_topics_incarnations_and_directories_are_not_compared(tmp_path: Path) -> None:
    write_log(tmp_path / "one", BAR, {0: WHOLE})
    write_log(tmp_path / "one", FOO._replace(topic_id=BAR.topic_id), {0: WHOLE})
    set_aside = write_log(tmp_path / "two", FOO, {0: WHOLE})
    set_aside.rename(set_aside.with_name(f"foo-0.{'a' * 32}-delete"))
    (tmp_path / "two" / "foo-1").mkdir()  # without partition.metadata
    (tmp_path / "two" / "foo-0").write_bytes(b"a file")
    (tmp_path / "two" / "meta.properties").write_bytes(b"")
    assert compare(PartitionLogs([tmp_path / "one", tmp_path / "two"]), WHOLE) == LogComparison()


def test_every_brokers_log_is_compared(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_log(tmp_path / name, FOO, {0: WHOLE})
    assert compare(PartitionLogs([tmp_path / "one", tmp_path / "two"]), WHOLE) == LogComparison(equal=8)


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such directory"):
        PartitionLogs([tmp_path / "none"])
