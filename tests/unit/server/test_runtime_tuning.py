import gc
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server import runtime_tuning


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


def test_glibc_takes_the_thresholds() -> None:
    assert runtime_tuning.set_malloc_thresholds() is True


def test_a_c_library_without_mallopt_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_tuning.ctypes, "CDLL", lambda name: object())
    assert runtime_tuning.set_malloc_thresholds() is False
    runtime_tuning.tune_process()


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
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = os.sysconf("SC_CLK_TCK")
    assert runtime_tuning.process_age_seconds(tmp_path / "stat") == pytest.approx(since_boot - 100 / ticks, abs=1)
