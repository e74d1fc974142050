"""Traces made by hand: each breaks a promise when its rule is missing, and is blocked or does no harm when it is kept.

They need too many exact steps to be met by chance.  A slice is announced by `_upload`; `LAST_IN_FLIGHT` lands the event
that was sent last.
"""

from dataclasses import dataclass, replace
from typing import Final

from tests.model import rules
from tests.model.action import Action
from tests.model.controller import NO_NEW_LEADER
from tests.model.leader import EVERYTHING, ONE_BATCH
from tests.model.settings import Settings

LAST_IN_FLIGHT: Final = Action("land", argument=-1)
PLAIN: Final = Settings(deep=False)


@dataclass(frozen=True, slots=True)
class Trace:
    """A story, the rules it is about, and what it breaks when all of them are missing at once."""

    name: str
    without: frozenset[str]
    steps: tuple[Action, ...]
    breaks: str
    """The promise, and after how many steps."""
    after: int
    blocked_at: int | None
    """With all rules this step is not possible any more; None: all are, and do no harm."""
    settings: Settings = PLAIN

    def lacking(self, *without: str) -> Settings:
        """The settings with these rules missing."""
        return replace(self.settings, without=frozenset(without))


def _do(kind: str, replica: int, argument: int | tuple[int, ...] = 0) -> list[Action]:
    return [Action(kind, replica, argument)]


def _append(leader: int, times: int = 1) -> list[Action]:
    return _do("append", leader, 1) * times


def _fetch(follower: int, *, records: bool = True) -> list[Action]:
    return [Action("fetch", follower), Action("serve", follower, int(records)), Action("answer", follower)]


def _handshake(follower: int) -> list[Action]:
    return _fetch(follower, records=False)


def _upload(leader: int, number: int, batches: int) -> list[Action]:
    return [
        Action("slice", leader, batches),
        Action("put", leader, number),
        Action("publish", leader, number),
        LAST_IN_FLIGHT,
    ]


def _elect(leader: int, *learners: int) -> list[Action]:
    return [Action("elect", leader), *(Action("learn", each) for each in (leader, *learners))]


def _isr(leader: int, *members: int) -> list[Action]:
    return [Action("propose_isr", leader, members), Action("judge_proposal", leader), Action("hear_verdict", leader)]


def _from_bucket(follower: int, entry: int = 0) -> list[Action]:
    return [Action("get", follower, entry), Action("append_download", follower)]


def _story(*parts: list[Action]) -> tuple[Action, ...]:
    return tuple(action for part in parts for action in part)


