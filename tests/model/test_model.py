"""The protocol's model keeps its promises with all rules, and breaks one without any single rule that is needed."""

from collections import Counter
from dataclasses import replace
from itertools import chain

import pytest

from tests.model import rules
from tests.model.explorer import WEIGHTS, follow, replay, shrink, walk_many, walk_to
from tests.model.hunt import WORLDS
from tests.model.removals import BY_BREADTH, BY_WAITING, BY_WALK, NOT_SHOWN, TINY, ByBreadth, ByWaiting, ByWalk
from tests.model.search import breadth_first
from tests.model.settings import Settings
from tests.model.settle import settle
from tests.model.traces import ALL, Trace

pytestmark = pytest.mark.model

WALKS = 600
STEPS = 500
EVERY_RULE = {value for name, value in vars(rules).items() if name.isupper()}
ONLY_WITHOUT_A_RULE = {"take_epoch", "lose_tail", "late_fetch"}
NEEDS = {
    "crash": "crashes",
    "restart": "crashes",
    "publish_again": "duplicates",
    "put_fails": "failed_puts",
    "publish_times_out": "timeouts",
    "backfill": "backfills",
    "zone_dies": "dead_zones",
    "zone_returns": "dead_zones",
    "elect_uncleanly": "unclean",
}
"""What happens only in a world that has it in its budget."""
OTHER_SEEDS = 3000


@pytest.mark.parametrize(
    ("settings", "states", "depth"),
    [
        pytest.param(replace(TINY, without=frozenset({rules.RESUME_AT_WATERMARK})), 34_357, 32, id="append-election"),
        pytest.param(replace(TINY, appends=2, elections=0, widest_batch=2), 4_934, 35, id="two-wide-appends"),
        pytest.param(
            replace(TINY, elections=0, deletions=1, isr_changes=1, widest_batch=2), 4_588, 26, id="wide-append-deletion"
        ),
    ],
)
def test_all_that_can_happen_within_a_bound(settings: Settings, states: int, depth: int) -> None:
    explored = breadth_first(settings, most_states=50_000)
    assert (explored.violation, explored.complete) == (None, True), explored.trace
    assert (explored.states, explored.depth) == (states, depth)


@pytest.mark.parametrize("settings", WORLDS.values(), ids=WORLDS.keys())
def test_walks_with_all_rules_break_nothing(settings: Settings) -> None:
    found, steps, seen = walk_many(settings, range(WALKS), STEPS)
    assert found is None, shrink(settings, found)
    assert steps > 50 * WALKS
    due = {kind for kind in WEIGHTS if kind not in NEEDS or getattr(settings, NEEDS[kind])} - ONLY_WITHOUT_A_RULE
    assert set(seen) == due, f"never seen: {due - set(seen)}"


@pytest.mark.parametrize("trace", ALL, ids=lambda trace: trace.name)
def test_a_story_breaks_its_promise_without_its_rules(trace: Trace) -> None:
    told, blocked_at = follow(trace.lacking(*trace.without), trace.steps)
    assert blocked_at is None
    assert told.violation is not None
    assert (told.violation.split(":")[0], len(told.trace)) == (trace.breaks, trace.after)


@pytest.mark.parametrize("trace", ALL, ids=lambda trace: trace.name)
def test_a_story_is_harmless_with_all_rules(trace: Trace) -> None:
    told, blocked_at = follow(trace.settings, trace.steps)
    assert (told.violation, blocked_at) == (None, trace.blocked_at)


@pytest.mark.parametrize("rule", [rules.LAST_EPOCH_FROM_CACHE, rules.TRIM_EPOCH_CACHE])
def test_h2_either_rule_is_enough(rule: str) -> None:
    story = next(trace for trace in ALL if rule in trace.without)
    told, blocked_at = follow(story.lacking(rule), story.steps)
    assert (told.violation, blocked_at) == (None, None)


