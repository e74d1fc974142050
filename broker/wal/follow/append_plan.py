"""What of a verified slice goes to the end of a follower's log.

Appending as a follower refuses offsets below the log end but accepts a hole: a slice that is missing would become one.
So the first batch must begin exactly at the log end.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from broker.common.errors import CorruptMessageError
from broker.records.record_batch import RecordBatch


class StraddlingBatchError(CorruptMessageError):
    """A batch begins below the log end and ends above it: the logs differ, whatever epochs and offsets say."""


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """The batches to append, maybe none.  `restart_at`: the log is empty, and must begin at that lower offset."""

    batches: tuple[RecordBatch, ...]
    restart_at: int | None = None


def plan_append(
    found: Iterable[RecordBatch], *, log_end_offset: int, valid_until: int, is_log_empty: bool
) -> AppendPlan:
    """Batches below the log end are skipped, those that reach beyond `valid_until` and all after them are left out.

    Nothing is appended across a gap before the slice; a hole within it is the leader's own.  `is_log_empty`: there is
    no record, and the log end is the log start.  Then the leader's log start may lie within a batch: the log begins
    with that batch, its log start stays.  StraddlingBatchError.
    """
    chosen: list[RecordBatch] = []
    for batch in found:
        if batch.last_offset < log_end_offset:
            continue
        if batch.next_offset > valid_until:
            break
        chosen.append(batch)
    if not chosen or chosen[0].base_offset > log_end_offset:
        return AppendPlan(())
    first = chosen[0]
    if first.base_offset == log_end_offset:
        return AppendPlan(tuple(chosen))
    if is_log_empty:
        return AppendPlan(tuple(chosen), restart_at=first.base_offset)
    raise StraddlingBatchError(
        f"A batch of offsets {first.base_offset} to {first.last_offset} straddles the log end {log_end_offset}"
    )
