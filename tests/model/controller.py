"""Elections, fencing, crashes, restarts, zones that die, and what the metadata topic orders."""

from collections.abc import Iterator

from tests.model import rules
from tests.model.action import Action
from tests.model.epoch_cache import truncate_from_end
from tests.model.follower import become_follower
from tests.model.leader import become_leader, move_high_watermark, serve
from tests.model.settings import CRASHES, DEAD_ZONES, ELECTIONS, UNCLEAN, Settings
from tests.model.state import NOBODY, NOT_RESETTING, Entry, Request, Role, State

NO_NEW_LEADER = -2


def enabled(state: State, settings: Settings) -> Iterator[Action]:
    """What may happen around the replicas."""
    for number in range(len(state.late_fetches)):
        yield Action("late_fetch", argument=number)
    for number in range(len(state.in_flight)):
        yield Action("land", argument=number)
    if state.budget[ELECTIONS]:
        for each in range(settings.replicas):
            if each in state.isr and each not in state.fenced:
                yield Action("elect", each)
        for each in range(settings.replicas):
            if each not in state.fenced:
                yield from _enabled_fences(state, each)
    if state.budget[UNCLEAN]:
        for each in range(settings.replicas):
            if each not in state.fenced and state.replicas[each].up:
                yield Action("elect_uncleanly", each)
    if state.budget[DEAD_ZONES]:
        for zone in range(settings.replicas):
            if zone not in state.dead_zones:
                yield Action("zone_dies", zone)
    for zone in state.dead_zones:
        yield Action("zone_returns", zone)


def _enabled_fences(state: State, each: int) -> Iterator[Action]:
    if state.leader != each:
        yield Action("fence", each, NO_NEW_LEADER)
        return
    for other in state.isr:
        if other != each and other not in state.fenced:
            yield Action("fence", each, other)
    if len(state.isr) == 1:
        yield Action("fence", each, NOBODY)


def enabled_when_down(state: State, settings: Settings, me: int) -> Iterator[Action]:
    """A broker returns once it was fenced; the argument is how many of its last batches it lost."""
    if me not in state.fenced:
        return
    replica = state.replicas[me]
    yield Action("restart", me, 0)
    if settings.tail_loss and replica.end > replica.start and me not in state.isr:
        yield Action("restart", me, 1)
        yield Action("restart", me, 2)


def enabled_when_up(state: State, settings: Settings, me: int) -> Iterator[Action]:
    """Learning, and the ways a running broker may be hit."""
    replica = state.replicas[me]
    if me in state.fenced:
        yield Action("unfence", me)
    if rules.NEW_EPOCH_AFTER_LOSS in settings.without and replica.role == Role.LEADER and state.budget[CRASHES]:
        yield Action("lose_tail", me)
    accepted = replica.proposal is not None and replica.proposal.verdict == 1
    missed_isr = replica.role == Role.LEADER and replica.known_epoch == state.epoch and replica.isr != state.isr
    if replica.known_epoch < state.epoch or (missed_isr and not accepted):
        yield Action("learn", me)
    if replica.consumed < len(state.metadata):
        yield Action("consume", me)


def first_state(state: State, settings: Settings) -> None:
    """Replica 0 leads in epoch 0 and all know it."""
    for each in range(settings.replicas):
        learn(state, settings, Action("learn", each))
    state.in_flight.clear()


def learn(state: State, settings: Settings, action: Action) -> None:
    """The newest metadata reaches a broker."""
    me = action.replica
    replica = state.replicas[me]
    if replica.known_epoch == state.epoch:
        replica.isr, replica.proposal = state.isr, None
        move_high_watermark(state, settings, me)
        return
    replica.known_epoch = state.epoch
    if state.leader == me:
        become_leader(state, settings, me)
    else:
        become_follower(state, settings, me)


def land(state: State, settings: Settings, action: Action) -> None:
    """The metadata topic takes one of the events in flight; those of one term have to be contiguous (I7)."""
    entry = state.in_flight.pop(action.number)
    state.metadata.append(entry)
    if not entry.object_id or entry.backfill:
        return
    publisher = state.replicas[entry.publisher]
    publisher.slices = [
        each._replace(landed=True) if each.object_id == entry.object_id else each for each in publisher.slices
    ]
    end = None
    for each in _first_events_of_the_term(state, entry):
        if end is not None and each.start > end and each.start > publisher.start:
            state.broken(f"I7: epoch {entry.epoch}: from {end} to {each.start} nothing was announced")
        end = each.end if end is None else max(end, each.end)


