"""LogCompaction: one pass over one log; what stays, where it ends, and what it must not touch."""

from collections.abc import Sequence
from typing import Any

import pytest

from broker.common.chance import Chance
from broker.common.errors import StorageFailure
from broker.log.cleaner import log_compaction
from broker.log.cleaner.cleaned_segment import CleanedSegment
from broker.log.cleaner.log_compaction import LogChangedError, UncleanableLogError
from broker.records.compression import CompressionType
from broker.records.record_batch import RecordBatch
from tests.support.builders import parsed
from tests.unit.log.cleaner.cleaner_world import CleanerWorld
from tests.unit.log.log_world import NOW_MS, topic_config


class Nothing(Chance):
    """Of what the device had not yet, nothing is left."""

    def below(self, bound: int) -> int:
        return 0


async def compacted(world: CleanerWorld, entries_max: int = 1000) -> int:
    end_offset = await world.compaction(entries_max).run()
    world.log.clean_offset = end_offset
    return end_offset


def sealed(**config: Any) -> CleanerWorld:
    """a and b twice, in two segments, and an active one."""
    world = CleanerWorld(**config)
    world.put(("a", "1"), ("b", "1"))
    world.put(("a", "2"))
    world.roll()
    world.put(("b", "2"), ("c", "1"))
    world.roll()
    world.put(("a", "3"))
    return world


async def test_36_the_newest_value_of_each_key_stays_where_it_was_and_the_active_segment_is_left_alone() -> None:
    world = sealed()
    assert await compacted(world) == 5
    assert world.entries() == [(2, "a", "2"), (3, "b", "2"), (4, "c", "1"), (5, "a", "3")]
    assert world.log.segments.base_offsets == [0, 5]
    assert (world.log.log_start_offset, world.log.log_end_offset) == (0, 6)
    assert world.put(("d", "1")) == 6


async def test_the_files_are_in_order_after_it_and_the_old_ones_go_later() -> None:
    world = sealed()
    before = world.names()
    await compacted(world)
    assert ".cleaned" not in "".join(world.names())
    assert ".swap" not in "".join(world.names())
    deleted = [path.name for paths, _ in world.housekeeping.deletions for path in paths]
    assert "00000000000000000000.log.deleted" in deleted
    assert "00000000000000000003.log.deleted" in deleted
    assert "00000000000000000003.snapshot" in deleted, "of a segment that is gone"
    assert "00000000000000000003.snapshot" in before
    assert world.log.producer_state_manager.snapshot_offsets == (5,)
    assert world.housekeeping.deletions[-1][1] == world.config.file_delete_delay_ms


@pytest.mark.parametrize("clean", [True, False])
async def test_it_is_all_the_same_after_a_restart(clean: bool) -> None:
    world = sealed()
    await compacted(world)
    await world.checkpoint()
    expected = world.entries()
    world.restart(clean=clean)
    assert world.entries() == expected
    assert (world.log.log_end_offset, world.log.clean_offset) == (6, 5)


async def test_records_without_a_key_go() -> None:
    world = CleanerWorld()
    config = world.config
    world.log.update_config(topic_config())
    world.put((None, "1"), ("a", "1"))
    world.log.update_config(config)
    world.put(("b", "1"))
    world.roll()
    await compacted(world)
    assert world.entries() == [(1, "a", "1"), (2, "b", "1")]


async def test_37_a_tombstone_stays_for_delete_retention_ms_and_its_timestamp_is_kept() -> None:
    world = CleanerWorld(delete_retention_ms=1000)
    world.put(("a", "1"), timestamp=NOW_MS - 70)
    world.put(("b", "1"), ("a", None), timestamp=NOW_MS - 50)
    world.put(("z", "1"))
    world.roll()
    await compacted(world)
    batch = world.batches()[0]
    assert batch.delete_horizon_ms == NOW_MS + 1000
    assert [(record.offset, record.timestamp, record.value) for record in batch.records()] == [
        (1, NOW_MS - 50, b"1"),
        (2, NOW_MS - 50, None),
    ]
    assert batch.is_crc_valid()
    world.clock.ms += 999
    world.put(("y", "1"))
    world.roll()
    await compacted(world)
    assert world.entries() == [(1, "b", "1"), (2, "a", None), (3, "z", "1"), (4, "y", "1")]
    assert world.batches()[0].delete_horizon_ms == NOW_MS + 1000, "the first time counts"
    world.clock.ms += 1
    world.put(("x", "1"))
    world.roll()
    await compacted(world)
    assert world.entries() == [(1, "b", "1"), (3, "z", "1"), (4, "y", "1"), (5, "x", "1")]


