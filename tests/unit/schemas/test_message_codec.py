import dataclasses
from typing import ClassVar
from uuid import UUID

import pytest

from broker.common.errors import CorruptMessageError, ErrorCode
from broker.common.identifiers import ZERO_UUID
from broker.schemas.message_codec import (
    MalformedRecordError,
    UnknownVersionError,
    decode_message,
    decode_whole_message,
    encode_message,
    message,
    stored,
)

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


@message
class Part:
    name: str = stored("string")
    weight: int = stored("int8", since=1, default=1)


@message
class Everything:
    """Version 0 is not flexible, 1 adds fields, 2 is flexible and drops one."""

    VERSIONS: ClassVar[range] = range(3)
    FLEXIBLE_SINCE: ClassVar[int | None] = 2

    flag: bool = stored("bool", default=False)
    small: int = stored("int8", default=0)
    short: int = stored("int16", default=0)
    port: int = stored("uint16", default=0)
    number: int = stored("int32", default=0)
    large: int = stored("int64", default=0)
    ratio: float = stored("float64", default=0.0)
    id: UUID = stored("uuid", default=ZERO_UUID)
    text: str = stored("string", default="")
    maybe_text: str | None = stored("string", default=None)
    raw: bytes = stored("bytes", default=b"")
    maybe_raw: bytes | None = stored("bytes", default=None)
    numbers: tuple[int, ...] = stored("int32", default=())
    maybe_numbers: tuple[int, ...] | None = stored("int32", default=None)
    parts: tuple[Part, ...] = stored(default=())
    old: int = stored("int8", until=1, ignorable=True, default=0)
    new: int = stored("int8", since=1, default=0)
    later: tuple[str, ...] = stored("string", since=2, tag=3, default=())
    earlier: int = stored("int16", since=2, tag=0, ignorable=True, default=-1)


FULL = Everything(
    flag=True,
    small=-1,
    short=-2,
    port=65535,
    number=-3,
    large=-4,
    ratio=1.5,
    id=ID,
    text="é",
    maybe_text="",
    raw=b"\x00\xff",
    maybe_raw=b"",
    numbers=(1, -1),
    maybe_numbers=(),
    parts=(Part(name="a", weight=1), Part(name="", weight=1)),
    old=9,
)
FIXED_PART = "01 ff fffe ffff fffffffd fffffffffffffffc 3ff8000000000000 00112233445566778899aabbccddeeff"


