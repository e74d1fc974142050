"""The leader's half: appending, uploading, announcing, answering fetches, asking for in-sync replicas."""

from collections.abc import Iterator

from tests.model import rules
from tests.model.action import Action
from tests.model.epoch_cache import assign, end_offset_for
from tests.model.settings import APPENDS, BACKFILLS, DELETIONS, DUPLICATES, FAILED_PUTS, ISR_CHANGES, TIMEOUTS, Settings
from tests.model.state import (
    UNKNOWN,
    Answer,
    Cell,
    Entry,
    Phase,
    Proposal,
    Replica,
    Request,
    Response,
    Role,
    Slice,
    State,
)

ONE_BATCH, EVERYTHING, ONE_OFFSET = 1, 0, -1
ON_ITS_WAY, ACCEPTED, REFUSED = 0, 1, 2
BATCHES_IN_AN_ANSWER = 2


def enabled(state: State, settings: Settings, me: int) -> Iterator[Action]:
    """What the leader itself may do now."""
    replica = state.replicas[me]
    if state.budget[APPENDS]:
        for width in range(1, settings.widest_batch + 1):
            yield Action("append", me, width)
    if replica.wal_reserved < replica.end and len(replica.slices) < settings.slices_in_flight:
        yield from _enabled_slices(replica, settings, me)
    if state.budget[BACKFILLS] and replica.epoch_start > replica.start:
        yield Action("backfill", me)
    if state.budget[DELETIONS] and replica.high_watermark > replica.start:
        yield Action("delete_records", me, replica.high_watermark)
        if settings.widest_batch > 1 and replica.high_watermark - 1 > replica.start:
            yield Action("delete_records", me, replica.high_watermark - 1)
    if replica.proposal is None:
        if state.budget[ISR_CHANGES]:
            yield from _enabled_proposals(replica, settings, me)
    elif replica.proposal.verdict == ON_ITS_WAY:
        yield Action("judge_proposal", me)
    else:
        yield Action("hear_verdict", me)


def _enabled_slices(replica: Replica, settings: Settings, me: int) -> Iterator[Action]:
    yield Action("slice", me, ONE_BATCH)
    cell = replica.log[replica.wal_reserved]
    if cell is None or replica.wal_reserved + cell.width - cell.position < replica.end:
        yield Action("slice", me, EVERYTHING)
    if rules.WHOLE_BATCHES in settings.without:
        yield Action("slice", me, ONE_OFFSET)


def _enabled_proposals(replica: Replica, settings: Settings, me: int) -> Iterator[Action]:
    for other in range(settings.replicas):
        end = replica.follower_ends[other]
        reached = end >= replica.epoch_start or rules.JOIN_FROM_EPOCH_START in settings.without
        if other == me:
            continue
        if other in replica.isr:
            yield Action("propose_isr", me, tuple(each for each in replica.isr if each != other))
        elif end >= replica.high_watermark and end >= 0 and reached:
            yield Action("propose_isr", me, tuple(sorted((*replica.isr, other))))


def enabled_slice_steps(state: State, settings: Settings, me: int) -> Iterator[Action]:
    """What may happen to the slices on their way; a deposed leader's travel on."""
    replica = state.replicas[me]
    for place, each in enumerate(replica.slices):
        number = each.object_id
        if each.phase == Phase.EPOCH_UNKNOWN:
            if replica.role == Role.LEADER:
                yield Action("take_epoch", me, number)
        elif each.phase == Phase.READ:
            if me not in state.dead_zones:
                yield Action("put", me, number)
            if state.budget[FAILED_PUTS]:
                yield Action("put_fails", me, number)
            if rules.PUT_BEFORE_PUBLISH in settings.without and place == 0:
                yield Action("publish", me, number)
        elif each.phase == Phase.STORED:
            if place == 0 or each.released or rules.PUBLISH_IN_ORDER in settings.without:
                yield Action("publish", me, number)
        else:
            if each.landed:
                yield Action("publish_acked", me, number)
            if state.budget[DUPLICATES]:
                yield Action("publish_again", me, number)
            if state.budget[TIMEOUTS]:
                yield Action("publish_times_out", me, number)


