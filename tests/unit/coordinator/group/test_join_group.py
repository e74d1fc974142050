"""JoinGroup in virtual time; names carry the number of the behaviour they show."""

import asyncio

import pytest

from broker.common.errors import ErrorCode, NotEnoughReplicasError
from broker.coordinator.group.group_messages import MemberIdentity
from tests.support.group_world import GROUP, GroupWorld, after, protocols, run_world, settle


def test_01_a_dynamic_member_needs_two_rounds() -> None:
    async def story(world: GroupWorld) -> None:
        first = await world.join()
        assert first.error is ErrorCode.member_id_required
        assert first.member_id.startswith("c-") and len(first.member_id) == len("c-") + 36
        second = world.join(first.member_id)
        await settle()
        assert not second.done()
        joined = await second
        assert (joined.error, joined.generation, joined.member_id) == (ErrorCode.none, 1, first.member_id)
        assert (joined.leader_id, joined.protocol_type, joined.protocol_name) == (first.member_id, "consumer", "range")

    run_world(story)


def test_02_before_version_4_one_round_is_enough() -> None:
    async def story(world: GroupWorld) -> None:
        joined = await world.join(version=3)
        assert (joined.error, joined.generation) == (ErrorCode.none, 1)

    run_world(story)


def test_03_a_new_group_waits_for_its_initial_delay() -> None:
    async def story(world: GroupWorld) -> None:
        loop = asyncio.get_running_loop()
        one = await world.join_known()
        await after(1000)
        two = await world.join_known()
        results = [await one, await two]
        assert [result.generation for result in results] == [1, 1]
        # The second member came within the delay, so the group waited once more.
        assert loop.time() == pytest.approx(6.0)

    run_world(story)


def test_03_a_lone_member_waits_just_the_delay() -> None:
    async def story(world: GroupWorld) -> None:
        await (await world.join_known())
        assert asyncio.get_running_loop().time() == pytest.approx(3.0)

    run_world(story)


def test_03_without_a_delay_the_next_turn_completes() -> None:
    async def story(world: GroupWorld) -> None:
        assert (await (await world.join_known())).generation == 1
        assert asyncio.get_running_loop().time() == 0.0

    run_world(story, group_initial_rebalance_delay_ms="0")


def test_04_a_trickle_of_members_extends_the_wait_up_to_the_rebalance_timeout() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known(rebalance_timeout_ms=10_000)]
        for _ in range(4):
            await after(2000)
            joins.append(await world.join_known(rebalance_timeout_ms=10_000))
        results = [await join for join in joins]
        assert {result.generation for result in results} == {1}
        assert asyncio.get_running_loop().time() == pytest.approx(10.0)

    run_world(story)


def test_05_a_pending_member_that_never_returns_holds_the_phase_for_its_session() -> None:
    async def story(world: GroupWorld) -> None:
        (leader,) = await world.stable_group()
        started = asyncio.get_running_loop().time()
        pending = await world.join(session_timeout_ms=7000)
        rejoin = world.join(leader.member_id)
        await settle()
        assert not rejoin.done()
        assert pending.error is ErrorCode.member_id_required
        assert (await rejoin).generation == 2
        assert asyncio.get_running_loop().time() - started == pytest.approx(7.0)

    run_world(story)


def test_06_leaving_with_a_pending_id_frees_the_phase() -> None:
    async def story(world: GroupWorld) -> None:
        (leader,) = await world.stable_group()
        pending = await world.join()
        rejoin = world.join(leader.member_id)
        await settle()
        result = await world.leave(pending.member_id)
        assert [member.error for member in result.members] == [ErrorCode.none]
        await settle()
        assert rejoin.done() and (await rejoin).generation == 2

    run_world(story)


@pytest.mark.parametrize("timeout_ms", [5999, 1_800_001])
def test_07_a_session_timeout_out_of_bounds(timeout_ms: int) -> None:
    async def story(world: GroupWorld) -> None:
        result = await world.join("m", session_timeout_ms=timeout_ms)
        assert (result.error, result.member_id) == (ErrorCode.invalid_session_timeout, "m")

    run_world(story)


@pytest.mark.parametrize("timeout_ms", [6000, 1_800_000])
def test_07_a_session_timeout_at_the_bounds(timeout_ms: int) -> None:
    async def story(world: GroupWorld) -> None:
        assert (await world.join(session_timeout_ms=timeout_ms)).error is ErrorCode.member_id_required

    run_world(story)


