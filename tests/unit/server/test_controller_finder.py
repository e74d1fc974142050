import asyncio

import pytest

from broker.server.controller_finder import (
    ControllerFinder,
    ControllerNode,
    Endpoint,
    InconsistentLeaderError,
    NodeIdTakenError,
)

A, B = Endpoint("a", 1), Endpoint("b", 2)


def test_bootstrap_servers_are_asked_in_turn_and_voters_after_them() -> None:
    finder = ControllerFinder([A], {7: B, 8: A})
    assert [finder.next_bootstrap_endpoint() for _ in range(3)] == [A, B, A]


def test_a_finder_with_nobody_to_ask_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"controller\.quorum"):
        ControllerFinder([])


def test_the_leader_comes_with_its_endpoint() -> None:
    finder = ControllerFinder([A])
    assert finder.observe(3, 5, {3: B, 4: A})
    assert (finder.leader, finder.epoch) == (ControllerNode(3, B), 5)


def test_a_static_voter_needs_no_endpoint_in_the_answer() -> None:
    finder = ControllerFinder([], {3: B})
    assert finder.observe(3, 5)
    assert finder.leader == ControllerNode(3, B)


def test_a_leader_without_a_known_endpoint_is_not_one_yet() -> None:
    finder = ControllerFinder([A])
    assert finder.observe(3, 5)
    assert finder.leader is None
    assert finder.observe(3, 5, {3: B})
    assert finder.leader == ControllerNode(3, B)


def test_older_epochs_are_ignored() -> None:
    finder = ControllerFinder([A])
    finder.observe(3, 5, {3: B})
    assert not finder.observe(4, 4, {4: A})
    assert not finder.observe(4, -1, {4: A})
    assert finder.leader == ControllerNode(3, B)


def test_a_newer_epoch_without_a_leader_unsets_it() -> None:
    finder = ControllerFinder([A])
    finder.observe(3, 5, {3: B})
    assert finder.observe(-1, 6)
    assert (finder.leader, finder.epoch) == (None, 6)
    assert finder.observe(4, 6, {4: A})
    assert finder.leader == ControllerNode(4, A)


def test_two_leaders_in_one_epoch_are_fatal_even_when_the_first_is_unreachable() -> None:
    finder = ControllerFinder([A])
    finder.observe(3, 5, {3: B})
    finder.leader_unreachable()
    assert finder.leader is None
    with pytest.raises(InconsistentLeaderError, match="two leaders: 3 and 4"):
        finder.observe(4, 5, {4: A})


def test_the_same_leader_may_move() -> None:
    finder = ControllerFinder([A])
    finder.observe(3, 5, {3: B})
    assert finder.observe(3, 5, {3: A})
    assert finder.leader == ControllerNode(3, A)
    assert not finder.observe(-1, 5)
    assert finder.leader == ControllerNode(3, A)


async def test_waiters_hear_of_the_leader() -> None:
    finder = ControllerFinder([A])
    waiting = asyncio.ensure_future(finder.wait_for_leader())
    await asyncio.sleep(0)
    finder.observe(3, 1)  # no endpoint: nobody to talk to
    await asyncio.sleep(0)
    assert not waiting.done()
    finder.observe(3, 1, {3: B})
    assert await waiting == ControllerNode(3, B)


def test_a_broker_by_itself_has_an_id_no_controller_has() -> None:
    finder = ControllerFinder([A], broker_id=7)
    assert finder.observe(1, 3, {1: A})
    with pytest.raises(NodeIdTakenError, match=r"node\.id=7 is that of a controller"):
        finder.observe(7, 4, {7: A})
    combined = ControllerFinder([A])
    assert combined.observe(7, 4, {7: A})
    assert not combined.observe(-1, 4)
