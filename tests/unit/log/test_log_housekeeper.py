"""LogHousekeeper: flushes, deletions and retention, in virtual time."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.common.disk import InlineDiskExecutor
from broker.common.tasks import BackgroundTasks
from broker.config.config_holder import ConfigHolder
from broker.log.log_housekeeper import LogHousekeeper
from tests.support.patience import eventually
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.log.log_world import NOW_MS, LogWorld, broker_config, topic_config


class World(LogWorld):
    """One log whose owner is the real housekeeper."""

    def __init__(
        self,
        *,
        retention_check_ms: int = 300_000,
        initial_delay_ms: int = 0,
        producer_check_ms: int = 10,
        flush_check_ms: int = 2**63 - 1,
        **config: object,
    ) -> None:
        super().__init__(**config)
        self.checkpoint_count = 0
        self.keeper = LogHousekeeper(
            ConfigHolder(
                broker_config(
                    log_retention_check_interval_ms=retention_check_ms,
                    log_initial_task_delay_ms=initial_delay_ms,
                    producer_id_expiration_check_interval_ms=producer_check_ms,
                    log_flush_scheduler_interval_ms=flush_check_ms,
                )
            ),
            file_system=self.file_system,
            disk=InlineDiskExecutor(),
            metrics=self.metrics,
            logs=lambda: [self.log],
            checkpoint=self.checkpoint,
            now_ms=self.clock.now_ms,
        )

    async def checkpoint(self) -> None:
        self.checkpoint_count += 1


async def test_a_rolled_segment_is_flushed() -> None:
    world = World(segment_bytes=200)
    for _ in range(3):
        world.append()
    world.keeper.flush_later(world.log)
    await world.keeper.run_requests()
    assert world.log.recovery_point == 2
    assert world.metrics.flush_seconds.count == 1
    assert world.checkpoint_count == 0
    world.keeper.checkpoint_later()
    await world.keeper.run_requests()
    assert world.checkpoint_count == 1


async def test_a_flush_the_disk_refuses_is_reported_and_can_be_repeated() -> None:
    world = World()
    world.append()
    world.disk.fail(world.directory, "sync")
    assert not await world.keeper.flush(world.log)
    assert world.metrics.storage_failures.value == 1
    world.disk.heal()
    assert await world.keeper.flush(world.log)
    assert await world.keeper.flush(world.log)
    assert world.log.unflushed_messages == 0
    world.log.close()
    assert not await world.keeper.flush(world.log)


async def test_files_and_directories_are_deleted_when_due() -> None:
    world = World()
    file, directory = Path("/data/x.deleted"), Path("/data/u-0.x-delete")
    world.disk.open(file, create=True)
    world.disk.make_directories(directory / "deep")
    now = asyncio.get_running_loop().time()
    world.keeper.delete_later([file], 1000)
    world.keeper.delete_later([directory], 5000)
    world.keeper.delete_later([], 0)
    await world.keeper.delete_due_files(now + 0.5)
    assert world.disk.exists(file)
    await world.keeper.delete_due_files(now + 2)
    assert not world.disk.exists(file)
    assert world.disk.exists(directory)
    world.disk.fail(directory, "remove")
    await world.keeper.delete_due_files(now + 10)
    assert world.disk.exists(directory)


async def test_retention_goes_over_all_logs_and_survives_a_refusing_disk() -> None:
    world = World(segment_bytes=200, retention_ms=1000)
    for _ in range(4):
        world.append()
    world.clock.ms = NOW_MS + 5000
    world.disk.fail(world.directory, "rename")
    assert await world.keeper.delete_old_segments() == 2
    world.disk.heal()
    assert world.log.segments.base_offsets == [4]
    world.log.close()
    assert await world.keeper.delete_old_segments() == 0


async def test_a_segment_whose_times_cannot_be_told_stays_and_does_not_stop_the_broker() -> None:
    world = World(segment_bytes=200, retention_ms=1000)
    for _ in range(4):
        world.append()
    world.close()
    content = bytearray(world.disk.read(world.path(0, ".log")))
    content[8:12] = (3).to_bytes(4, "big")  # no batch is that short
    world.disk.overwrite(world.path(0, ".log"), bytes(content))
    world.disk.remove(world.path(0, ".timeindex"))
    world.reload(clean=True, close=False)
    world.log.update_high_watermark(4)
    world.clock.ms = NOW_MS + 5000
    assert await world.keeper.delete_old_segments() == 0
    assert world.metrics.storage_failures.value == 1


async def test_what_replaces_a_segment_is_on_the_device_before_the_segment_goes() -> None:
    """A follower hears of a new log start; the snapshot that makes older records superfluous may be in memory alone."""
    world = World(segment_bytes=200, compact=True)
    for _ in range(4):
        world.append(key=b"k")
    assert world.log.segments.base_offsets == [0, 2]
    world.log.maybe_increment_log_start_offset(2, "leader offset incremented")
    assert await world.keeper.delete_old_segments() == 1
    assert world.log.segments.base_offsets == [2]
    assert world.log.unflushed_messages == 0
    flushes = world.metrics.flush_seconds.count
    assert await world.keeper.delete_old_segments() == 0
    assert world.metrics.flush_seconds.count == flushes


async def test_nothing_is_replaced_once_a_flush_has_failed() -> None:
    """The device may have dropped what the first was to write, and the second has nothing to write any more."""
    world = World(segment_bytes=200, compact=True)
    for _ in range(4):
        world.append(key=b"k")
    world.log.maybe_increment_log_start_offset(2, "leader offset incremented")
    world.disk.fail(world.directory, "sync")
    assert await world.keeper.delete_old_segments() == 0
    world.disk.heal()
    assert await world.keeper.delete_old_segments() == 0
    assert world.log.segments.base_offsets == [0, 2]


async def test_flush_ms_flushes_what_is_old_enough() -> None:
    world = World()
    world.append()
    world.clock.ms += 10_000
    await world.keeper.flush_dirty_logs()
    assert world.log.unflushed_messages == 1  # flush.ms is "never"
    world.log.update_config(topic_config(flush_ms=500))
    world.clock.ms += 1
    await world.keeper.flush_dirty_logs()
    assert world.log.unflushed_messages == 0
    world.append()
    world.clock.ms += 499
    await world.keeper.flush_dirty_logs()
    assert world.log.unflushed_messages == 1


async def test_the_tasks_do_their_work() -> None:
    world = World(segment_bytes=200, retention_ms=1000, flush_ms=1)
    for _ in range(3):
        world.append(producer_id=1, producer_epoch=0, base_sequence=world.log.log_end_offset)
    world.clock.ms = NOW_MS + 10**9
    file = Path("/data/x.deleted")
    world.disk.open(file, create=True)
    async with BackgroundTasks("test") as tasks:
        world.keeper.start(tasks)
        world.keeper.flush_later(world.log)
        world.keeper.delete_later([file], 0)
        await eventually(
            lambda: not (world.log.producer_count or world.disk.exists(file) or world.log.size_bytes),
            "all is deleted",
            every_s=0.001,
        )
    assert world.log.segments.base_offsets == [3]


def test_the_times_of_the_tasks_are_settings() -> None:
    async def story(loop: SimLoop) -> None:
        world = World(retention_check_ms=2000, initial_delay_ms=5000, producer_check_ms=300, flush_check_ms=700)
        times: dict[str, list[float]] = {"retention": [], "producers": [], "flush": []}

        def note(kind: str) -> Any:
            def called(*_: object) -> int:
                times[kind].append(round(loop.time(), 3))
                return 0

            return called

        async def flush() -> None:
            note("flush")()

        world.keeper.flush_dirty_logs = flush  # type: ignore[method-assign]
        watched = SimpleNamespace(
            is_closed=False,
            is_tiered=False,
            config=SimpleNamespace(is_delete=True),
            flush_ms=world.log.flush_ms,
            delete_old_segments=note("retention"),
            remove_expired_producers=note("producers"),
        )
        world.keeper._logs = lambda: [watched]  # type: ignore[assignment,list-item,return-value]
        async with BackgroundTasks("test") as tasks:
            world.keeper.start(tasks)
            await asyncio.sleep(9.5)
        assert times["retention"] == [5, 7, 9]
        assert times["producers"][:3] == [0.3, 0.6, 0.9]
        assert times["flush"][:3] == [0.7, 1.4, 2.1]

    simulate(story)


async def test_what_is_copied_is_flushed_before_it_leaves_the_disk() -> None:
    world = World(segment_bytes=200, tiered=True, local_retention_ms=1)
    for _ in range(5):
        world.append()
    world.clock.ms = NOW_MS + 10
    world.log.update_highest_remote_offset(3)
    world.disk.fail(world.path(2, ".log"), "sync")
    assert await world.keeper.delete_old_segments() == 0
    assert world.log.segments.base_offsets == [0, 2, 4]
    world.disk.heal()
    world.log = world.reload()  # what a flush has refused is vouched for after recovery alone
    world.log.update_high_watermark(5)
    world.log.update_highest_remote_offset(3)
    assert await world.keeper.delete_old_segments() == 2
    assert (world.log.log_start_offset, world.log.segments.base_offsets) == (0, [4, 5])
