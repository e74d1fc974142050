"""UnifiedLog: watermarks, reads, transactions, truncation."""

import pytest

from broker.common.errors import ErrorCode, OffsetOutOfRangeError, StorageFailure
from broker.log.file_records import read
from broker.log.transaction_index import AbortedTransaction
from broker.log.unified_log import UnifiedLog
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import batches
from tests.support.builders import batch, parsed
from tests.unit.log.log_world import NOW_MS, LogWorld, topic_config


def transactional(world: LogWorld, producer_id: int, sequence: int, **keywords: object) -> int:
    return world.append(
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
        **keywords,  # type: ignore[arg-type]
    )


def test_appends_are_read_back() -> None:
    world = LogWorld()
    assert world.append(3) == 0
    assert world.append(2) == 3
    assert world.log.log_end_offset == 5
    assert world.offsets() == [(0, 2), (3, 4)]
    assert world.offsets(4) == [(3, 4)]
    assert world.log.size_bytes == world.disk.size(world.path(0, ".log"))


def test_26_follower_reads_beyond_the_high_watermark_consumers_do_not() -> None:
    world = LogWorld()
    world.append(3)
    world.append(2, replicated=False)
    log = world.log
    assert log.high_watermark == 3
    consumer = log.read(0, 10_000, log.high_watermark, min_one_batch=True)
    assert consumer.file_slice is not None
    assert [batch.base_offset for batch in batches(bytes(read(consumer.file_slice)))] == [0]
    assert log.read(3, 10_000, log.high_watermark, min_one_batch=True).file_slice is None
    assert log.read(4, 10_000, log.high_watermark, min_one_batch=True).file_slice is None
    assert log.read(5, 10_000, log.log_end_offset, min_one_batch=True).file_slice is None
    with pytest.raises(OffsetOutOfRangeError):
        log.read(6, 10_000, log.high_watermark, min_one_batch=True)


def test_reads_go_over_segments_and_stop_at_their_ends() -> None:
    world = LogWorld(segment_bytes=200)
    for _ in range(6):
        world.append()
    assert world.log.segment_count == 3
    assert world.offsets() == [(number, number) for number in range(6)]
    found = world.log.read(1, 10_000, 6, min_one_batch=True)
    assert found.size_bytes == 79
    assert world.log.read(0, 10_000, 1, min_one_batch=True).size_bytes == 79
    assert world.log.read(0, 10_000, 2, min_one_batch=True).size_bytes == 158


def test_the_first_batch_comes_whole_or_is_announced() -> None:
    world = LogWorld()
    world.append(size=1000)
    assert world.log.read(0, 1, 1, min_one_batch=True).size_bytes == world.log.size_bytes
    answer = world.log.read(0, 1, 1, min_one_batch=False)
    assert (answer.size_bytes, answer.first_entry_incomplete) == (0, True)


def test_19_the_high_watermark_is_held_between_start_and_end() -> None:
    world = LogWorld()
    world.append(5, replicated=False)
    log = world.log
    assert log.update_high_watermark(99) == 5
    assert log.update_high_watermark(3) == 3
    log.maybe_increment_log_start_offset(2, "test")
    assert log.update_high_watermark(0) == 2


def test_29_the_last_stable_offset_waits_for_the_marker() -> None:
    world = LogWorld()
    world.append()
    transactional(world, 7, 0)
    world.append(2)
    log = world.log
    assert (log.high_watermark, log.last_stable_offset) == (4, 1)
    world.marker(7, commit=True, replicated=False)
    assert log.last_stable_offset == 1
    log.update_high_watermark(4)
    assert log.last_stable_offset == 1
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5


@pytest.mark.parametrize("first_to_end", [7, 8])
def test_29_interleaved_transactions_end_in_both_orders(first_to_end: int) -> None:
    world = LogWorld()
    transactional(world, 7, 0)
    transactional(world, 8, 0)
    world.marker(first_to_end, commit=True)
    assert world.log.last_stable_offset == (1 if first_to_end == 7 else 0)
    world.marker(15 - first_to_end, commit=True)
    assert world.log.last_stable_offset == 4