def hexadecimal(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


VERSION_0 = hexadecimal(
    FIXED_PART + "0002 c3a9 0000 00000002 00ff 00000000 00000002 00000001 ffffffff 0000000000000002 0001 61 0000 09"
)
VERSION_2 = hexadecimal(
    FIXED_PART + "03 c3a9 01 03 00ff 01 03 00000001 ffffffff 01 03 02 61 05 00 01 06 00 07"
    "02 00 02 0008 03 04 03 02 78 01"
)


FULL_2 = dataclasses.replace(
    FULL,
    old=0,
    new=7,
    parts=(Part(name="a", weight=5), Part(name="", weight=6)),
    later=("x", ""),
    earlier=8,
)


def test_a_version_that_is_not_flexible() -> None:
    assert encode_message(FULL, 0) == VERSION_0
    assert decode_message(Everything, 0, VERSION_0) == (FULL, len(VERSION_0))


def test_a_flexible_version_with_tagged_fields() -> None:
    value = FULL_2
    assert encode_message(value, 2) == VERSION_2
    assert decode_message(Everything, 2, b"\xaa" + VERSION_2, 1) == (value, 1 + len(VERSION_2))


def test_nulls_and_defaults() -> None:
    for version in Everything.VERSIONS:
        raw = encode_message(Everything(), version)
        assert decode_whole_message(Everything, version, raw) == Everything(), version
    assert encode_message(Everything(), 2).endswith(b"\x00")  # no tag is written


def test_unknown_tags_are_skipped() -> None:
    raw = encode_message(Everything(), 2)[:-1] + hexadecimal("03 00 02 0005 01 03 ffffff 07 00")
    assert decode_whole_message(Everything, 2, raw) == Everything(earlier=5)


@pytest.mark.parametrize(
    "tags", ["01 00 03 000500", "01 00 01 00", "01 00", "01", "02 01 00", "01 05 04 ffff", "ffffffffffff01"]
)
def test_a_tag_section_that_does_not_add_up_is_refused(tags: str) -> None:
    raw = encode_message(Everything(), 2)[:-1] + hexadecimal(tags)
    with pytest.raises(MalformedRecordError):
        decode_whole_message(Everything, 2, raw)


@pytest.mark.parametrize("version", [0, 2])
def test_bytes_too_few_or_too_many_are_refused(version: int) -> None:
    value = FULL if version == 0 else FULL_2
    raw = encode_message(value, version)
    for size in range(len(raw)):
        with pytest.raises(MalformedRecordError):
            decode_message(Everything, version, raw[:size])
    with pytest.raises(MalformedRecordError, match="1 bytes follow a Everything of version"):
        decode_whole_message(Everything, version, raw + b"\x00")


@message
class Texts:
    VERSIONS: ClassVar[range] = range(2)
    FLEXIBLE_SINCE: ClassVar[int | None] = 1

    texts: tuple[str, ...] = stored("string")


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (0, "ffffffff"),  # the array is null
        (0, "00000001 ffff"),  # a text is null
        (0, "7fffffff"),  # more elements than there can be
        (0, "00000001 0001 ff"),  # not utf-8
        (1, "00 00"),
        (1, "02 00 00"),
        (1, "ffffffff0f 00"),
        (1, "02 02 ff 00"),
    ],
)
def test_values_that_cannot_be_are_refused(version: int, text: str) -> None:
    with pytest.raises(MalformedRecordError):
        decode_message(Texts, version, hexadecimal(text))


def test_what_a_version_cannot_hold_is_not_lost_silently() -> None:
    with pytest.raises(ValueError, match="Everything of version 0 cannot hold new"):
        encode_message(Everything(new=1), 0)
    with pytest.raises(ValueError, match="cannot hold later"):
        encode_message(Everything(later=("x",)), 1)
    with pytest.raises(ValueError, match="Part of version 0 cannot hold weight"):
        encode_message(Everything(parts=(Part(name="a", weight=2),)), 0)
    ignorable = Everything(earlier=5)
    assert decode_whole_message(Everything, 1, encode_message(ignorable, 1)) == Everything()


@pytest.mark.parametrize("value", [Everything(number=2**31), Everything(port=-1), Everything(small=128)])
def test_numbers_out_of_range_are_refused(value: Everything) -> None:
    with pytest.raises(ValueError, match=r"format|range"):
        encode_message(value, 0)


def test_a_null_that_may_not_be_is_not_written() -> None:
    for version in (0, 2):
        with pytest.raises(ValueError, match="null"):
            encode_message(Everything(text=None), version)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [-1, 3])
def test_unknown_versions(version: int) -> None:
    with pytest.raises(UnknownVersionError, match=f"Version {version} of Everything is not known"):
        decode_message(Everything, version, b"")
    with pytest.raises(UnknownVersionError):
        encode_message(Everything(), version)


def test_the_errors_have_codes() -> None:
    assert MalformedRecordError.code is ErrorCode.corrupt_message
    assert issubclass(MalformedRecordError, CorruptMessageError)
    assert UnknownVersionError.code is ErrorCode.unsupported_version


def test_messages_are_immutable_and_compared_by_value() -> None:
    part = Part(name="a")
    assert part == Part(name="a", weight=1)
    assert hash(part) == hash(Part(name="a", weight=1))
    with pytest.raises(AttributeError):
        part.name = "b"  # type: ignore[misc]
