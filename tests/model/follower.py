"""The follower's half: fetching positions, truncating, reading the metadata topic, appending from the bucket."""

from collections.abc import Iterator

from tests.model import rules
from tests.model.action import Action
from tests.model.epoch_cache import end_offset_for
from tests.model.leader import serve
from tests.model.settings import Settings
from tests.model.state import (
    NOT_RESETTING,
    UNKNOWN,
    Answer,
    Cell,
    Download,
    Entry,
    LineageAnswer,
    Replica,
    Request,
    Response,
    Role,
    State,
    batches,
)

DOWNLOADS_AT_A_TIME = 2


def enabled(state: State, settings: Settings, me: int) -> Iterator[Action]:
    """What a follower may do now."""
    replica = state.replicas[me]
    without = settings.without
    resetting = replica.reset_to >= 0 and rules.RESET_EXCLUDES not in without
    if replica.fetch is None:
        if not resetting:
            yield Action("fetch", me)
    elif isinstance(replica.fetch, Request):
        yield Action("serve", me, 0)
        if settings.fallback:
            yield Action("serve", me, 1)
    else:
        yield Action("answer", me)
    if replica.reset_to >= 0:
        yield Action("reset", me)
    ready = (replica.handshaken or rules.HANDSHAKE in without) and not resetting
    if ready or rules.LINEAGE_AFTER_HANDSHAKE in without:
        anybody = rules.LINEAGE_FROM_THE_LEADER in without and state.replicas[replica.leader].up
        if anybody or state.leads_now(replica.leader, replica.known_epoch):
            for epoch in sorted(_epochs_to_ask(state, replica, settings)):
                yield Action("ask_lineage", me, epoch)
    if ready and len(replica.downloads) < DOWNLOADS_AT_A_TIME:
        for number in replica.entries:
            if _worth_getting(state, replica, number, settings):
                yield Action("get", me, number)


def _worth_getting(state: State, replica: Replica, number: int, settings: Settings) -> bool:
    entry = state.metadata[number]
    stored = state.object(entry)
    return (
        stored.stored
        and stored.zone not in state.dead_zones
        and valid_until(state, replica, entry, settings) > replica.end
        and not any(each.entry == number for each in replica.downloads)
    )


def _epochs_to_ask(state: State, replica: Replica, settings: Settings) -> set[int]:
    asked = {each.asked for each in replica.lineage}
    found: set[int] = set()
    for number in replica.entries:
        entry = state.metadata[number]
        if entry.epoch >= replica.known_epoch or entry.end <= replica.end:
            continue
        if entry.start <= replica.end or rules.NO_GAP in settings.without:
            if rules.BATCH_EPOCHS in settings.without:
                found.add(entry.epoch)
            else:
                found.update(cell.epoch for cell in state.object(entry).cells)
    return found - asked


def valid_until(state: State, replica: Replica, entry: Entry, settings: Settings) -> int:
    """The offset up to which an entry's batches may be appended at the log's end; the log end: none of them."""
    without = settings.without
    at, end = replica.end, entry.end
    if rules.NO_GAP in without:
        if end <= at:
            return at
        at = max(at, entry.start)
    elif not entry.start <= at < end:
        return at
    if entry.epoch > replica.known_epoch:
        return end if rules.HOLD_LATER_EPOCHS in without else at
    for epoch, start in replica.invalidations:
        counts = epoch == replica.known_epoch or rules.INVALIDATION_OF_THIS_EPOCH in without
        if counts and entry.epoch < epoch:
            end = min(end, max(start, at))
    if entry.epoch == replica.known_epoch or rules.LINEAGE in without:
        return end
    if rules.BATCH_EPOCHS in without:
        answer = _answer(replica, entry.epoch)
        return at if answer is None else max(at, min(end, answer.end))
    return _valid_by_batches(replica, entry, state.object(entry).cells, at, end)


def _valid_by_batches(replica: Replica, entry: Entry, cells: tuple[Cell, ...], at: int, end: int) -> int:
    while at < end:
        cell = cells[at - entry.start]
        after = at + cell.width - cell.position
        answer = _answer(replica, cell.epoch)
        if answer is None or answer.epoch != cell.epoch or after > answer.end:
            break
        at = after
    return at


def _answer(replica: Replica, epoch: int) -> LineageAnswer | None:
    for each in replica.lineage:
        if each.asked == epoch:
            return each
    return None


def become_follower(state: State, settings: Settings, me: int) -> None:
    """Of whoever leads in the known epoch, or of nobody: nothing of the epoch before counts."""
    replica = state.replicas[me]
    replica.stale_fetch = replica.fetch or replica.stale_fetch
    replica.fetch, replica.handshaken, replica.reset_to, replica.proposal = None, False, NOT_RESETTING, None
    if rules.LINEAGE_OF_THIS_EPOCH not in settings.without:
        replica.lineage = []
    replica.leader_high_watermark = 0
    if rules.TRIM_EPOCH_CACHE not in settings.without:
        replica.epochs = [each for each in replica.epochs if each.start < replica.end]
    replica.role = Role.FOLLOWER if state.leader >= 0 else Role.NONE
    replica.leader = state.leader