async def test_tombstones_may_stay_for_ever() -> None:
    world = CleanerWorld(delete_retention_ms=2**63 - 1)
    world.put(("a", None), timestamp=NOW_MS - 50)
    for _ in range(2):
        world.put(("z", "1"))
        world.roll()
        await compacted(world)
        world.clock.ms += 1 << 50
    assert world.entries()[0] == (0, "a", None)
    assert world.batches()[0].delete_horizon_ms == 2**63 - 1
    assert world.records()[0].timestamp == NOW_MS - 50


async def test_a_timestamp_far_from_the_time_to_go_is_kept() -> None:
    world = CleanerWorld()
    smallest = NOW_MS - (2**63 - 1)  # that a topic takes
    world.put(("a", None), ("b", "1"), timestamp=smallest)
    world.roll()
    await compacted(world)
    assert [record.timestamp for record in world.records()] == [smallest, smallest]


async def test_38_a_batch_that_loses_records_keeps_everything_else() -> None:
    world = CleanerWorld()
    world.put(
        *[(key, "1") for key in "abc"],
        producer_id=9,
        producer_epoch=3,
        base_sequence=7,
        compression=CompressionType.ZSTD,
        timestamp=NOW_MS - 10,
        epoch=4,
    )
    world.put(("c", "2"), ("a", "2"), epoch=4)
    world.roll()
    before = world.batches()
    await compacted(world)
    batch = world.batches()[0]
    for name in (
        "base_offset",
        "last_offset",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "last_sequence",
        "partition_leader_epoch",
        "compression",
        "timestamp_type",
        "max_timestamp",
        "is_transactional",
    ):
        assert getattr(batch, name) == getattr(before[0], name), name
    assert (batch.record_count, batch.partition_leader_epoch) == (1, 4)
    assert [(record.offset, record.key, record.sequence) for record in batch.records()] == [(1, b"b", 8)]
    assert bytes(world.batches()[1].buffer) == bytes(before[1].buffer), "nothing lost, nothing changed"


async def test_log_append_time_survives() -> None:
    world = CleanerWorld(message_timestamp_type="LogAppendTime")
    world.put(("a", "1"), ("b", "1"), timestamp=5)
    world.clock.ms += 100
    world.put(("a", "2"))
    world.roll()
    await compacted(world)
    assert [(record.key, record.timestamp) for record in world.records()] == [(b"b", NOW_MS), (b"a", NOW_MS + 100)]


async def test_38_the_last_batch_of_a_producer_stays_and_its_sequence_survives_a_recovery() -> None:
    world = CleanerWorld()
    world.put(("a", "1"), ("b", "1"), producer_id=9, producer_epoch=0, base_sequence=0)
    world.put(("a", "2"), ("b", "2"))
    world.put(("z", "1"))
    world.roll()
    await compacted(world)
    batch = world.batches()[0]
    assert (batch.record_count, batch.base_offset, batch.last_offset, batch.last_sequence) == (0, 0, 1, 1)
    assert batch.size_bytes == 61
    await world.checkpoint()
    world.restart()
    entry = world.log.producer_state_manager.last_entry(9)
    assert entry is not None
    assert entry.last_sequence == 1
    world.put(("c", "1"), producer_id=9, producer_epoch=0, base_sequence=2)
    world.roll()
    await compacted(world)
    assert [batch.base_offset for batch in world.batches()] == [2, 4, 5], "superseded by the newer one"


async def test_38_the_last_batch_the_device_has_stays_while_its_producer_goes_on() -> None:
    world = CleanerWorld()
    world.put(("a", "1"), producer_id=9, producer_epoch=0, base_sequence=0)
    world.put(("a", "2"))
    world.roll()
    world.log.flush()
    compaction = world.compaction()
    for number in range(10):
        epoch, sequence = divmod(number, 6)
        world.put((f"n{number}", "1"), producer_id=9, producer_epoch=epoch, base_sequence=sequence + 1 - epoch)
    await compaction.run()
    assert world.offsets()[0] == (0, 0)
    await world.checkpoint()
    world.disk.crash(Nothing(1))
    world.restart(close=False)
    entry = world.log.producer_state_manager.last_entry(9)
    assert entry is not None
    assert (entry.producer_epoch, entry.last_sequence) == (0, 0)