def test_30_aborted_transactions_of_a_read_over_segments() -> None:
    world = LogWorld(segment_bytes=250)
    transactional(world, 7, 0)  # 0
    transactional(world, 8, 0)  # 1
    world.marker(7, commit=False)  # 2
    world.append()  # 3
    transactional(world, 9, 0)  # 4
    world.marker(8, commit=False)  # 5
    world.marker(9, commit=True)  # 6
    transactional(world, 7, 1)  # 7
    world.marker(7, commit=False)  # 8
    log = world.log
    assert log.segment_count > 1
    seven = AbortedTransaction(7, 0, 2, 1)
    eight = AbortedTransaction(8, 1, 5, 4)
    seven_again = AbortedTransaction(7, 7, 8, 9)
    assert list(log.local_log.collect_aborted(0, 9)) == [seven, eight, seven_again]
    assert list(log.local_log.collect_aborted(3, 9)) == [eight, seven_again]
    assert list(log.local_log.collect_aborted(0, 1)) == [seven]
    answer = log.read(0, 10_000, log.last_stable_offset, min_one_batch=True, with_aborted=True)
    assert answer.aborted_transactions is not None
    assert seven in answer.aborted_transactions
    assert eight in answer.aborted_transactions
    assert log.read(0, 10_000, 9, min_one_batch=True).aborted_transactions is None
    assert log.read(9, 10_000, 9, min_one_batch=True, with_aborted=True).aborted_transactions == ()


def test_28_a_marker_without_data_writes_no_index_entry() -> None:
    world = LogWorld()
    world.marker(7, commit=False)
    assert world.log.last_stable_offset == 1
    assert not world.disk.exists(world.path(0, ".txnindex"))
    assert world.log.active_producers()[0] == (7, 0, -1, NOW_MS, 0, -1)


def test_active_producers() -> None:
    world = LogWorld()
    transactional(world, 7, 0)
    world.append(2, producer_id=8, producer_epoch=1, base_sequence=10)
    assert world.log.active_producers() == [(7, 0, 0, NOW_MS, -1, 0), (8, 1, 11, NOW_MS, -1, -1)]
    assert world.log.producer_count == 2
    assert world.log.remove_expired_producers(NOW_MS + 86_400_000) == 1


def test_13_offsets_by_timestamp() -> None:
    world = LogWorld(segment_bytes=200, index_interval_bytes=0)
    for number in range(6):
        world.append(timestamp=NOW_MS + number * 10)
    log = world.log
    assert log.offset_for_timestamp(NOW_MS - 5) == (NOW_MS, 0, 0)
    assert log.offset_for_timestamp(NOW_MS + 31) == (NOW_MS + 40, 4, 0)
    assert log.offset_for_timestamp(NOW_MS + 51) is None
    assert log.offset_of_max_timestamp() == (NOW_MS + 50, 5, 0)
    log.maybe_increment_log_start_offset(2, "test")
    assert log.offset_for_timestamp(NOW_MS) == (NOW_MS + 20, 2, 0)
    assert LogWorld().log.offset_of_max_timestamp() is None


def test_the_largest_timestamp_need_not_be_the_last() -> None:
    world = LogWorld()
    world.append(timestamp=NOW_MS + 100)
    world.append(timestamp=NOW_MS)
    assert world.log.offset_of_max_timestamp() == (NOW_MS + 100, 0, 0)


def test_48_epochs_are_remembered_where_they_began() -> None:
    world = LogWorld()
    world.append(2, epoch=3)
    world.append(2, epoch=3)
    world.append(1, epoch=5)
    log = world.log
    assert log.latest_epoch == 5
    assert log.end_offset_for_epoch(5) == (5, 5)
    assert log.end_offset_for_epoch(4) == (3, 4)
    assert log.end_offset_for_epoch(6) == (-1, -1)
    log.maybe_assign_epoch_start_offset(7, 5)
    assert log.end_offset_for_epoch(5) == (5, 5)
    assert [batch.partition_leader_epoch for batch in world.batches()] == [3, 3, 5]


def test_34_the_log_start_moves_up_to_the_high_watermark() -> None:
    world = LogWorld()
    world.append(3, epoch=1)
    world.append(3, epoch=2)
    log = world.log
    assert not log.maybe_increment_log_start_offset(0, "test")
    assert log.maybe_increment_log_start_offset(4, "test")
    assert not log.maybe_increment_log_start_offset(3, "test")
    assert log.log_start_offset == 4
    assert log.leader_epochs.entries == ((2, 4),)
    with pytest.raises(OffsetOutOfRangeError):
        log.maybe_increment_log_start_offset(7, "test")
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3, 100, 6, min_one_batch=True)
    assert world.offsets() == [(3, 5)]


