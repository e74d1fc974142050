"""FollowerAppend: the leader's bytes, verbatim."""

import pytest

from broker.common.errors import CorruptMessageError, RecordListTooLargeError, StorageFailure
from broker.log.log_append import LogAppendInfo, OffsetsOutOfOrderError, UnexpectedAppendOffsetError
from broker.log.transaction_index import AbortedTransaction
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from tests.unit.log.log_world import NOW_MS, LogWorld


def leader_bytes(world: LogWorld, *offsets_and_epochs: tuple[int, int]) -> bytes:
    return b"".join(
        bytes(world.batch(2, base_offset=offset, partition_leader_epoch=epoch)) for offset, epoch in offsets_and_epochs
    )


def test_32_bytes_are_kept_and_epochs_follow_the_batches() -> None:
    world = LogWorld(segment_bytes=300)
    records = leader_bytes(world, (0, 1), (2, 1), (4, 3), (6, 3))
    info = world.log.append_as_follower(records + records[:30], 3)
    assert info == LogAppendInfo(0, 7, 3, 8, len(records))
    assert b"".join(bytes(batch.buffer) for batch in world.batches()) == records
    assert world.log.leader_epochs.entries == ((1, 0), (3, 4))
    assert world.log.segment_count > 1
    assert world.log.append_as_follower(b"", 3) == LogAppendInfo()


def test_32_gaps_are_allowed_regressions_are_not() -> None:
    world = LogWorld()
    world.log.append_as_follower(leader_bytes(world, (0, 0), (10, 0)), 0)
    assert world.offsets() == [(0, 1), (10, 11)]
    with pytest.raises(OffsetsOutOfOrderError):
        world.log.append_as_follower(leader_bytes(world, (14, 0), (12, 0)), 0)
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        world.log.append_as_follower(leader_bytes(world, (11, 0)), 0)
    assert (caught.value.first_offset, caught.value.last_offset) == (11, 12)
    assert world.log.log_end_offset == 12


def test_a_hole_is_part_of_a_segment_so_that_a_start_does_not_take_it_for_lost_records() -> None:
    world = LogWorld(segment_bytes=200)
    for offset in (0, 10, 20, 30):
        world.log.append_as_follower(leader_bytes(world, (offset, 0)), 0)
    assert world.log.segments.base_offsets == [0, 12], "each where the one before ends"
    assert [batch.base_offset for batch in world.batches()] == [0, 10, 20, 30]
    world.reload()
    assert world.log.log_end_offset == 32
    assert [batch.base_offset for batch in world.batches(12)] == [20, 30]


def test_a_hole_too_large_for_an_index_is_between_segments() -> None:
    world = LogWorld()
    world.log.append_as_follower(leader_bytes(world, (0, 0)), 0)
    far = 2**31 + 5
    world.log.append_as_follower(leader_bytes(world, (far, 0)), 0)
    assert world.log.segments.base_offsets == [0, far]


def test_corrupt_and_oversized_batches_are_refused_whole() -> None:
    world = LogWorld(segment_bytes=300)
    records = bytearray(leader_bytes(world, (0, 0), (2, 0)))
    records[-1] ^= 1
    with pytest.raises(CorruptMessageError):
        world.log.append_as_follower(records, 0)
    with pytest.raises(RecordListTooLargeError):
        world.log.append_as_follower(bytes(world.batch(size=400)), 0)
    assert world.log.log_end_offset == 0


def test_max_message_bytes_is_the_leaders_business() -> None:
    world = LogWorld(max_message_bytes=100)
    world.log.append_as_follower(bytes(world.batch(size=1000, partition_leader_epoch=0)), 0)
    assert world.log.log_end_offset == 1


def test_batches_of_a_leader_we_do_not_follow_yet_are_left_out() -> None:
    world = LogWorld()
    assert world.log.append_as_follower(leader_bytes(world, (0, 1), (2, 2), (4, 2)), 1).last_offset == 1
    assert world.log.append_as_follower(leader_bytes(world, (2, 2)), 1) == LogAppendInfo()


def test_28_transactions_are_followed_without_checks() -> None:
    world = LogWorld()

    def data(offset: int, sequence: int) -> bytes:
        return bytes(
            world.batch(
                base_offset=offset,
                producer_id=7,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
                partition_leader_epoch=0,
            )
        )

    def marker(offset: int, coordinator_epoch: int) -> bytes:
        return bytes(
            end_transaction_marker_batch(
                EndTransactionMarker(ControlRecordType.ABORT, coordinator_epoch),
                producer_id=7,
                producer_epoch=0,
                timestamp=NOW_MS,
                base_offset=offset,
                partition_leader_epoch=0,
            )
        )

    world.log.append_as_follower(data(0, 5) + marker(1, 9) + data(2, 77) + marker(3, 4), 0)
    assert world.log.local_log.collect_aborted(0, 4) == [
        AbortedTransaction(7, 0, 1, 2),
        AbortedTransaction(7, 2, 3, 4),
    ]
    assert world.log.last_stable_offset == 0
    world.log.update_high_watermark(4)
    assert world.log.last_stable_offset == 4


def test_a_full_disk_keeps_a_prefix() -> None:
    world = LogWorld(segment_bytes=250)
    world.disk.fail(world.path(4, ".log"), "open")
    with pytest.raises(StorageFailure):
        world.log.append_as_follower(leader_bytes(world, (0, 0), (2, 0), (4, 0)), 0)
    assert world.offsets() == [(0, 1), (2, 3)]
    assert world.metrics.storage_failures.value == 1


def test_flush_messages_is_kept_by_followers_too() -> None:
    world = LogWorld(flush_messages=3)
    world.log.append_as_follower(leader_bytes(world, (0, 0)), 0)
    assert world.log.unflushed_messages == 2
    world.log.append_as_follower(leader_bytes(world, (2, 0)), 0)
    assert world.log.unflushed_messages == 0