def become_leader(state: State, settings: Settings, me: int) -> None:
    """Begin to lead in the known epoch; the acknowledged records have to be there."""
    replica = state.replicas[me]
    replica.role, replica.leader, replica.epoch_start = Role.LEADER, me, replica.end
    assign(replica.epochs, replica.known_epoch, replica.end)
    if rules.FOLLOWERS_UNKNOWN_AT_FIRST not in settings.without:
        replica.follower_ends = [UNKNOWN] * settings.replicas
    replica.isr, replica.proposal = state.isr, None
    resume = max(replica.high_watermark, replica.start)
    if rules.RESUME_AT_WATERMARK in settings.without:
        resume = replica.end
    replica.wal_next = replica.wal_reserved = replica.batch_start(resume)
    replica.fetch, replica.reset_to, replica.handshaken, replica.lineage = None, -1, False, []
    if not settings.unclean:
        for offset, cell in enumerate(state.committed):
            if offset >= replica.start and (offset >= replica.end or replica.log[offset] != cell):
                state.broken(f"I1: new leader {me} of epoch {replica.known_epoch} lacks {cell} at {offset}")
                break
    state.in_flight.append(Entry(replica.end, 0, replica.known_epoch, me))
    move_high_watermark(state, settings, me)


def move_high_watermark(state: State, settings: Settings, me: int) -> None:
    """To the least log end of the maximal in-sync replicas, never back; what it passes is acknowledged."""
    replica = state.replicas[me]
    if replica.role != Role.LEADER:
        return
    members = set(replica.isr)
    if replica.proposal is not None:
        proposed = set(replica.proposal.isr)
        members = proposed if rules.MAXIMAL_ISR in settings.without else members | proposed
    reached = min([replica.end, *(replica.follower_ends[each] for each in members if each != me)])
    if reached <= replica.high_watermark:
        return
    replica.high_watermark = reached
    if settings.unclean:
        return
    for offset in range(reached):
        if offset >= len(state.committed):
            state.committed.append(replica.log[offset])
        elif offset >= replica.start and state.committed[offset] != replica.log[offset]:
            state.broken(f"I1: leader {me} commits {replica.log[offset]} at {offset}, not {state.committed[offset]}")
            return


def serve(state: State, settings: Settings, follower: int, request: Request, *, with_records: bool) -> Response:
    """Answer a fetch: the usual checks, then the follower's position, then (never, but as a fallback) records."""
    leader = state.replicas[request.leader]
    offset, epoch = request.offset, request.epoch
    if not state.leads_now(request.leader, epoch):
        return Response(epoch, offset, Answer.ERROR)
    diverging = None
    if request.last_epoch >= 0:
        known, end = end_offset_for(leader.epochs, request.last_epoch, leader.end)
        if known < request.last_epoch or end < offset:
            diverging = known, end
    if offset < leader.start or (offset > leader.end and diverging is None):
        return Response(epoch, offset, Answer.OUT_OF_RANGE)
    high_watermark = leader.high_watermark
    counted = diverging is None or rules.DIVERGING_FETCH_IS_NOT_COUNTED in settings.without
    if counted:
        leader.follower_ends[follower] = offset
        move_high_watermark(state, settings, request.leader)
    if diverging is not None:
        return Response(
            epoch, offset, Answer.DIVERGING, leader.high_watermark, leader.start, offset, diverging=diverging
        )
    base, cells = _records(leader, offset) if with_records else (offset, ())
    return Response(epoch, offset, Answer.OK, high_watermark, leader.start, base, cells)


