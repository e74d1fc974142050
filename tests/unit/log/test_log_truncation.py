"""LogTruncation: what a tiered log loses, and what it keeps; what a log is that begins with remote storage.

That of logs without remote storage is tested with UnifiedLog.
"""

import pytest

from broker.common.chance import Chance
from broker.common.errors import CorruptMessageError, ErrorCode, StorageFailure
from broker.log.leader_epoch_file_cache import EpochEntry
from broker.log.producer_snapshot import encode_snapshot
from tests.support.builders import parsed
from tests.unit.log.log_world import LogWorld
from tests.unit.log.test_log_start import tiered

EPOCHS = (EpochEntry(0, 0), EpochEntry(2, 40), EpochEntry(5, 90))


def snapshot_of_producer(sequence: int, *, is_open: bool = False) -> bytes:
    """Of producer 7, which has written up to `sequence`."""
    world = LogWorld()
    for number in range(sequence + 1):
        world.append(producer_id=7, producer_epoch=0, base_sequence=number, is_transactional=is_open)
    return encode_snapshot(world.log.producer_state_manager.producers.values())


def restored(**config: object) -> LogWorld:
    world = LogWorld(tiered=True, segment_bytes=200, **config)
    for number in range(5):
        world.append(producer_id=1, producer_epoch=0, base_sequence=number)
    world.log.flush()
    world.log.restore_from_remote(100, 30, EPOCHS, snapshot_of_producer(3))
    return world


def test_a_truncation_of_the_local_part() -> None:
    world = tiered()
    world.log.update_highest_remote_offset(5)
    assert world.log.truncate_to(5)
    log = world.log
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 4, 5)
    assert log.highest_remote_offset == 4
    assert log.leader_epochs.entries == ((0, 0), (1, 2), (2, 4))


def test_a_truncation_below_the_local_start_keeps_what_is_below_it_in_remote_storage() -> None:
    world = tiered()
    assert world.log.truncate_to(3)
    log = world.log
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset, log.high_watermark) == (0, 3, 3, 3)
    assert log.leader_epochs.entries == ((0, 0), (1, 2))
    assert log.latest_epoch == 1
    assert log.highest_remote_offset == 2
    assert world.append(epoch=4) == 3
    assert log.leader_epochs.entries == ((0, 0), (1, 2), (4, 3))


def test_a_truncation_below_the_log_start_leaves_nothing() -> None:
    world = tiered()
    world.log.maybe_increment_log_start_offset(3, "test")
    assert world.log.truncate_to(1)
    log = world.log
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (1, 1, 1)
    assert log.leader_epochs.entries == ()
    assert log.highest_remote_offset == 0


def test_a_full_truncation_with_a_start_of_its_own() -> None:
    world = tiered()
    world.log.truncate_fully_and_start_at(10, 2)
    log = world.log
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (2, 10, 10)
    assert log.leader_epochs.entries == ()
    assert log.highest_remote_offset == 3


def test_41_a_log_goes_on_with_what_remote_storage_knows() -> None:
    world = restored()
    log = world.log
    assert (log.log_start_offset, log.local_log_start_offset) == (30, 100)
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (100, 100, 100)
    assert log.segments.base_offsets == [100]
    assert log.leader_epochs.entries == ((0, 30), (2, 40), (5, 90))
    assert log.latest_epoch == log.newest_epoch == 5
    assert set(log.producer_state_manager.producers) == {7}
    assert log.producer_snapshot_path(100) == world.path(100, ".snapshot")
    assert world.housekeeping.flushes[-1] is log
    duplicate = world.batch(producer_id=7, producer_epoch=0, base_sequence=3)
    (result,) = log.append_as_leader(parsed(duplicate), 5)
    assert result.is_duplicate
    hole = world.batch(producer_id=7, producer_epoch=0, base_sequence=9)
    (result,) = log.append_as_leader(parsed(hole), 5)
    assert result.error is not None
    assert result.error.code is ErrorCode.out_of_order_sequence_number
    assert world.append(producer_id=7, producer_epoch=0, base_sequence=4, epoch=5) == 100


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_restored_survives_a_restart(clean: bool) -> None:
    world = restored()
    log = world.reload(clean=clean, log_start_offset=30, close=clean)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (30, 100, 100)
    if not clean:  # nothing was flushed: the file tells the old epochs, and the leader will be asked again
        return
    assert log.leader_epochs.entries == ((0, 30), (2, 40), (5, 90))
    assert set(log.producer_state_manager.producers) == {7}