def test_33_truncation_to_the_middle_of_a_batch() -> None:
    """The log ends with its last batch, as it would after a restart: an offset within the batch that went has no record
    here, and the next one must not leave a hole below it."""
    world = LogWorld(index_interval_bytes=0)
    world.append(3, epoch=1, timestamp=NOW_MS)
    world.append(3, epoch=2, timestamp=NOW_MS + 10)
    world.append(3, epoch=3, timestamp=NOW_MS + 20)
    log = world.log
    assert log.truncate_to(4)
    assert (log.log_end_offset, log.high_watermark, log.latest_epoch) == (3, 3, 1)
    assert world.offsets() == [(0, 2)]
    assert log.offset_for_timestamp(NOW_MS + 1) is None
    assert world.append(1, epoch=4) == 3
    assert log.leader_epochs.entries == ((1, 0), (4, 3))


def test_a_truncation_within_the_batch_around_the_log_start_keeps_the_start() -> None:
    """What was deleted stays deleted: the log is empty, and does not begin below its start again."""
    world = LogWorld()
    world.append(3, epoch=1)
    world.append(4, epoch=1)
    log = world.log
    log.update_high_watermark(7)
    log.maybe_increment_log_start_offset(5, "test")
    assert log.truncate_to(6)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 5, 5)
    assert log.latest_epoch is None
    assert world.append(2, epoch=3) == 5
    assert world.offsets() == [(5, 6)]


def test_a_truncation_below_the_log_start_within_a_batch_begins_there() -> None:
    world = LogWorld()
    world.append(3, epoch=1)
    world.append(4, epoch=1)
    log = world.log
    log.update_high_watermark(7)
    log.maybe_increment_log_start_offset(5, "test")
    assert log.truncate_to(4)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (4, 4, 4)


def test_a_truncation_between_batches_ends_where_it_was_asked_to() -> None:
    """Compaction leaves holes: the leader's epoch ends there, and so does ours."""
    world = LogWorld()
    world.append(3, epoch=1)
    world.log.append_as_follower(bytes(batch("a", "b", base_offset=8, partition_leader_epoch=1)), 1)
    assert world.log.truncate_to(6)
    assert world.log.log_end_offset == 6
    assert world.offsets() == [(0, 2)]


def test_33_truncation_over_segments_and_producers() -> None:
    world = LogWorld(segment_bytes=250)
    for number in range(9):
        world.append(producer_id=1, producer_epoch=0, base_sequence=number)
    assert world.log.segments.base_offsets == [0, 3, 6]
    assert world.log.truncate_to(4)
    assert world.log.segments.base_offsets == [0, 3]
    assert not world.log.segments.active.is_sealed
    assert world.log.producer_state_manager.snapshot_offsets == (3,)
    deleted = [path.name for paths, _ in world.housekeeping.deletions for path in paths]
    assert deleted == ["00000000000000000006.log.deleted"]  # its indexes had no file yet
    assert world.housekeeping.checkpoints == 1
    assert world.append(producer_id=1, producer_epoch=0, base_sequence=4) == 4
    assert world.offsets() == [(number, number) for number in range(5)]


def test_33_truncation_cuts_the_transaction_index() -> None:
    world = LogWorld()
    transactional(world, 7, 0)
    world.marker(7, commit=False)
    transactional(world, 7, 1)
    world.marker(7, commit=False)
    world.log.truncate_to(3)
    assert world.log.local_log.collect_aborted(0, 9) == [AbortedTransaction(7, 0, 1, 2)]
    assert world.log.last_stable_offset == 2


def test_truncation_at_or_above_the_end_drops_epochs_only() -> None:
    world = LogWorld()
    world.append(3, epoch=1)
    world.log.maybe_assign_epoch_start_offset(9, 3)
    assert not world.log.truncate_to(3)
    assert world.log.latest_epoch == 1
    assert world.append(1, epoch=2) == 3
    assert world.log.latest_epoch == 2


def test_truncation_below_everything_starts_anew() -> None:
    world = LogWorld(segment_bytes=200)
    for _ in range(6):
        world.append(epoch=1)
    world.log.delete_segments_below(4, "test")
    assert world.log.segments.first.base_offset == 4
    assert world.log.truncate_to(1)
    log = world.log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.latest_epoch) == (1, 1, 1, None)
    assert log.segments.base_offsets == [1]
    assert world.append() == 1


def test_a_full_truncation_at_an_existing_base() -> None:
    world = LogWorld(segment_bytes=200)
    for _ in range(6):
        world.append()
    world.log.truncate_fully_and_start_at(2)
    assert world.log.segments.base_offsets == [2]
    assert world.log.size_bytes == 0
    assert world.append() == 2
    assert world.offsets() == [(2, 2)]
    world.log.truncate_fully_and_start_at(100, 90)
    assert (world.log.log_start_offset, world.log.log_end_offset) == (90, 100)


