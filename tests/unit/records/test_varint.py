import pytest

from broker.common.errors import InvalidRecordError
from broker.records.varint import (
    decode_uvarint,
    decode_varint,
    decode_varlong,
    encode_uvarint,
    encode_varint,
    encode_varlong,
)

INT_MAX, INT_MIN = 2**31 - 1, -(2**31)
LONG_MAX, LONG_MIN = 2**63 - 1, -(2**63)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-64, "7f"),
        (-65, "8101"),
        (300, "d804"),
        (INT_MAX, "feffffff0f"),
        (INT_MIN, "ffffffff0f"),
    ],
)
def test_signed_numbers(value: int, text: str) -> None:
    raw = bytes.fromhex(text)
    assert encode_varint(value) == raw
    assert decode_varint(raw, 0) == (value, len(raw))
    assert encode_varlong(value) == raw
    assert decode_varlong(raw, 0) == (value, len(raw))


@pytest.mark.parametrize(
    ("value", "text"), [(LONG_MAX, "feffffffffffffffff01"), (LONG_MIN, "ffffffffffffffffff01"), (2**31, "8080808010")]
)
def test_long_numbers(value: int, text: str) -> None:
    raw = bytes.fromhex(text)
    assert encode_varlong(value) == raw
    assert decode_varlong(raw, 0) == (value, len(raw))


@pytest.mark.parametrize(
    ("value", "text"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")]
)
def test_unsigned_numbers(value: int, text: str) -> None:
    raw = bytes.fromhex(text)
    assert encode_uvarint(value) == raw
    assert decode_uvarint(b"\xff" + raw, 1) == (value, 1 + len(raw))


def test_a_number_of_too_many_bytes_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="longer than 5"):
        decode_varint(bytes.fromhex("808080808001"), 0)
    with pytest.raises(InvalidRecordError, match="longer than 5"):
        decode_uvarint(bytes.fromhex("ffffffffff01"), 0)
    with pytest.raises(InvalidRecordError, match="longer than 10"):
        decode_varlong(b"\x80" * 10 + b"\x01", 0)


@pytest.mark.parametrize("decode", [decode_varint, decode_varlong, decode_uvarint])
@pytest.mark.parametrize("text", ["", "80", "ffff"])
def test_a_number_cut_short_is_refused(decode: object, text: str) -> None:
    with pytest.raises(InvalidRecordError, match="cut short"):
        decode(bytes.fromhex(text), 0)  # type: ignore[operator]
