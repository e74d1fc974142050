"""The bytes of producer snapshots."""

import pytest

from broker.log.producer_snapshot import CorruptSnapshotError, decode_snapshot, encode_snapshot
from broker.log.producer_state_entry import BatchMetadata, ProducerStateEntry

PS = bytes.fromhex(
    "00010a4d142a000000010000000000000fa000010000000b0000000000000065000000010000018bcfe5680500000003ffffffffffffffff"
)
PS0 = bytes.fromhex("000148674bc700000000")


def make_entry() -> ProducerStateEntry:
    entry = ProducerStateEntry(4000)
    entry.producer_epoch = 1
    entry.coordinator_epoch = 3
    entry.last_timestamp = 1_700_000_000_005
    entry.batches = [BatchMetadata(9, 99, 0, 5), BatchMetadata(11, 101, 1, 1_700_000_000_005)]
    return entry


def test_vectors_ps_and_ps0() -> None:
    entry = make_entry()
    del entry.batches[0]
    assert encode_snapshot([entry]) == PS
    assert encode_snapshot([]) == PS0
    assert decode_snapshot(PS0) == []
    (entry,) = decode_snapshot(PS)
    assert (entry.producer_id, entry.producer_epoch, entry.coordinator_epoch) == (4000, 1, 3)
    assert entry.batches == [BatchMetadata(11, 101, 1, 1_700_000_000_005)]
    assert entry.current_txn_first_offset is None


def test_every_remembered_batch_is_kept_the_newest_as_kafka_reads_it() -> None:
    """After a restart five batches in flight are duplicates still, whichever of them the producer sends again."""
    entry = make_entry()
    data = encode_snapshot([entry])
    assert (data[6:10], len(data)) == (b"\0\0\0\2", len(PS) + 46)
    assert data[-46:] == PS[-46:]
    (back,) = decode_snapshot(data)
    assert back.batches == [BatchMetadata(9, 99, 0, 5), BatchMetadata(11, 101, 1, 1_700_000_000_005)]
    assert (back.producer_epoch, back.last_timestamp, back.current_txn_first_offset) == (1, 1_700_000_000_005, None)


def test_a_producer_known_by_a_marker_only() -> None:
    entry = ProducerStateEntry(7)
    entry.producer_epoch = 2
    entry.last_timestamp = 50
    entry.current_txn_first_offset = 12
    (back,) = decode_snapshot(encode_snapshot([entry]))
    assert back.batches == []
    assert back.last_sequence == -1
    assert back.current_txn_first_offset == 12
    assert back.last_timestamp == 50


@pytest.mark.parametrize(
    "data",
    [b"", PS[:9], b"\0\2" + PS[2:], PS[:-1], PS[:20] + b"\xff" + PS[21:], PS0[:-1] + b"\1"],
    ids=["empty", "short", "version", "cut", "flipped", "count"],
)
def test_damaged_snapshots_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(data)


def test_a_count_that_does_not_fill_the_body_is_refused() -> None:
    from crc32c import crc32c

    body = b"\0\0\0\2" + PS[10:]
    with pytest.raises(CorruptSnapshotError, match="2 entries"):
        decode_snapshot(b"\0\1" + crc32c(body).to_bytes(4, "big") + body)
