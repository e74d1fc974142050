"""The short forms of `make chaos`: faults of every kind, and a rolling restart, under load; the judge is judged too.

Sessions are short here, so that half a minute sees what takes minutes under the defaults.
"""

from pathlib import Path

import pytest

from tests.cluster.chaos_run import ChaosRun, Outcome, Plan, table
from tests.cluster.replicas import differing, digests
from tests.support import java_tools

pytestmark = pytest.mark.interop

SHORT_SESSIONS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    "replica.lag.time.max.ms": "4000",
}
JAVA_PRODUCERS = 0 if java_tools.why_not_available() else 1


def assert_faultless(outcome: Outcome) -> None:
    assert outcome.problems == []
    verdict = outcome.verdict
    assert verdict.broken == 0
    assert verdict.read >= verdict.acknowledged > 0
    # Nobody was told of an error, so everything that librdkafka sent was acknowledged, and is there once.
    assert outcome.sent == verdict.acknowledged == verdict.read


def test_faults_under_load(tmp_path: Path) -> None:
    plan = Plan(
        kinds={"kill": 0.0, "pause": 3.0, "cut": 3.0},
        seconds=16,
        every_s=2.5,
        seed=7,
        java_producers=JAVA_PRODUCERS,
        settings=SHORT_SESSIONS,
    )
    with ChaosRun(plan, tmp_path) as run:
        outcome = run.judged()
        print(table([outcome]))
        assert_faultless(outcome)
        assert sum(outcome.counts.get(kind, 0) for kind in plan.kinds) >= 4, outcome.counts
        assert run.relays is not None and {("2", "1"), ("1", "2"), ("2", "controller")} <= run.relays.seen

        run.plant_duplicate()
        assert run.judge_again().duplicates == 1
        run.plant_loss()
        assert run.judge_again().lost == 1
        run.stop_and_compare()
        assert outcome.problems == []
        run.plant_other_bytes()
        assert len(differing(digests(run.cluster, "chaos", plan.partitions))) == 1


def test_zones_are_lost_under_load_of_topics_that_go_through_their_buckets(tmp_path: Path) -> None:
    """Buckets go alone and with their brokers; paused leaders come back to what is theirs no more."""
    plan = Plan(
        kinds={"pause": 3.0, "bucket": 3.0, "zone": 3.0},
        seconds=14,
        every_s=2.5,
        seed=11,
        java_producers=0,
        settings={**SHORT_SESSIONS, "remote.wal.fallback.lag.ms": "1500"},
        is_through_bucket=True,
    )
    with ChaosRun(plan, tmp_path) as run:
        outcome = run.judged()
        print(table([outcome]))
        assert_faultless(outcome)
        assert set(plan.kinds) <= outcome.counts.keys(), outcome.counts
        run.stop_and_compare()
        assert outcome.problems == []


def test_a_rolling_restart_under_load(tmp_path: Path) -> None:
    """No error reaches the applications: each leadership moves before its broker stops."""
    plan = Plan(kinds={"roll": 0.0}, java_producers=JAVA_PRODUCERS, partitions=4)
    with ChaosRun(plan, tmp_path) as run:
        outcome = run.judged()
        print(table([outcome]))
        assert_faultless(outcome)
        assert outcome.counts == {"restart": 3}
        run.stop_and_compare()
        assert outcome.problems == []
