import pytest

from broker.protocol.errors import MalformedFrameError
from broker.protocol.wire_format import (
    compact_string,
    legacy_string,
    read_unsigned_varint,
    skip_tagged_fields,
    unsigned_varint,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16383, "ff7f"), (0xFFFFFFFF, "ffffffff0f")],
)
def test_unsigned_varints(value: int, encoded: str) -> None:
    assert unsigned_varint(value).hex() == encoded
    assert read_unsigned_varint(b"x" + bytes.fromhex(encoded), 1) == (value, 1 + len(encoded) // 2)


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff", "808080808001"])
def test_varints_that_end_too_early_or_too_late(encoded: str) -> None:
    with pytest.raises(MalformedFrameError):
        read_unsigned_varint(bytes.fromhex(encoded), 0)


def test_tagged_fields_are_skipped_whatever_they_are() -> None:
    assert skip_tagged_fields(b"\0", 0) == 1
    assert skip_tagged_fields(b"xx\x02\x00\x03abc\x7f\x00rest", 2) == 10


@pytest.mark.parametrize("section", [b"", b"\x01", b"\x01\x00", b"\x01\x00\x05abc"])
def test_tagged_fields_that_end_after_the_frame(section: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        skip_tagged_fields(section, 0)


def test_strings() -> None:
    assert compact_string(None) == b"\0"
    assert compact_string("") == b"\1"
    assert compact_string("é") == b"\3\xc3\xa9"
    assert legacy_string(None) == b"\xff\xff"
    assert legacy_string("ab") == b"\0\2ab"
