import asyncio
from pathlib import Path

from broker.replication.out_of_range import place_in_range
from tests.unit.replication.follower_world import FakeLeader, FollowerWorld, T, records


def place(world: FollowerWorld, leader: FakeLeader, **before: object) -> tuple[int, int, int]:
    """Fetch offset, log start and log end afterwards."""
    state = world.state()
    state.is_truncating = False
    request = state.request(100)
    for name, value in before.items():
        setattr(state, name, value)
    asyncio.run(place_in_range(leader, state, request))
    log = world.partition().log
    return state.fetch_offset, log.log_start_offset, log.log_end_offset


def leader_with(earliest: int, latest: int) -> FakeLeader:
    leader = FakeLeader()
    leader.earliest, leader.latest = earliest, latest
    return leader


def world_with(tmp_path: Path, count: int) -> FollowerWorld:
    world = FollowerWorld(tmp_path)
    for offset in range(count):
        world.replica().append(records(offset, "a"))
    return world


def test_a_longer_log_is_cut_to_the_leaders(tmp_path: Path) -> None:
    leader = leader_with(0, 2)
    assert place(world_with(tmp_path, 5), leader) == (2, 0, 2)
    assert leader.listed == [("latest", T, 0)]


def test_a_log_below_the_leaders_begins_anew_at_its_start(tmp_path: Path) -> None:
    world = world_with(tmp_path, 2)
    assert place(world, leader_with(7, 9)) == (7, 7, 7)
    assert world.partition().log.leader_epochs.entries == ()
    assert world.partition().log.high_watermark == 7


def test_a_log_within_the_leaders_range_is_not_touched(tmp_path: Path) -> None:
    world = world_with(tmp_path, 3)
    assert place(world, leader_with(1, 9)) == (3, 0, 3)
    assert place(world, leader_with(3, 9)) == (3, 0, 3)


def test_refused_twice_within_the_range_means_that_nothing_is_common(tmp_path: Path) -> None:
    world = world_with(tmp_path, 3)
    assert place(world, leader_with(1, 9), refused_in_range_at=3) == (1, 1, 1)


def test_lag_is_what_the_leader_has_beyond(tmp_path: Path) -> None:
    world = world_with(tmp_path, 3)
    state = world.state()
    asyncio.run(place_in_range(leader_with(0, 9), state, state.request(100)))
    assert (state.lag, state.refused_in_range_at) == (6, 3)


def test_an_answer_that_comes_too_late_changes_nothing(tmp_path: Path) -> None:
    world = world_with(tmp_path, 2)
    state = world.state()
    request = state.request(100)

    class Slow(FakeLeader):
        async def earliest_offset(self, *arguments: object) -> int:
            world.replica().append(records(2, "appended meanwhile"))
            state.continue_at_end()
            return 7

    leader = Slow()
    leader.latest = 9
    asyncio.run(place_in_range(leader, state, request))
    assert world.partition().log.log_end_offset == 3
    state.stop()
    leader.latest = 1
    asyncio.run(place_in_range(leader, state, request))
    assert world.partition().log.log_end_offset == 3
