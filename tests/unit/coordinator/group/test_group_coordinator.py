"""Where requests go, and the life of the coordinator with the metadata of the cluster."""

import asyncio
from uuid import UUID

import pytest

from broker.common.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, ErrorCode
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.schemas.cluster_metadata import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from tests.support.group_world import GROUP, TOPIC, GroupWorld, after, run_world, settle
from tests.support.sim_loop import SimLoop, simulate

OFFSETS, OTHER, AGAIN = UUID(int=201), UUID(int=202), UUID(int=203)


class Cluster:
    """Metadata records in, images into the coordinator."""

    def __init__(self, world: GroupWorld) -> None:
        self._world = world
        self._image = MetadataImage.EMPTY

    def replay(self, *records: object) -> None:
        delta = MetadataDelta(self._image)
        for record in records:
            delta.replay(record)  # type: ignore[arg-type]
        self._image = delta.apply(self._image.offset + 1, 1)
        self._world.groups.on_metadata(delta, self._image)

    def create_offsets_topic(self, *leaders: int, topic_id: UUID = OFFSETS) -> None:
        self.replay(
            TopicRecord(name="__consumer_offsets", topic_id=topic_id),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=(1, 2),
                    isr=(1, 2),
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=(UUID(int=301), UUID(int=302)),
                )
                for index, leader in enumerate(leaders)
            ),
        )

    def elect(self, partition: int, leader: int) -> None:
        self.replay(PartitionChangeRecord(partition_id=partition, topic_id=OFFSETS, leader=leader))


def idle_world(loop: SimLoop, **settings: str) -> GroupWorld:
    return GroupWorld(loop, {name.replace("_", "."): value for name, value in settings.items()})


def test_45_the_partition_of_a_group_is_java_s() -> None:
    async def story(loop: SimLoop) -> None:
        groups = idle_world(loop, offsets_topic_num_partitions="50").groups
        expected = {
            "g1": 42,
            "my-group": 12,
            "console-consumer-1": 24,
            "polygenelubricants": 0,
            "connect-cluster": 13,
            "": 0,
            "é😀": 12,
        }
        assert {group: groups.partition_for(group) for group in expected} == expected

    simulate(story)


def test_a_coordinator_that_does_not_run() -> None:
    async def story(loop: SimLoop) -> None:
        world = idle_world(loop)
        assert (await world.join()).error is ErrorCode.coordinator_not_available
        assert await world.commit_code() is ErrorCode.coordinator_not_available
        assert (await world.fetch({TOPIC: (0,)})).error is ErrorCode.coordinator_not_available
        with pytest.raises(CoordinatorNotAvailableError):
            world.groups.list_groups([], [])
        await world.start()
        (joined,) = await world.stable_group()
        parked = await world.join_known()
        await world.groups.shutdown()
        assert (await parked).error is ErrorCode.not_coordinator
        assert await world.heartbeat(joined) is ErrorCode.coordinator_not_available
        assert (await world.leave(joined.member_id)).error is ErrorCode.coordinator_not_available

    simulate(story)


def test_44_a_group_of_another_broker() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        world.groups.on_resignation(0, 5)
        code = ErrorCode.not_coordinator
        assert (await world.join()).error is code
        assert (await world.sync(joined)).error is code
        assert await world.heartbeat(joined) is code
        assert (await world.leave(joined.member_id)).error is code
        assert await world.commit_code(1, joined) is code
        assert (await world.fetch(None)).error is code
        assert (await world.groups.delete_offsets(GROUP, [])).error is code
        assert await world.groups.delete_groups([GROUP]) == {GROUP: code}
        assert world.groups.describe_groups([GROUP], 5)[0].error is code
        assert world.groups.list_groups([], []) == []

    run_world(story)


