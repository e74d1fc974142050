import pytest

from broker.replication.truncation import common_end_offset


@pytest.mark.parametrize(
    ("leader", "local", "log_end_offset", "expected"),
    [
        ((1, 10), (1, 12), 15, 10),  # the leader has less of the epoch
        ((1, 10), (1, 8), 15, 8),  # we have less of it
        ((1, 10), (1, 12), 7, 7),  # and never more than there is
        ((2, 10), (1, 6), 15, 6),  # the epoch is unknown here: the end of the one before it
        ((2, 10), (1, 9), 8, 8),
        ((2, 10), (1, 12), 15, 12),  # it may still be too far: the next fetch, with epoch 1, finds that out
        ((2, 10), (-1, -1), 15, 10),  # no epoch known at all
        ((2, 10), (-1, -1), 5, 5),
        ((-1, -1), (1, 6), 15, 13),  # the leader knows nothing: where we fetched
    ],
)
def test_where_a_log_stops_being_the_leaders(
    leader: tuple[int, int], local: tuple[int, int], log_end_offset: int, expected: int
) -> None:
    assert (
        common_end_offset(
            leader_epoch=leader[0],
            leader_end_offset=leader[1],
            local_epoch=local[0],
            local_end_offset=local[1],
            log_end_offset=log_end_offset,
            fetch_offset=13,
        )
        == expected
    )
