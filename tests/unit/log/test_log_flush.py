"""LogFlush: when the recovery point moves, and when it must not."""

import pytest

from broker.common.chance import Chance
from broker.common.errors import StorageFailure
from tests.support.builders import batch, parsed
from tests.unit.log.log_world import LogWorld


def test_a_flush_moves_the_recovery_point_to_the_active_segment() -> None:
    world = LogWorld(segment_bytes=200)
    for _ in range(5):
        world.append()
    log = world.log
    assert (log.recovery_point, log.unflushed_messages) == (0, 5)
    log.flush()
    assert (log.recovery_point, log.unflushed_messages) == (4, 0)
    assert log.plan_flush() is None
    world.append()
    assert log.unflushed_messages == 1


def test_a_log_start_within_a_segment_does_not_vouch_for_it() -> None:
    """Its indexes may not be in files yet, and Apache Kafka complains when those of a segment below it are missing."""
    world = LogWorld(segment_bytes=200)
    for _ in range(3):
        world.append(2)
    log = world.log
    bases = [segment.base_offset for segment in log.segments]
    assert bases == [0, 4]
    log.maybe_increment_log_start_offset(5, "test")
    assert log.recovery_point == 4, "what is wholly below the log start needs no flush"
    log.flush()
    assert log.recovery_point == 4


def test_a_plan_up_to_the_active_segment_leaves_it_out() -> None:
    world = LogWorld(segment_bytes=200)
    for _ in range(5):
        world.append()
    plan = world.log.plan_flush(4)
    assert plan is not None
    assert [file.path.name[:20] for file in plan.files] == [f"{base:020d}" for base in (0, 2)]
    plan.run()
    world.log.complete_flush(plan)
    assert (world.log.recovery_point, world.log.unflushed_messages) == (4, 1)


def test_a_truncation_meanwhile_voids_the_plan() -> None:
    world = LogWorld()
    world.append(2)
    world.append(3)
    plan = world.log.plan_flush()
    assert plan is not None
    plan.run()
    world.log.truncate_to(2)
    world.append(1, epoch=1)
    world.log.complete_flush(plan)
    assert world.log.recovery_point == 0
    assert world.log.unflushed_messages == 3


def test_a_failed_flush_is_planned_again() -> None:
    world = LogWorld()
    world.append()
    world.disk.fail(world.directory, "sync")
    with pytest.raises(StorageFailure):
        world.log.flush()
    assert world.log.unflushed_messages == 1
    assert world.metrics.storage_failures.value == 1
    world.disk.heal()
    plan = world.log.plan_flush()
    assert plan is not None
    assert world.directory in plan.directories
    plan.run()
    world.log.complete_flush(plan)
    assert world.log.unflushed_messages == 0


def test_a_flush_that_failed_is_never_vouched_for() -> None:
    world = LogWorld()
    world.log.flush()
    world.append()
    world.disk.fail(world.directory, "sync")
    with pytest.raises(StorageFailure):
        world.log.flush()
    world.disk.heal()
    world.log.roll()
    world.append()
    world.log.flush()
    assert (world.log.recovery_point, world.log.unflushed_messages) == (0, 0)
    with pytest.raises(StorageFailure, match="only recovery can tell"):
        world.log.prepare_close()
    world.disk.crash(Chance(1))
    found = world._load(had_clean_shutdown=False, recovery_point=0).log
    assert found.log_end_offset == 0  # the second batch without the first would be a hole


def test_an_append_that_could_not_be_flushed_is_doubtful_too() -> None:
    world = LogWorld(flush_messages=2)
    world.append()
    world.disk.fail(world.directory, "sync")
    (result,) = world.log.append_as_leader(parsed(batch("b")), 0)
    assert isinstance(result.error, StorageFailure)
    world.disk.heal()
    world.append()
    world.log.roll()
    world.log.flush()
    assert (world.log.log_end_offset, world.log.recovery_point) == (2, 0)


def test_the_time_of_the_last_flush() -> None:
    world = LogWorld()
    world.append()
    world.clock.ms += 500
    world.log.flush()
    assert world.log.last_flush_ms == world.clock.ms


def test_an_epoch_without_a_record_costs_nothing_at_close() -> None:
    world = LogWorld()
    world.append(epoch=1)
    world.reload(clean=True)
    world.log.maybe_assign_epoch_start_offset(2, 1)
    assert world.log.prepare_close() is None
    world.append(epoch=2)
    world.close()
    assert world.disk.read(world.directory / "leader-epoch-checkpoint") == b"0\n2\n1 0\n2 1\n"


def test_epochs_alone_are_written_at_close() -> None:
    world = LogWorld()
    world.append(epoch=1)
    world.append(epoch=2)
    world.reload(clean=True)
    world.log.leader_epochs.log_start_is_durable(1)
    world.close()
    assert world.disk.read(world.directory / "leader-epoch-checkpoint") == b"0\n1\n2 1\n"


def test_a_log_without_records_gets_no_index_files() -> None:
    world = LogWorld()
    world.reload(clean=True)
    assert world.names() == [world.path(0, ".log").name]
    world.append()
    world.reload(clean=True)
    assert world.path(0, ".index").name in world.names()
    assert world.path(0, ".timeindex").name in world.names()


def test_a_close_without_its_snapshot_is_not_clean() -> None:
    world = LogWorld()
    world.append(producer_id=1, producer_epoch=0, base_sequence=0)
    world.disk.fail(world.path(1, ".snapshot"), "open")
    with pytest.raises(StorageFailure, match="snapshot"):
        world.log.prepare_close()


def test_a_flush_makes_up_for_the_snapshots_that_are_missing() -> None:
    world = LogWorld(segment_bytes=200)
    for number in range(2):
        world.append(producer_id=1, producer_epoch=0, base_sequence=number)
    world.disk.fail(world.path(2, ".snapshot"), "open")
    world.log.roll()
    with pytest.raises(StorageFailure):
        world.log.flush()
    assert world.log.recovery_point == 0
    world.disk.heal()
    world.log.flush()
    assert world.log.recovery_point == 2
    world.disk.crash(world.chance)
    assert world.path(2, ".snapshot").name in world.names()
