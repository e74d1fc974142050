"""SyncGroup, Heartbeat and LeaveGroup in virtual time; names carry the number of the behaviour they show."""

import pytest

from broker.common.errors import ErrorCode, NotEnoughReplicasError
from broker.coordinator.group.group_messages import MemberIdentity
from broker.schemas.group_metadata import GroupMetadataValue, decode
from tests.support.group_world import GroupWorld, after, run_world, settle
from tests.support.memory_partition_writer import MemoryLog


def last_group(log: MemoryLog) -> GroupMetadataValue:
    record = log.records()[-1]
    assert record.key is not None
    decoded = decode(record.key, record.value)
    assert decoded is not None and isinstance(decoded[1], GroupMetadataValue)
    return decoded[1]


def test_14_a_member_the_leader_forgot_gets_empty_bytes() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known() for _ in range(2)]
        leader, follower = [await join for join in joins]
        sync = world.sync(follower)
        leader_sync = world.sync(leader, assignments={leader.member_id: b"all", "stranger": b"x"})
        assert (await leader_sync).assignment == b"all"
        assert ((await sync).error, (await sync).assignment) == (ErrorCode.none, b"")
        stored = last_group(world.log)
        assert [(member.member_id, member.assignment) for member in stored.members] == [
            (leader.member_id, b"all"),
            (follower.member_id, b""),
        ]

    run_world(story)


def test_15_a_follower_waits_for_the_leader_and_for_the_commit() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known() for _ in range(2)]
        leader, follower = [await join for join in joins]
        world.log.commits_at_once = False
        follower_sync = world.sync(follower)
        await settle()
        assert not follower_sync.done()
        leader_sync = world.sync(leader, assignments={follower.member_id: b"f"})
        await settle()
        assert not follower_sync.done() and not leader_sync.done()
        assert world.describe() == ("CompletingRebalance", 2)
        world.log.commit()
        assert (await follower_sync).assignment == b"f"
        assert (await leader_sync).assignment == b""
        assert world.describe() == ("Stable", 2)

    run_world(story)


def test_15_an_assignment_that_is_overtaken_by_a_rebalance_is_not_given_out() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known() for _ in range(2)]
        leader, _ = [await join for join in joins]
        world.log.commits_at_once = False
        sync = world.sync(leader, assignments={})
        await settle()
        third = world.join(version=3)
        assert (await sync).error is ErrorCode.rebalance_in_progress
        world.log.commit()
        await settle()
        assert world.describe() == ("PreparingRebalance", 3)
        assert not third.done()

    run_world(story)


def test_16_sync_in_each_state() -> None:
    async def story(world: GroupWorld) -> None:
        leader, follower = await world.stable_group(2)
        assert (await world.sync(leader, generation=0)).error is ErrorCode.illegal_generation
        same = await world.sync(follower)
        assert (same.error, same.assignment, same.protocol_name) == (ErrorCode.none, b"assigned", "range")
        world.join(leader.member_id)
        await settle()
        assert (await world.sync(follower)).error is ErrorCode.rebalance_in_progress
        assert (await world.sync(follower, group_id="absent")).error is ErrorCode.unknown_member_id
        await world.commit(group_id="simple")
        assert (await world.sync(follower, group_id="simple")).error is ErrorCode.unknown_member_id

    run_world(story)


@pytest.mark.parametrize(
    "changes",
    [{"protocol_name": None}, {"protocol_type": None}, {"protocol_name": "other"}, {"protocol_type": "connect"}],
)
def test_17_from_version_5_sync_names_the_protocol(changes: dict[str, str | None]) -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        result = await world.sync(joined, requires_protocol=True, **changes)
        assert result.error is ErrorCode.inconsistent_group_protocol

    run_world(story)


def test_17_older_versions_name_none() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        assert (await world.sync(joined, protocol_type=None, protocol_name=None)).error is ErrorCode.none

    run_world(story)


def test_18_a_member_that_never_syncs_is_evicted() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known(session_timeout_ms=600_000) for _ in range(2)]
        leader, silent = [await join for join in joins]
        assert (await world.sync(leader, assignments={})).error is ErrorCode.none
        await after(59_000)
        assert world.describe() == ("Stable", 2)
        await after(2000)
        assert world.describe() == ("PreparingRebalance", 1)
        assert await world.heartbeat(silent) is ErrorCode.unknown_member_id
        assert await world.heartbeat(leader) is ErrorCode.rebalance_in_progress

    run_world(story)


def test_18_a_leader_that_never_syncs_is_evicted() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known(session_timeout_ms=600_000) for _ in range(2)]
        leader, follower = [await join for join in joins]
        sync = world.sync(follower)
        await after(61_000)
        assert (await sync).error is ErrorCode.rebalance_in_progress
        assert await world.heartbeat(leader) is ErrorCode.unknown_member_id

    run_world(story)