def test_a_roll_that_the_disk_refuses_changes_nothing() -> None:
    world = LogWorld()
    world.append()
    world.disk.fail(world.directory, "create")
    with pytest.raises(StorageFailure):
        world.log.roll()
    assert world.log.segments.base_offsets == [0]
    world.disk.heal()
    world.log.roll()
    assert world.log.segments.base_offsets == [0, 1]
    assert world.log.roll() is world.log.segments.active
    assert world.housekeeping.flushes == [world.log, world.log]


def test_update_config_is_seen_by_the_next_append() -> None:
    world = LogWorld()
    world.append(size=500)
    world.log.update_config(topic_config(segment_bytes=600))
    world.append(size=500)
    assert world.log.segments.base_offsets == [0, 1]


def test_a_snapshot_that_cannot_be_written_does_not_lose_the_append() -> None:
    world = LogWorld(segment_bytes=200)
    world.append(producer_id=1, producer_epoch=0, base_sequence=0)
    world.append(producer_id=1, producer_epoch=0, base_sequence=1)
    world.disk.fail(world.path(2, ".snapshot"), "open")
    assert world.append(producer_id=1, producer_epoch=0, base_sequence=2) == 2
    assert world.log.segments.base_offsets == [0, 2]
    assert world.log.producer_state_manager.snapshot_offsets == ()


def test_renaming_moves_everything() -> None:
    world = LogWorld(segment_bytes=200)
    for number in range(5):
        world.append(producer_id=1, producer_epoch=0, base_sequence=number)
    target = world.directory.with_name("t-1")
    world.disk.rename(world.directory, target)
    world.log.close()
    world.log.renamed_to(target)
    assert world.log.directory == target
    assert world.offsets() == [(number, number) for number in range(5)]
    world.log.leader_epochs.write()
    assert world.disk.exists(target / "leader-epoch-checkpoint")
    assert world.log.producer_state_manager.snapshot_path(2).parent == target


def test_descriptors_are_given_back() -> None:
    world = LogWorld(segment_bytes=200)
    for _ in range(5):
        world.append()
    assert world.disk.open_files > 0
    world.log.close()
    assert world.disk.open_files == 0
    assert world.log.is_closed
    assert isinstance(world.log, UnifiedLog)


@pytest.mark.parametrize(("codec", "quick", "thorough"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", 1, 19)])
def test_the_level_of_a_codec_is_the_topics(codec: str, quick: int, thorough: int) -> None:
    text = b" ".join(b"%d:%d" % (number, number % 7) for number in range(9000))
    sizes = []
    for level in (quick, thorough):
        world = LogWorld(compression_type=codec, **{f"compression_{codec}_level": level})
        (result,) = world.log.append_as_leader(parsed(records_batch((NOW_MS, b"k", text))), 0)
        assert result.error is None
        sizes.append(world.log.size_bytes)
    assert sizes[0] > sizes[1]


def test_segments_of_compacted_topics_are_closed_by_their_compaction_lag() -> None:
    world = LogWorld(cleanup_policy="compact", max_compaction_lag_ms=1000)
    for age_ms in (0, 1000, 1001):
        world.log.append_as_leader(parsed(records_batch((NOW_MS + age_ms, b"k", b"v"))), 0)
    assert world.log.segments.base_offsets == [0, 2]


def test_a_timestamp_may_be_as_far_ahead_as_the_topic_says() -> None:
    world = LogWorld(message_timestamp_after_max_ms=1000)
    results = [
        world.log.append_as_leader(parsed(records_batch((NOW_MS + ahead_ms, b"k", b"v"))), 0)[0]
        for ahead_ms in (1000, 1001)
    ]
    assert [result.error and result.error.code for result in results] == [None, ErrorCode.invalid_timestamp]


def test_deleted_files_stay_as_long_as_the_topic_says() -> None:
    world = LogWorld(file_delete_delay_ms=77, segment_bytes=200, retention_bytes=1)
    for _ in range(5):
        world.append()
    assert world.log.delete_old_segments() > 0
    assert {delay_ms for _, delay_ms in world.housekeeping.deletions} == {77}


def test_truncations_are_counted_and_only_they() -> None:
    """Whoever read bytes before one must not take them for those of after it."""
    world = LogWorld()
    for _ in range(4):
        world.append()
    assert not world.log.truncate_to(4)
    assert world.log.truncation_count == 0
    world.log.truncate_to(2)
    world.append(3)  # the log ends where it ended, with other records
    assert (world.log.truncation_count, world.log.log_end_offset) == (1, 5)
    world.log.truncate_fully_and_start_at(5)
    assert world.log.truncation_count == 2
