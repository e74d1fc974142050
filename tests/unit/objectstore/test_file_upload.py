"""upload_file: order of parts, bounded memory, and nothing left behind."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from broker.common.buffers import Buffer
from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import File, OsFileSystem
from broker.objectstore.decorated import Operation
from broker.objectstore.errors import Throttled, Unavailable
from broker.objectstore.failing_object_store import FailingObjectStore, Fault, FaultPlan, Latency
from broker.objectstore.file_region import FileRegion
from broker.objectstore.file_upload import upload_file
from broker.objectstore.objects import PartSizes, Upload, UploadedPart
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tracked_file import TrackedFile

GIGABYTE = 1 << 30


def file_of(path: Path, size: int) -> TrackedFile:
    path.write_bytes(bytes(number % 251 for number in range(size)))
    return TrackedFile(OsFileSystem().open(path))


def region(file: TrackedFile, size: int) -> FileRegion:
    return FileRegion(cast(File, file), 0, size, InlineDiskExecutor())


def test_parts_that_finish_in_any_order_are_put_together_in_the_right_one(tmp_path: Path) -> None:
    file = file_of(tmp_path / "f", 10_050)

    async def story(loop: SimLoop) -> None:
        memory = MemoryObjectStore()
        store = FailingObjectStore(memory, Chance(3), FaultPlan(latency=Latency(0.01, 1.0)))
        await upload_file(store, "k", region(file, 10_050), PartSizes(100, parallel=4))
        assert memory.objects["k"] == (tmp_path / "f").read_bytes()

    simulate(story)
    assert len(file.read_sizes) == 101
    assert file.live_bytes_max <= 400
    assert file.live_bytes == 0


def test_files_that_go_up_at_once_take_turns_part_by_part(tmp_path: Path) -> None:
    file = file_of(tmp_path / "f", 1000)

    async def story(loop: SimLoop) -> None:
        memory, turns = MemoryObjectStore(), asyncio.Semaphore(3)
        store = FailingObjectStore(memory, Chance(3), FaultPlan(latency=Latency(0.01, 1.0)))
        async with asyncio.TaskGroup() as uploads:
            for number, size in enumerate((1000, 500, 100, 50)):  # the last ones go up whole
                sizes = PartSizes(100, parallel=2)
                uploads.create_task(upload_file(store, f"{number}", region(file, size), sizes, turns))
        content = (tmp_path / "f").read_bytes()
        assert memory.objects == {f"{number}": content[:size] for number, size in enumerate((1000, 500, 100, 50))}

    simulate(story)
    assert file.live_bytes_max == 300
    assert file.live_bytes == 0


class Forgetful(MemoryObjectStore):
    """Takes parts and keeps none of them."""

    def __init__(self) -> None:
        super().__init__()
        self.taken_bytes = 0
        self.completed: list[int] = []

    async def upload_part(self, upload: Upload, number: int, position: int, body: Buffer) -> UploadedPart:
        await asyncio.sleep(0.001 * (number % 7))
        self.taken_bytes += len(body)
        return UploadedPart(number, len(body), 0, "")

    async def complete_upload(self, upload: Upload, parts: Sequence[UploadedPart]) -> None:
        self.completed = [part.number for part in parts]


class Sparse:
    """A gigabyte that takes no room."""

    path = Path("sparse")

    def read_at(self, position: int, size: int) -> bytes:
        return bytes(size)


def test_of_a_gigabyte_only_the_parts_under_way_are_in_memory() -> None:
    file = TrackedFile(cast(File, Sparse()))

    async def story(loop: SimLoop) -> None:
        store = Forgetful()
        await upload_file(store, "k", region(file, GIGABYTE), PartSizes(parallel=2))
        assert store.taken_bytes == GIGABYTE
        assert store.completed == list(range(1, 129))

    simulate(story)
    assert file.live_bytes_max == 2 * (8 << 20)


@pytest.mark.parametrize("operation", [Operation.UPLOAD_PART, Operation.COMPLETE_UPLOAD])
def test_what_fails_is_aborted_and_told(tmp_path: Path, operation: Operation) -> None:
    file = file_of(tmp_path / "f", 1000)

    async def story(loop: SimLoop) -> None:
        memory = MemoryObjectStore()
        store = FailingObjectStore(memory, Chance(1))
        store.fail_next(operation, Fault.SLOW_DOWN)
        with pytest.raises(Throttled):
            await upload_file(store, "k", region(file, 1000), PartSizes(100))
        assert memory.uploads_started == 1
        assert memory.uploads == memory.objects == {}

    simulate(story)


def test_an_abort_that_fails_does_not_hide_the_reason(tmp_path: Path) -> None:
    file = file_of(tmp_path / "f", 1000)

    async def story(loop: SimLoop) -> None:
        store = FailingObjectStore(MemoryObjectStore(), Chance(1))
        store.fail_next(Operation.UPLOAD_PART, Fault.SLOW_DOWN)
        store.fail_next(Operation.ABORT_UPLOAD, Fault.RESET)
        with pytest.raises(Throttled):
            await upload_file(store, "k", region(file, 1000), PartSizes(100))

    simulate(story)


def test_a_cancelled_upload_is_aborted(tmp_path: Path) -> None:
    file = file_of(tmp_path / "f", 1000)

    async def story(loop: SimLoop) -> None:
        memory = MemoryObjectStore()
        plan = FaultPlan(latencies={Operation.UPLOAD_PART: Latency(10)})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await upload_file(FailingObjectStore(memory, Chance(1), plan), "k", region(file, 1000), PartSizes(100))
        assert memory.uploads_started == 1
        assert memory.uploads == memory.objects == {}

    simulate(story)


def test_the_workers_end_with_the_first_failure(tmp_path: Path) -> None:
    file = file_of(tmp_path / "f", 1000)

    async def story(loop: SimLoop) -> None:
        store = FailingObjectStore(MemoryObjectStore(), Chance(1), FaultPlan(latency=Latency(0.01)))
        store.fail_next(Operation.UPLOAD_PART, Fault.RESET)
        with pytest.raises(Unavailable):
            await upload_file(store, "k", region(file, 1000), PartSizes(100, parallel=1))

    simulate(story)
    assert file.read_sizes == [100]