async def test_38_the_batch_that_ends_the_compacted_part_stays() -> None:
    world = CleanerWorld(delete_retention_ms=0)
    world.put(("a", "1"))
    world.put(("a", None))
    world.roll()
    await compacted(world)
    world.put(("b", "1"))
    world.put(("b", None))
    world.roll()
    world.clock.ms += 1
    await compacted(world)
    assert world.offsets() == [(3, 3)]
    world.clock.ms += 1
    world.put(("c", "1"))
    world.roll()
    await compacted(world)
    assert world.offsets() == [(4, 4)]


async def test_a_group_that_is_emptied_leaves_an_empty_segment_that_the_next_pass_takes_along() -> None:
    world = CleanerWorld(segment_bytes=150)
    for value in range(6):
        world.put(("a", str(value)))
    world.clock.ms += 50
    assert world.log.segments.base_offsets == [0, 2, 4]
    world.roll()
    await compacted(world)
    assert world.entries() == [(5, "a", "5")]
    assert world.log.segments.base_offsets == [0, 2, 4, 6]
    assert [segment.size_bytes > 0 for segment in world.log.segments] == [False, False, True, False]
    assert world.log.segments.first.largest_timestamp == NOW_MS, "as old as what was in it"
    assert world.log.log_start_offset == 0
    expected = world.entries()
    await world.checkpoint()
    world.restart(clean=True)
    assert world.entries() == expected
    world.put(("b", "1"))
    world.roll()
    await compacted(world)
    assert world.entries() == [(5, "a", "5"), (6, "b", "1")]
    assert world.log.segments.base_offsets == [0, 7]


async def test_a_full_map_ends_the_pass_early_and_the_next_one_goes_on() -> None:
    world = CleanerWorld()
    for value in "12":
        for key in "abcd":
            world.put((key, value))
    world.roll()
    assert await compacted(world, entries_max=3) == 3
    assert world.entries()[0] == (0, "a", "1"), "its newest value is beyond the map"
    assert await compacted(world, entries_max=3) == 6
    assert await compacted(world, entries_max=3) == 8
    assert world.newest() == dict.fromkeys("abcd", "2")
    assert [entry[0] for entry in world.entries()] == [4, 5, 6, 7]


async def test_a_map_that_is_full_within_a_batch_loses_nothing() -> None:
    world = CleanerWorld()
    world.put(("a", "1"), ("b", "1"))
    world.put(("c", "1"), ("a", "2"), ("d", "1"), ("b", "2"))
    world.roll()
    assert await compacted(world, entries_max=3) == 4
    assert world.entries() == [(1, "b", "1"), (2, "c", "1"), (3, "a", "2"), (4, "d", "1"), (5, "b", "2")]
    assert world.target().first_dirty_offset == 4


async def test_36_the_records_of_an_aborted_transaction_go_and_its_marker_when_nothing_is_left() -> None:
    world = CleanerWorld(delete_retention_ms=1000)
    transactional = {"producer_id": 5, "producer_epoch": 0, "is_transactional": True}
    world.put(("a", "1"))
    world.put(("a", "aborted"), base_sequence=0, **transactional)
    world.marker(5, commit=False)
    world.put(("b", "committed"), base_sequence=1, **transactional)
    world.marker(5, commit=True)
    world.roll()
    assert world.log.segments.first.collect_aborted(0, 5).transactions
    await compacted(world)
    assert world.entries() == [(0, "a", "1"), (3, "b", "committed")]
    assert [batch.base_offset for batch in world.batches() if batch.is_control] == [2, 4]
    assert [each.first_offset for each in world.log.segments.first.transaction_index.entries()] == [1]
    world.put(("c", "1"))
    world.roll()
    await compacted(world)
    assert world.log.segments.first.transaction_index.entries() == [], "nothing is left to be skipped"
    marker = next(batch for batch in world.batches() if batch.is_control)
    assert marker.delete_horizon_ms == NOW_MS + 1000
    world.clock.ms += 1000
    world.put(("d", "1"))
    world.roll()
    await compacted(world)
    assert [batch.base_offset for batch in world.batches() if batch.is_control] == [4], "its record is still there"


