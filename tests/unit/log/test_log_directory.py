"""LogDirectory: clean-shutdown marker, and whose directories are in it."""

from pathlib import Path

import pytest

from broker.common.chance import Chance
from broker.common.errors import StorageFailure
from broker.common.identifiers import TopicPartition
from broker.log.log_directory import LogDirectory
from tests.support.sim_disk import SimFileSystem

PATH = Path("/data")


def make_directory() -> tuple[SimFileSystem, LogDirectory]:
    disk = SimFileSystem()
    directory = LogDirectory(disk, PATH)
    disk.make_directories(PATH)
    disk.sync_everything()
    return disk, directory


def test_17_the_marker_counts_by_its_presence_and_is_gone_at_once() -> None:
    disk, directory = make_directory()
    assert directory.take_clean_shutdown_marker() is None
    directory.write_clean_shutdown_marker(42)
    assert disk.read(PATH / ".kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    disk.overwrite(PATH / ".kafka_cleanshutdown", b"unreadable")
    assert directory.take_clean_shutdown_marker() == -1
    disk.crash(Chance(1))
    assert LogDirectory(disk, PATH).take_clean_shutdown_marker() is None


def test_the_marker_survives_a_power_cut() -> None:
    disk, directory = make_directory()
    directory.write_clean_shutdown_marker(7)
    disk.crash(Chance(1))
    assert LogDirectory(disk, PATH).take_clean_shutdown_marker() == 7


def test_subdirectories_only() -> None:
    disk, directory = make_directory()
    disk.make_directories(PATH / "t-0")
    disk.open(PATH / "meta.properties", create=True)
    assert directory.subdirectories() == ["t-0"]


def test_directories_are_sorted_into_logs_and_what_is_deleted() -> None:
    disk, directory = make_directory()
    unique = "0123456789abcdef0123456789abcdef"
    for name in ("t-0", "u-3", f"t-1.{unique}-delete", f"t-2.{unique}-stray", "remote-log-index-cache"):
        disk.make_directories(PATH / name)
    disk.make_directories(PATH / "__cluster_metadata-0")
    disk.open(PATH / "meta.properties", create=True)
    assert directory.sort_out() == (
        [TopicPartition("t", 0), TopicPartition("u", 3)],
        [PATH / f"t-1.{unique}-delete"],
    )
    disk.make_directories(PATH / "holiday")
    with pytest.raises(StorageFailure, match="holiday, which is not in the form of topic-partition"):
        directory.sort_out()