def test_20_while_loading() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        world.groups.on_resignation(0, None)
        world.groups.on_election(0, 5)  # none of these requests waits, so the load has not begun when they are answered
        code = ErrorCode.coordinator_load_in_progress
        assert await world.heartbeat(joined) is ErrorCode.none
        assert (await world.leave(joined.member_id)).error is code
        assert await world.commit_code(1, joined) is code
        assert (await world.fetch(None)).error is code
        assert (await world.groups.delete_offsets(GROUP, [])).error is code
        assert await world.groups._delete_group(GROUP) is code
        assert world.groups.describe_groups([GROUP], 5)[0].error is code
        with pytest.raises(CoordinatorLoadInProgressError):
            world.groups.list_groups([], [])
        await settle()
        assert await world.commit_code(1, joined) is ErrorCode.none

    run_world(story)


def test_20_join_and_sync_while_loading() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        world.groups.on_resignation(0, None)
        join, sync = world.join(), world.sync(joined)
        world.groups.on_election(0, 5)
        assert (await join).error is ErrorCode.coordinator_load_in_progress
        assert (await sync).error is ErrorCode.rebalance_in_progress
        await settle()
        assert await world.heartbeat(joined) is ErrorCode.none

    run_world(story)


def test_44_failover_after_a_sync_needs_no_rebalance() -> None:
    async def story(world: GroupWorld) -> None:
        joined = await world.stable_group(2)
        await world.commit(5, joined[0])
        await world.restart()
        assert [await world.heartbeat(each) for each in joined] == [ErrorCode.none] * 2
        assert await world.commit_code(6, joined[1]) is ErrorCode.none
        again = await world.sync(joined[1])
        assert (again.error, again.assignment) == (ErrorCode.none, b"assigned")
        assert world.describe() == ("Stable", 2)
        assert (await world.join(joined[1].member_id)).generation == 1

    run_world(story)


def test_44_failover_between_join_and_sync_starts_over() -> None:
    async def story(world: GroupWorld) -> None:
        joins = [await world.join_known() for _ in range(2)]
        joined = [await join for join in joins]
        await world.restart()
        assert (await world.sync(joined[0], assignments={})).error is ErrorCode.unknown_member_id
        assert await world.heartbeat(joined[1]) is ErrorCode.unknown_member_id
        fresh = await world.stable_group(2)
        assert fresh[0].generation == 1

    run_world(story)


def test_44_failover_in_a_later_rebalance_goes_back_to_the_stored_generation() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        rejoined = await world.join(joined.member_id)
        await world.restart()
        assert (await world.sync(rejoined, assignments={})).error is ErrorCode.illegal_generation
        assert await world.commit_code(1, rejoined) is ErrorCode.illegal_generation
        assert (await world.join(joined.member_id)).generation == 2

    run_world(story)


@pytest.mark.parametrize("require_stable", [False, True])
def test_44_what_the_leader_before_has_acknowledged_is_seen(require_stable: bool) -> None:
    """The high watermark of a new leader may be behind: it answers when it has caught up."""

    async def story(world: GroupWorld) -> None:
        assert await world.commit_code(5) is ErrorCode.none
        assert await world.commit_code(6) is ErrorCode.none
        world.log.commits_at_once = False
        world.log.high_watermark = 1  # as a follower knows it
        await world.restart()
        fetched = asyncio.create_task(world.fetch_offset(require_stable=require_stable))
        await settle()
        assert not fetched.done()
        world.log.commit()
        assert await fetched == 6
        assert await world.commit_code(7) is ErrorCode.coordinator_not_available  # not within the time
        assert await world.fetch_offset() == 6  # of what came since only what is committed is seen
        world.log.high_watermark = 1
        await world.restart()
        assert (await world.fetch({TOPIC: (0,)}, require_stable=require_stable)).error is ErrorCode.not_coordinator

    run_world(story)


def test_44_no_answer_of_a_coordinator_that_lost_its_role_is_a_promise() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        rejoin = await world.join(joined.member_id)
        world.log.commits_at_once = False
        waiting = [
            world.sync(rejoin, assignments={rejoin.member_id: b"x"}),
            asyncio.create_task(world.commit_code(9, group_id="other")),
            asyncio.create_task(world.heartbeat(rejoin)),
            asyncio.create_task(world.groups.delete_offsets(GROUP, [(TOPIC, 0)])),
            asyncio.create_task(world.fetch({TOPIC: (0,)}, require_stable=True)),
            asyncio.create_task(world.leave("nobody")),
        ]
        await settle()
        timer = world.shard.log.timer
        world.groups.on_resignation(0, 5)
        assert len(timer) == 0
        world.log.commit()  # too late: now it is another leader's word
        code = ErrorCode.not_coordinator
        answers = [await each for each in waiting]
        assert [answer if isinstance(answer, ErrorCode) else answer.error for answer in answers] == [code] * 6

    run_world(story)


