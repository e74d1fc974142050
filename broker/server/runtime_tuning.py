"""What the process asks of the C library and the interpreter before it serves: steadier memory, shorter pauses."""

import ctypes
import gc
import os
import sys
import time
from pathlib import Path
from typing import Final

import structlog

log = structlog.get_logger(__name__)

# mallopt(3).  By default glibc maps every block above 128 KiB freshly and gives it back at once, which costs page
# faults on each fetched megabyte: 1,050 instead of 47 microseconds.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
MMAP_THRESHOLD_BYTES: Final = 64 << 20
TRIM_THRESHOLD_BYTES: Final = 512 << 20

# A thread that computes in Python may keep the loop waiting for this long; the default of 5 ms shows in latencies.
SWITCH_INTERVAL_SECONDS: Final = 0.0005

# Requests make no cycles; the young generation is looked at seldom, and the old ones hardly ever.
GC_THRESHOLDS: Final = (100_000, 50, 100)


def tune_process() -> None:
    """Once, at the start of the process, before large buffers are made."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    if not set_malloc_thresholds():
        log.info("malloc_not_tuned", reason="the C library has no mallopt")


def set_malloc_thresholds() -> bool:
    """Keep large blocks in the heap; False where the C library has no mallopt (musl, macOS)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    accepted = (
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES),
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES),
    )
    return all(accepted)


def gc_freeze() -> None:
    """After the start and after a large load of metadata: what lives for ever is no longer looked at.

    A full collection with 10,000 partitions stops the loop for 14 ms, after this for none.
    """
    gc.collect()
    gc.freeze()


_STARTED_AT: Final = time.perf_counter()


def process_age_seconds(stat: Path = Path("/proc/self/stat")) -> float:
    """Since when this process runs, imports included; where there is no /proc, since this module was imported."""
    try:
        started_ticks = int(stat.read_text().rpartition(")")[2].split()[19])  # field 22, after the command's name
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.perf_counter() - _STARTED_AT
