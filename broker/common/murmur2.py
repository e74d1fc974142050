"""Kafka's 32-bit murmur2 hash (org.apache.kafka.common.utils.Utils): its seed and its signed result."""

from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash as Java's int: between -2**31 and 2**31 - 1."""
    size = len(data)
    value = _SEED ^ size
    whole = size & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        value = value * _MULTIPLIER & _MASK ^ word
    if size > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    value = (value ^ value >> 13) * _MULTIPLIER & _MASK
    value ^= value >> 15
    return value - (1 << 32) if value >= 1 << 31 else value


def positive_murmur2(data: bytes) -> int:
    """The hash without its sign bit (Utils.toPositive)."""
    return murmur2(data) & 0x7FFFFFFF
