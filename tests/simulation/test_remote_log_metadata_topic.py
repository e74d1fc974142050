"""`__remote_log_metadata` on a whole cluster in virtual time (KIP-405)."""

import asyncio
from collections.abc import Collection
from typing import Final

import pytest

from broker.common.identifiers import REMOTE_LOG_METADATA_TOPIC, TopicIdPartition, TopicPartition
from broker.metadata.configs_image import ConfigResourceType
from broker.schemas.remote_metadata_partitioner import metadata_partition_of
from broker.tiering.remote_log_metadata_manager import RemoteLogMetadataManager
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata
from tests.simulation.metadata_topic_stories import heal, strike, tell, until
from tests.support.sim_cluster import SimCluster
from tests.support.sim_remote_log_metadata import PARTITIONS, PREFIX, USER_PARTITIONS, SimKeeper
from tests.unit.tiering.segment_world import FINISHED, segment, update

pytestmark = pytest.mark.simulation

SEED: Final = 11


async def _ready(manager: RemoteLogMetadataManager, partitions: Collection[TopicIdPartition] = USER_PARTITIONS) -> None:
    await until(lambda: all(manager.is_ready(each) for each in partitions))


async def _copied(manager: RemoteLogMetadataManager, partition: TopicIdPartition, number: int) -> None:
    """Tell of a segment with one record, as a copy does."""
    await manager.add_remote_log_segment_metadata(segment(number, number, number, partition=partition))
    await manager.update_remote_log_segment_metadata(update(number, FINISHED, partition=partition))


async def _known(
    manager: RemoteLogMetadataManager, partitions: Collection[TopicIdPartition] = USER_PARTITIONS
) -> dict[TopicIdPartition, dict[int, RemoteLogSegmentMetadata]]:
    return {
        each: {one.segment_id.int: one for one in await manager.list_remote_log_segments(each)} for each in partitions
    }


async def _forgotten(manager: RemoteLogMetadataManager) -> None:
    """Until it is ready and knows of nothing; how long it was not ready in between is its own affair."""
    async with asyncio.timeout(30):
        while True:
            await _ready(manager)
            if not any((await _known(manager)).values()):
                return
            await asyncio.sleep(0.002)


def _place(partition: TopicIdPartition) -> int:
    return metadata_partition_of(partition.topic_id, partition.partition, PARTITIONS)


def test_the_topic_is_created_once_whoever_needs_it_with_settings_of_its_own() -> None:
    """Behaviour 3."""

    async def story(cluster: SimCluster) -> None:
        keepers = [SimKeeper(cluster, number) for number in cluster.broker_ids]
        async with keepers[0].running() as one, keepers[1].running() as two, keepers[2].running() as three:
            for made in (one, two, three):
                made.manager.on_partition_leadership_changes([], USER_PARTITIONS)
            for made in (one, two, three):
                await _ready(made.manager)
            await asyncio.sleep(10)
            assert cluster.image is not None
            topic = cluster.image.topics.topic(REMOTE_LOG_METADATA_TOPIC)
            assert topic is not None and len(topic.partitions) == PARTITIONS
            assert {len(each.replicas) for each in topic.partitions.values()} == {3}
            assert dict(cluster.image.configs.properties(ConfigResourceType.TOPIC, REMOTE_LOG_METADATA_TOPIC)) == {
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "remote.storage.enable": "false",
                "min.insync.replicas": "2",
            }
            assert [keeper.fatal for keeper in keepers] == [[], [], []]

    tell(story, SEED)


def test_what_one_broker_tells_it_has_read_itself_and_others_know_soon_and_a_new_one_all_of_it() -> None:
    """Behaviour 7."""

    async def story(cluster: SimCluster) -> None:
        one, other = SimKeeper(cluster, 1), SimKeeper(cluster, 2)
        async with one.running() as leader, other.running() as follower:
            leader.manager.on_partition_leadership_changes(USER_PARTITIONS, [])
            follower.manager.on_partition_leadership_changes([], USER_PARTITIONS)
            await _ready(leader.manager)
            await _ready(follower.manager)
            loop = asyncio.get_running_loop()
            for number in range(20):
                for partition in USER_PARTITIONS:
                    began = loop.time()
                    await _copied(leader.manager, partition, number)
                    assert loop.time() - began < 0.2
                    assert await leader.manager.highest_offset_for_epoch(partition, 0) == number
            expected = await _known(leader.manager)
            assert {len(segments) for segments in expected.values()} == {20}
            await until(lambda: follower.topic.lag == 0)
            await asyncio.sleep(1)
            assert await _known(follower.manager) == expected
        async with SimKeeper(cluster, 3).running() as fresh:
            fresh.manager.on_partition_leadership_changes([], USER_PARTITIONS)
            await _ready(fresh.manager)
            assert await _known(fresh.manager) == expected

    tell(story, SEED)


def test_a_partition_that_comes_later_is_known_whole_and_the_others_are_answered_for_all_the_time() -> None:
    """Behaviour 8."""

    async def story(cluster: SimCluster) -> None:
        first = USER_PARTITIONS[0]
        (late, *_) = [each for each in USER_PARTITIONS[1:] if _place(each) == _place(first)]
        async with SimKeeper(cluster, 1).running() as leader, SimKeeper(cluster, 2).running() as moving:
            leader.manager.on_partition_leadership_changes(USER_PARTITIONS, [])
            moving.manager.on_partition_leadership_changes([], [first])
            await _ready(leader.manager)
            await _ready(moving.manager, [first])
            for number in range(30):
                await _copied(leader.manager, first, number)
                await _copied(leader.manager, late, number)
            moving.manager.on_partition_leadership_changes([late], [])
            while not moving.manager.is_ready(late):
                assert moving.manager.is_ready(first)
                await asyncio.sleep(0.001)
            everything = await _known(leader.manager, [first, late])
            assert await _known(moving.manager, [first, late]) == everything
            moving.manager.on_stop_partitions([first])
            await _copied(moving.manager, late, 30)
            assert (moving.manager.is_ready(first), len((await _known(moving.manager, [late]))[late])) == (False, 31)

    tell(story, SEED)