def fetch(state: State, settings: Settings, action: Action) -> None:
    """Tell the leader our log end and the epoch of its last batch."""
    replica = state.replicas[action.replica]
    last_epoch = UNKNOWN
    if rules.LAST_EPOCH_FROM_CACHE not in settings.without:
        last_epoch = replica.epochs[-1].epoch if replica.epochs else UNKNOWN
    elif replica.end > replica.start:
        last = replica.log[-1]
        last_epoch = UNKNOWN if last is None else last.epoch
    replica.fetch = Request(replica.known_epoch, replica.end, last_epoch, replica.leader)


def serve_fetch(state: State, settings: Settings, action: Action) -> None:
    """The leader answers, with records when the argument is 1."""
    replica = state.replicas[action.replica]
    assert isinstance(replica.fetch, Request)
    replica.fetch = serve(state, settings, action.replica, replica.fetch, with_records=action.argument == 1)


def serve_stale_fetch(state: State, settings: Settings, action: Action) -> None:
    """The leader of an earlier epoch answers what was asked in it."""
    replica = state.replicas[action.replica]
    assert isinstance(replica.stale_fetch, Request)
    replica.stale_fetch = serve(state, settings, action.replica, replica.stale_fetch, with_records=False)


def take_stale_answer(state: State, settings: Settings, action: Action) -> None:
    """It is dropped."""
    replica = state.replicas[action.replica]
    response, replica.stale_fetch = replica.stale_fetch, None
    assert isinstance(response, Response)
    kept = rules.STALE_ANSWERS_ARE_DROPPED in settings.without
    if kept and response.answer == Answer.OK and replica.role == Role.FOLLOWER:
        _set_high_watermark(state, settings, action.replica, response.high_watermark)
        _exposed_is_committed(state, settings, action.replica)


def take_answer(state: State, settings: Settings, action: Action) -> None:
    """An answer in this epoch: out of range, divergence, or the handshake and the high watermark."""
    me = action.replica
    replica = state.replicas[me]
    response, replica.fetch = replica.fetch, None
    assert isinstance(response, Response)
    if response.answer == Answer.OUT_OF_RANGE:
        replica.reset_to = state.replicas[replica.leader].start
        if rules.RESET_EXCLUDES not in settings.without:
            replica.handshaken = False
    elif response.answer == Answer.DIVERGING:
        if rules.DIVERGING_ANSWER_ONLY_TRUNCATES in settings.without:
            _set_high_watermark(state, settings, me, response.high_watermark)
            _exposed_is_committed(state, settings, me)
        _truncate(replica, settings, _truncation_offset(replica, response.diverging))
    elif response.answer == Answer.OK:
        if response.offset == replica.end and replica.reset_to < 0:
            replica.handshaken = True
        _append_batches(state, replica, settings, response.base, response.cells, response.base + len(response.cells))
        replica.leader_high_watermark = response.high_watermark
        _set_high_watermark(state, settings, me, response.high_watermark)
        if replica.start < response.start <= replica.end:
            replica.move_start(response.start)
        _exposed_is_committed(state, settings, me)


def _truncation_offset(replica: Replica, diverging: tuple[int, int]) -> int:
    """Kafka's AbstractFetcherThread.getOffsetTruncationState."""
    epoch, end = diverging
    if epoch < 0:
        return replica.start
    mine, my_end = end_offset_for(replica.epochs, epoch, replica.end)
    if mine != epoch:
        return min(my_end if my_end >= 0 else replica.start, replica.end)
    return min(my_end, end, replica.end)


def _truncate(replica: Replica, settings: Settings, offset: int) -> None:
    """The leader's floor answer may be its log start, which may be within a batch of ours."""
    if rules.CUT_AT_A_BATCH not in settings.without:
        offset = max(replica.batch_start(offset), min(offset, replica.start))
    replica.truncate(offset)
    replica.handshaken, replica.lineage = False, []


def _set_high_watermark(state: State, settings: Settings, me: int, offset: int) -> None:
    replica = state.replicas[me]
    capped = rules.WATERMARK_WITHIN_THE_LOG not in settings.without
    replica.high_watermark = min(offset, replica.end) if capped else offset
    if settings.unclean and state.leads_now(replica.leader, replica.known_epoch):
        leader = state.replicas[replica.leader]
        if replica.high_watermark > leader.high_watermark:
            state.broken(f"I5: follower {me} is at {replica.high_watermark}, its leader at {leader.high_watermark}")


