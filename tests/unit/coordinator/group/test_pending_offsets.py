from broker.coordinator.group.committed_offset import CommittedOffset
from broker.coordinator.group.pending_offsets import PendingOffsets

A, B, OTHER = ("g", "t", 0), ("g", "t", 1), ("h", "t", 0)


def at(record_offset: int) -> CommittedOffset:
    return CommittedOffset(1, -1, "", 0, -1, record_offset)


def test_38_a_transaction_ends_with_what_it_wanted() -> None:
    pending = PendingOffsets()
    pending.put(1, A, at(5))
    pending.put(1, OTHER, at(6))
    pending.put(2, A, at(7))
    assert pending.has_group("g") and pending.has_partition(A) and not pending.has_partition(B)
    assert list(pending.of_group("g")) == [A] and list(pending.of_topic("t")) == [A, OTHER]
    assert pending.first_record_offset() == 5
    assert pending.end(1) == {A: at(5), OTHER: at(6)}
    assert pending.has_partition(A) and not pending.has_group("h")
    assert pending.first_record_offset() == 7
    assert pending.end(2) == {A: at(7)}
    assert pending.end(2) == {} and pending.first_record_offset() is None and not pending.has_group("g")


def test_38_a_tombstone_ends_what_transactions_wanted_for_the_partition() -> None:
    pending = PendingOffsets()
    pending.put(1, A, at(5))
    pending.put(1, B, at(6))
    pending.put(2, A, at(7))
    pending.delete(A)
    assert not pending.has_partition(A) and list(pending.of_group("g")) == [B]
    assert pending.end(2) == {}
    pending.delete(B)
    pending.delete(B)
    assert not pending.has_group("g") and pending.end(1) == {}