def test_08_an_empty_group_id() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        assert (await world.join(group_id="")).error is ErrorCode.invalid_group_id
        assert (await world.sync(joined, group_id="")).error is ErrorCode.invalid_group_id
        assert await world.heartbeat(joined, group_id="") is ErrorCode.invalid_group_id
        assert (await world.leave("m", group_id="")).error is ErrorCode.invalid_group_id
        assert await world.commit_code(group_id="") is ErrorCode.none
        assert await world.fetch_offset(group_id="") == 1

    run_world(story)


def test_09_a_known_member_id_in_an_unknown_group() -> None:
    async def story(world: GroupWorld) -> None:
        result = await world.join("m")
        assert (result.error, result.member_id) == (ErrorCode.unknown_member_id, "m")
        assert world.shard.groups.find(GROUP) is None

    run_world(story)


def test_09_an_unknown_member_id_in_a_known_group() -> None:
    async def story(world: GroupWorld) -> None:
        await world.stable_group()
        assert (await world.join("m")).error is ErrorCode.unknown_member_id
        assert (await world.join("m", group_instance_id="i")).error is ErrorCode.unknown_member_id

    run_world(story)


def test_10_another_protocol_type_or_no_protocol_in_common() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        new = await world.join(protocol_type="connect")
        assert (new.error, new.member_id) == (ErrorCode.inconsistent_group_protocol, "")
        known = await world.join(joined.member_id, protocols=protocols("other"))
        assert (known.error, known.member_id) == (ErrorCode.inconsistent_group_protocol, joined.member_id)
        assert world.describe() == ("Stable", 1)

    run_world(story)


def test_11_the_protocol_most_members_prefer_wins() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known(protocols=protocols(*names)) for names in (("x", "y"), ("y", "x"), ("y",))]
        assert {(await join).protocol_name for join in joins} == {"y"}

    run_world(story)


def test_11_a_tie_goes_to_the_first_member() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known(protocols=protocols(*names)) for names in (("x", "y"), ("y", "x"))]
        assert {(await join).protocol_name for join in joins} == {"x"}

    run_world(story)


def test_12_a_new_group_needs_protocols() -> None:
    async def story(world: GroupWorld) -> None:
        assert (await world.join(protocols=())).error is ErrorCode.inconsistent_group_protocol
        assert (await world.join(protocol_type="")).error is ErrorCode.inconsistent_group_protocol
        assert world.shard.groups.find(GROUP) is None

    run_world(story)


def test_13_only_the_leader_gets_the_members() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known(protocols=protocols("range", metadata=name)) for name in (b"a", b"b")]
        leader, follower = [await join for join in joins]
        assert leader.leader_id == follower.leader_id == leader.member_id
        assert [(member.member_id, member.metadata) for member in leader.members] == [
            (leader.member_id, b"a"),
            (follower.member_id, b"b"),
        ]
        assert follower.members == ()

    run_world(story)


def test_22_a_new_parked_member_is_expired_after_five_minutes() -> None:
    async def story(world: GroupWorld) -> None:
        static = await world.static_group("i", session_timeout_ms=1_800_000, rebalance_timeout_ms=1_700_000)
        parked = world.join(version=3, rebalance_timeout_ms=1_700_000)
        await after(299_000)
        assert not parked.done() and world.describe() == ("PreparingRebalance", 2)
        await after(2_000)
        result = await parked
        assert (result.error, result.member_id) == (ErrorCode.unknown_member_id, "")
        assert world.describe() == ("PreparingRebalance", 1)
        assert static[0].generation == world.generation == 1

    run_world(story)


def test_22_a_parked_member_outlives_its_session() -> None:
    async def story(world: GroupWorld) -> None:
        one, two = await world.stable_group(2, session_timeout_ms=30_000)
        rejoin = world.join(one.member_id, session_timeout_ms=6000)
        for _ in range(3):
            await after(9000)
            assert await world.heartbeat(two) is ErrorCode.rebalance_in_progress
        assert not rejoin.done() and world.describe() == ("PreparingRebalance", 2)
        second = world.join(two.member_id)
        assert (await rejoin).generation == (await second).generation == 2

    run_world(story)


def test_23_a_stable_follower_that_rejoins_unchanged_keeps_its_generation() -> None:
    async def story(world: GroupWorld) -> None:
        leader, follower = await world.stable_group(2)
        again = await world.join(follower.member_id)
        assert (again.error, again.generation, again.leader_id, again.members) == (
            ErrorCode.none,
            1,
            leader.member_id,
            (),
        )
        assert world.describe() == ("Stable", 2)
        changed = world.join(follower.member_id, protocols=protocols("range", metadata=b"new"))
        await settle()
        assert not changed.done() and world.describe() == ("PreparingRebalance", 2)
        assert await world.heartbeat(leader) is ErrorCode.rebalance_in_progress

    run_world(story)


