"""A cluster that replicates through buckets under faults, in virtual time, by seed.

`WHERRY_WAL_SEEDS` sets the number of seeds.  A failing seed is repeated with

    WHERRY_SEED=17 python -m pytest tests/simulation/test_wal_cluster.py -q

and belongs into wal_cluster_regressions.txt together with what it found.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.simulation import wal_cluster
from tests.simulation.hunt import run_elsewhere

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("WHERRY_WAL_SEEDS", "15"))
ONE_SEED = os.environ.get("WHERRY_SEED")
REGRESSIONS = Path(__file__).with_name("wal_cluster_regressions.txt")

FAULTS_AND_STATES = (
    "healthy run",
    "run without fallback",
    "bucket slow",
    "bucket down",
    "bucket lying",
    "bucket flawed",
    "metadata topic down",
    "zombie leader",
    "zone lost",
    "deletion answered none",
    "remote.wal.enable=false",
    "bucket black_hole",
    "bucket flipped_byte",
    "bucket lost_reply",
    "bucket slow_down",
    "a leader goes",
    "power cut",
    "kill -9",
    "bytes by wal",
    "bytes by fallback",
    "fenced metadata",
    "stale metadata",
    "corrupt",
    "republish bytes",
    "copy errors",
)


def regressions() -> list[int]:
    lines = REGRESSIONS.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def seeds() -> list[int]:
    if ONE_SEED is not None:
        return [int(ONE_SEED)]
    return list(dict.fromkeys([*regressions(), *range(SEEDS)]))


@pytest.fixture(scope="module")
def totals() -> Counter[str]:
    return Counter()


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """Nodes under such faults have much to say."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


@pytest.mark.parametrize("seed", seeds())
def test_a_cluster_keeps_its_promises_when_buckets_fail_as_well(seed: int, totals: Counter[str]) -> None:
    totals += wal_cluster.run(seed).seen


@pytest.mark.skipif(ONE_SEED is not None or SEEDS < 100, reason="a few seeds do not do everything")
def test_every_fault_and_state_has_occurred(totals: Counter[str]) -> None:
    print("\n".join(f"{count:9} {name}" for name, count in sorted(totals.items())))  # noqa: T201  for the log of a run
    if totals:
        assert [name for name in FAULTS_AND_STATES if not totals[name]] == []


def test_a_run_is_a_function_of_its_seed() -> None:
    """With other string hashes as well."""
    seed = seeds()[0]
    assert run_elsewhere("wal", seed, "0") == run_elsewhere("wal", seed, "4711")
