"""A cluster that replicates through buckets under faults, in virtual time, by seed.

`WHERRY_WAL_SEEDS` sets the number of seeds.  A failing seed is repeated with

    WHERRY_SEED=17 python -m pytest tests/simulation/test_wal_cluster.py -q

and belongs into wal_cluster_regressions.txt together with what it found.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import wal_cluster
from tests.simulation.hunt import run_elsewhere
from tests.simulation.seeds import ONE_SEED, seeds_of

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("WHERRY_WAL_SEEDS", "200"))
RUNS = seeds_of("wal_cluster_regressions.txt")
MINUTES_MAX = 30  # on a machine that does much else

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


@pytest.mark.parametrize("seed", RUNS)
def test_a_cluster_keeps_its_promises_when_buckets_fail_as_well(seed: int) -> None:
    wal_cluster.run(seed)


@pytest.mark.timeout(60 * MINUTES_MAX)
@pytest.mark.skipif(ONE_SEED is not None, reason="one seed is asked for")
def test_so_do_many_and_every_fault_and_state_has_occurred() -> None:
    """A process for each core: a seed takes three seconds.  A few seeds do not do everything."""
    command = [sys.executable, "-m", "tests.simulation.hunt", "--story", "wal", "--seeds", str(SEEDS)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    occurred = {name for count, name in re.findall(r"^ +(\d+) (.+)$", done.stdout, re.MULTILINE) if int(count)}
    if SEEDS >= 100:
        assert [name for name in FAULTS_AND_STATES if name not in occurred] == []


def test_a_run_is_a_function_of_its_seed() -> None:
    """With other string hashes as well."""
    seed = int(ONE_SEED or 0)
    assert run_elsewhere("wal", seed, "0") == run_elsewhere("wal", seed, "4711")