def test_24_a_stable_leader_that_rejoins_rebalances_always() -> None:
    async def story(world: GroupWorld) -> None:
        leader, _ = await world.stable_group(2)
        rejoin = world.join(leader.member_id)
        await settle()
        assert not rejoin.done() and world.describe() == ("PreparingRebalance", 2)

    run_world(story)


def test_25_a_lost_answer_is_given_again_while_the_leader_assigns() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known() for _ in range(2)]
        leader, follower = [await join for join in joins]
        assert await world.join(leader.member_id) == leader
        assert await world.join(follower.member_id) == follower
        changed = world.join(follower.member_id, protocols=protocols("range", metadata=b"new"))
        sync = world.sync(leader)
        await settle()
        assert not changed.done()
        assert (await sync).error is ErrorCode.rebalance_in_progress

    run_world(story)


def test_26_who_misses_the_join_phase_is_out_unless_static() -> None:
    async def story(world: GroupWorld) -> None:
        (static,) = await world.static_group("i", session_timeout_ms=600_000)
        late = await world.join_known(session_timeout_ms=600_000)
        rejoined = await world.join(static.member_id, group_instance_id="i", session_timeout_ms=600_000)
        late_joined = await late
        assert rejoined.generation == late_joined.generation == 2
        sync = world.sync(rejoined, group_instance_id="i", assignments={})
        assert (await sync).error is ErrorCode.none
        assert (await world.sync(late_joined)).error is ErrorCode.none
        new = await world.join_known(session_timeout_ms=600_000)
        await after(59_000)
        assert not new.done()
        await after(2000)
        assert (await new).generation == 3
        members = [member.member_id for member in world.groups.describe_groups([GROUP], 5)[0].members]
        assert members == [static.member_id, (await new).member_id]

    run_world(story)


def test_27_static_members_alone_are_waited_for_again_and_again() -> None:
    async def story(world: GroupWorld) -> None:
        (static,) = await world.static_group("i", session_timeout_ms=1_000_000)
        pending = await world.join(session_timeout_ms=6000)
        new = world.join(pending.member_id, session_timeout_ms=6000)
        await settle()
        assert world.describe() == ("PreparingRebalance", 2)
        await world.leave(pending.member_id)
        assert (await new).error is ErrorCode.unknown_member_id
        await after(200_000)
        assert world.describe() == ("PreparingRebalance", 1)
        assert world.generation == 1
        assert (await world.join(static.member_id, group_instance_id="i")).generation == 2

    run_world(story)


def test_28_a_static_member_comes_back_without_a_rebalance() -> None:
    async def story(world: GroupWorld) -> None:
        leader, follower = await world.static_group("l", "f")
        back = await world.join(group_instance_id="f")
        assert (back.error, back.generation, back.leader_id) == (ErrorCode.none, 1, leader.member_id)
        assert back.member_id != follower.member_id and back.member_id.startswith("f-")
        assert (back.members, back.skip_assignment) == ((), False)
        assert await world.heartbeat(leader, group_instance_id="l") is ErrorCode.none
        assert (await world.sync(back, group_instance_id="f")).assignment == b"f"

    run_world(story)


def test_28_a_static_member_whose_return_changes_the_protocol_rebalances() -> None:
    async def story(world: GroupWorld) -> None:
        await world.static_group("i", protocols=protocols("range", "roundrobin"))
        back = world.join(group_instance_id="i", protocols=protocols("roundrobin"))
        result = await back
        assert (result.generation, result.protocol_name) == (2, "roundrobin")

    run_world(story)


def test_29_the_old_member_id_is_fenced() -> None:
    async def story(world: GroupWorld) -> None:
        (old,) = await world.static_group("i")
        await world.join(group_instance_id="i")
        assert await world.heartbeat(old, group_instance_id="i") is ErrorCode.fenced_instance_id
        assert (await world.sync(old, group_instance_id="i")).error is ErrorCode.fenced_instance_id
        assert await world.commit_code(1, old, group_instance_id="i") is ErrorCode.fenced_instance_id
        assert (await world.join(old.member_id, group_instance_id="i")).error is ErrorCode.fenced_instance_id
        fenced = await world.leave(MemberIdentity(old.member_id, "i"))
        assert fenced.members[0].error is ErrorCode.fenced_instance_id

    run_world(story)


def test_29_parked_requests_of_the_old_member_id_are_fenced() -> None:
    async def story(world: GroupWorld) -> None:
        leader, follower = await world.static_group("l", "f")
        joins = [world.join(leader.member_id, group_instance_id="l"), world.join(group_instance_id="f")]
        new = [await join for join in joins]
        sync = world.sync(new[1], group_instance_id="f")
        await settle()
        assert not sync.done()
        back = world.join(group_instance_id="f")
        assert (await sync).error is ErrorCode.fenced_instance_id
        await settle()
        again = world.join(group_instance_id="f")
        assert (await back).error is ErrorCode.fenced_instance_id
        assert not again.done()
        assert follower.generation == 1

    run_world(story)


