from itertools import pairwise

import pytest

from broker.common.chance import Chance
from broker.cost_model.reading import candidates_of, expected_brokers, followers_by_chance, reads_of


def test_one_read_for_each_broker_where_all_follow_everything() -> None:
    reads = reads_of(slices=7.5, slice_bytes=1000, brokers=3, zones=3, followers=2)
    assert (reads.gets, reads.amplification) == (2, 1)
    assert reads_of(slices=7.5, slice_bytes=1000, brokers=3, zones=3, followers=0).gets == 0


def test_brokers_of_an_object_by_hand() -> None:
    assert expected_brokers(1, 2, 8) == pytest.approx(2)
    assert expected_brokers(2, 1, 2) == pytest.approx(1.5)
    assert expected_brokers(1000, 2, 8) == pytest.approx(8)
    assert expected_brokers(5, 2, 2) == 2
    assert expected_brokers(5, 0, 2) == 0


def test_who_may_follow() -> None:
    assert candidates_of(12, 3, 2) == pytest.approx(8), "the leader's zone has no other replica"
    assert candidates_of(12, 1, 2) == 11


def test_a_single_slice_is_read_as_it_is_by_its_followers() -> None:
    reads = reads_of(slices=1, slice_bytes=5000, brokers=12, zones=3, followers=2)
    assert reads.gets == pytest.approx(2)
    assert reads.amplification == 1


def test_small_objects_are_read_with_what_lies_between() -> None:
    few, many = (
        reads_of(slices=each, slice_bytes=1000, brokers=12, zones=3, followers=2).amplification for each in (2, 30)
    )
    assert 1 <= few < many < 4


def test_wide_gaps_are_asked_around() -> None:
    reads = reads_of(slices=4, slice_bytes=131_072, brokers=12, zones=3, followers=2)
    assert reads.amplification == 1
    assert reads.gets > expected_brokers(4, 2, 8), "some brokers ask twice"


def test_reads_grow_with_slices_and_stay_below_the_brokers() -> None:
    gets = [
        reads_of(slices=each, slice_bytes=500, brokers=100, zones=3, followers=2).gets for each in (1, 3, 10, 30, 100)
    ]
    assert all(less < more for less, more in pairwise(gets))
    assert gets[-1] < 67


@pytest.mark.parametrize(("brokers", "zones", "followers"), [(12, 3, 2), (7, 3, 2), (5, 1, 2), (4, 2, 2), (9, 9, 4)])
def test_followers_are_others_and_in_other_zones_while_there_are_some(brokers: int, zones: int, followers: int) -> None:
    chance = Chance(1)
    seen = set()
    for _ in range(300):
        chosen = followers_by_chance(chance, brokers, zones, followers)
        assert len(set(chosen)) == followers
        assert all(0 < each < brokers for each in chosen)
        if zones > followers:
            assert len({each % zones for each in chosen} | {0}) == followers + 1
        seen.update(chosen)
    assert len(seen) == (round(candidates_of(brokers, zones, followers)) if brokers % zones == 0 else len(seen))
