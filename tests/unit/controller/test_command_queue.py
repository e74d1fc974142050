"""Commands, batches and the disk.  What a whole controller shows is in test_controller.py."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.common.disk import InlineDiskExecutor
from broker.common.errors import NotControllerError, TopicAlreadyExistsError
from broker.common.tasks import BackgroundTasks
from broker.controller import command_queue
from broker.controller.command_queue import CommandQueue
from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.controller.metadata_log import MetadataLog
from broker.records.record_batch import batches
from broker.schemas.cluster_metadata import FeatureLevelRecord, NoOpRecord
from tests.support.sim_disk import SimFileSystem
from tests.unit.controller.controller_support import DIRECTORY, FixedClock


@asynccontextmanager
async def running_queue(disk: SimFileSystem, segment_bytes: int = 1 << 20) -> AsyncIterator[CommandQueue]:
    disk.make_directories(DIRECTORY)
    log = MetadataLog(disk, DIRECTORY)
    log.open(lambda records, snapshot: None)
    queue = CommandQueue(log, ControllerState(), InlineDiskExecutor(), FixedClock(), segment_bytes)
    queue.become_leader(3, 1)
    await queue.flush()
    queue.append_now([FeatureLevelRecord(name="metadata.version", feature_level=29)])
    await queue.flush()
    queue.is_active = True
    async with BackgroundTasks("test") as tasks:
        tasks.start("write", queue.write_staged())
        yield queue


def no_ops(count: int, *, is_atomic: bool = True) -> ControllerResult[int]:
    return ControllerResult([NoOpRecord()] * count, count, is_atomic)


def log_bytes(disk: SimFileSystem) -> bytes:
    directory = DIRECTORY / "__cluster_metadata-0"
    return b"".join(disk.read(directory / name) for name in disk.list_directory(directory) if name.endswith(".log"))


async def test_the_epoch_begins_with_its_control_record() -> None:
    disk = SimFileSystem()
    async with running_queue(disk) as queue:
        first, second = batches(log_bytes(disk))
        assert (first.is_control, first.partition_leader_epoch, first.base_offset) == (True, 3, 0)
        assert (second.is_control, second.base_offset, second.base_timestamp) == (False, 1, FixedClock().now_ms())
        assert (queue.next_offset, queue.durable_image.offset) == (2, 1)


async def test_an_answer_comes_when_its_records_are_durable() -> None:
    disk = SimFileSystem()
    async with running_queue(disk) as queue:
        assert await queue.run(lambda: no_ops(3)) == 3
        assert queue.durable_image.offset == 4


async def test_an_error_of_a_command_writes_nothing() -> None:
    disk = SimFileSystem()

    def command() -> ControllerResult[None]:
        raise TopicAlreadyExistsError("there")

    async with running_queue(disk) as queue:
        with pytest.raises(TopicAlreadyExistsError):
            await queue.run(command)
        assert queue.next_offset == 2


async def test_many_records_that_need_not_be_atomic_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_queue, "BATCH_RECORDS_MAX", 10)
    disk = SimFileSystem()
    async with running_queue(disk) as queue:
        await queue.run(lambda: no_ops(25, is_atomic=False))
        assert [batch.record_count for batch in batches(log_bytes(disk))][2:] == [10, 10, 5]
        with pytest.raises(AssertionError):
            await queue.run(lambda: no_ops(11))


async def test_a_batch_has_a_bound_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_queue, "BATCH_BYTES_MAX", 40)  # a NoOpRecord is 4 bytes
    disk = SimFileSystem()
    async with running_queue(disk) as queue:
        await asyncio.gather(*(queue.run(lambda: no_ops(4)) for _ in range(5)))
        assert [batch.record_count for batch in batches(log_bytes(disk))][2:] == [8, 8, 4]


async def test_segments_roll_by_size_and_when_asked() -> None:
    disk = SimFileSystem()
    directory = DIRECTORY / "__cluster_metadata-0"
    async with running_queue(disk, segment_bytes=200) as queue:
        for _ in range(6):
            await queue.run(lambda: no_ops(10))
        queue.is_roll_wanted = True
        await queue.run(lambda: no_ops(1))
        bases = [int(name[:20]) for name in disk.list_directory(directory) if name.endswith(".log")]
        assert bases[0] == 0
        assert len(bases) > 3
        assert bases[-1] == queue.next_offset - 1


async def test_drain_waits_for_what_runs_and_refuses_the_rest() -> None:
    disk = SimFileSystem()
    async with running_queue(disk) as queue:
        running = asyncio.ensure_future(queue.run(lambda: no_ops(1)))
        await asyncio.sleep(0)
        assert queue.pending_count == 1
        await queue.drain()
        assert await running == 1
        with pytest.raises(NotControllerError):
            await queue.run(lambda: no_ops(1))


async def test_drain_does_not_wait_for_a_command_whose_caller_has_gone() -> None:
    class StuckDisk(InlineDiskExecutor):
        async def run(self, *work: object, **more: object) -> None:  # type: ignore[override]
            await asyncio.get_running_loop().create_future()

    disk = SimFileSystem()
    async with running_queue(disk) as queue:
        queue._disk = StuckDisk()
        running = asyncio.ensure_future(queue.run(lambda: no_ops(1)))
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.sleep(0)
        assert queue.pending_count == 1
        drain = asyncio.ensure_future(queue.drain())
        for _ in range(10):
            await asyncio.sleep(0)
        assert drain.done()
