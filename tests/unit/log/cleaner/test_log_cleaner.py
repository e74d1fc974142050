"""LogCleaner: which log it takes, what it writes down, and what becomes of those it cannot compact."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC, TopicPartition
from broker.config.config_holder import ConfigHolder
from broker.log.cleaner.offset_map import OffsetMap
from broker.log.file_records import read
from broker.log.log_manager import LogManager
from broker.log.unified_log import UnifiedLog
from broker.metrics.log_metrics import LogMetrics
from broker.metrics.registry import MetricsRegistry
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import batches
from tests.support.builders import parsed
from tests.support.sim_disk import SimFileSystem
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.log.cleaner.cleaner_world import CleanerWorld
from tests.unit.log.log_world import LOG_DIRECTORY, NOW_MS, SettableClock, broker_config, topic_config

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
CHECKPOINT = LOG_DIRECTORY / "cleaner-offset-checkpoint"


class Node:
    """A broker's logs, compacted ones, with the cleaner they have."""

    def __init__(self, topic: dict[str, object] | None = None, **properties: object) -> None:
        self.holder = ConfigHolder(broker_config(**properties))
        self.clock = SettableClock()
        self.disk = SimFileSystem(self.clock.now_ms)
        self.disk.make_directories(LOG_DIRECTORY)
        self.disk.sync_everything()
        self.config = topic_config(**{"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, **(topic or {})})
        self.manager = self.make()

    def make(self) -> LogManager:
        self.metrics = LogMetrics(MetricsRegistry())
        return LogManager(
            self.holder,
            clock=self.clock,
            file_system=self.disk,
            disk=InlineDiskExecutor(),
            chance=Chance(3),
            metrics=self.metrics,
            topic_config=lambda topic: self.config,
        )

    async def start(self) -> LogManager:
        self.manager = self.make()
        await self.manager.start()
        return self.manager

    def log(self, topic_partition: TopicPartition = A) -> UnifiedLog:
        return self.manager.get_or_create(topic_partition, UUID(int=hash(topic_partition) & 0xFFFF | 1))

    def fill(self, topic_partition: TopicPartition = A, batches: int = 3) -> UnifiedLog:
        """A closed segment in which each batch but the last is superseded."""
        log = self.log(topic_partition)
        for _ in range(batches):
            (result,) = log.append_as_leader(parsed(records_batch((NOW_MS, b"k", b"v" * 20))), 0)
            assert result.error is None
        log.update_high_watermark(log.log_end_offset)
        log.roll()
        return log

    def damage(self, log: UnifiedLog) -> None:
        path = log.segments.first.records.path
        content = bytearray(self.disk.read(path))
        content[-1] ^= 1
        self.disk.overwrite(path, bytes(content))

    async def clean(self) -> bool:
        return await self.manager.cleaner.clean_filthiest()


async def test_the_log_with_the_largest_dirty_part_comes_first() -> None:
    node = Node()
    first, second = node.fill(A), node.fill(B)
    assert await node.clean()
    assert (first.clean_offset, second.clean_offset) == (3, None)
    node.fill(A)
    assert await node.clean()
    assert (first.clean_offset, second.clean_offset) == (3, 3), "all of it was dirty"
    assert await node.clean()
    assert (first.clean_offset, second.clean_offset) == (6, 3)
    assert not await node.clean()
    assert node.metrics.cleaner.passes.value == 3


async def test_what_is_not_to_be_compacted_is_left_alone() -> None:
    node = Node()
    offsets = node.fill(TopicPartition(CONSUMER_OFFSETS_TOPIC, 0))
    deleting = node.fill(A)
    deleting.update_config(topic_config())
    unknown = node.fill(B)
    unknown.are_settings_known = False
    closed = node.fill(TopicPartition("c", 0))
    closed.close()
    assert not await node.clean()
    assert {log.clean_offset for log in (offsets, deleting, unknown, closed)} == {None}
    unknown.are_settings_known = True
    assert await node.clean()
    assert unknown.clean_offset == 3


async def test_a_topic_that_is_compacted_and_deleted_from() -> None:
    node = Node({"cleanup_policy": "compact,delete", "retention_ms": 1000})
    log = node.fill()
    assert await node.clean()
    assert log.segments.first.size_bytes > 0
    node.clock.ms = NOW_MS + 1001
    assert log.delete_old_segments() == 1
    assert (log.log_start_offset, log.clean_offset) == (3, 3)


async def test_the_checkpoint_says_where_to_go_on_and_forgets_logs_that_are_gone() -> None:
    node = Node()
    node.fill(A)
    node.fill(B)
    while await node.clean():
        pass
    assert node.disk.read(CHECKPOINT) == b"0\n2\na 0 3\nb 0 3\n"
    manager = await node.start()
    log = manager.get(A)
    assert log is not None
    assert log.clean_offset == 3
    node.manager.mark_for_deletion(B)
    await node.manager.housekeeper.run_requests()
    assert node.disk.read(CHECKPOINT) == b"0\n1\na 0 3\n"
    await node.manager.shutdown()
    assert node.disk.read(CHECKPOINT) == b"0\n1\na 0 3\n"


async def test_before_the_first_pass_the_checkpoint_says_that_there_may_be_holes() -> None:
    node = Node()
    node.fill()
    node.disk.fail(node.log().directory / f"{0:020d}.log.cleaned", "create")
    assert await node.clean()
    assert node.disk.read(CHECKPOINT) == b"0\n1\na 0 0\n"
    assert node.metrics.cleaner.failures.value == 1


async def test_without_that_nothing_is_compacted() -> None:
    node = Node()
    log = node.fill()
    node.disk.fail(CHECKPOINT.with_name(CHECKPOINT.name + ".tmp"), "write")
    size = log.size_bytes
    assert await node.clean()
    assert log.size_bytes == size
    assert node.metrics.cleaner.failures.value == 1


async def test_what_is_not_on_the_device_is_not_compacted() -> None:
    node = Node()
    log = node.fill()
    node.disk.fail(log.directory, "sync")
    size = log.size_bytes
    assert await node.clean()
    assert (log.size_bytes, node.metrics.cleaner.failures.value) == (size, 1)


async def test_after_a_flush_that_failed_nothing_is_compacted_before_the_next_start() -> None:
    """Linux forgets what it could not write, and the next flush succeeds: a newer value may be in memory alone."""
    node = Node({"segment_bytes": 250})
    log = node.log()
    for key in (b"a", b"x", b"a", b"y"):
        if len(log.segments) == 3:
            await node.manager.housekeeper.run_requests()
            node.disk.fail(log.segments.active.records.path, "sync")
        (result,) = log.append_as_leader(parsed(records_batch((NOW_MS, key, b"v" * 100))), 0)
        assert result.error is None
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    await node.manager.housekeeper.run_requests()
    await node.manager.checkpoints.write()
    node.disk.heal()
    node.disk.fail(log.directory / f"{2:020d}.log.cleaned", "create")  # the pass would have to stop half way
    assert await node.clean()
    assert node.metrics.cleaner.failures.value == 1
    node.disk.heal()
    assert not await node.clean(), "it is not tried again"
    node.disk.crash(Chance(1))
    again = (await node.start()).get(A)
    assert again is not None
    assert next(again.segments.first.records.batches())[1].base_offset == 0, "the value the device has"


async def test_a_truncation_takes_the_offset_back_and_is_written_down() -> None:
    node = Node()
    log = node.fill()
    assert await node.clean()
    log.truncate_to(2)
    await node.manager.housekeeper.run_requests()
    assert node.disk.read(CHECKPOINT) == b"0\n1\na 0 2\n"
    log.truncate_fully_and_start_at(1)
    assert log.clean_offset == 1
    log.truncate_fully_and_start_at(100)
    assert log.clean_offset == 1
    await node.manager.housekeeper.run_requests()
    node.disk.crash(Chance(1))
    manager = await node.start()
    again = manager.get(A)
    assert again is not None
    assert again.clean_offset == 1


async def test_an_offset_beyond_the_end_of_a_recovered_log_is_taken_back() -> None:
    node = Node()
    log = node.fill()
    assert await node.clean()
    node.disk.overwrite(log.segments.first.records.path, b"")
    for segment in list(log.segments)[1:]:
        node.disk.remove(segment.records.path)
    manager = await node.start()
    again = manager.get(A)
    assert again is not None
    assert again.clean_offset == again.log_end_offset == 0


async def test_a_log_the_disk_did_not_open_keeps_its_place() -> None:
    node = Node()
    node.fill()
    assert await node.clean()
    node.disk.fail(LOG_DIRECTORY / str(A), "open")
    manager = await node.start()
    assert manager.get(A) is None
    node.disk.heal()
    await manager.checkpoints.write()
    assert node.disk.read(CHECKPOINT) == b"0\n1\na 0 3\n"
    assert node.log().clean_offset == 3


async def test_the_memory_of_a_pass_that_fails_is_given_back_bit_by_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maps: list[OffsetMap] = []
    give_back = OffsetMap.give_back

    def noting(self: OffsetMap) -> Iterator[None]:
        maps.append(self)
        return give_back(self)

    monkeypatch.setattr(OffsetMap, "give_back", noting)
    node = Node()
    node.damage(node.fill())
    assert await node.clean()
    assert [each._tables for each in maps] == [[]]


async def test_a_damaged_log_is_given_up_and_the_others_go_on() -> None:
    node = Node()
    damaged, other = node.fill(A), node.fill(B)
    node.damage(damaged)
    while await node.clean():
        pass
    assert other.clean_offset == 3
    assert damaged.size_bytes > other.size_bytes
    assert node.metrics.cleaner.failures.value == 1, "it is not tried again"
    assert node.metrics.cleaner._uncleanable == (1, damaged.size_bytes)
    node.manager.mark_for_deletion(A)
    again = node.fill(A)
    assert await node.clean()
    assert again.clean_offset == 3, "another log of that name"


async def test_a_damaged_log_whose_times_cannot_be_told_does_not_stop_the_others() -> None:
    node = Node({"min_compaction_lag_ms": 1000})
    damaged = node.fill(A)
    node.fill(B)
    node.clock.ms = NOW_MS + 1001
    await node.manager.shutdown()
    path = damaged.segments.first.records.path
    content = bytearray(node.disk.read(path))
    content[8:12] = (3).to_bytes(4, "big")  # no batch is that short
    node.disk.overwrite(path, bytes(content))
    node.disk.remove(damaged.segments.first.time_index.path)
    await node.start()
    for log in (node.log(A), node.log(B)):
        log.update_high_watermark(log.log_end_offset)
    assert await node.clean()
    assert not await node.clean()
    assert (node.log(A).clean_offset, node.log(B).clean_offset) == (None, 3)


def test_what_the_disk_refuses_is_tried_again_after_the_backoff_and_holds_up_nobody() -> None:
    async def story(loop: SimLoop) -> None:
        node = Node(log_cleaner_backoff_ms=1000)
        full, other = node.fill(A), node.fill(B)
        node.disk.fail(full.directory / f"{0:020d}.log.cleaned", "write")
        async with node.manager.running():
            await asyncio.sleep(0.5)
            assert (full.clean_offset, other.clean_offset) == (0, 3)
            assert node.metrics.cleaner.failures.value == 1
            await asyncio.sleep(2)
            assert 2 <= node.metrics.cleaner.failures.value <= 3
            node.disk.heal()
            await asyncio.sleep(2)
            assert full.clean_offset == 3

    simulate(story)


def test_the_backoff_is_a_setting_that_may_change() -> None:
    async def story(loop: SimLoop) -> None:
        node = Node(log_cleaner_backoff_ms=5000)
        log = node.log()
        async with node.manager.running():
            await asyncio.sleep(1)
            node.fill()
            await asyncio.sleep(3)
            assert log.clean_offset is None
            await asyncio.sleep(2)
            assert log.clean_offset == 3
            node.holder.update(broker_config(log_cleaner_backoff_ms=3_600_000))
            await asyncio.sleep(10)
            node.fill()
            node.holder.update(broker_config(log_cleaner_backoff_ms=0))
            await asyncio.sleep(0.1)
            assert log.clean_offset == 6, "an hour is not sat out"

    simulate(story)


def test_without_log_cleaner_enable_every_record_stays() -> None:
    async def story(loop: SimLoop) -> None:
        node = Node(log_cleaner_enable="false", log_cleaner_backoff_ms=10)
        log = node.fill()
        async with node.manager.running():
            await asyncio.sleep(60)
        assert log.clean_offset is None

    simulate(story)


def test_the_bytes_of_a_second_are_a_setting() -> None:
    async def story(loop: SimLoop) -> None:
        node = Node(log_cleaner_io_max_bytes_per_second=100)
        log = node.fill()
        dirty, start = log.size_bytes, loop.time()
        assert await node.clean()
        moved = 2 * dirty + log.size_bytes
        assert moved / 100 - 0.01 <= loop.time() - start <= moved / 100 + 1

    simulate(story)


@pytest.mark.parametrize(("buffer", "factor", "passes"), [(176 * 4, 1, 1), (176 * 4, 0.5, 2), (176, 1, 4)])
async def test_the_room_for_keys_is_a_setting(buffer: int, factor: float, passes: int) -> None:
    world = CleanerWorld(broker={"log_cleaner_dedupe_buffer_size": buffer, "log_cleaner_io_buffer_load_factor": factor})
    for key in "abcd":
        world.put((key, "1"))
    world.roll()
    done = 0
    while await world.clean():
        done += 1
    assert done == passes
    assert world.metrics.cleaner._utilization == (1.0 if passes < 3 or buffer == 176 else 0.5)


async def test_the_dirty_ratio_and_delete_retention_ms_are_settings() -> None:
    node = Node({"min_cleanable_dirty_ratio": 0.5, "delete_retention_ms": 70})
    log = node.fill()
    assert await node.clean()
    node.fill(batches=1)
    assert not await node.clean(), "exactly half of it is dirty"
    (result,) = log.append_as_leader(parsed(records_batch((NOW_MS, b"k", None))), 0)
    assert result.error is None
    log.update_high_watermark(log.log_end_offset)
    log.roll()
    assert await node.clean()
    answer = log.read(0, 1 << 20, log.log_end_offset, min_one_batch=True)
    assert answer.file_slice is not None
    assert [batch.delete_horizon_ms for batch in batches(read(answer.file_slice))] == [NOW_MS + 70]


def test_a_log_that_changes_meanwhile_is_looked_at_again_later() -> None:
    async def story(loop: SimLoop) -> None:
        node = Node(log_cleaner_backoff_ms=20)
        log = node.fill()
        cleaner: Any = node.manager.cleaner
        flush = cleaner._flush

        async def cutting(*arguments: Any) -> bool:
            done: bool = await flush(*arguments)
            log.truncate_to(2)
            return done

        cleaner._flush = cutting
        assert await node.clean()
        assert log.clean_offset is None
        assert node.metrics.cleaner.failures.value == 0
        cleaner._flush = flush
        log.roll()
        assert not await node.clean(), "set aside"
        await asyncio.sleep(0.05)
        assert await node.clean()
        assert log.clean_offset == 2

    simulate(story)
