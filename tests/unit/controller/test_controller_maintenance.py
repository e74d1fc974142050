"""What the controller does without being asked.  Sessions and snapshots are in test_controller.py."""

import asyncio

from broker.common.disk import ThreadDiskExecutor
from broker.common.identifiers import TopicPartition
from broker.controller.configuration_control_manager import AlterConfigOperation, ConfigChange
from broker.controller.controller import Controller
from broker.controller.replication_control_manager import AlterPartitionEntry, BrokerState
from broker.controller.topic_control_manager import CreatableTopic
from broker.metadata.configs_image import ConfigResource, ConfigResourceType
from tests.support.sim_disk import SimFileSystem
from tests.support.sim_loop import SimClock, SimLoop, simulate
from tests.unit.controller.controller_support import DIRECTORY, beat, running_controller, start_broker

BALANCE = {"leader__imbalance__check__interval__seconds": "5"}
LONG_SESSION = {"broker__session__timeout__ms": "10000000"}


def test_leadership_goes_back_to_preferred_replicas() -> None:
    async def story(loop: SimLoop) -> None:
        options = {"clock": SimClock(loop), "disk": ThreadDiskExecutor(), **BALANCE, **LONG_SESSION}
        async with running_controller(SimFileSystem(), **options) as controller:
            epochs = {broker: await start_broker(controller, broker) for broker in (2, 3)}
            await controller.create_topics([CreatableTopic(name="t", assignments=((0, (2, 3)),))])
            await beat(controller, 2, epochs[2], want_fence=True)
            await beat(controller, 2, epochs[2])
            partition = controller.image.topics.by_name["t"].partitions[0]
            assert (partition.leader, partition.isr) == (3, (3,))
            await asyncio.sleep(6)
            assert controller.image.topics.by_name["t"].partitions[0].leader == 3  # 2 is not in sync
            await _expand_isr(controller, epochs)
            await asyncio.sleep(6)
            assert controller.image.topics.by_name["t"].partitions[0].leader == 2

    simulate(story)


async def _expand_isr(controller: Controller, epochs: dict[int, int]) -> None:
    topic = controller.image.topics.by_name["t"]
    partition = topic.partitions[0]
    entry = AlterPartitionEntry(
        partition=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr=(BrokerState(3, epochs[3]), BrokerState(2, epochs[2])),
    )
    await controller.alter_partition(3, epochs[3], {topic.id: [entry]})


def test_unclean_leaders_are_elected_after_the_topic_allows_it() -> None:
    async def story(loop: SimLoop) -> None:
        options = {
            "clock": SimClock(loop),
            "disk": ThreadDiskExecutor(),
            "unclean__leader__election__interval__ms": "5000",
            **LONG_SESSION,
        }
        async with running_controller(SimFileSystem(), **options) as controller:
            epochs = {broker: await start_broker(controller, broker) for broker in (2, 3)}
            await controller.create_topics([CreatableTopic(name="t", assignments=((0, (2, 3)),))])
            await beat(controller, 3, epochs[3], want_fence=True)
            await beat(controller, 2, epochs[2], want_fence=True)
            await beat(controller, 3, epochs[3])
            await asyncio.sleep(6)
            partition = controller.image.topics.partition(TopicPartition("t", 0))
            assert partition is not None
            assert (partition.leader, partition.isr) == (-1, (2,))
            change = ConfigChange("unclean.leader.election.enable", AlterConfigOperation.SET, "true")
            await controller.incremental_alter_configs({ConfigResource(ConfigResourceType.TOPIC, "t"): [change]})
            await asyncio.sleep(6)
            partition = controller.image.topics.partition(TopicPartition("t", 0))
            assert partition is not None
            assert (partition.leader, partition.isr, partition.leader_recovery_state) == (3, (3,), 1)

    simulate(story)


def test_a_snapshot_that_fails_leaves_no_part_and_commands_go_on() -> None:
    async def story(loop: SimLoop) -> None:
        disk = SimFileSystem()
        log = DIRECTORY / "__cluster_metadata-0"
        options = {
            "clock": SimClock(loop),
            "disk": ThreadDiskExecutor(),
            "metadata__log__max__record__bytes__between__snapshots": "1000",
            **LONG_SESSION,
        }
        async with running_controller(disk, **options) as controller:
            await start_broker(controller, 2)
            disk.fail(log, "create")
            await controller.create_topics([CreatableTopic(name="t", num_partitions=20)])
            await asyncio.sleep(3)
            assert controller.snapshot_end_offset == -1
            (result,) = await controller.create_topics([CreatableTopic(name="u")])
            assert not result.error.is_failure
            disk.heal()
            await asyncio.sleep(70)
            assert controller.snapshot_end_offset == controller.high_watermark
            assert not [name for name in disk.list_directory(log) if name.endswith(".part")]

    simulate(story)


def test_leadership_stays_where_it_is_without_balancing() -> None:
    async def story(loop: SimLoop) -> None:
        options = {"clock": SimClock(loop), "disk": ThreadDiskExecutor(), **BALANCE, **LONG_SESSION}
        unbalanced = {"auto__leader__rebalance__enable": "false"}
        async with running_controller(SimFileSystem(), **options, **unbalanced) as controller:
            epochs = {broker: await start_broker(controller, broker) for broker in (2, 3)}
            await controller.create_topics([CreatableTopic(name="t", assignments=((0, (2, 3)),))])
            await beat(controller, 2, epochs[2], want_fence=True)
            await beat(controller, 2, epochs[2])
            await _expand_isr(controller, epochs)
            await asyncio.sleep(600)
            assert controller.image.topics.by_name["t"].partitions[0].leader == 3

    simulate(story)