async def test_the_index_of_aborted_transactions_survives_where_their_last_batch_is_kept() -> None:
    world = CleanerWorld()
    world.put(("a", "1"), producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.marker(5, commit=False)
    world.put(("b", "1"))
    world.roll()
    await compacted(world)
    world.put(("c", "1"))
    world.roll()
    await compacted(world)
    batch = world.batches()[0]
    assert (batch.base_offset, batch.record_count) == (0, 0), "its sequence is the producer's last"
    read = world.log.read(0, 1 << 20, world.log.log_end_offset, min_one_batch=True, with_aborted=True)
    assert read.aborted_transactions is not None
    assert [each.first_offset for each in read.aborted_transactions] == [0]


async def test_segments_that_fit_together_become_one() -> None:
    world = CleanerWorld(segment_bytes=400)
    for number in range(24):
        world.put((f"k{number % 4}", str(number)))
    world.roll()
    before = len(world.log.segments)
    await compacted(world)
    world.put(("x", "1"))
    world.roll()
    await compacted(world)
    assert before > 4
    assert len(world.log.segments) == 2
    assert [entry[0] for entry in world.entries()] == [20, 21, 22, 23, 24]


async def test_readers_go_on_from_any_offset_in_a_hole() -> None:
    world = CleanerWorld(segment_bytes=300)
    for number in range(30):
        world.put((f"k{number % 3}" if number % 7 else f"once{number}", str(number)))
    world.roll()
    await compacted(world)
    offsets = [entry[0] for entry in world.entries()]
    assert len(offsets) < 10
    for start in range(31):
        found = [record.offset for batch in world.batches(start) for record in batch.records()]
        assert found == [offset for offset in offsets if offset >= start], start
    by_time = world.log.offset_for_timestamp(NOW_MS)
    assert by_time is not None
    assert by_time.offset == offsets[0]
    newest = world.log.offset_of_max_timestamp()
    assert newest is not None
    assert newest.offset in offsets


async def test_a_follower_takes_a_compacted_log_with_its_holes_and_is_cut_like_another() -> None:
    world = sealed()
    await compacted(world)
    follower = CleanerWorld()
    for batch in world.batches():
        follower.log.append_as_follower(bytes(batch.buffer), 0)
    assert follower.entries() == world.entries()
    assert follower.log.log_end_offset == world.log.log_end_offset
    world.log.truncate_to(1)
    assert world.log.log_end_offset == 1, "in a hole, where no batch is cut"
    assert world.log.clean_offset == 1
    assert world.entries() == []
    assert world.put(("n", "1"), epoch=1) == 1


async def test_reads_under_way_go_on_in_the_old_file() -> None:
    world = sealed()
    answer = world.log.read(0, 1 << 20, 6, min_one_batch=True)
    assert answer.file_slice is not None
    await compacted(world)
    data = answer.file_slice.file.read_at(answer.file_slice.position, answer.file_slice.size)
    assert RecordBatch.parse(data).record_count == 2


@pytest.mark.parametrize("codec", list(CompressionType))
async def test_every_codec_also_in_large_batches(codec: CompressionType) -> None:
    world = CleanerWorld()
    world.put(*[(f"key{number}", str(number) * 30) for number in range(600)], compression=codec)
    world.put(*[(f"key{number}", None) for number in range(0, 600, 2)])
    world.roll()
    await compacted(world)
    assert world.newest() == {f"key{number}": str(number) * 30 for number in range(1, 600, 2)}
    assert world.batches()[0].compression is codec


async def test_a_large_output_is_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_compaction, "WRITE_BYTES", 200)
    world = CleanerWorld(index_interval_bytes=100)
    for number in range(20):
        world.put((f"k{number}", "v" * 30))
    world.put(("k0", "2"))
    world.roll()
    await compacted(world)
    assert len(world.entries()) == 20
    segment = world.log.segments.first
    positions = {each.position: each.last_offset for each in segment.records.batch_positions(0)}
    assert len(segment.offset_index.entries()) > 5
    assert all(positions[entry.position] == entry.offset for entry in segment.offset_index.entries())
    assert segment.time_index.entries()


async def test_what_waits_to_be_written_keeps_nothing_else_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    write = CleanedSegment.write

    async def weighing(self: CleanedSegment, batches: Sequence[RecordBatch]) -> None:
        views = [
            batch.buffer if isinstance(batch.buffer, memoryview) else memoryview(batch.buffer) for batch in batches
        ]
        kept.append(sum(len(view.obj) for view in views))  # type: ignore[arg-type]
        await write(self, batches)

    monkeypatch.setattr(CleanedSegment, "write", weighing)
    world = CleanerWorld()
    for number in range(20):
        world.put((f"k{number}", "1"))
        world.put(("a", "1" * 1000))
    world.roll()
    await compacted(world)
    assert kept == [world.log.segments.first.size_bytes]


# -- what ends a pass


async def test_a_log_that_is_cut_meanwhile_keeps_what_it_has() -> None:
    world = sealed()
    compaction = world.compaction()
    world.log.truncate_to(4)
    with pytest.raises(LogChangedError):
        await compaction.run()
    assert world.entries()[0] == (0, "a", "1")


