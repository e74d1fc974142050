"""Run many seeds of the cluster's simulation, one process per core, and write down those that fail.

    python -m tests.simulation.hunt --seeds 10000            # `make sim SEEDS=10000`
    python -m tests.simulation.hunt --seeds 200 --stop --jobs 1

Failing seeds are appended to cluster_regressions.txt with the commit and what they found; without --record they are
only printed.  The exit code is 1 when one failed.
"""

import argparse
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import structlog

from tests.simulation import cluster

REGRESSIONS: Final = Path(__file__).with_name("cluster_regressions.txt")
COMPLAINT_MAX: Final = 300
CHUNK: Final = 4


def try_seed(seed: int) -> tuple[int, str, Counter[str]]:
    """The seed, what is wrong (empty: nothing), and what happened."""
    try:
        return seed, "", cluster.run(seed).seen
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        cause = next(_leaves(error))
        return seed, f"{type(cause).__name__}: {cause}".replace("\n", " ")[:COMPLAINT_MAX], Counter()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _silence() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def hunt(seeds: range, jobs: int, *, stop: bool) -> Iterator[tuple[int, str, Counter[str]]]:
    """Results as they come, in the order of seeds; up to the first failure when `stop`."""
    if jobs == 1:
        _silence()
        results = map(try_seed, seeds)
    else:
        pool = ProcessPoolExecutor(jobs, initializer=_silence)
        results = pool.map(try_seed, seeds, chunksize=CHUNK)
    for result in results:
        yield result
        if stop and result[1]:
            return


def main() -> int:
    parser = argparse.ArgumentParser(description="seeds of the simulated cluster")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--stop", action="store_true", help="at the first seed that fails")
    parser.add_argument("--record", action="store_true", help="append failing seeds to cluster_regressions.txt")
    options = parser.parse_args()
    started, failed, totals = time.monotonic(), 0, Counter[str]()
    for seed, complaint, seen in hunt(
        range(options.first, options.first + options.seeds), options.jobs, stop=options.stop
    ):
        totals += seen
        if complaint:
            failed += 1
            say(f"seed {seed}: {complaint}")
            if options.record:
                record(seed, complaint)
    say(f"{failed} seeds failed in {time.monotonic() - started:.0f} s; what happened in the others:")
    say("\n".join(f"{count:9} {name}" for name, count in sorted(totals.items())))
    return 1 if failed else 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def record(seed: int, complaint: str) -> None:
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=REGRESSIONS.parent, capture_output=True, text=True, check=False).stdout.strip()
    with REGRESSIONS.open("a", encoding="utf-8") as file:
        file.write(f"{seed} {commit or 'unknown'} {complaint}; not fixed yet\n")


if __name__ == "__main__":
    sys.exit(main())
