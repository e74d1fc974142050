"""ProducerStateManager: unstable offsets, snapshots, expiry."""

from pathlib import Path

import pytest

from broker.common.errors import CorruptMessageError, StorageFailure
from broker.log.producer_snapshot import encode_snapshot
from broker.log.producer_state_entry import CompletedTxn
from broker.log.producer_state_manager import REFUSED_PRODUCERS_MAX, ProducerStateManager, parse_marker
from broker.records.append_origin import AppendOrigin
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.records.memory_records_builder import empty_batch, records_batch
from broker.records.record_batch import RecordBatch
from tests.support.sim_disk import SimFileSystem

DIRECTORY = Path("/data/t-0")
DAY_MS = 86_400_000


def make_manager(disk: SimFileSystem | None = None) -> ProducerStateManager:
    disk = disk or SimFileSystem()
    disk.make_directories(DIRECTORY)
    manager = ProducerStateManager(disk, DIRECTORY, DAY_MS)
    manager.load_snapshot_names(disk.list_directory(DIRECTORY))
    return manager


def data(offset: int, producer_id: int = 1, *, sequence: int = 0, transactional: bool = False) -> RecordBatch:
    return RecordBatch.parse(
        records_batch(
            (1000, b"k", b"v"),
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=transactional,
        )
    )