def _records(leader: Replica, offset: int) -> tuple[int, tuple[Cell, ...]]:
    base = end = leader.batch_start(offset)
    for _ in range(BATCHES_IN_AN_ANSWER):
        if end < leader.end:
            end = batch_end(leader, end)
    return base, cells_of(leader, base, end)


def batch_end(replica: Replica, offset: int) -> int:
    """The offset after the batch around an offset."""
    cell = replica.log[offset]
    return offset + 1 if cell is None else min(replica.end, offset + cell.width - cell.position)


def cells_of(replica: Replica, start: int, end: int) -> tuple[Cell, ...]:
    """What stands in a range that has no holes."""
    return tuple(cell for cell in replica.log[start:end] if cell is not None)


def append(state: State, settings: Settings, action: Action) -> None:
    """A producer's batch."""
    me, width = action.replica, action.number
    replica = state.replicas[me]
    state.budget[APPENDS] -= 1
    replica.append(tuple(Cell(replica.known_epoch, state.next_batch, place, width) for place in range(width)))
    state.next_batch += 1
    move_high_watermark(state, settings, me)


def take_slice(state: State, settings: Settings, action: Action) -> None:
    """Read what comes next, a batch or all there is, and reserve it."""
    me = action.replica
    replica = state.replicas[me]
    if replica.wal_reserved < replica.start:
        replica.wal_next = replica.wal_reserved = replica.batch_start(replica.start)
    start = replica.wal_reserved
    if start >= replica.end:
        return
    end = replica.end
    if action.argument == ONE_BATCH:
        end = batch_end(replica, start)
    elif action.argument == ONE_OFFSET:
        end = start + 1
    number = state.new_object(stored=False, cells=cells_of(replica, start, end), zone=me)
    if rules.EPOCH_OF_THE_READ in settings.without:
        replica.slices.append(Slice(number, start, end, UNKNOWN, Phase.EPOCH_UNKNOWN, False, False))
    else:
        replica.slices.append(Slice(number, start, end, replica.known_epoch, Phase.READ, False, False))
    replica.wal_reserved = end


def take_epoch(state: State, settings: Settings, action: Action) -> None:
    """Without EPOCH_OF_THE_READ: the epoch of now for bytes of then."""
    replica = state.replicas[action.replica]
    place = replica.slice_of(action.number)
    replica.slices[place] = replica.slices[place]._replace(epoch=replica.known_epoch, phase=Phase.READ)


def put(state: State, settings: Settings, action: Action) -> None:
    """The object is there."""
    replica = state.replicas[action.replica]
    place = replica.slice_of(action.number)
    state.objects[action.number - 1] = state.objects[action.number - 1]._replace(stored=True)
    replica.slices[place] = replica.slices[place]._replace(phase=Phase.STORED)


def put_fails(state: State, settings: Settings, action: Action) -> None:
    """For good: the reservation is given back."""
    state.budget[FAILED_PUTS] -= 1
    _release(state.replicas[action.replica], action.number, settings)


def publish_times_out(state: State, settings: Settings, action: Action) -> None:
    """The event may land later; the reservation is given back."""
    state.budget[TIMEOUTS] -= 1
    _release(state.replicas[action.replica], action.number, settings)


def _release(replica: Replica, number: int, settings: Settings) -> None:
    place = replica.slice_of(number)
    if rules.RESERVATION in settings.without:
        replica.slices[place:] = [each._replace(released=True) for each in replica.slices[place:]]
    else:
        del replica.slices[place:]
    replica.wal_reserved = replica.wal_next


def publish(state: State, settings: Settings, action: Action) -> None:
    """Send the event, unless we no longer lead in the slice's epoch."""
    replica = state.replicas[action.replica]
    place = replica.slice_of(action.number)
    each = replica.slices[place]
    still = replica.role == Role.LEADER and replica.known_epoch == each.epoch and replica.end >= each.end
    if still or rules.CHECK_AGAIN_AT_PUBLISH in settings.without:
        state.in_flight.append(_entry_of(each, action.replica))
        replica.slices[place] = each._replace(phase=Phase.SENT)
    else:
        del replica.slices[place]