def test_44_a_parked_join_is_told_when_the_coordinator_moves() -> None:
    async def story(world: GroupWorld) -> None:
        await world.stable_group()
        parked = await world.join_known()
        timer = world.shard.log.timer
        assert len(timer) > 0
        world.groups.on_resignation(0, 5)
        assert (await parked).error is ErrorCode.not_coordinator
        assert len(timer) == 0

    run_world(story)


def test_the_leaders_of_the_offsets_topic_decide() -> None:
    async def story(loop: SimLoop) -> None:
        world = idle_world(loop, offsets_topic_num_partitions="50")
        await world.groups.startup()
        cluster = Cluster(world)
        assert world.groups.partition_count == 50
        cluster.create_offsets_topic(1, 2)
        assert world.groups.partition_count == 2
        await settle()
        assert world.groups.shard_counts_by_state() == {"loading": 0, "active": 1, "failed": 0}
        cluster.elect(1, 1)
        await settle()
        assert world.groups.shard_counts_by_state()["active"] == 2
        cluster.elect(0, 2)
        cluster.elect(1, -1)
        assert world.groups.shard_counts_by_state()["active"] == 0

    simulate(story)


def test_the_placement_of_groups_survives_new_partitions_but_not_a_new_topic() -> None:
    async def story(loop: SimLoop) -> None:
        world = idle_world(loop)
        await world.groups.startup()
        cluster = Cluster(world)
        cluster.create_offsets_topic(1)
        cluster.replay(
            PartitionRecord(
                partition_id=1,
                topic_id=OFFSETS,
                replicas=(1,),
                isr=(1,),
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=(UUID(int=301),),
            )
        )
        assert world.groups.partition_count == 1
        await settle()
        await world.commit(1)
        cluster.replay(RemoveTopicRecord(topic_id=OFFSETS))
        assert world.groups.shard_counts_by_state()["active"] == 0
        assert await world.commit_code(1) is ErrorCode.not_coordinator
        cluster.create_offsets_topic(1, 1, 1, topic_id=AGAIN)
        assert world.groups.partition_count == 3
        await settle()
        assert world.groups.shard_counts_by_state()["active"] == 3

    simulate(story)


def test_offsets_go_with_their_topic() -> None:
    async def story(loop: SimLoop) -> None:
        world = idle_world(loop)
        await world.groups.startup()
        cluster = Cluster(world)
        cluster.create_offsets_topic(1)
        cluster.replay(TopicRecord(name=TOPIC, topic_id=OTHER))
        await settle()
        await world.commit(1)
        assert await world.fetch_offset() == 1
        cluster.replay(RemoveTopicRecord(topic_id=OTHER))
        assert await world.fetch_offset() == -1
        world.groups.on_metadata(None, MetadataImage.EMPTY)
        assert world.groups.shard_counts_by_state()["active"] == 0

    simulate(story)


def test_20_a_parked_client_that_went_away_is_not_answered() -> None:
    async def story(world: GroupWorld) -> None:
        gone = await world.join_known()
        gone.cancel()
        await after(4000)
        assert world.describe() == ("CompletingRebalance", 1)

    run_world(story)


def test_what_metrics_read() -> None:
    async def story(world: GroupWorld) -> None:
        (joined,) = await world.stable_group()
        await world.commit(5, joined)
        await world.commit(7, group_id="simple", topic="u", partition=2)
        assert world.groups.offset_count() == 2
        assert world.groups.group_counts_by_state() == {
            "Empty": 1,
            "PreparingRebalance": 0,
            "CompletingRebalance": 0,
            "Stable": 1,
            "Dead": 0,
        }
        assert list(world.groups.committed_offsets()) == [(GROUP, TOPIC, 0, 5), ("simple", "u", 2, 7)]
        assert world.groups.services == (world.groups,)

    run_world(story)
