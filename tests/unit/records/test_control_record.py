import pytest

from broker.common.errors import InvalidRecordError
from broker.records.control_record import (
    ControlRecordType,
    EndTransactionMarker,
    control_batch,
    encode_control_key,
    parse_control_key,
)
from broker.records.record import Record
from broker.records.record_batch import RecordBatch


def record(key: str | None, value: str | None) -> Record:
    return Record(0, 0, None if key is None else bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def test_keys() -> None:
    assert [encode_control_key(kind).hex() for kind in ControlRecordType] == [f"0000000{kind}" for kind in range(7)]
    assert [parse_control_key(encode_control_key(kind)) for kind in ControlRecordType] == list(ControlRecordType)


def test_a_newer_key_version_is_read_as_0_and_longer_keys_are_allowed() -> None:
    assert parse_control_key(bytes.fromhex("00070001ffff")) is ControlRecordType.COMMIT


def test_unknown_types_are_none() -> None:
    assert parse_control_key(bytes.fromhex("00000007")) is None
    assert parse_control_key(bytes.fromhex("0000ffff")) is None
    assert EndTransactionMarker.parse(record("00000007", None)) is None


@pytest.mark.parametrize("key", [None, "", "000000", "ffff0001"])
def test_impossible_keys_are_refused(key: str | None) -> None:
    with pytest.raises(InvalidRecordError):
        parse_control_key(None if key is None else bytes.fromhex(key))


def test_markers() -> None:
    abort = EndTransactionMarker(ControlRecordType.ABORT, 3)
    assert (abort.encode_key().hex(), abort.encode_value().hex()) == ("00000000", "000000000003")
    assert not abort.is_commit
    assert EndTransactionMarker(ControlRecordType.COMMIT, 3).is_commit
    assert EndTransactionMarker.parse(record("00000001", "000900000005aa")) == (ControlRecordType.COMMIT, 5)
    assert EndTransactionMarker.parse(record("00000002", "")) is None


@pytest.mark.parametrize("value", [None, "", "0000000000", "ffff00000003"])
def test_impossible_marker_values_are_refused(value: str | None) -> None:
    with pytest.raises(InvalidRecordError):
        EndTransactionMarker.parse(record("00000001", value))


def test_a_control_batch_of_the_quorum() -> None:
    raw = control_batch(
        [(ControlRecordType.SNAPSHOT_HEADER, b"a"), (ControlRecordType.KRAFT_VERSION, b"b")],
        timestamp=5,
        base_offset=40,
        partition_leader_epoch=2,
    )
    batch = RecordBatch.parse(raw)
    batch.ensure_valid()
    assert (batch.attributes, batch.partition_leader_epoch, batch.base_timestamp, batch.max_timestamp) == (
        0x20,
        2,
        5,
        5,
    )
    assert list(batch.records()) == [Record(40, 5, b"\0\0\0\3", b"a"), Record(41, 5, b"\0\0\0\5", b"b")]