def _first_events_of_the_term(state: State, entry: Entry) -> Iterator[Entry]:
    seen: set[int] = set()
    for each in state.metadata:
        if each.object_id and not each.backfill and (each.epoch, each.publisher) == (entry.epoch, entry.publisher):
            if each.object_id not in seen:
                yield each
            seen.add(each.object_id)


def elect(state: State, settings: Settings, action: Action) -> None:
    """A new epoch for an in-sync replica, which may be the leader of now."""
    state.budget[ELECTIONS] -= 1
    _new_epoch(state, action.replica)


def elect_uncleanly(state: State, settings: Settings, action: Action) -> None:
    """A new epoch for anybody."""
    state.budget[UNCLEAN] -= 1
    _new_epoch(state, action.replica)
    state.isr = (action.replica,)


def _new_epoch(state: State, leader: int) -> None:
    state.epoch += 1
    state.leader = leader


def fence(state: State, settings: Settings, action: Action) -> None:
    """A broker's session is over: out of the in-sync replicas unless it is the last; another may lead."""
    me = action.replica
    state.budget[ELECTIONS] -= 1
    state.fenced = sorted([*state.fenced, me])
    if len(state.isr) > 1:
        state.isr = tuple(each for each in state.isr if each != me)
    if state.leader == me:
        _new_epoch(state, max(action.number, NOBODY))


def unfence(state: State, settings: Settings, action: Action) -> None:
    """Back; the last in-sync replica leads again."""
    me = action.replica
    state.fenced.remove(me)
    if state.leader == NOBODY and me in state.isr:
        _new_epoch(state, me)


def crash(state: State, settings: Settings, action: Action) -> None:
    """The process is gone, its log is there."""
    me = action.replica
    replica = state.replicas[me]
    state.budget[CRASHES] -= 1
    if rules.OLD_INCARNATION_IS_REFUSED in settings.without and isinstance(replica.fetch, Request):
        state.late_fetches.append((me, replica.fetch))
    replica.up, replica.role, replica.leader = False, Role.NONE, NOBODY
    replica.slices, replica.downloads, replica.entries, replica.invalidations = [], [], [], []
    replica.fetch = replica.stale_fetch = replica.proposal = None
    replica.handshaken, replica.reset_to, replica.leader_high_watermark = False, NOT_RESETTING, 0
    replica.lineage, replica.consumed = [], 0


def restart(state: State, settings: Settings, action: Action) -> None:
    """A new life: it knows no epoch, reads the metadata topic from its beginning, and may have lost its tail."""
    me = action.replica
    replica = state.replicas[me]
    replica.up, replica.known_epoch = True, -1
    if action.argument:
        replica.truncate(replica.end_without(action.number))
    truncate_from_end(replica.epochs, replica.end)
    unfence(state, settings, action)


def lose_tail(state: State, settings: Settings, action: Action) -> None:
    """Without NEW_EPOCH_AFTER_LOSS: a leader's log gets shorter, and it leads on in the same epoch."""
    replica = state.replicas[action.replica]
    state.budget[CRASHES] -= 1
    kept = max(replica.epoch_start, replica.high_watermark, replica.end_without(1))
    replica.truncate(kept)
    replica.wal_next = replica.wal_reserved = min(replica.wal_next, kept)
    replica.slices = []


def late_fetch(state: State, settings: Settings, action: Action) -> None:
    """Without OLD_INCARNATION_IS_REFUSED: a fetch of before a crash arrives."""
    follower, request = state.late_fetches.pop(action.number)
    serve(state, settings, follower, request, with_records=False)


def zone_dies(state: State, settings: Settings, action: Action) -> None:
    """A bucket cannot be reached."""
    state.budget[DEAD_ZONES] -= 1
    state.dead_zones.append(action.replica)


def zone_returns(state: State, settings: Settings, action: Action) -> None:
    """It can."""
    state.dead_zones.remove(action.replica)


HANDLERS = {
    "learn": learn,
    "land": land,
    "elect": elect,
    "elect_uncleanly": elect_uncleanly,
    "fence": fence,
    "unfence": unfence,
    "crash": crash,
    "restart": restart,
    "lose_tail": lose_tail,
    "late_fetch": late_fetch,
    "zone_dies": zone_dies,
    "zone_returns": zone_returns,
}
