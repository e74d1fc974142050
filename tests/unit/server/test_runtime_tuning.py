import asyncio
import gc
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.common.tasks import BackgroundTasks
from broker.server import runtime_tuning
from tests.support.sim_loop import SimLoop, simulate


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


def test_the_process_is_tuned() -> None:
    runtime_tuning.tune_process()
    assert gc.get_threshold() == runtime_tuning.GC_THRESHOLDS
    assert sys.getswitchinterval() == pytest.approx(runtime_tuning.SWITCH_INTERVAL_SECONDS)


def test_glibc_takes_the_options() -> None:
    assert runtime_tuning.set_malloc_options() is True


def test_a_c_library_without_mallopt_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_tuning.ctypes, "CDLL", lambda name: object())
    assert runtime_tuning.set_malloc_options() is False
    runtime_tuning.tune_process()


class FakeLibrary:
    def __init__(self, free_bytes: int) -> None:
        self.trims = 0

        def mallinfo2() -> runtime_tuning.MallocInfo:
            return runtime_tuning.MallocInfo(fordblks=free_bytes)

        def malloc_trim(pad: int) -> None:
            assert pad == 0
            self.trims += 1

        self.mallinfo2, self.malloc_trim = mallinfo2, malloc_trim


@pytest.mark.parametrize(("free_bytes", "given_back"), [(1000, 0), (1001, 1001)])
def test_a_heap_with_much_free_memory_is_trimmed(
    monkeypatch: pytest.MonkeyPatch, free_bytes: int, given_back: int
) -> None:
    library = FakeLibrary(free_bytes)
    monkeypatch.setattr(runtime_tuning.ctypes, "CDLL", lambda name: library)
    assert runtime_tuning.trim_heap(1000) == given_back
    assert library.trims == (given_back > 0)


def test_glibc_says_how_much_is_free() -> None:
    assert runtime_tuning.trim_heap(0) > 0  # there is always something


def test_a_c_library_that_cannot_say_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_tuning.ctypes, "CDLL", lambda name: object())
    assert runtime_tuning.trim_heap(0) == 0


def test_the_heap_is_looked_at_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    library = FakeLibrary(runtime_tuning.FREE_HEAP_BYTES_MAX + 1)
    monkeypatch.setattr(runtime_tuning.ctypes, "CDLL", lambda name: library)

    async def story(loop: SimLoop) -> None:
        async with BackgroundTasks("test") as tasks:
            tasks.start("trim", runtime_tuning.trim_heap_regularly())
            await asyncio.sleep(179)
            assert library.trims == 2

    simulate(story)


def test_what_lives_now_is_frozen() -> None:
    before = gc.get_freeze_count()
    runtime_tuning.gc_freeze()
    assert gc.get_freeze_count() > before


def test_the_age_of_this_process_grows_from_its_start(tmp_path: Path) -> None:
    first = runtime_tuning.process_age_seconds()
    assert 0 < first <= runtime_tuning.process_age_seconds() < 24 * 3600
    no_proc = runtime_tuning.process_age_seconds(tmp_path / "stat")
    assert 0 <= no_proc <= runtime_tuning.process_age_seconds()
    (tmp_path / "stat").write_text("1 (a name (with) brackets) S " + " ".join(["0"] * 18 + ["100"]) + " 0\n")
    started = 100 / os.sysconf("SC_CLK_TCK")
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    age = runtime_tuning.process_age_seconds(tmp_path / "stat")
    assert before <= age + started <= time.clock_gettime(time.CLOCK_BOOTTIME)
