"""Run many seeds of the simulated clusters, one process per core, and write down those that fail.

    python -m tests.simulation.hunt --seeds 10000            # `make sim SEEDS=10000`
    python -m tests.simulation.hunt --seeds 200 --stop --jobs 1 --story wal

There are three stories: a cluster, one that replicates through buckets, and one whose topics are tiered.  Failing
seeds are appended to the story's regressions with the commit and what they found; without --record they are only
printed.  The exit code is 1 when one failed.
"""

import argparse
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import structlog

from tests.simulation import cluster, tiered_cluster, wal_cluster

STORIES: Final = {"cluster": cluster.run, "wal": wal_cluster.run, "tiered": tiered_cluster.run}
HERE: Final = Path(__file__).parent
REGRESSIONS: Final = {
    "cluster": HERE / "cluster_regressions.txt",
    "wal": HERE / "wal_cluster_regressions.txt",
    "tiered": HERE / "tiered_cluster_regressions.txt",
}
COMPLAINT_MAX: Final = 300
CHUNK: Final = 4


Result = tuple[str, int, str, Counter[str]]


def try_seed(story_and_seed: tuple[str, int]) -> Result:
    """The story, the seed, what is wrong (empty: nothing), and what happened."""
    story, seed = story_and_seed
    try:
        return story, seed, "", STORIES[story](seed).seen
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        cause = next(_leaves(error))
        return story, seed, f"{type(cause).__name__}: {cause}".replace("\n", " ")[:COMPLAINT_MAX], Counter()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _silence() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def hunt(stories: Sequence[str], seeds: range, jobs: int, *, stop: bool) -> Iterator[Result]:
    """Results as they come, in the order of seeds; up to the first failure when `stop`."""
    wanted = [(story, seed) for seed in seeds for story in stories]
    if jobs == 1:
        _silence()
        results = map(try_seed, wanted)
    else:
        pool = ProcessPoolExecutor(jobs, initializer=_silence)
        results = pool.map(try_seed, wanted, chunksize=CHUNK)
    for result in results:
        yield result
        if stop and result[2]:
            return


def run_elsewhere(story: str, seed: int, hash_seed: str) -> str:
    """The fingerprint of a run in a process of its own, in which strings have other hashes."""
    module = STORIES[story].__module__
    script = f"from {module} import run; print(run({seed}).fingerprint)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=HERE.parents[1],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description="seeds of the simulated clusters")
    parser.add_argument("--story", nargs="+", choices=tuple(STORIES), default=list(STORIES))
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--stop", action="store_true", help="at the first seed that fails")
    parser.add_argument("--record", action="store_true", help="append failing seeds to the story's regressions")
    options = parser.parse_args()
    started, failed = time.monotonic(), 0
    totals: dict[str, Counter[str]] = {story: Counter() for story in options.story}
    seeds = range(options.first, options.first + options.seeds)
    for story, seed, complaint, seen in hunt(options.story, seeds, options.jobs, stop=options.stop):
        totals[story] += seen
        if complaint:
            failed += 1
            say(f"{story} seed {seed}: {complaint}")
            if options.record:
                record(story, seed, complaint)
    say(f"{failed} seeds failed in {time.monotonic() - started:.0f} s; what happened in the others:")
    for story, counts in totals.items():
        say(f"{story}:\n" + "\n".join(f"{count:9} {name}" for name, count in sorted(counts.items())))
    return 1 if failed else 0


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def record(story: str, seed: int, complaint: str) -> None:
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()
    with REGRESSIONS[story].open("a", encoding="utf-8") as file:
        file.write(f"{seed} {commit or 'unknown'} {complaint}; not fixed yet\n")


if __name__ == "__main__":
    sys.exit(main())
