"""A cluster whose topics are tiered under faults, in virtual time, by seed.

`WHERRY_TIERED_SEEDS` sets the number of seeds.  A failing seed is repeated with

    WHERRY_SEED=17 python -m pytest tests/simulation/test_tiered_cluster.py -q

and belongs into tiered_cluster_regressions.txt together with what it found.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import tiered_cluster
from tests.simulation.hunt import run_elsewhere
from tests.simulation.seeds import ONE_SEED, seeds_of

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("WHERRY_TIERED_SEEDS", "50"))
RUNS = seeds_of("tiered_cluster_regressions.txt", 1)
MINUTES_MAX = 30  # on a machine that does much else

FAULTS_AND_STATES = (
    "unclean election",
    "all brokers killed",
    "tier slow",
    "tier down",
    "tier flawed",
    "tier keeps what is deleted",
    "remote log metadata down",
    "empty replacement",
    "zombie leader",
    "a leader goes",
    "power cut",
    "kill -9",
    "controller restart",
    "bucket black_hole",
    "bucket lost_reply",
    "bucket slow_down",
    "copy errors",
    "fetch errors",
    "fetch requests",
    "delete requests",
    "build aux state requests",
    "deletion answered none",
    "reassignment answered none",
    "topic deleted",
    "transaction committed",
    "transaction aborted",
    "remote.log.copy.disable=true",
    "remote.storage.enable=false",
    "log start moved by retention",
    "records expired before they were read",
    "history read to its end",
    "fetch from a follower",
    "run through the fast bucket as well",
)


@pytest.mark.parametrize("seed", RUNS)
def test_a_cluster_keeps_its_promises_when_its_records_are_in_a_bucket(seed: int) -> None:
    tiered_cluster.run(seed)


@pytest.mark.timeout(60 * MINUTES_MAX)
@pytest.mark.skipif(ONE_SEED is not None, reason="one seed is asked for")
def test_so_do_many_and_every_fault_and_state_has_occurred() -> None:
    """A process for each core.  A few seeds do not do everything."""
    command = [sys.executable, "-m", "tests.simulation.hunt", "--story", "tiered", "--seeds", str(SEEDS)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    occurred = {name for count, name in re.findall(r"^ +(\d+) (.+)$", done.stdout, re.MULTILINE) if int(count)}
    if SEEDS >= 50:
        assert [name for name in FAULTS_AND_STATES if name not in occurred] == []


def test_a_run_is_a_function_of_its_seed() -> None:
    """With other string hashes as well."""
    seed = int(ONE_SEED or 0)
    assert run_elsewhere("tiered", seed, "0") == run_elsewhere("tiered", seed, "4711")
