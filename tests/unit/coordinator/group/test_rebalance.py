"""Timers of a rebalance that stories about requests do not show."""

import asyncio

from broker.common.errors import ErrorCode
from broker.coordinator.group.group_state import GroupState
from tests.support.group_world import GROUP, GroupWorld, after, run_world, settle


def test_18_timers_of_a_group_that_is_gone_do_nothing() -> None:
    async def story(world: GroupWorld) -> None:
        join = await world.join_known()
        group = world.shard.groups.find(GROUP)
        assert group is not None
        world.shard.groups._groups.clear()
        await after(400_000)
        assert not join.done() and group.state is GroupState.PREPARING_REBALANCE

    run_world(story)


def test_forgetting_a_group_forgets_its_timers() -> None:
    async def story(world: GroupWorld) -> None:
        timer = world.shard.log.timer
        before = len(timer)
        (joined,) = await world.stable_group()
        await world.join()
        assert len(timer) == before + 2  # two sessions; everybody has synced
        await world.leave(joined.member_id)
        await settle()
        assert world.describe() == ("Empty", 0)
        assert await world.groups.delete_groups([GROUP]) == {GROUP: ErrorCode.none}
        assert len(timer) == before

    run_world(story)


def test_05_a_pending_member_expires_in_any_state() -> None:
    async def story(world: GroupWorld) -> None:
        await world.join(session_timeout_ms=6000)
        group = world.shard.groups.find(GROUP)
        assert group is not None and len(group.pending_join_members) == 1
        await after(6001)
        assert group.pending_join_members == {} and world.describe() == ("Empty", 0)

    run_world(story)


def test_21_a_parked_sync_restarts_its_session_when_it_is_answered() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known() for _ in range(2)]
        leader, follower = [await join for join in joins]
        sync = world.sync(follower)
        for _ in range(2):
            await after(9000)
            assert await world.heartbeat(leader) is ErrorCode.none
        leader_sync = world.sync(leader, assignments={})
        assert [(await each).error for each in (sync, leader_sync)] == [ErrorCode.none] * 2
        await after(9000)
        assert await world.heartbeat(follower) is ErrorCode.none

    run_world(story)


def test_18_the_sync_timer_ends_with_the_last_member_to_sync() -> None:
    async def story(world: GroupWorld) -> None:
        joined = await world.stable_group(2, session_timeout_ms=1_000_000)
        assert not world.shard.log.timer.is_scheduled(("sync", GROUP))
        await after(120_000)
        assert world.describe() == ("Stable", 2) and joined[0].generation == world.generation

    run_world(story)


def test_04_a_dead_client_does_not_stop_the_initial_rebalance() -> None:
    async def story(world: GroupWorld) -> None:
        gone = await world.join_known()
        gone.cancel()
        live = await world.join_known()
        assert (await live).generation == 1
        assert asyncio.get_running_loop().time() == 6.0

    run_world(story)


def test_metrics_count_completed_rebalances() -> None:
    async def story(world: GroupWorld) -> None:
        await world.stable_group()
        name = "kafka_server_group_coordinator_metrics_group_completed_rebalance_total"
        assert world.registry.prometheus.get_sample_value(name) == 1

    run_world(story)
