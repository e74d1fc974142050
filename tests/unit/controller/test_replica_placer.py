from collections import Counter

import pytest

from broker.common.chance import Chance
from broker.common.errors import InvalidReplicationFactorError
from broker.controller.replica_placer import StripedReplicaPlacer, UsableBroker


def brokers(*racks: str | None, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(broker_id, rack, broker_id in fenced) for broker_id, rack in enumerate(racks)]


def place(count: int, factor: int, usable: list[UsableBroker], seed: int = 3) -> list[tuple[int, ...]]:
    return StripedReplicaPlacer(Chance(seed)).place(count, factor, usable)


def test_the_same_seed_places_the_same() -> None:
    usable = brokers("a", "b", "a", "b")
    assert place(20, 2, usable) == place(20, 2, usable)
    assert place(20, 2, usable, seed=3) != place(20, 2, usable, seed=4)


def test_38_replicas_stand_in_distinct_racks() -> None:
    usable = brokers("a", "a", "b", "b", "c", "c")
    racks = {broker.id: broker.rack for broker in usable}
    for replicas in place(50, 3, usable):
        assert len({racks[replica] for replica in replicas}) == 3


def test_38_leaders_are_even_over_brokers() -> None:
    leaders = Counter(replicas[0] for replicas in place(60, 3, brokers("a", "a", "b", "b", "c", "c")))
    assert set(leaders.values()) == {10}
    leaders = Counter(replicas[0] for replicas in place(9, 1, brokers(None, None, None)))
    assert set(leaders.values()) == {3}


def test_replicas_are_distinct_even_when_racks_are_few() -> None:
    for replicas in place(50, 4, brokers("a", "a", "a", "b")):
        assert sorted(replicas) == [0, 1, 2, 3]


def test_a_fenced_broker_may_follow_but_not_lead() -> None:
    for replicas in place(30, 3, brokers("a", "b", "c", fenced=(1,))):
        assert sorted(replicas) == [0, 1, 2]
        assert replicas[0] != 1
    for replicas in place(30, 2, brokers(None, None, None, fenced=(1,))):
        assert 1 not in replicas  # unfenced ones first


def test_one_unfenced_broker_leads_everything() -> None:
    assert {replicas[0] for replicas in place(10, 2, brokers(None, None, fenced=(0,)))} == {1}
    assert place(3, 1, brokers(None)) == [(0,), (0,), (0,)]


@pytest.mark.parametrize(
    ("factor", "usable", "reason"),
    [
        (0, brokers(None), "must be positive"),
        (2, brokers(None), "cannot be reached because only 1 broker"),
        (1, brokers(None, fenced=(0,)), "All brokers are currently fenced"),
        (1, [], "All brokers are currently fenced"),
    ],
)
def test_impossible_factors(factor: int, usable: list[UsableBroker], reason: str) -> None:
    with pytest.raises(InvalidReplicationFactorError, match=reason):
        place(1, factor, usable)
