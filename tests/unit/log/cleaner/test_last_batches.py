"""LastBatches: as a log knows its producers at one moment, whatever they write afterwards."""

from broker.log.cleaner.last_batches import last_batches
from broker.log.producer_state_entry import BatchMetadata, ProducerStateEntry


def test_the_last_offset_of_each_producer_or_none_where_only_a_marker_tells_of_it() -> None:
    writing, ended = ProducerStateEntry(1), ProducerStateEntry(2)
    writing.update_epoch(3)
    for offset in (4, 9):
        writing.add_batch(BatchMetadata(0, offset, 0, 0))
    ended.update_epoch(5)
    found = last_batches({1: writing, 2: ended})
    writing.update_epoch(4)
    assert found == {1: (9, 3), 2: (None, 5)}
