"""Power cuts, full and slow disks against the whole node, by seed.

`WHERRY_SEEDS` sets the number of seeds.  A failing seed is repeated with

    WHERRY_SEED=17 python -m pytest tests/simulation -q

and belongs into regressions.txt together with what it found.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation import power_cuts
from tests.simulation.seeds import ONE_SEED, seeds_of

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("WHERRY_SEEDS", "25"))
RUNS = seeds_of("regressions.txt", SEEDS)
ROOT = Path(__file__).parents[2]

FAULTS_AND_STATES = (
    "power cut",
    "power cut in mid-sentence",
    "cut before write",
    "cut before sync",
    "cut before rename",
    "cut before create",
    "cut while starting",
    "clean restart",
    "slow disk",
    "failing disk",
    "write refused by a full disk",
    "read with a full disk",
    "lost bytes",
    "torn write",
    "lost name",
    "old name",
    "bytes recovered",
    "recovery cut bytes",
    "roll",
    "connection reset",
    "read in pieces",
    "produce unanswered",
    "produce kafka_storage_error",
    "duplicate answered",
    "commit repeated",
    "topic created",
    "topic deleted",
)


@pytest.fixture(scope="module")
def totals() -> Counter[str]:
    return Counter()


@pytest.mark.parametrize("seed", RUNS)
def test_what_was_acknowledged_survives_power_cuts_and_full_disks(seed: int, totals: Counter[str]) -> None:
    totals += power_cuts.run(seed).seen


@pytest.mark.skipif(ONE_SEED is not None, reason="one seed does not do everything")
def test_every_fault_and_state_has_occurred(totals: Counter[str]) -> None:
    print("\n".join(f"{count:9} {name}" for name, count in sorted(totals.items())))  # noqa: T201  for the log of a run
    if totals:
        assert [name for name in FAULTS_AND_STATES if not totals[name]] == []


def test_a_run_is_a_function_of_its_seed() -> None:
    """In this process, and in another with other string hashes."""
    seed = RUNS[0]
    first = power_cuts.run(seed)
    assert power_cuts.run(seed).fingerprint == first.fingerprint
    script = f"from tests.simulation.power_cuts import run; print(run({seed}).fingerprint)"
    for hash_seed in ("0", "4711"):
        again = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert again.stdout.splitlines()[-1] == first.fingerprint, f"with PYTHONHASHSEED={hash_seed}"
