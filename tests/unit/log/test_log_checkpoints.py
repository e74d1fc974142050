"""LogCheckpoints: what the files say of logs that are open, and of those that are not."""

from pathlib import Path

import pytest

from broker.common.disk import InlineDiskExecutor
from broker.common.identifiers import TopicPartition
from broker.config.config_holder import ConfigHolder
from broker.log.log_checkpoints import Checkpoint, LogCheckpoints
from broker.log.offset_checkpoint_file import OffsetCheckpointFile
from broker.metrics.log_metrics import LogMetrics
from broker.metrics.registry import MetricsRegistry
from tests.support.sim_disk import SimFileSystem
from tests.unit.log.log_world import broker_config

PATH = Path("/data")
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEAN_OFFSETS = "cleaner-offset-checkpoint"
TP, GONE = TopicPartition("t", 0), TopicPartition("gone", 1)


def make_disk() -> SimFileSystem:
    disk = SimFileSystem()
    disk.make_directories(PATH)
    disk.sync_everything()
    return disk


def make_checkpoints(disk: SimFileSystem) -> LogCheckpoints:
    return LogCheckpoints(
        ConfigHolder(broker_config()),
        PATH,
        file_system=disk,
        disk=InlineDiskExecutor(),
        metrics=LogMetrics(MetricsRegistry()),
        logs=lambda: (),
    )


def written(disk: SimFileSystem, name: str) -> dict[TopicPartition, int]:
    return OffsetCheckpointFile(disk, PATH / name).read()


def test_a_file_is_written_when_it_changes() -> None:
    disk = make_disk()
    checkpoint = Checkpoint(disk, PATH / RECOVERY_POINTS)
    checkpoint.write({TP: 5})
    assert checkpoint.read() == {TP: 5}
    disk.remove(PATH / RECOVERY_POINTS)
    checkpoint.write({TP: 5})
    assert checkpoint.read() == {}, "nothing changed, so nothing was written"
    checkpoint.write({TP: 6})
    assert checkpoint.read() == {TP: 6}
    disk.overwrite(PATH / RECOVERY_POINTS, b"nonsense")
    assert checkpoint.read() == {}


@pytest.mark.parametrize(
    ("content", "is_lost"), [(None, True), (b"nonsense", True), (b"0\n0\n", False), (b"0\n1\nt 0 5\n", False)]
)
def test_a_file_is_lost_when_it_is_missing_or_damaged(content: bytes | None, is_lost: bool) -> None:
    disk = make_disk()
    if content is not None:
        disk.open(PATH / CLEAN_OFFSETS, create=True).close()
        disk.overwrite(PATH / CLEAN_OFFSETS, content)
    checkpoint = Checkpoint(disk, PATH / CLEAN_OFFSETS)
    checkpoint.read()
    assert checkpoint.is_lost is is_lost


async def test_what_is_known_of_logs_that_could_not_be_opened_stays() -> None:
    disk = make_disk()
    for number, name in enumerate((RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEAN_OFFSETS)):
        OffsetCheckpointFile(disk, PATH / name).write({TP: 10 + number, GONE: 20 + number})
    checkpoints = make_checkpoints(disk)
    await checkpoints.read()
    assert (checkpoints.recovery_point(TP), checkpoints.log_start_offset(GONE)) == (10, 21)
    await checkpoints.loaded({TP}, is_directory_new=False)
    assert checkpoints.log_start_offset(TP) == 11
    assert checkpoints.may_have_holes(TP)
    assert (checkpoints.log_start_offset(GONE), checkpoints.may_have_holes(GONE)) == (0, False)
    await checkpoints.write_last()
    assert written(disk, RECOVERY_POINTS) == {}, "it is recovered as a whole"
    assert written(disk, LOG_STARTS) == {TP: 11}
    assert written(disk, HIGH_WATERMARKS) == {TP: 12}
    assert written(disk, CLEAN_OFFSETS) == {TP: 13}


@pytest.mark.parametrize("is_new", [True, False])
async def test_the_cleaners_file_is_missed_only_where_it_once_was(is_new: bool) -> None:
    disk = make_disk()
    checkpoints = make_checkpoints(disk)
    await checkpoints.read()
    assert checkpoints.may_have_holes(TP)
    await checkpoints.loaded((), is_directory_new=is_new)
    assert disk.exists(PATH / CLEAN_OFFSETS) is is_new