def publish_again(state: State, settings: Settings, action: Action) -> None:
    """A retry of an event whose answer was lost."""
    state.budget[DUPLICATES] -= 1
    replica = state.replicas[action.replica]
    state.in_flight.append(_entry_of(replica.slices[replica.slice_of(action.number)], action.replica))


def _entry_of(each: Slice, publisher: int) -> Entry:
    return Entry(each.start, each.end, each.epoch, publisher, each.object_id)


def publish_acked(state: State, settings: Settings, action: Action) -> None:
    """walNext moves when the answer is for the slice that begins there."""
    replica = state.replicas[action.replica]
    each = replica.slices.pop(replica.slice_of(action.number))
    if each.epoch != replica.known_epoch or replica.role != Role.LEADER:
        return
    if each.start == replica.wal_next:
        replica.wal_next = each.end
    elif rules.RESERVATION in settings.without:
        replica.wal_next = each.end
        replica.wal_reserved = max(replica.wal_reserved, each.end) if replica.wal_reserved >= each.start else each.end


def backfill(state: State, settings: Settings, action: Action) -> None:
    """Publish again what earlier leaders appended."""
    me = action.replica
    replica = state.replicas[me]
    state.budget[BACKFILLS] -= 1
    start, end = replica.batch_start(replica.start), replica.epoch_start
    number = state.new_object(stored=True, cells=cells_of(replica, start, end), zone=me)
    state.in_flight.append(Entry(start, end, replica.known_epoch, me, number, True))


def delete_records(state: State, settings: Settings, action: Action) -> None:
    """DeleteRecords, up to the high watermark; it may end within a batch."""
    replica = state.replicas[action.replica]
    state.budget[DELETIONS] -= 1
    replica.move_start(action.number)
    first = replica.batch_start(replica.start)
    replica.wal_next = max(replica.wal_next, first)
    replica.wal_reserved = max(replica.wal_reserved, first)


def propose_isr(state: State, settings: Settings, action: Action) -> None:
    """AlterPartition leaves."""
    assert isinstance(action.argument, tuple)
    state.budget[ISR_CHANGES] -= 1
    state.replicas[action.replica].proposal = Proposal(action.argument, ON_ITS_WAY)
    if rules.MAXIMAL_ISR in settings.without:
        move_high_watermark(state, settings, action.replica)


def judge_proposal(state: State, settings: Settings, action: Action) -> None:
    """The controller takes it from the leader of now, on top of the set of now, without fenced brokers."""
    replica = state.replicas[action.replica]
    assert replica.proposal is not None
    isr = replica.proposal.isr
    leads = replica.known_epoch == state.epoch and state.leader == action.replica
    if leads and replica.isr == state.isr and not any(each in state.fenced for each in isr):
        state.isr = isr
        replica.proposal = Proposal(isr, ACCEPTED)
    else:
        replica.proposal = Proposal(isr, REFUSED)


def hear_verdict(state: State, settings: Settings, action: Action) -> None:
    """The answer to AlterPartition."""
    replica = state.replicas[action.replica]
    assert replica.proposal is not None
    if replica.proposal.verdict == ACCEPTED:
        replica.isr = replica.proposal.isr
    replica.proposal = None
    move_high_watermark(state, settings, action.replica)


HANDLERS = {
    "append": append,
    "slice": take_slice,
    "take_epoch": take_epoch,
    "put": put,
    "put_fails": put_fails,
    "publish": publish,
    "publish_again": publish_again,
    "publish_acked": publish_acked,
    "publish_times_out": publish_times_out,
    "backfill": backfill,
    "delete_records": delete_records,
    "propose_isr": propose_isr,
    "judge_proposal": judge_proposal,
    "hear_verdict": hear_verdict,
}
