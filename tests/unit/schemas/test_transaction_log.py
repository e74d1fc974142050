import pytest

from broker.schemas.keyed_record import encode_versioned
from broker.schemas.message_codec import MalformedRecordError, UnknownVersionError
from broker.schemas.transaction_log import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
    decode,
    encode_transaction,
)

KEY = TransactionLogKey(transactional_id="tx")
VALUE = TransactionLogValue(
    producer_id=1,
    producer_epoch=2,
    transaction_timeout_ms=3,
    transaction_status=4,
    transaction_partitions=(TransactionPartitions(topic="t", partition_ids=(0, 2)),),
    transaction_last_update_timestamp_ms=5,
    transaction_start_timestamp_ms=6,
    previous_producer_id=7,
    next_producer_id=8,
    client_transaction_version=2,
)


def test_version_1_keeps_everything() -> None:
    key, value = encode_transaction(KEY, VALUE, version=1)
    assert decode(key, value) == (KEY, VALUE)


def test_version_0_is_the_default_and_keeps_the_classic_fields() -> None:
    key, value = encode_transaction(KEY, VALUE)
    assert (value or b"")[:2] == b"\x00\x00"
    _, decoded = decode(key, value) or (None, None)
    assert decoded is not None
    assert (decoded.producer_id, decoded.transaction_partitions) == (1, VALUE.transaction_partitions)
    assert (decoded.previous_producer_id, decoded.next_producer_id, decoded.client_transaction_version) == (-1, -1, 0)


def test_an_expired_id_has_no_value() -> None:
    key, value = encode_transaction(KEY, None)
    assert (decode(key, value), value) == ((KEY, None), None)


def test_other_kinds_of_records_are_skipped() -> None:
    assert decode(b"\x00\x01anything", b"") is None


def test_newer_values_and_nonsense_are_refused() -> None:
    key = encode_versioned(KEY, 0)
    with pytest.raises(UnknownVersionError):
        decode(key, b"\x00\x02")
    with pytest.raises(MalformedRecordError):
        decode(key, b"\x00\x01\x00")
