"""What breaks when a rule is taken away, and where that is known to be found.

A removal names a seed at which a walk meets the counter-example at once.  When the model changes, the seed may meet
nothing any more; the tests then try others, and `python -m tests.model.hunt` prints one to write down here.
"""

from dataclasses import dataclass, replace
from typing import Final

from tests.model import rules
from tests.model.settings import Settings

QUIET: Final = Settings(
    crashes=0, duplicates=0, failed_puts=0, timeouts=0, backfills=0, isr_changes=0, fallback=False, widest_batch=2
)
"""Little beside elections and uploads, so that a walk gets far within them."""
ROUGH: Final = Settings(deletions=1, tail_loss=True, widest_batch=2)
TINY: Final = Settings(
    replicas=2,
    appends=1,
    elections=1,
    crashes=0,
    duplicates=0,
    failed_puts=0,
    timeouts=0,
    backfills=0,
    isr_changes=0,
    slices_in_flight=1,
    fallback=False,
)
"""Two replicas, an append and an election: small enough to be searched to the end."""


@dataclass(frozen=True, slots=True)
class ByWalk:
    """A walk from this seed breaks the promise."""

    rule: str
    promise: str
    seed: int
    settings: Settings
    steps: int = 500

    def lacking(self) -> Settings:
        """The settings without the rule."""
        return replace(self.settings, without=frozenset({self.rule}))


@dataclass(frozen=True, slots=True)
class ByBreadth:
    """The shortest way to break the promise has this many steps, and this many states are seen until then."""

    rule: str
    promise: str
    steps: int
    states: int
    settings: Settings

    def lacking(self) -> Settings:
        """The settings without the rule."""
        return replace(self.settings, without=self.settings.without | {self.rule})


@dataclass(frozen=True, slots=True)
class ByWaiting:
    """After a walk from this seed, and without further faults, somebody waits for ever."""

    rule: str
    seed: int
    settings: Settings
    fallback: bool = False

    def lacking(self) -> Settings:
        """The settings without the rule."""
        return replace(self.settings, without=self.settings.without | {self.rule})


BY_WALK: Final = (
    ByWalk(rules.LINEAGE, "I5", 87, ROUGH),
    ByWalk(rules.BATCH_EPOCHS, "I3", 205, replace(QUIET, appends=5, elections=3), 150),
    ByWalk(rules.BATCH_EPOCHS, "I5", 351, replace(QUIET, replicas=2, appends=5, elections=4, isr_changes=2), 150),
    ByWalk(rules.HOLD_LATER_EPOCHS, "I8", 269, replace(QUIET, appends=4, elections=3), 150),
    ByWalk(rules.HANDSHAKE, "I8", 33, ROUGH),
    ByWalk(rules.NO_GAP, "I5", 11, ROUGH),
    ByWalk(rules.CHECK_AGAIN_AT_APPEND, "I9", 164, replace(QUIET, replicas=2, appends=4, elections=3), 120),
    ByWalk(
        rules.FLOOR_ANSWER_IS_VOID,
        "I5",
        254,
        replace(QUIET, replicas=2, appends=4, elections=3, isr_changes=2, deletions=2, widest_batch=1),
        120,
    ),
    ByWalk(
        rules.RESET_EXCLUDES,
        "I5",
        321,
        replace(QUIET, replicas=2, appends=6, elections=2, isr_changes=3, deletions=2),
        200,
    ),
    ByWalk(rules.WATERMARK_WITHIN_THE_LOG, "I5", 0, ROUGH),
    ByWalk(rules.DIVERGING_FETCH_IS_NOT_COUNTED, "I5", 12, ROUGH),
    ByWalk(rules.DIVERGING_ANSWER_ONLY_TRUNCATES, "I5", 12, ROUGH),
    ByWalk(rules.STALE_ANSWERS_ARE_DROPPED, "I5", 400, Settings(appends=10, unclean=3, deep=False)),
    ByWalk(rules.MAXIMAL_ISR, "I5", 3, ROUGH),
    ByWalk(rules.NEW_EPOCH_AFTER_LOSS, "I3", 19, ROUGH),
    ByWalk(rules.EPOCH_OF_THE_READ, "I7", 72, ROUGH),
    ByWalk(rules.RESERVATION, "I7", 17, ROUGH),
    ByWalk(rules.PUBLISH_IN_ORDER, "I7", 4, ROUGH),
    ByWalk(rules.WHOLE_BATCHES, "I4", 0, ROUGH),
    ByWalk(rules.CUT_AT_A_BATCH, "I4", 132, replace(ROUGH, deletions=2, widest_batch=3)),
    ByWalk(rules.STRADDLE_KEEPS_LOG_START, "I10", 8, replace(ROUGH, deletions=2, widest_batch=3)),
)
BY_BREADTH: Final = (
    ByBreadth(rules.NO_GAP, "I4", 18, 599, replace(TINY, appends=2, elections=0)),
    ByBreadth(rules.WATERMARK_WITHIN_THE_LOG, "I5", 6, 1038, replace(TINY, isr_changes=1)),
    ByBreadth(rules.DIVERGING_FETCH_IS_NOT_COUNTED, "I5", 7, 7478, replace(TINY, appends=2, elections=2)),
    ByBreadth(rules.DIVERGING_ANSWER_ONLY_TRUNCATES, "I5", 8, 19114, replace(TINY, appends=2, elections=2)),
    ByBreadth(rules.MAXIMAL_ISR, "I5", 2, 10, replace(TINY, isr_changes=1, elections=2)),
    ByBreadth(rules.NEW_EPOCH_AFTER_LOSS, "I3", 12, 291, replace(TINY, crashes=1, elections=0)),
    ByBreadth(rules.WHOLE_BATCHES, "I4", 11, 245, replace(TINY, elections=0, widest_batch=2)),
)
_STRICT: Final = Settings(fallback=False, widest_batch=3)
BY_WAITING: Final = (
    ByWaiting(rules.PUT_BEFORE_PUBLISH, 1, _STRICT),
    ByWaiting(rules.ENTRIES_ARE_NOT_REPLACED, 23, _STRICT),
    ByWaiting(rules.ENTRIES_KEPT_TO_WATERMARK, 11, _STRICT),
    ByWaiting(rules.STRADDLE_INTO_AN_EMPTY_LOG, 3, replace(_STRICT, deletions=1, tail_loss=True)),
    ByWaiting(rules.STRADDLE_INTO_AN_EMPTY_LOG, 3, replace(_STRICT, deletions=1, tail_loss=True), fallback=True),
    # With RESUME_AT_WATERMARK as well a new leader publishes again what is invalidated, and nobody waits.
    ByWaiting(
        rules.INVALIDATION_OF_THIS_EPOCH,
        271,
        Settings(fallback=False, without=frozenset({rules.RESUME_AT_WATERMARK})),
    ),
)
NOT_SHOWN: Final = {
    rules.CHECK_AGAIN_AT_PUBLISH: "saves traffic; the lineage test refuses what it would have held back",
}
"""Rules whose removal breaks nothing that the walks of these tests would meet."""