async def test_a_log_that_is_closed_or_not_to_be_compacted_any_more_is_left_alone() -> None:
    world = sealed()
    compaction = world.compaction()
    world.log.close()
    with pytest.raises(LogChangedError):
        await compaction.run()
    world = sealed()
    compaction = world.compaction()
    world.log.update_config(topic_config())
    with pytest.raises(LogChangedError):
        await compaction.run()


async def test_a_segment_that_goes_meanwhile_ends_it_and_leaves_no_file() -> None:
    world = sealed()
    compaction = world.compaction()
    executor = world.executor
    run = executor.run
    done = 0

    async def deleting(function: Any, *arguments: Any, **keywords: Any) -> Any:
        nonlocal done
        done += 1
        result = await run(function, *arguments, **keywords)
        if done == 4:
            world.log.maybe_increment_log_start_offset(3, "test")
            world.log.delete_old_segments()
        return result

    executor.run = deleting  # type: ignore[method-assign]
    with pytest.raises(LogChangedError):
        await compaction.run()
    assert not world.files(".cleaned", ".swap")
    assert world.entries() == [(3, "b", "2"), (4, "c", "1"), (5, "a", "3")]


async def test_a_log_whose_every_closed_segment_goes_meanwhile_is_looked_at_again() -> None:
    world = sealed()
    compaction = world.compaction()
    world.log.maybe_increment_log_start_offset(5, "test")
    assert world.log.delete_old_segments() == 2
    with pytest.raises(LogChangedError):
        await compaction.run()
    assert world.entries() == [(5, "a", "3")]


async def test_a_damaged_batch_makes_a_log_uncleanable() -> None:
    world = sealed()
    path = world.path(0, ".log")
    content = bytearray(world.disk.read(path))
    content[-1] ^= 1
    world.disk.overwrite(path, bytes(content))
    with pytest.raises(UncleanableLogError, match="crc"):
        await world.compaction().run()
    assert not world.files(".cleaned")


async def test_offsets_that_go_back_make_a_log_uncleanable() -> None:
    world = sealed()
    path = world.path(3, ".log")
    content = bytearray(world.disk.read(path))
    content[0:8] = (1).to_bytes(8, "big")
    world.disk.overwrite(path, bytes(content))
    with pytest.raises(UncleanableLogError, match="at 3"):
        await world.compaction().run()


async def test_records_whose_offsets_go_back_make_a_log_uncleanable() -> None:
    world = sealed()
    batch = RecordBatch.parse(world.batch(2))
    (result,) = world.log.append_as_leader([batch], 0)
    assert result.error is None
    content = bytearray(world.disk.read(world.path(5, ".log")))
    at = len(content) - batch.size_bytes
    view = bytearray(content[at:])
    second = view.rindex(b"\x02\x02k")  # offset delta 1, key length 1
    view[second] = 0
    fixed = parsed(view)[0]
    fixed.set_max_timestamp(fixed.timestamp_type, fixed.max_timestamp)
    content[at:] = fixed.buffer
    world.disk.overwrite(world.path(5, ".log"), bytes(content))
    world.log.update_high_watermark(world.log.log_end_offset)
    world.roll()
    with pytest.raises(UncleanableLogError, match="out of order"):
        await world.compaction().run()


async def test_a_full_disk_ends_it_without_a_trace() -> None:
    world = sealed()
    expected = world.entries()
    world.disk.budget_bytes = world.disk.used_bytes() + 10
    with pytest.raises(StorageFailure):
        await world.compaction().run()
    assert world.entries() == expected
    assert not world.files(".cleaned")
    world.disk.heal()
    assert await compacted(world) == 5


async def test_an_unfinished_swap_makes_a_log_uncleanable_and_the_next_start_finishes_it() -> None:
    world = sealed()
    await world.checkpoint()
    world.disk.fail(world.path(3, ".log"), "rename")
    with pytest.raises(UncleanableLogError, match="renamed"):
        await world.compaction().run()
    expected = [(2, "a", "2"), (3, "b", "2"), (4, "c", "1"), (5, "a", "3")]
    assert world.entries() == expected, "the log has the new one"
    for cut in (world.log.truncate_to, world.log.truncate_fully_and_start_at):
        with pytest.raises(StorageFailure, match="renamed"):
            cut(2)  # or the old one of what is cut would follow
    assert world.entries() == expected
    world.log.clean_offset = 0
    await world.checkpoint()
    world.disk.heal()
    world.restart()
    assert world.entries() == expected
    assert not world.files(".swap")
    world.log.truncate_to(4)
    assert world.entries() == expected[:1], "the whole batch"