def test_19_heartbeats() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.static_group("i")
        rejoined = await world.join(joined.member_id, group_instance_id="i")
        assert world.describe() == ("CompletingRebalance", 1)
        assert await world.heartbeat(rejoined) is ErrorCode.none
        assert await world.heartbeat(rejoined, generation=1) is ErrorCode.illegal_generation
        assert await world.heartbeat(rejoined, member_id="m") is ErrorCode.unknown_member_id
        assert await world.heartbeat(rejoined, member_id="m", group_instance_id="i") is ErrorCode.fenced_instance_id
        assert await world.heartbeat(rejoined, group_instance_id="j") is ErrorCode.unknown_member_id
        assert await world.heartbeat(rejoined, group_id="absent") is ErrorCode.unknown_member_id
        await world.join_known()
        assert await world.heartbeat(rejoined) is ErrorCode.rebalance_in_progress

    run_world(story)


def test_19_a_pending_member_cannot_heartbeat() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        pending = await world.join()
        assert await world.heartbeat(joined, member_id=pending.member_id) is ErrorCode.unknown_member_id

    run_world(story)


def test_21_who_does_not_heartbeat_is_removed() -> None:
    async def story(world: GroupWorld) -> None:
        leader, follower = await world.stable_group(2)
        await after(9000)
        assert await world.heartbeat(leader) is ErrorCode.none
        await after(2000)
        assert await world.heartbeat(leader) is ErrorCode.rebalance_in_progress
        assert await world.heartbeat(follower) is ErrorCode.unknown_member_id

    run_world(story)


def test_31_leaving_by_instance_id_and_in_a_batch() -> None:
    async def story(world: GroupWorld) -> None:
        leader, follower = await world.static_group("l", "f")
        other = await world.join_known()
        joins = [
            world.join(leader.member_id, group_instance_id="l"),
            world.join(follower.member_id, group_instance_id="f"),
            other,
        ]
        joined = [await join for join in joins]
        assert (await world.sync(joined[0], assignments={})).error is ErrorCode.none
        result = await world.leave(MemberIdentity("", "f"), "unknown", MemberIdentity("", "g"), MemberIdentity(""))
        assert [(member.member_id, member.group_instance_id, member.error) for member in result.members] == [
            ("", "f", ErrorCode.none),
            ("unknown", None, ErrorCode.unknown_member_id),
            ("", "g", ErrorCode.unknown_member_id),
            ("", None, ErrorCode.unknown_member_id),
        ]
        assert result.error is ErrorCode.none
        assert world.describe() == ("PreparingRebalance", 2)
        assert (await world.leave("m", group_id="absent")).members[0].error is ErrorCode.unknown_member_id

    run_world(story)


def test_31_a_batch_causes_one_rebalance() -> None:
    async def story(world: GroupWorld) -> None:
        joined = await world.stable_group(3)
        await world.leave(joined[1].member_id, joined[2].member_id)
        assert (await world.join(joined[0].member_id)).generation == 2

    run_world(story)


def test_32_the_last_member_leaves() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        assert (await world.leave(joined.member_id)).members[0].error is ErrorCode.none
        assert world.describe() == ("Empty", 0)
        assert world.generation == 2
        stored = last_group(world.log)
        assert (stored.protocol_type, stored.generation, stored.protocol, stored.leader, stored.members) == (
            "consumer",
            2,
            None,
            None,
            (),
        )

    run_world(story)


def test_32_an_emptied_group_that_cannot_be_stored_is_empty_all_the_same() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        world.log.append_error = NotEnoughReplicasError("too few")
        assert (await world.leave(joined.member_id)).members[0].error is ErrorCode.none
        assert world.describe() == ("Empty", 0)

    run_world(story)


def test_a_leaving_member_ends_its_parked_requests() -> None:
    async def story(world: GroupWorld) -> None:
        (static,) = await world.static_group("i")
        rejoined = await world.join(static.member_id, group_instance_id="i")
        other = await world.join_known()
        again = world.join(rejoined.member_id, group_instance_id="i")
        joined = [await again, await other]
        sync = world.sync(joined[1])
        await settle()
        await world.leave(joined[1].member_id)
        assert (await sync).error is ErrorCode.unknown_member_id
        parked = await world.join_known()
        await world.leave(MemberIdentity("", "i"))
        assert (await parked).generation == 4

    run_world(story)


def test_45_an_assignment_that_cannot_be_stored_starts_over() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known() for _ in range(2)]
        leader, follower = [await join for join in joins]
        world.log.append_error = NotEnoughReplicasError("too few")
        syncs = [world.sync(follower), world.sync(leader, assignments={})]
        assert [(await sync).error for sync in syncs] == [ErrorCode.coordinator_not_available] * 2
        assert world.describe() == ("PreparingRebalance", 2)

    run_world(story)


def test_45_an_assignment_that_is_not_committed_in_time_starts_over() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = [await (await world.join_known())]
        world.log.commits_at_once = False
        sync = world.sync(joined, assignments={})
        await after(4900)
        assert not sync.done()
        await after(200)
        assert (await sync).error is ErrorCode.coordinator_not_available
        assert world.describe() == ("PreparingRebalance", 1)

    run_world(story)


def test_45_a_heartbeat_waits_for_what_was_written_before() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        world.log.commits_at_once = False
        assert await world.commit_code(1, joined) is ErrorCode.coordinator_not_available
        assert await world.heartbeat(joined) is ErrorCode.coordinator_not_available
        world.log.commit()
        assert await world.heartbeat(joined) is ErrorCode.none

    run_world(story)
