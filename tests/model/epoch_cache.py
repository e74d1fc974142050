"""The leader epoch cache as Kafka keeps it (LeaderEpochFileCache): a list of (epoch, start offset)."""

from typing import NamedTuple


class EpochStart(NamedTuple):
    """The first offset of an epoch."""

    epoch: int
    start: int


def assign(entries: list[EpochStart], epoch: int, start: int) -> None:
    """A batch of this epoch begins here; later or overlapping entries give way (H2 lives here)."""
    if entries and entries[-1].epoch == epoch and start >= entries[-1].start:
        return
    while entries and (entries[-1].epoch >= epoch or entries[-1].start >= start):
        entries.pop()
    entries.append(EpochStart(epoch, start))


def truncate_from_end(entries: list[EpochStart], end: int) -> None:
    """Drop what begins at or after the end."""
    while entries and entries[-1].start >= end:
        entries.pop()


def truncate_from_start(entries: list[EpochStart], start: int) -> None:
    """Drop what ends before the start; the epoch around it begins there."""
    last = None
    while entries and entries[0].start <= start:
        last = entries.pop(0)
    if last is not None:
        entries.insert(0, EpochStart(last.epoch, start))


def end_offset_for(entries: list[EpochStart], epoch: int, log_end: int) -> tuple[int, int]:
    """The largest epoch up to the one asked, and its end; below the first the first's start; (-1, -1): unknown."""
    if not entries:
        return -1, -1
    if entries[-1].epoch == epoch:
        return epoch, log_end
    floor = None
    for entry in entries:
        if entry.epoch > epoch:
            return (epoch if floor is None else floor.epoch), entry.start
        floor = entry
    return -1, -1
