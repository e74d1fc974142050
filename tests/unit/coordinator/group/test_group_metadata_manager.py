from broker.common.errors import ErrorCode
from broker.coordinator.group.group_messages import DescribedGroup
from tests.support.group_world import GROUP, RANGE, GroupWorld, run_world, settle


def test_43_a_stable_group_shows_everything() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.static_group("i")
        (group,) = world.groups.describe_groups([GROUP], 6)
        assert (group.error, group.state, group.protocol_type, group.protocol_data) == (
            ErrorCode.none,
            "Stable",
            "consumer",
            "range",
        )
        (member,) = group.members
        assert member == (joined.member_id, "i", "c", "/127.0.0.1", RANGE[0].metadata, b"i")

    run_world(story)


def test_43_other_states_show_members_without_metadata() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        await world.join(joined.member_id)
        (group,) = world.groups.describe_groups([GROUP], 5)
        assert (group.state, group.protocol_type, group.protocol_data) == ("CompletingRebalance", "consumer", "")
        (member,) = group.members
        assert (member.member_id, member.metadata, member.assignment) == (joined.member_id, b"", b"")

    run_world(story)


def test_43_an_absent_group() -> None:
    async def story(world: GroupWorld) -> None:
        assert world.groups.describe_groups(["a", "b"], 5) == [
            DescribedGroup("a", state="Dead"),
            DescribedGroup("b", state="Dead"),
        ]
        (newer,) = world.groups.describe_groups(["a"], 6)
        assert (newer.error, newer.error_message, newer.state) == (
            ErrorCode.group_id_not_found,
            "Group a not found.",
            "Dead",
        )

    run_world(story)


def test_43_lists_are_filtered_by_state_and_type() -> None:
    async def story(world: GroupWorld) -> None:
        await world.stable_group()
        await world.commit(group_id="simple")

        def names(states: list[str], types: list[str]) -> list[str]:
            return [group.group_id for group in world.groups.list_groups(states, types)]

        assert names([], []) == [GROUP, "simple"]
        assert names(["stable"], []) == names([" STABLE "], []) == [GROUP]
        assert names(["Empty", "Stable"], ["Classic"]) == [GROUP, "simple"]
        assert names(["unknown"], []) == []
        assert names([], ["consumer"]) == [] and names([], ["classic", "consumer"]) == [GROUP, "simple"]
        assert tuple(world.groups.list_groups(["stable"], [])[0]) == (GROUP, "consumer", "Stable", "classic")

    run_world(story)


def test_a_new_group_is_stored_before_anybody_joins() -> None:
    async def story(world: GroupWorld) -> None:
        await world.join()
        (record,) = world.log.records()
        assert record.key is not None and record.key.hex() == "0002000167"
        await world.restart()
        assert world.describe() == ("Empty", 0)

    run_world(story)


def test_44_unloading_answers_everybody() -> None:
    async def story(world: GroupWorld) -> None:
        parked_join = await world.join_known()
        joins = [await world.join_known(group_id="h") for _ in range(2)]
        joined = [await join for join in joins]
        parked_sync = world.sync(joined[1], group_id="h")
        await parked_join
        rejoin = await world.join_known()
        await settle()
        assert not rejoin.done() and not parked_sync.done()
        world.groups.on_resignation(0, 2)
        assert (await rejoin).error is ErrorCode.not_coordinator
        assert (await parked_sync).error is ErrorCode.not_coordinator

    run_world(story)
