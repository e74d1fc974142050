"""Sequence numbers of idempotent producers wrap from the largest int32 to 0 (Kafka: DefaultRecordBatch)."""

from typing import Final

SEQUENCE_MAX: Final = 2**31 - 1


def increment_sequence(sequence: int, by: int) -> int:
    """The sequence `by` records later."""
    return sequence + by if sequence <= SEQUENCE_MAX - by else by - (SEQUENCE_MAX - sequence) - 1


def decrement_sequence(sequence: int, by: int) -> int:
    """The sequence `by` records earlier."""
    return sequence - by if sequence >= by else SEQUENCE_MAX - (by - sequence) + 1
