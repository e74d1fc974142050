"""Plain functions over the leader epochs of a log or of a segment, ascending in epoch and in start offset."""

from collections.abc import Sequence
from typing import TypeAlias

from broker.log.leader_epoch_file_cache import EpochEntry

LeaderEpochs: TypeAlias = Sequence[EpochEntry]


def without_empty_epochs(epochs: LeaderEpochs) -> tuple[EpochEntry, ...]:
    """Those that have a record, or may get one: an epoch that starts where its successor starts has none.

    Kafka: RemoteLogManager.buildFilteredLeaderEpochMap.
    """
    return tuple(
        entry
        for index, entry in enumerate(epochs)
        if index + 1 == len(epochs) or epochs[index + 1].start_offset != entry.start_offset
    )


def epochs_below(epochs: LeaderEpochs, end_offset: int) -> tuple[EpochEntry, ...]:
    """The history of a log that ends at `end_offset`, exclusive: what is uploaded with a segment."""
    return tuple(entry for entry in epochs if entry.start_offset < end_offset)


def epochs_between(epochs: LeaderEpochs, start_offset: int, end_offset: int) -> tuple[EpochEntry, ...]:
    """The epochs of the records from `start_offset` to `end_offset`, exclusive; the first begins at `start_offset`.

    Unless that is below all that is known: then the first keeps its own.  Kafka: epochEntriesInRange.
    """
    below = epochs_below(epochs, end_offset)
    within = tuple(entry for entry in below if entry.start_offset > start_offset)
    earlier = below[: len(below) - len(within)]
    return (EpochEntry(earlier[-1].epoch, start_offset), *within) if earlier else within


def end_offset_of(epochs: LeaderEpochs, epoch: int, log_end_offset: int) -> int:
    """Where `epoch` ends, exclusive: where the next one starts, or the log's end."""
    return next((entry.start_offset for entry in epochs if entry.epoch > epoch), log_end_offset)


def epoch_of(epochs: LeaderEpochs, offset: int) -> int | None:
    """The epoch that wrote `offset`; None below all that is known."""
    return next((entry.epoch for entry in reversed(epochs) if entry.start_offset <= offset), None)