def test_what_was_restored_and_flushed_survives_a_power_cut() -> None:
    world = restored()
    world.log.flush()
    world.append(producer_id=7, producer_epoch=0, base_sequence=4, epoch=5)
    world.disk.crash(world.chance)
    log = world.reload(log_start_offset=30)
    assert (log.log_start_offset, log.local_log_start_offset) == (30, 100)
    assert log.leader_epochs.entries == ((0, 30), (2, 40), (5, 90))
    assert log.producer_state_manager.producers[7].last_sequence == (4 if log.log_end_offset == 101 else 3)


def test_an_open_transaction_of_the_remote_part_holds_the_last_stable_offset_back() -> None:
    world = LogWorld(tiered=True)
    world.log.restore_from_remote(100, 0, EPOCHS, snapshot_of_producer(0, is_open=True))
    assert world.log.last_stable_offset == 0
    world.marker(7, commit=True, epoch=5)
    assert world.log.last_stable_offset == 101


def test_no_snapshot_changes_nothing() -> None:
    world = tiered()
    with pytest.raises(CorruptMessageError):
        world.log.restore_from_remote(100, 30, EPOCHS, b"no snapshot")
    assert (world.log.log_start_offset, world.log.local_log_start_offset, world.log.log_end_offset) == (0, 4, 6)
    world.disk.fail(world.directory, "create")
    with pytest.raises(StorageFailure):
        world.log.restore_from_remote(100, 30, EPOCHS, snapshot_of_producer(0))
    assert (world.log.log_start_offset, world.log.local_log_start_offset, world.log.log_end_offset) == (0, 4, 6)
    world.disk.heal()
    world.log.restore_from_remote(100, 30, EPOCHS, snapshot_of_producer(0))
    assert world.log.log_end_offset == 100


def test_a_restore_that_stopped_half_way_is_begun_again() -> None:
    world = tiered()
    world.disk.fail(world.path(100, ".snapshot.tmp"), "rename")
    with pytest.raises(StorageFailure):
        world.log.restore_from_remote(100, 30, EPOCHS, snapshot_of_producer(2))
    world.disk.heal()
    world.log.restore_from_remote(100, 30, EPOCHS, snapshot_of_producer(2))
    assert world.log.leader_epochs.entries == ((0, 30), (2, 40), (5, 90))
    assert set(world.log.producer_state_manager.producers) == {7}


def test_a_power_cut_in_the_middle_of_a_restore_leaves_some_of_the_old_log_or_an_empty_one() -> None:
    """The empty one has the old lineage or the new one; with the old one its leader sends it here again."""
    found = set()
    for seed in range(60):
        world = restored()
        world.disk.crash(Chance(seed))
        log = world.reload(recovery_point=4)
        found.add((log.local_log_start_offset, log.log_end_offset))
        if log.local_log_start_offset == 0:
            assert log.leader_epochs.entries == ((0, 0),)
            assert world.offsets() == [(number, number) for number in range(log.log_end_offset)]
            assert log.producer_state_manager.producers[1].last_sequence == log.log_end_offset - 1
        else:
            assert log.leader_epochs.entries in (((0, 0),), ((0, 30), (2, 40), (5, 90)))
            assert set(log.producer_state_manager.producers) <= {7}
        world.log.restore_from_remote(200, 30, EPOCHS, snapshot_of_producer(3))
        world.log.flush()
        log = world.reload(log_start_offset=30)
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (30, 200, 200)
        assert log.leader_epochs.entries == ((0, 30), (2, 40), (5, 90))
        assert set(log.producer_state_manager.producers) == {7}
    assert {(0, 2), (0, 4), (0, 5), (100, 100)} <= found


def test_a_power_cut_in_the_middle_of_a_truncation_below_the_local_start_undoes_it_or_not() -> None:
    """What is between the new beginning and what came back is in remote storage, and no hole."""
    found = set()
    for seed in range(60):
        world = tiered(local_start=2)
        world.log.flush()
        world.log.truncate_to(1)
        world.disk.crash(Chance(seed))
        log = world.reload(recovery_point=4)
        found.add((log.local_log_start_offset, log.log_end_offset))
        assert log.log_start_offset == 0
        assert world.offsets() == [(number, number) for number in range(2, log.log_end_offset)]
        assert log.leader_epochs.entries == tuple((n, 2 * n) for n in range(3) if 2 * n < log.log_end_offset)
    assert found == {(2, 6), (2, 4), (1, 1)}