LINEAGE_KEPT: Final = Trace(
    "h8: what the leader of epoch 1 said of epoch 0 is used in epoch 2",
    frozenset({rules.LINEAGE_OF_THIS_EPOCH}),
    _story(
        [*_append(0), *_fetch(1), *_append(0, 2), *_upload(0, 1, EVERYTHING), *_do("consume", 2)],
        [*_elect(0, 2), *_handshake(2), *_do("ask_lineage", 2, 0)],
        [*_elect(1, 2), *_handshake(2), *_from_bucket(2)],
    ),
    breaks="I3",
    after=26,
    blocked_at=24,
)
LATE_EPOCH: Final = Trace(
    "h3: bytes of epoch 0 are announced under epoch 2",
    frozenset({rules.EPOCH_OF_THE_READ}),
    _story(
        [*_append(0), *_do("slice", 0, ONE_BATCH), *_elect(1, 0), *_handshake(0)],
        [*_elect(0), *_append(0), *_do("take_epoch", 0, 1), *_do("put", 0, 1), *_do("publish", 0, 1), LAST_IN_FLIGHT],
        [*_do("learn", 2), *_do("consume", 2), *_handshake(2), *_from_bucket(2)],
    ),
    breaks="I3",
    after=22,
    blocked_at=11,
)
FALSE_EPOCH_START: Final = Trace(
    "h2: an epoch without a batch stays in the cache, and takes the start of the one before with it",
    frozenset({rules.LAST_EPOCH_FROM_CACHE, rules.TRIM_EPOCH_CACHE}),
    _story(
        [*_elect(2, 0, 1), *_append(2, 2), *_fetch(0), *_fetch(1), *_append(2)],
        [*_elect(0, 1), *_append(0), *_fetch(1), *_append(0)],
        [*_elect(1), *_elect(0, 1), *_fetch(1), *_fetch(1)],
        [*_elect(1, 0, 2), *_fetch(0), *_fetch(0), *_fetch(2), *_fetch(2)],
    ),
    breaks="I5",
    after=44,
    blocked_at=None,
)
ENDS_KEPT: Final = Trace(
    "a leader believes what it knew of its followers in an earlier epoch",
    frozenset({rules.FOLLOWERS_UNKNOWN_AT_FIRST}),
    _story(
        [*_append(0, 2), *_fetch(1), *_handshake(1), *_elect(2, 0, 1), *_handshake(0), *_handshake(1)],
        [*_elect(0), *_append(0, 2), *_do("learn", 2), *_fetch(2), *_handshake(2)],
    ),
    breaks="I5",
    after=28,
    blocked_at=None,
)
JOINED_TOO_EARLY: Final = Trace(
    "a follower joins that has reached the high watermark, not the start of the epoch",
    frozenset({rules.JOIN_FROM_EPOCH_START}),
    _story(
        [*_append(0, 2), *_fetch(1), *_handshake(1), *_isr(0, 0, 1)],
        [*_elect(1, 2), *_handshake(2), *_do("propose_isr", 1, (0, 1, 2)), *_do("judge_proposal", 1), *_elect(2)],
    ),
    breaks="I1",
    after=21,
    blocked_at=17,
)
ASKED_TOO_EARLY: Final = Trace(
    "h8: a broker that does not lead the epoch yet says what is in its log, and is believed before the handshake",
    frozenset({rules.LINEAGE_FROM_THE_LEADER, rules.LINEAGE_AFTER_HANDSHAKE}),
    _story(
        [*_append(0, 2), *_fetch(1), *_upload(0, 1, EVERYTHING), *_elect(2), *_do("learn", 1), *_do("fetch", 1)],
        [*_do("serve", 1, 0), *_do("elect", 1), *_do("consume", 2), *_do("learn", 2), *_do("ask_lineage", 2, 0)],
        [*_do("answer", 1), *_do("learn", 1), *_handshake(2), *_from_bucket(2)],
    ),
    breaks="I3",
    after=25,
    blocked_at=17,
)
EARLIER_LIFE: Final = Trace(
    "h6: a fetch of before a crash vouches for a log that has lost its tail",
    frozenset({rules.OLD_INCARNATION_IS_REFUSED}),
    _story(
        [*_append(0, 2), *_fetch(1), *_fetch(2), *_do("fetch", 1), *_do("fetch", 2), *_do("serve", 2, 0)],
        [*_do("crash", 1), *_do("fence", 1, NO_NEW_LEADER), *_do("restart", 1, 2), *_do("learn", 0)],
        [Action("late_fetch"), *_isr(0, 0, 1, 2)],
    ),
    breaks="I5",
    after=18,
    blocked_at=15,
    settings=replace(PLAIN, tail_loss=True),
)
RESET_RACES: Final = Trace(
    "h5: a follower that was out of range catches up through the bucket, joins, and is reset by the old decision",
    frozenset({rules.RESET_EXCLUDES}),
    _story(
        [*_handshake(2), *_isr(0, 0, 1), *_append(0, 2), *_fetch(1), *_handshake(1), *_append(0)],
        [*_upload(0, 1, EVERYTHING), *_do("consume", 2), *_do("fetch", 2), *_do("delete_records", 0, 2)],
        [*_do("serve", 2, 0), *_do("answer", 2), *_from_bucket(2), *_handshake(2), *_isr(0, 0, 1, 2)],
        [*_fetch(1), *_handshake(1), *_do("reset", 2)],
    ),
    breaks="I5",
    after=39,
    blocked_at=24,
    settings=replace(PLAIN, deletions=1),
)
ALL: Final = (
    LINEAGE_KEPT,
    LATE_EPOCH,
    FALSE_EPOCH_START,
    ENDS_KEPT,
    JOINED_TOO_EARLY,
    ASKED_TOO_EARLY,
    EARLIER_LIFE,
    RESET_RACES,
)