@pytest.mark.parametrize("fault", ["kill", "crash", "stop", "cut"])
def test_what_was_told_is_not_lost_when_a_leader_of_the_topic_changes(fault: str) -> None:
    async def story(cluster: SimCluster) -> None:
        victim = 3
        told: dict[TopicIdPartition, int] = dict.fromkeys(USER_PARTITIONS, 0)
        is_over = False

        async def tell(manager: RemoteLogMetadataManager, partition: TopicIdPartition) -> None:
            while not is_over:
                await _copied(manager, partition, told[partition])
                told[partition] += 1
                await asyncio.sleep(0.05)

        async with SimKeeper(cluster, 1).running() as leader, SimKeeper(cluster, 2).running() as follower:
            leader.manager.on_partition_leadership_changes(USER_PARTITIONS, [])
            follower.manager.on_partition_leadership_changes([], USER_PARTITIONS)
            await _ready(leader.manager)
            places = [TopicPartition(REMOTE_LOG_METADATA_TOPIC, each) for each in range(PARTITIONS)]
            led = [each for each in places if cluster.leader_of(each) == victim]
            assert led, "the victim leads a partition"
            async with asyncio.TaskGroup() as tasks:
                for partition in USER_PARTITIONS:
                    tasks.create_task(tell(leader.manager, partition))
                await asyncio.sleep(1)
                await strike(cluster, fault, victim, "keeper")
                await until(lambda: all(cluster.leader_of(each) != victim for each in led))
                before = dict(told)
                await asyncio.sleep(8)  # until who is missing has left the ISR
                assert all(told[each] > before[each] + 10 for each in USER_PARTITIONS)
                await heal(cluster, fault, victim)
                await asyncio.sleep(4)
                is_over = True
            expected = await _known(leader.manager)
            assert {each: len(segments) for each, segments in expected.items()} == told
            assert {one.state for segments in expected.values() for one in segments.values()} == {FINISHED}
            await until(lambda: follower.topic.lag == 0)
            await asyncio.sleep(1)
            assert await _known(follower.manager) == expected
            assert leader.manager.publish_errors == 0

    tell(story, SEED)


def test_a_topic_that_somebody_deletes_is_made_again_and_all_brokers_know_that_it_is_empty() -> None:
    """As under controllers of Apache Kafka: those of this cluster have tiered storage off, and let it go."""

    async def story(cluster: SimCluster) -> None:
        async with SimKeeper(cluster, 1).running() as leader, SimKeeper(cluster, 2).running() as follower:
            leader.manager.on_partition_leadership_changes(USER_PARTITIONS, [])
            follower.manager.on_partition_leadership_changes([], USER_PARTITIONS)
            for made in (leader, follower):
                await _ready(made.manager)
            for partition in USER_PARTITIONS:
                await _copied(leader.manager, partition, 1)
            await until(lambda: follower.topic.lag == 0)
            controller = cluster.nodes[cluster.controller_id].node.controller.controller
            await controller.delete_topics([REMOTE_LOG_METADATA_TOPIC], [])
            for made in (leader, follower):
                await _forgotten(made.manager)
            await _copied(leader.manager, USER_PARTITIONS[0], 2)
            await asyncio.sleep(1)
            for made in (leader, follower):
                assert list((await _known(made.manager))[USER_PARTITIONS[0]]) == [2]

    tell(story, SEED)


def test_too_few_brokers_are_waited_for_however_long_it_takes() -> None:
    async def story(cluster: SimCluster) -> None:
        cluster.nodes[3].kill()
        await until(lambda: cluster.image is not None and cluster.image.brokers[3].fenced)
        await asyncio.sleep(1)  # until the brokers have heard of it, too
        keeper = SimKeeper(cluster, 1, {f"{PREFIX}.initialization.retry.max.timeout.ms": "20000"})
        async with keeper.running() as made:
            made.manager.on_partition_leadership_changes(USER_PARTITIONS, [])
            await asyncio.sleep(60)
            assert not any(made.manager.is_ready(each) for each in USER_PARTITIONS)
            await cluster.start_node(3)
            await _ready(made.manager)
            await _copied(made.manager, USER_PARTITIONS[0], 0)
        assert keeper.fatal == []

    tell(story, SEED)


def test_a_topic_of_another_size_ends_a_broker() -> None:
    """Behaviour 4."""

    async def story(cluster: SimCluster) -> None:
        async with SimKeeper(cluster, 1).running() as made:
            made.manager.on_partition_leadership_changes(USER_PARTITIONS, [])
            await _ready(made.manager)
        keeper = SimKeeper(cluster, 2, {f"{PREFIX}.topic.num.partitions": "4"})
        async with keeper.running():
            await asyncio.sleep(1)
        assert keeper.fatal == [f"{REMOTE_LOG_METADATA_TOPIC} has 3 partitions, and the settings say 4"]

    tell(story, SEED)