def _exposed_is_committed(state: State, settings: Settings, me: int) -> None:
    """Nothing below a follower's high watermark is uncommitted; it and the log start move at one moment."""
    if settings.unclean:
        return
    replica, committed = state.replicas[me], state.committed
    for offset in range(replica.start, min(replica.high_watermark, replica.end)):
        if offset >= len(committed) or committed[offset] != replica.log[offset]:
            state.broken(f"I5: replica {me} exposes {replica.log[offset]} at {offset}")
            return


def _append_batches(
    state: State, replica: Replica, settings: Settings, base: int, cells: tuple[Cell, ...], limit: int
) -> None:
    """Append what begins at the log's end and ends by the limit; an empty log may restart at a straddling batch."""
    for start, batch in batches(cells, base):
        if start + len(batch) <= replica.end:
            continue
        if start + len(batch) > limit:
            return
        if start < replica.end:
            if replica.end != replica.start or rules.STRADDLE_INTO_AN_EMPTY_LOG in settings.without:
                return  # any other batch around the log's end is corrupt
            _restart(state, replica, settings, start)
        elif start > replica.end:
            return
        replica.append(batch)


def _restart(state: State, replica: Replica, settings: Settings, base: int) -> None:
    kept = replica.start
    replica.restart_at(base)
    if rules.STRADDLE_KEEPS_LOG_START in settings.without:
        replica.start = base
    if replica.start < kept:
        state.broken(f"I10: records from {base} on, which were deleted up to {kept}, are back")


def ask_lineage(state: State, settings: Settings, action: Action) -> None:
    """OffsetsForLeaderEpoch."""
    replica = state.replicas[action.replica]
    leader = state.replicas[replica.leader]
    asked = action.number
    epoch, end = end_offset_for(leader.epochs, asked, leader.end)
    void = rules.FLOOR_ANSWER_IS_VOID not in settings.without
    if void and leader.epochs and asked < leader.epochs[0].epoch:
        epoch, end = UNKNOWN, UNKNOWN
    replica.lineage = sorted([*replica.lineage, LineageAnswer(asked, epoch, end)])


def get(state: State, settings: Settings, action: Action) -> None:
    """The bytes of an entry arrive."""
    replica = state.replicas[action.replica]
    limit = valid_until(state, replica, state.metadata[action.number], settings)
    replica.downloads.append(Download(action.number, replica.known_epoch, limit))


def append_download(state: State, settings: Settings, action: Action) -> None:
    """Under the partition's lock: look again, append in order."""
    me = action.replica
    replica = state.replicas[me]
    number, epoch, limit = replica.downloads.pop(action.number)
    entry = state.metadata[number]
    if rules.CHECK_AGAIN_AT_APPEND not in settings.without:
        resetting = replica.reset_to >= 0 and rules.RESET_EXCLUDES not in settings.without
        ready = (replica.handshaken or rules.HANDSHAKE in settings.without) and not resetting
        if replica.role != Role.FOLLOWER or replica.known_epoch != epoch or not ready:
            return
        limit = valid_until(state, replica, entry, settings)
    if rules.NO_GAP in settings.without and replica.end < entry.start:
        replica.log.extend([None] * (entry.start - replica.end))
    if entry.start <= replica.end < limit:
        _append_batches(state, replica, settings, entry.start, state.object(entry).cells, limit)
        _set_high_watermark(state, settings, me, max(replica.high_watermark, replica.leader_high_watermark))
        _exposed_is_committed(state, settings, me)


def reset(state: State, settings: Settings, action: Action) -> None:
    """End what out-of-range began; the range is read again under the lock."""
    replica = state.replicas[action.replica]
    leader = state.replicas[replica.leader]
    target, replica.reset_to = replica.reset_to, NOT_RESETTING
    if rules.RESET_EXCLUDES not in settings.without:
        if leader.start <= replica.end <= leader.end:
            return
        if replica.end >= leader.start:
            replica.handshaken = False
            _truncate(replica, settings, min(leader.end, replica.end))
            return
        target = leader.start
    replica.handshaken = False
    replica.reset(target)


def consume(state: State, settings: Settings, action: Action) -> None:
    """The next event of the metadata topic."""
    replica = state.replicas[action.replica]
    number = replica.consumed
    entry = state.metadata[number]
    replica.consumed += 1
    kept_from = replica.high_watermark
    if rules.ENTRIES_KEPT_TO_WATERMARK in settings.without:
        kept_from = replica.end
    if not entry.object_id:
        replica.invalidations.append((entry.epoch, entry.start))
    elif entry.end > kept_from:
        if rules.ENTRIES_ARE_NOT_REPLACED in settings.without:
            replica.entries = [each for each in replica.entries if state.metadata[each].start != entry.start]
        replica.entries.append(number)


HANDLERS = {
    "fetch": fetch,
    "serve": serve_fetch,
    "serve_stale": serve_stale_fetch,
    "answer": take_answer,
    "stale_answer": take_stale_answer,
    "ask_lineage": ask_lineage,
    "get": get,
    "append_download": append_download,
    "reset": reset,
    "consume": consume,
}
