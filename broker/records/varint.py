"""Variable-length integers (Protocol Buffers' base 128): zigzag ones in records, unsigned ones in flexible messages.

Decoders take a position and return (value, next position).  InvalidRecordError for numbers that are too long or cut
short.
"""

from typing import Final

from broker.common.buffers import Buffer
from broker.common.errors import InvalidRecordError

_INT_GROUPS_MAX: Final = 5  # 7 bits a byte
_LONG_GROUPS_MAX: Final = 10
_INT_MASK: Final = (1 << 32) - 1
_LONG_MASK: Final = (1 << 64) - 1
_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1


def encode_uvarint(value: int) -> bytes:
    """An unsigned number, the low group first."""
    if value < 0x80:
        return _ONE_BYTE[value]
    output = bytearray()
    while value >= 0x80:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)
    return bytes(output)


def encode_varint(value: int) -> bytes:
    """A signed number of 32 bits, zigzag: numbers near zero are short."""
    return encode_uvarint(((value << 1) ^ (value >> 31)) & _INT_MASK)


def wrapped_long(value: int) -> int:
    """As 64 bits hold it: sums and differences of timestamps that are far apart wrap around, as in Java."""
    return (value + (1 << 63) & _LONG_MASK) - (1 << 63)


def encode_varlong(value: int) -> bytes:
    """A signed number of 64 bits, zigzag; a larger one wraps around."""
    if not _LONG_MIN <= value <= _LONG_MAX:
        value = wrapped_long(value)
    return encode_uvarint(((value << 1) ^ (value >> 63)) & _LONG_MASK)


def decode_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned number of 32 bits."""
    if position < len(data) and data[position] < 0x80:
        return data[position], position + 1
    return _decode(data, position, _INT_GROUPS_MAX, _INT_MASK)


def decode_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A signed number of 32 bits."""
    if position < len(data) and (byte := data[position]) < 0x80:  # lengths and deltas mostly take one byte
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, position = _decode(data, position, _INT_GROUPS_MAX, _INT_MASK)
    return (value >> 1) ^ -(value & 1), position


def decode_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """A signed number of 64 bits."""
    if position < len(data) and (byte := data[position]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, position = _decode(data, position, _LONG_GROUPS_MAX, _LONG_MASK)
    return (value >> 1) ^ -(value & 1), position


def _decode(data: Buffer, position: int, groups_max: int, mask: int) -> tuple[int, int]:
    value = 0
    end = len(data)
    for shift in range(0, 7 * groups_max, 7):
        if position >= end:
            raise InvalidRecordError("A variable-length integer is cut short")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & mask, position  # Java drops the bits above, too
    raise InvalidRecordError(f"A variable-length integer is longer than {groups_max} bytes")


_ONE_BYTE: Final = [bytes([value]) for value in range(0x80)]
