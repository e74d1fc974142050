"""The smallest pieces of Kafka's encoding, for the codecs written by hand: varints, strings, tagged fields."""

from typing import Final

from broker.common.buffers import Buffer
from broker.protocol.errors import MalformedFrameError

_VARINT_SHIFT_MAX: Final = 28  # five bytes: Kafka's lengths and tags are 32 bits
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def read_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """A value and the position behind it."""
    try:
        value = buffer[position]
        if value < 0x80:
            return value, position + 1
        value &= 0x7F
        position += 1
        shift = 7
        while True:
            byte = buffer[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
            if shift > _VARINT_SHIFT_MAX:
                raise MalformedFrameError(f"a varint of more than five bytes at {position}")
    except IndexError as error:
        raise MalformedFrameError(f"the frame ends inside a varint at {position}") from error


def unsigned_varint(value: int) -> bytes:
    """The encoding of a value that is not negative."""
    if value < 0x80:
        return _ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def skip_tagged_fields(buffer: Buffer, position: int) -> int:
    """The position behind a section of tagged fields, whatever they are (KIP-482)."""
    try:
        count = buffer[position]
    except IndexError as error:
        raise MalformedFrameError(f"the frame ends before its tagged fields at {position}") from error
    if count == 0:
        return position + 1
    count, position = read_unsigned_varint(buffer, position)
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position)
        size, position = read_unsigned_varint(buffer, position)
        position += size
        if position > len(buffer):
            raise MalformedFrameError(f"a tagged field of {size} bytes ends after its frame of {len(buffer)}")
    return position


def compact_string(text: str | None) -> bytes:
    """A (nullable) string of the flexible versions."""
    if text is None:
        return b"\0"
    encoded = text.encode()
    return unsigned_varint(len(encoded) + 1) + encoded


def legacy_string(text: str | None) -> bytes:
    """A (nullable) string of the versions before KIP-482."""
    if text is None:
        return b"\xff\xff"
    encoded = text.encode()
    return len(encoded).to_bytes(2, "big", signed=True) + encoded