def marker(offset: int, producer_id: int = 1, *, commit: bool = False) -> RecordBatch:
    return RecordBatch.parse(
        end_transaction_marker_batch(
            EndTransactionMarker(ControlRecordType.COMMIT if commit else ControlRecordType.ABORT, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=1000,
            base_offset=offset,
        )
    )


def replay(manager: ProducerStateManager, *batches: RecordBatch) -> list[CompletedTxn]:
    done = []
    for batch in batches:
        for completed in manager.replay(batch):
            manager.complete_txn(completed)
            done.append(completed)
    return done


def test_29_the_first_unstable_offset_waits_for_replication() -> None:
    manager = make_manager()
    replay(manager, data(5, 1, transactional=True), data(6, 2, transactional=True))
    assert manager.first_unstable_offset == 5
    replay(manager, marker(7, 1))
    assert manager.first_unstable_offset == 5
    manager.on_high_watermark_updated(7)
    assert manager.first_unstable_offset == 5
    manager.on_high_watermark_updated(8)
    assert manager.first_unstable_offset == 6
    replay(manager, marker(8, 2, commit=True))
    manager.on_high_watermark_updated(9)
    assert manager.first_unstable_offset is None
    assert manager.map_end_offset == 9


def test_the_stable_offset_left_behind_by_an_abort() -> None:
    manager = make_manager()
    replay(manager, data(5, 1, transactional=True), data(6, 2, transactional=True))
    (completed,) = manager.replay(marker(7, 1))
    assert completed == CompletedTxn(1, 5, 7, True)
    assert manager.last_stable_offset_after(completed) == 6
    manager.complete_txn(completed)
    (completed,) = manager.replay(marker(8, 2))
    assert manager.last_stable_offset_after(completed) == 9


def test_28_a_marker_without_data_and_empty_batches_change_nothing_unstable() -> None:
    manager = make_manager()
    assert replay(manager, marker(0, 9)) == []
    assert manager.first_unstable_offset is None
    empty = RecordBatch.parse(
        empty_batch(
            base_offset=1,
            last_offset=2,
            producer_id=4000,
            producer_epoch=1,
            base_sequence=-1,
            is_transactional=True,
            is_control=True,
            max_timestamp=1000,
        )
    )
    assert parse_marker(empty) is None
    assert replay(manager, empty) == []
    assert manager.last_entry(4000) is None
    assert manager.map_end_offset == 3


def test_an_unchanged_info_adds_no_producer() -> None:
    manager = make_manager()
    manager.update(manager.prepare_update(5, AppendOrigin.CLIENT))
    assert manager.is_empty


def test_31_snapshots_are_taken_and_used() -> None:
    disk = SimFileSystem()
    manager = make_manager(disk)
    manager.take_snapshot()
    assert manager.snapshot_offsets == ()
    replay(manager, data(0, 1), data(1, 2, transactional=True))
    manager.take_snapshot()
    manager.take_snapshot()
    assert disk.list_directory(DIRECTORY) == ["00000000000000000002.snapshot"]
    assert manager.unsynced_snapshots == [2]
    again = make_manager(disk)
    again.truncate_and_reload(0, 2, 1000)
    assert again.map_end_offset == 2
    assert again.first_unstable_offset == 1
    assert again.last_entry(1).last_sequence == 0  # type: ignore[union-attr]


def test_31_a_corrupt_snapshot_falls_back_to_the_older_then_to_none() -> None:
    disk = SimFileSystem()
    manager = make_manager(disk)
    replay(manager, data(0, 1))
    manager.take_snapshot()
    replay(manager, data(1, 1, sequence=1))
    manager.take_snapshot()
    disk.overwrite(manager.snapshot_path(2), b"garbage")
    again = make_manager(disk)
    again.truncate_and_reload(0, 5, 1000)
    assert again.map_end_offset == 1
    assert disk.list_directory(DIRECTORY) == ["00000000000000000001.snapshot"]
    disk.overwrite(manager.snapshot_path(1), b"")
    none = make_manager(disk)
    none.truncate_and_reload(0, 5, 1000)
    assert (none.map_end_offset, none.is_empty, none.snapshot_offsets) == (0, True, ())


def test_31_strays_are_removed() -> None:
    disk = SimFileSystem()
    disk.make_directories(DIRECTORY)
    for offset in (0, 5, 10, 12, 15):
        disk.open(DIRECTORY / f"{offset:020d}.snapshot", create=True)
    disk.open(DIRECTORY / "x.snapshot", create=True)
    manager = make_manager(disk)
    manager.remove_stray_snapshots([0, 10])
    assert manager.snapshot_offsets == (0, 10, 15)
    manager.remove_stray_snapshots([0, 10, 20])
    assert manager.snapshot_offsets == (0, 10)


def test_truncation_removes_what_is_outside_and_reload_expires() -> None:
    disk = SimFileSystem()
    manager = make_manager(disk)
    for offset in range(4):
        replay(manager, data(offset, offset))
        manager.take_snapshot()
    manager.truncate_and_reload(1, 3, 1000 + DAY_MS)
    assert manager.snapshot_offsets == (2, 3)
    assert manager.map_end_offset == 3
    assert manager.is_empty
    manager.truncate_and_reload(1, 2, 1000)
    assert sorted(manager.producers) == [0, 1]


def test_idle_producers_expire_unless_a_transaction_is_open() -> None:
    manager = make_manager()
    replay(manager, data(0, 1), data(1, 2, transactional=True))
    assert manager.remove_expired(1000 + DAY_MS - 1) == 0
    assert manager.remove_expired(1000 + DAY_MS) == 1
    assert list(manager.producers) == [2]


def test_a_snapshot_the_disk_refuses_is_only_a_warning() -> None:
    disk = SimFileSystem()
    manager = make_manager(disk)
    replay(manager, data(0, 1))
    disk.budget_bytes = 20
    manager.take_snapshot()
    assert manager.snapshot_offsets == ()
    assert disk.list_directory(DIRECTORY) == []
    disk.heal()
    manager.take_snapshot()
    assert manager.snapshot_offsets == (1,)


def test_a_full_truncation_forgets_everything() -> None:
    disk = SimFileSystem()
    manager = make_manager(disk)
    replay(manager, data(0, 1, transactional=True))
    manager.take_snapshot()
    manager.truncate_fully_and_start_at(100)
    assert (manager.map_end_offset, manager.is_empty, disk.list_directory(DIRECTORY)) == (100, True, [])


def test_the_log_start_raises_the_map_and_settles_transactions() -> None:
    manager = make_manager()
    replay(manager, data(0, 1, transactional=True), marker(1, 1))
    manager.on_log_start_offset_incremented(2)
    assert manager.first_unstable_offset is None
    manager.on_log_start_offset_incremented(50)
    assert manager.map_end_offset == 50


def test_forget_snapshot_leaves_the_file_to_the_caller() -> None:
    disk = SimFileSystem()
    manager = make_manager(disk)
    replay(manager, data(0, 1))
    manager.take_snapshot()
    path = manager.forget_snapshot(1)
    assert path is not None
    assert disk.exists(path)
    assert manager.forget_snapshot(1) is None
    assert manager.latest_snapshot_offset is None


def test_it_remembers_a_bounded_number_of_refused_producers() -> None:
    manager = make_manager()
    for producer_id in range(REFUSED_PRODUCERS_MAX + 1):
        manager.expect_first(data(0, producer_id, sequence=5))
        manager.expect_first(data(0, producer_id, sequence=6))
    expected = [
        manager.prepare_update(producer_id, AppendOrigin.CLIENT).expected_first
        for producer_id in (0, 1, REFUSED_PRODUCERS_MAX)
    ]
    assert expected == [None, (0, 5), (0, 5)]


def test_a_restored_state_is_that_of_the_snapshot() -> None:
    source = make_manager()
    replay(source, data(0, 1), data(1, 2, transactional=True))
    content = encode_snapshot(source.producers.values())
    disk = SimFileSystem()
    manager = make_manager(disk)
    replay(manager, data(0, 9))
    entries = manager.prepare_restore(50, content)
    assert set(manager.producers) == {9}
    manager.truncate_fully_and_start_at(50)
    manager.complete_restore(50, entries, 1000)
    assert (manager.map_end_offset, set(manager.producers), manager.first_unstable_offset) == (50, {1, 2}, 1)
    assert disk.list_directory(DIRECTORY) == ["00000000000000000050.snapshot"]
    assert disk.read(manager.existing_snapshot_path(50)) == content
    assert manager.unsynced_snapshots == [50]
    with pytest.raises(StorageFailure):
        manager.existing_snapshot_path(49)
    with pytest.raises(CorruptMessageError):
        manager.prepare_restore(60, content[:-1])
    assert disk.list_directory(DIRECTORY) == ["00000000000000000050.snapshot"]


def test_a_snapshot_that_the_disk_refused_is_written_later_as_it_was() -> None:
    disk = SimFileSystem()
    manager = make_manager(disk)
    replay(manager, data(0, 1))
    disk.fail(DIRECTORY, "create")
    manager.take_snapshot()
    content = encode_snapshot(manager.producers.values())
    assert manager.snapshot_offsets == ()
    with pytest.raises(StorageFailure):
        manager.write_missed()
    replay(manager, data(1, 2))
    disk.heal()
    manager.take_snapshot()
    assert manager.snapshot_offsets == (2,)
    assert manager.write_missed()
    assert manager.snapshot_offsets == (1, 2)
    assert manager.unsynced_snapshots == [2, 1]
    assert disk.read(manager.existing_snapshot_path(1)) == content
    assert not manager.write_missed()


def test_a_refused_snapshot_goes_with_its_records() -> None:
    disk = SimFileSystem()
    manager = make_manager(disk)
    replay(manager, data(0, 1))
    disk.fail(DIRECTORY, "create")
    manager.take_snapshot()
    disk.heal()
    manager.truncate_fully_and_start_at(0)
    assert not manager.write_missed()
    assert disk.list_directory(DIRECTORY) == []