@pytest.mark.parametrize("removal", BY_WALK, ids=lambda removal: f"{removal.promise}-{removal.rule}")
def test_a_walk_finds_that_a_rule_is_missing(removal: ByWalk) -> None:
    settings = removal.lacking()
    found, _, _ = walk_many(settings, chain([removal.seed], range(OTHER_SEEDS)), removal.steps)
    assert found is not None
    assert found.violation is not None and found.violation.split(":")[0] == removal.promise
    shortest = shrink(settings, found)
    assert len(shortest.trace) <= len(found.trace)
    assert replay(settings, shortest.trace) == replace(shortest, seed=None)
    assert replay(removal.settings, shortest.trace).violation is None


@pytest.mark.parametrize("removal", BY_BREADTH, ids=lambda removal: f"{removal.promise}-{removal.rule}")
def test_the_shortest_way_to_see_that_a_rule_is_missing(removal: ByBreadth) -> None:
    explored = breadth_first(removal.lacking(), most_states=50_000)
    assert explored.violation is not None
    assert explored.violation.split(":")[0] == removal.promise
    assert (explored.depth, len(explored.trace), explored.states) == (removal.steps, removal.steps, removal.states)


@pytest.mark.parametrize("fallback", [False, True], ids=["strict", "fallback"])
@pytest.mark.parametrize("unsafe", [False, True], ids=["calm", "deletions-and-losses"])
def test_without_further_faults_everybody_catches_up(unsafe: bool, fallback: bool) -> None:
    settings = Settings(widest_batch=3, fallback=False, deletions=int(unsafe), tail_loss=unsafe)
    ends: Counter[str] = Counter()
    for seed in range(100):
        state, walked = walk_to(settings, seed, 40 + seed * 7 % 300)
        assert walked.violation is None
        settled = settle(state, settings, fallback=fallback)
        assert settled.stuck is None, (seed, settled)
        ends["backfilled"] += settled.backfilled
    assert (ends["backfilled"] > 0) is not fallback


@pytest.mark.parametrize("removal", BY_WAITING, ids=lambda removal: f"{removal.rule}-{removal.fallback}")
def test_somebody_waits_for_ever_when_a_rule_is_missing(removal: ByWaiting) -> None:
    settings = removal.lacking()
    for seed in chain([removal.seed], range(OTHER_SEEDS)):
        state, walked = walk_to(settings, seed, 40 + seed * 7 % 300)
        assert walked.violation is None
        stuck = settle(state, settings, fallback=removal.fallback).stuck
        if stuck is not None:
            assert stuck.startswith("leader"), stuck
            return
    pytest.fail("nobody waits")


def test_without_backfill_somebody_waits_for_ever() -> None:
    settings = Settings(widest_batch=3, fallback=False)
    state, _ = walk_to(settings, 2, 40 + 14)
    assert settle(state, settings, fallback=False, backfill=False).stuck is not None


@pytest.mark.parametrize("resumed", [True, False], ids=["kept", "missing"])
def test_h12_acknowledgements_do_not_wait_for_backfill(resumed: bool) -> None:
    without = frozenset() if resumed else frozenset({rules.RESUME_AT_WATERMARK})
    settings = Settings(widest_batch=2, fallback=False, without=without)
    blocked = 0
    for seed in range(200) if resumed else [0, 304, 686]:
        state, _ = walk_to(settings, seed, 40 + seed * 7 % 300)
        settle(state, settings, fallback=False, backfill=False)
        leader = state.replicas[state.leader]
        blocked += leader.high_watermark < leader.end
    assert blocked == (0 if resumed else 3)


def test_every_rule_is_taken_away_somewhere() -> None:
    tried = {each.rule for each in (*BY_WALK, *BY_BREADTH, *BY_WAITING)}
    tried.add(rules.RESUME_AT_WATERMARK)  # h12, above
    tried.update(rule for each in ALL for rule in each.without)
    assert tried | set(NOT_SHOWN) == EVERY_RULE
    assert not tried & set(NOT_SHOWN)
