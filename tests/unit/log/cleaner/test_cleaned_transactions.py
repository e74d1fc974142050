"""CleanedTransactions: which batches were aborted, which markers are of no use any more, what the index must say."""

from broker.log.cleaner.cleaned_transactions import CleanedTransactions
from broker.log.transaction_index import AbortedTransaction
from broker.records.control_record import (
    ControlRecordType,
    EndTransactionMarker,
    control_batch,
    end_transaction_marker_batch,
)
from broker.records.memory_records_builder import empty_batch, records_batch
from broker.records.record_batch import RecordBatch


def data(offset: int, producer_id: int = 1, *, transactional: bool = True) -> RecordBatch:
    return RecordBatch.parse(
        records_batch(
            (0, b"k", b"v"),
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=transactional,
        )
    )


def marker(offset: int, producer_id: int = 1, *, commit: bool) -> RecordBatch:
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    return RecordBatch.parse(
        end_transaction_marker_batch(
            EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=0, base_offset=offset
        )
    )


def aborted(producer_id: int, first: int, last: int) -> AbortedTransaction:
    return AbortedTransaction(producer_id, first, last, last + 1)


def test_batches_of_aborted_transactions_from_their_first_offset_to_their_marker() -> None:
    seen = CleanedTransactions()
    seen.add_aborted([aborted(1, 4, 6)])
    assert not seen.saw_batch(data(2)), "of an earlier transaction"
    assert not seen.saw_control(marker(3, commit=True))
    assert seen.saw_batch(data(4))
    assert not seen.saw_batch(data(5, 2)), "of another producer"
    assert not seen.saw_control(marker(6, commit=False))
    assert not seen.saw_batch(data(7))


def test_batches_without_a_transaction_are_never_aborted() -> None:
    seen = CleanedTransactions()
    seen.add_aborted([aborted(1, 0, 6)])
    assert not seen.saw_batch(data(2, transactional=False))


def test_an_abort_marker_is_of_use_while_batches_come_before_it() -> None:
    seen = CleanedTransactions()
    first, second = aborted(1, 4, 6), aborted(2, 5, 7)
    seen.add_aborted([first, second])
    assert seen.saw_batch(data(4))
    assert not seen.saw_control(marker(6, commit=False))
    assert seen.saw_control(marker(7, 2, commit=False))
    assert seen.take_index() == [first]
    assert seen.take_index() == []


def test_the_index_says_where_the_markers_are_whatever_a_damaged_one_said() -> None:
    seen = CleanedTransactions()
    seen.add_aborted([aborted(1, 4, 1 << 40), aborted(2, 5, 7)])
    assert seen.saw_batch(data(4))
    assert seen.saw_batch(data(5, 2))
    assert not seen.saw_control(marker(6, commit=False))
    assert not seen.saw_control(marker(7, 2, commit=False))
    assert [each.last_offset for each in seen.take_index()] == [6, 7]


def test_a_commit_marker_is_of_use_while_batches_come_before_it() -> None:
    seen = CleanedTransactions()
    assert seen.saw_control(marker(1, commit=True))
    assert not seen.saw_batch(data(2))
    assert not seen.saw_control(marker(3, commit=True))
    assert seen.saw_control(marker(4, commit=True)), "once"
    assert seen.take_index() == []


def test_the_same_transaction_may_be_told_of_twice() -> None:
    seen = CleanedTransactions()
    transaction = aborted(1, 4, 9)
    seen.add_aborted([transaction])
    assert seen.saw_batch(data(4))
    seen.add_aborted([transaction])
    assert seen.saw_batch(data(5))
    assert not seen.saw_control(marker(9, commit=False))
    assert not seen.saw_batch(data(10))
    assert seen.take_index() == [transaction]


def test_an_empty_control_batch_is_of_no_use_and_others_than_markers_are() -> None:
    seen = CleanedTransactions()
    assert seen.saw_control(RecordBatch.parse(empty_batch(3, 3, max_timestamp=0, producer_id=1, is_control=True)))
    other = control_batch([(ControlRecordType.LEADER_CHANGE, b"x")], timestamp=0, base_offset=4)
    assert not seen.saw_control(RecordBatch.parse(other))