def test_30_a_returning_leader_may_skip_the_assignment() -> None:
    async def story(world: GroupWorld) -> None:
        leader, follower = await world.static_group("l", "f")
        back = await world.join(group_instance_id="l")
        assert (back.leader_id, back.skip_assignment, back.generation) == (back.member_id, True, 1)
        assert [member.member_id for member in back.members] == [back.member_id, follower.member_id]
        old = await world.join(group_instance_id="l", version=8)
        assert (old.leader_id, old.skip_assignment, old.members) == (back.member_id, False, ())
        assert old.member_id != old.leader_id and leader.generation == old.generation

    run_world(story)


def test_30_a_replacement_that_cannot_be_stored_is_undone() -> None:
    async def story(world: GroupWorld) -> None:
        (old,) = await world.static_group("i")
        world.log.append_error = NotEnoughReplicasError("too few")
        failed = await world.join(group_instance_id="i", protocols=protocols("range", metadata=b"new"))
        assert (failed.error, failed.member_id) == (ErrorCode.coordinator_not_available, "")
        world.log.append_error = None
        assert await world.heartbeat(old, group_instance_id="i") is ErrorCode.none
        member = world.groups.describe_groups([GROUP], 5)[0].members[0]
        assert (member.member_id, member.assignment) == (old.member_id, b"i")
        assert member.metadata != b"new"

    run_world(story)


def test_33_a_full_group_turns_new_members_away() -> None:
    async def story(world: GroupWorld) -> None:
        one, _ = await world.stable_group(2)
        third = await world.join()
        assert (third.error, third.member_id) == (ErrorCode.group_max_size_reached, "")
        rejoin = world.join(one.member_id)
        await settle()
        assert world.describe() == ("PreparingRebalance", 2)
        assert not rejoin.done()

    run_world(story, group_max_size="2")


def test_33_a_pending_member_of_a_full_group_is_dropped_when_it_returns() -> None:
    async def story(world: GroupWorld) -> None:
        pending = await world.join()
        joins = [await world.join_known() for _ in range(2)]
        late = await world.join(pending.member_id)
        assert (late.error, late.member_id) == (ErrorCode.group_max_size_reached, "")
        assert [(await join).generation for join in joins] == [1, 1]
        assert (await world.leave(pending.member_id)).members[0].error is ErrorCode.unknown_member_id

    run_world(story, group_max_size="2")


def test_33_a_static_member_of_a_full_group_comes_back() -> None:
    async def story(world: GroupWorld) -> None:
        await world.static_group("a", "b")
        assert (await world.join(group_instance_id="b")).error is ErrorCode.none

    run_world(story, group_max_size="2")


def test_a_group_that_cannot_be_stored_is_not_created() -> None:
    async def story(world: GroupWorld) -> None:
        world.log.append_error = NotEnoughReplicasError("too few")
        assert (await world.join()).error is ErrorCode.coordinator_not_available
        assert world.shard.groups.find(GROUP) is None

    run_world(story)


def test_a_pending_member_cannot_become_static() -> None:
    async def story(world: GroupWorld) -> None:
        pending = await world.join()
        result = await world.join(pending.member_id, group_instance_id="i")
        assert result.error is ErrorCode.unknown_server_error

    run_world(story)


def test_a_second_connection_takes_over_a_parked_join() -> None:
    async def story(world: GroupWorld) -> None:
        one, _ = await world.stable_group(2)
        first = world.join(one.member_id)
        await settle()
        second = world.join(one.member_id)
        assert (await first).error is ErrorCode.rebalance_in_progress
        assert not second.done() and world.describe() == ("PreparingRebalance", 2)

    run_world(story)


def test_07_the_bounds_of_session_timeouts_are_settings() -> None:
    async def story(world: GroupWorld) -> None:
        errors = [(await world.join(session_timeout_ms=each)).error for each in (99, 100, 200, 201)]
        refused, accepted = ErrorCode.invalid_session_timeout, ErrorCode.member_id_required
        assert errors == [refused, accepted, accepted, refused]

    run_world(story, group_min_session_timeout_ms="100", group_max_session_timeout_ms="200")


def test_03_the_delay_of_a_new_group_is_a_setting() -> None:
    async def story(world: GroupWorld) -> None:
        task = await world.join_known()
        await after(699)
        assert not task.done()
        await after(2)
        assert (await task).error is ErrorCode.none

    run_world(story, group_initial_rebalance_delay_ms="700")
