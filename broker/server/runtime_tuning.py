"""What the process asks of the C library and the interpreter: steadier memory, shorter pauses."""

import asyncio
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

# A heap for each thread would keep what that thread once read from a disk: copies to a bucket then take as many large
# blocks as there are threads.  Python's own lock leaves them little to wait for in a common one.
M_ARENA_MAX: Final = -8
ARENAS_MAX: Final = 1

# Kept so, a heap stays as large as its largest burst.  More free memory than this goes back to the system within a
# minute; to give back 70 MB takes 5 to 8 ms.
FREE_HEAP_BYTES_MAX: Final = 64 << 20
TRIM_INTERVAL_SECONDS: Final = 60

# A thread that computes in Python may keep the loop waiting for this long; the default of 5 ms shows in latencies.
SWITCH_INTERVAL_SECONDS: Final = 0.0005

# Requests make no cycles; the young generation is looked at seldom, and the old ones hardly ever.
GC_THRESHOLDS: Final = (100_000, 50, 100)


def tune_process() -> None:
    """Once, at the start of the process, before large buffers are made."""
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.set_threshold(*GC_THRESHOLDS)
    if not set_malloc_options():
        log.info("malloc_not_tuned", reason="the C library has no mallopt")


def set_malloc_options() -> bool:
    """Keep large blocks, and all of them in one heap; False where the C library has no mallopt (musl, macOS)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    accepted = (
        mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES),
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES),
        mallopt(M_ARENA_MAX, ARENAS_MAX),
    )
    return all(accepted)


class MallocInfo(ctypes.Structure):
    """struct mallinfo2 of glibc 2.33 and later; `fordblks` are the free bytes of the heap."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def trim_heap(free_bytes_max: int = FREE_HEAP_BYTES_MAX) -> int:
    """Give free memory back to the system if the heap holds more than `free_bytes_max` of it; returns how much it held.

    0 when it was not worth it, or where the C library cannot say.
    """
    try:
        library = ctypes.CDLL(None)
        mallinfo, malloc_trim = library.mallinfo2, library.malloc_trim
    except (OSError, AttributeError):
        return 0
    mallinfo.restype = MallocInfo
    free_bytes = int(mallinfo().fordblks)
    if free_bytes <= free_bytes_max:
        return 0
    malloc_trim(0)
    return free_bytes


async def trim_heap_regularly() -> None:
    """Until cancelled."""
    while True:
        await asyncio.sleep(TRIM_INTERVAL_SECONDS)
        free_bytes = trim_heap()
        if free_bytes:
            log.debug("heap_trimmed", free_bytes=free_bytes)


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
