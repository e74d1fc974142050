import dataclasses

import pytest

from broker.log.leader_epoch_file_cache import EpochEntry
from broker.schemas.remote_wal_metadata import slice_records
from broker.wal.objects.wal_entry import EpochRun, entries_of, entry_of
from tests.unit.wal.wal_world import BAR, FOO, bytes_of, entry, log_bytes, make_object, make_slice


def test_both_kinds_of_events_tell_the_same() -> None:
    combined = make_object(
        [
            make_slice(log_bytes((1, 3), (3, 2), start=100), start=100, leader_epoch=3),
            make_slice(log_bytes((0, 1)), partition=BAR),
        ]
    )
    entries = entries_of(combined.metadata, 17)
    assert [entry_of(record, 17) for record in slice_records(combined.metadata)] == list(entries)
    foo = next(each for each in entries if each.partition == FOO)
    assert (foo.start_offset, foo.end_offset, foo.next_offset, foo.leader_epoch, foo.state) == (100, 104, 105, 3, 1)
    assert foo.leader_epochs == (EpochEntry(1, 100), EpochEntry(3, 103))
    assert foo.metadata_offset == 17
    assert bytes_of(combined)[foo.position : foo.object_end] == log_bytes((1, 3), (3, 2), start=100)


def test_a_slice_is_cut_where_the_epoch_of_its_batches_changes() -> None:
    each = entry(80, 99, leader_epoch=3, epochs=[(1, 80), (2, 90), (3, 98)])
    assert list(each.epoch_runs()) == [EpochRun(1, 80, 90), EpochRun(2, 90, 98), EpochRun(3, 98, 100)]


def test_plausible_entries() -> None:
    assert entry(0, 0).is_plausible()
    assert entry(80, 99, leader_epoch=3, epochs=[(1, 80), (2, 90)]).is_plausible()


@pytest.mark.parametrize(
    "changes",
    [
        {"start_offset": -1},
        {"end_offset": 79},
        {"position": -1},
        {"size": 0},
        {"leader_epochs": ()},
        {"leader_epochs": (EpochEntry(1, 79), EpochEntry(2, 90))},
        {"leader_epochs": (EpochEntry(1, 80), EpochEntry(2, 100))},
        {"leader_epochs": (EpochEntry(2, 80), EpochEntry(2, 90))},
        {"leader_epochs": (EpochEntry(1, 80), EpochEntry(2, 80))},
        {"leader_epochs": (EpochEntry(-1, 80),)},
        {"leader_epochs": (EpochEntry(1, 80), EpochEntry(4, 90))},
    ],
)
def test_numbers_that_contradict_each_other(changes: dict[str, object]) -> None:
    good = entry(80, 99, leader_epoch=3, epochs=[(1, 80), (2, 90)])
    assert not dataclasses.replace(good, **changes).is_plausible()  # type: ignore[arg-type]
