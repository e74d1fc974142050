from broker.tiering.leader_epochs import end_offset_of, epoch_of, epochs_below, epochs_between, without_empty_epochs

from .segment_world import epoch_entries

EPOCHS = epoch_entries({0: 10, 2: 30, 5: 70})


def test_an_epoch_that_starts_with_its_successor_has_no_record() -> None:
    assert without_empty_epochs(epoch_entries({0: 0, 1: 10, 2: 10, 3: 10, 4: 20})) == epoch_entries(
        {0: 0, 3: 10, 4: 20}
    )
    assert without_empty_epochs(EPOCHS) == EPOCHS
    assert without_empty_epochs(()) == ()


def test_the_history_below_an_offset() -> None:
    assert epochs_below(EPOCHS, 10) == ()
    assert epochs_below(EPOCHS, 30) == epoch_entries({0: 10})
    assert epochs_below(EPOCHS, 31) == epoch_entries({0: 10, 2: 30})
    assert epochs_below(EPOCHS, 1000) == EPOCHS


def test_the_epochs_of_a_segment_begin_with_it() -> None:
    assert epochs_between(EPOCHS, 30, 70) == epoch_entries({2: 30})
    assert epochs_between(EPOCHS, 29, 31) == epoch_entries({0: 29, 2: 30})
    assert epochs_between(EPOCHS, 40, 200) == epoch_entries({2: 40, 5: 70})
    assert epochs_between(EPOCHS, 100, 200) == epoch_entries({5: 100})


def test_what_is_not_known_is_not_made_up() -> None:
    assert epochs_between(EPOCHS, 5, 40) == epoch_entries({0: 10, 2: 30})
    assert epochs_between(EPOCHS, 0, 10) == ()
    assert epochs_between((), 0, 10) == ()


def test_an_epoch_ends_where_the_next_one_starts() -> None:
    assert [end_offset_of(EPOCHS, epoch, 90) for epoch in (0, 1, 2, 5, 6)] == [30, 30, 70, 90, 90]
    assert end_offset_of((), 3, 90) == 90


def test_who_wrote_an_offset() -> None:
    epochs = epoch_entries({1: 10, 2: 20, 3: 20, 5: 40})
    assert [epoch_of(epochs, offset) for offset in (9, 10, 19, 20, 39, 40, 400)] == [None, 1, 1, 3, 3, 5, 5]
    assert epoch_of((), 0) is None
