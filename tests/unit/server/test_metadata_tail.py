import pytest

from broker.common.errors import CorruptMessageError
from broker.metadata.metadata_fault import MetadataFault
from broker.server.metadata_tail import MetadataDivergedError, MetadataTail
from tests.unit.server.metadata_log_support import batch, topic


def filled() -> MetadataTail:
    """Offsets 0-1 of epoch 1, 2 of epoch 3, 3-4 of epoch 5; committed and taken up to 2."""
    tail = MetadataTail()
    assert tail.append(
        batch(0, topic(0), topic(1)) + batch(2, topic(2), epoch=3) + batch(3, topic(3), topic(4), epoch=5)
    )
    tail.advance_high_watermark(2)
    first = tail.take_committed()
    assert first is not None and first.last_offset == 1
    return tail


def test_what_is_not_committed_is_not_given_out() -> None:
    tail = filled()
    assert tail.take_committed() is None
    assert (tail.applied_end_offset, tail.end_offset, tail.last_epoch) == (2, 5, 5)


def test_the_high_watermark_never_passes_what_we_have_and_never_falls() -> None:
    tail = filled()
    assert tail.advance_high_watermark(99)
    assert tail.high_watermark == 5
    assert not tail.advance_high_watermark(-1)
    assert (tail.high_watermark, tail.leader_high_watermark, tail.lag) == (5, 99, 97)


def test_a_batch_that_is_committed_in_part_waits_whole() -> None:
    tail = MetadataTail()
    tail.append(batch(0, topic(0), topic(1)))
    tail.advance_high_watermark(1)
    assert tail.take_committed() is None


def test_batches_we_have_are_skipped_and_holes_refused() -> None:
    tail = filled()
    assert not tail.append(batch(3, topic(3), topic(4), epoch=5))
    with pytest.raises(MetadataFault, match="sent offset 6 instead of 5"):
        tail.append(batch(6, topic(6), epoch=5))


def test_a_wrong_checksum_is_refused() -> None:
    broken = bytearray(batch(0, topic(0)))
    broken[-1] ^= 1
    with pytest.raises(CorruptMessageError):
        MetadataTail().append(broken)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "left", "last_epoch"),
    [
        (5, 3, 3, 3),  # the leader has nothing of our last epoch
        (4, 99, 3, 3),  # it has another epoch there: ours of epoch 3 and less are good
        (3, 3, 3, 3),
        (1, 2, 2, 1),
        (5, 4, 3, 3),  # inside a batch: all of it goes
    ],
)
def test_truncation_keeps_what_the_leader_also_has(epoch: int, end_offset: int, left: int, last_epoch: int) -> None:
    tail = filled()
    tail.truncate(epoch, end_offset)
    assert (tail.end_offset, tail.last_epoch) == (left, last_epoch)
    assert tail.append(batch(left, topic(9), epoch=7))


def test_committed_records_are_never_given_up() -> None:
    tail = filled()
    with pytest.raises(MetadataDivergedError, match="lost data"):
        tail.truncate(1, 1)


def test_a_snapshot_takes_the_place_of_everything() -> None:
    tail = filled()
    tail.restart_at(40, 6)
    assert (tail.end_offset, tail.last_epoch, tail.high_watermark, tail.applied_end_offset) == (40, 6, 40, 40)
    assert tail.append(batch(40, topic(9), epoch=6))
