"""Three brokers and a controller under faults, in virtual time, by seed.

`WHERRY_CLUSTER_SEEDS` sets the number of seeds.  A failing seed is repeated with

    WHERRY_SEED=17 python -m pytest tests/simulation/test_cluster.py -q

and belongs into cluster_regressions.txt together with what it found.
"""

import os
from collections import Counter

import pytest

from tests.simulation import cluster
from tests.simulation.hunt import run_elsewhere
from tests.simulation.seeds import ONE_SEED, seeds_of

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("WHERRY_CLUSTER_SEEDS", "200"))
RUNS = seeds_of("cluster_regressions.txt", SEEDS)

FAULTS_AND_STATES = (
    "power cut",
    "power cut in mid-sentence",
    "kill -9",
    "clean stop",
    "controller restart",
    "cut while starting",
    "a leader goes",
    "a coordinator goes",
    "lost bytes",
    "link cut, one way",
    "link cut, both ways",
    "node cut off, one way",
    "node cut off, both ways",
    "client cut off, one way",
    "messages delayed",
    "slow disk",
    "full disk",
    "failing disk",
    "clock jump",
    "connection reset",
    "duplicate answered",
    "produce unanswered",
    "produce not_leader_or_follower",
    "produce not_enough_replicas",
    "produce request_timed_out",
    "fetch not_leader_or_follower",
    "fetch fenced_leader_epoch",
    "group rebalance_in_progress",
    "group not_coordinator",
)


@pytest.fixture(scope="module")
def totals() -> Counter[str]:
    return Counter()


@pytest.mark.parametrize("seed", RUNS)
def test_a_cluster_keeps_its_promises_under_faults_and_gets_well(seed: int, totals: Counter[str]) -> None:
    totals += cluster.run(seed).seen


@pytest.mark.skipif(ONE_SEED is not None or SEEDS < 100, reason="a few seeds do not do everything")
def test_every_fault_and_state_has_occurred(totals: Counter[str]) -> None:
    print("\n".join(f"{count:9} {name}" for name, count in sorted(totals.items())))  # noqa: T201  for the log of a run
    if totals:
        assert [name for name in FAULTS_AND_STATES if not totals[name]] == []


def test_a_run_is_a_function_of_its_seed() -> None:
    """In this process, and in another with other string hashes."""
    seed = RUNS[0]
    first = cluster.run(seed)
    for hash_seed in ("0", "4711"):
        assert run_elsewhere("cluster", seed, hash_seed) == first.fingerprint, f"with PYTHONHASHSEED={hash_seed}"
