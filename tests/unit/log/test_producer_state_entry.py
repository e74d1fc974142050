"""ProducerAppendInfo: sequences, epochs, transactions."""

import pytest

from broker.common.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from broker.log.producer_state_entry import (
    BATCHES_MAX,
    BatchMetadata,
    CompletedTxn,
    ProducerAppendInfo,
    ProducerStateEntry,
    TxnMetadata,
)
from broker.records.append_origin import AppendOrigin
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import RecordBatch

SEQUENCE_MAX = 2**31 - 1


def make_batch(sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False) -> RecordBatch:
    return RecordBatch.parse(
        records_batch(
            *[(1000, b"k", b"v")] * count,
            producer_id=7,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
    )


def make_entry(*batches: tuple[int, int], epoch: int = 0) -> ProducerStateEntry:
    entry = ProducerStateEntry(7)
    info = ProducerAppendInfo(7, None, AppendOrigin.CLIENT)
    offset = 0
    for sequence, count in batches:
        info.append(make_batch(sequence, count, epoch=epoch), offset, 1000)
        offset += count
    info.apply_to(entry)
    return entry


def make_info(entry: ProducerStateEntry | None, origin: AppendOrigin = AppendOrigin.CLIENT) -> ProducerAppendInfo:
    return ProducerAppendInfo(7, entry, origin)


def test_27_an_unknown_producer_may_start_anywhere() -> None:
    make_info(None).check(make_batch(12345))


def test_27_the_same_epoch_goes_on_where_it_stopped() -> None:
    entry = make_entry((0, 3))
    make_info(entry).check(make_batch(3))
    for wrong in (2, 4, 0):
        with pytest.raises(OutOfOrderSequenceNumberError):
            make_info(entry).check(make_batch(wrong))


def test_27_epochs() -> None:
    entry = make_entry((0, 1), epoch=5)
    with pytest.raises(InvalidProducerEpochError):
        make_info(entry).check(make_batch(1, epoch=4))
    make_info(entry).check(make_batch(0, epoch=6))
    with pytest.raises(OutOfOrderSequenceNumberError):
        make_info(entry).check(make_batch(1, epoch=6))


def test_26_sequences_wrap() -> None:
    entry = make_entry((SEQUENCE_MAX, 1))
    make_info(entry).check(make_batch(0))
    inside = make_entry((SEQUENCE_MAX - 1, 4))
    assert inside.last_sequence == 1
    make_info(inside).check(make_batch(2))
    with pytest.raises(OutOfOrderSequenceNumberError):
        make_info(inside).check(make_batch(0))


def test_25_duplicates_of_the_last_five_batches() -> None:
    entry = make_entry(*[(number, 1) for number in range(6)])
    assert len(entry.batches) == BATCHES_MAX
    assert make_info(entry).find_duplicate(make_batch(0)) is None
    for number in range(1, 6):
        duplicate = make_info(entry).find_duplicate(make_batch(number))
        assert duplicate is not None
        assert duplicate.first_offset == number
    assert make_info(entry).find_duplicate(make_batch(5, 2)) is None
    assert make_info(entry).find_duplicate(make_batch(5, epoch=1)) is None


def test_later_batches_of_an_append_see_the_earlier_ones() -> None:
    info = make_info(make_entry((0, 1)))
    info.check(make_batch(1, 2))
    info.append(make_batch(1, 2), 10, 1000)
    info.check(make_batch(3))
    duplicate = info.find_duplicate(make_batch(1, 2))
    assert duplicate == BatchMetadata(2, 11, 1, 1000)
    with pytest.raises(OutOfOrderSequenceNumberError):
        info.check(make_batch(1, 1))
    assert info.entry is not None
    assert len(info.entry.batches) == 1


def test_a_new_epoch_forgets_the_batches() -> None:
    entry = make_entry((0, 1), (1, 1))
    info = make_info(entry)
    info.append(make_batch(0, epoch=1), 5, 1000)
    info.check(make_batch(1, epoch=1))
    info.apply_to(entry)
    assert (entry.producer_epoch, len(entry.batches), entry.last_sequence) == (1, 1, 0)


def test_transactions_start_and_end() -> None:
    entry = ProducerStateEntry(7)
    info = make_info(entry)
    info.append(make_batch(0, transactional=True), 100, 1000)
    info.append(make_batch(1, transactional=True), 101, 1000)
    assert info.started == [TxnMetadata(7, 100)]
    with pytest.raises(InvalidTxnStateError):
        info.check(make_batch(2))
    info.check_marker(0, 0)
    info.append_marker(0, 3, 102, 1001, is_abort=True)
    assert info.completed == [CompletedTxn(7, 100, 102, True)]
    info.apply_to(entry)
    assert (entry.current_txn_first_offset, entry.coordinator_epoch, entry.last_timestamp) == (None, 3, 1001)
    make_info(entry).check(make_batch(2))


def test_28_a_marker_without_data_completes_nothing() -> None:
    info = make_info(None)
    info.append_marker(0, 0, 10, 1000, is_abort=True)
    assert (info.completed, info.started, info.is_changed) == ([], [], True)


def test_28_markers_of_an_older_coordinator_are_fenced_on_the_leader_only() -> None:
    entry = make_entry((0, 1))
    entry.coordinator_epoch = 5
    with pytest.raises(TransactionCoordinatorFencedError):
        make_info(entry, AppendOrigin.COORDINATOR).check_marker(0, 4)
    make_info(entry, AppendOrigin.COORDINATOR).check_marker(0, 5)
    make_info(entry, AppendOrigin.REPLICATION).check_marker(0, 4)


def test_a_marker_of_a_newer_epoch_wants_sequence_0_next() -> None:
    entry = make_entry((0, 3))
    info = make_info(entry, AppendOrigin.COORDINATOR)
    info.append_marker(1, 0, 10, 1000, is_abort=False)
    info.apply_to(entry)
    assert entry.last_sequence == -1
    make_info(entry).check(make_batch(0, epoch=1))
    with pytest.raises(OutOfOrderSequenceNumberError):
        make_info(entry).check(make_batch(3, epoch=1))
    with pytest.raises(InvalidProducerEpochError):
        make_info(entry, AppendOrigin.COORDINATOR).check_marker(0, 0)


def test_replication_checks_nothing_and_coordinators_no_sequences() -> None:
    entry = make_entry((0, 1), epoch=5)
    make_info(entry, AppendOrigin.REPLICATION).check(make_batch(77, epoch=1))
    make_info(entry, AppendOrigin.COORDINATOR).check(make_batch(77, epoch=5))
    with pytest.raises(InvalidProducerEpochError):
        make_info(entry, AppendOrigin.COORDINATOR).check(make_batch(77, epoch=4))


def test_sequences_of_a_wrapped_batch() -> None:
    batch = BatchMetadata(last_sequence=1, last_offset=50, offset_delta=3, timestamp=0)
    assert batch.first_sequence == SEQUENCE_MAX - 1
    assert batch.first_offset == 47
