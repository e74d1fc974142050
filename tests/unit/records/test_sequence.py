import pytest

from broker.records.sequence import decrement_sequence, increment_sequence


@pytest.mark.parametrize(
    ("sequence", "by", "expected"),
    [(0, 0, 0), (5, 3, 8), (2147483647, 0, 2147483647), (2147483647, 1, 0), (2147483646, 3, 1)],
)
def test_increment_wraps_to_zero(sequence: int, by: int, expected: int) -> None:
    assert increment_sequence(sequence, by) == expected
    assert decrement_sequence(expected, by) == sequence
