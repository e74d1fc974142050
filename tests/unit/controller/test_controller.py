"""Whole controllers on a simulated disk.  Names with a number are behaviours of a KRaft controller, see below.

Behaviours: 3 torn tails, 4 open transactions, 17 duplicate registration, 23-24 fencing, 27 restart, 28 shutdown.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.common.chance import Chance
from broker.common.disk import ThreadDiskExecutor
from broker.common.errors import (
    DuplicateBrokerRegistrationError,
    NotControllerError,
    StaleBrokerEpochError,
    StorageFailure,
)
from broker.common.identifiers import TopicPartition
from broker.controller.controller import Controller, ControllerStartError
from broker.controller.topic_control_manager import CreatableTopic
from broker.metadata.metadata_version import LATEST_METADATA_VERSION
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.schemas.cluster_metadata import BeginTransactionRecord, TopicRecord, encode
from tests.support.sim_disk import SimFileSystem
from tests.support.sim_loop import SimClock, SimLoop, simulate
from tests.unit.controller.controller_support import (
    DIRECTORY,
    beat,
    build_controller,
    directory_of,
    registration_request,
    running_controller,
    start_broker,
)

LOG = DIRECTORY / "__cluster_metadata-0" / "00000000000000000000.log"


async def test_an_empty_directory_becomes_a_cluster() -> None:
    async with running_controller(SimFileSystem()) as controller:
        assert controller.leader_epoch == 1
        assert controller.image.features.finalized == {"metadata.version": LATEST_METADATA_VERSION}
        # LEADER_CHANGE, then Begin, the feature level and End.
        assert (controller.high_watermark, controller.log_end_offset) == (4, 4)


async def test_27_restart_keeps_what_was_acknowledged_and_raises_the_epoch() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        epoch = await start_broker(controller)
        (created,) = await controller.create_topics([CreatableTopic(name="t", num_partitions=2)])
        before = controller.image
    async with running_controller(disk) as controller:
        assert controller.leader_epoch == 2
        assert controller.image.topics == before.topics
        assert controller.image.brokers == before.brokers
        topic = controller.image.topics.topic("t")
        assert topic is not None
        assert (topic.id, len(topic.partitions)) == (created.topic_id, 2)
        assert controller.image.brokers[1].epoch == epoch


async def test_4_a_transaction_without_end_is_aborted_at_restart() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        end, epoch = controller.log_end_offset, controller.leader_epoch
    builder = MemoryRecordsBuilder(end, partition_leader_epoch=epoch)
    builder.append(0, None, encode(BeginTransactionRecord(name="half")))
    builder.append(0, None, encode(TopicRecord(name="half", topic_id=directory_of(99))))
    disk.overwrite(LOG, disk.read(LOG) + bytes(builder.build()))
    async with running_controller(disk) as controller:
        assert len(controller.image.topics) == 0
        # LEADER_CHANGE and AbortTransaction follow the two records.
        assert controller.high_watermark == end + 4
        await start_broker(controller)
        (created,) = await controller.create_topics([CreatableTopic(name="half")])
        assert not created.error.is_failure


async def test_3_a_torn_last_batch_is_cut() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        await start_broker(controller)
        await controller.create_topics([CreatableTopic(name="kept")])
        size = disk.size(LOG)
        await controller.create_topics([CreatableTopic(name="torn")])
    for cut in (size + 1, disk.size(LOG) - 1):
        copy = SimFileSystem()
        copy.make_directories(LOG.parent)
        copy.open(LOG, create=True)
        copy.overwrite(LOG, disk.read(LOG)[:cut])
        async with running_controller(copy) as controller:
            assert list(controller.image.topics.by_name) == ["kept"]


async def test_3_a_broken_last_batch_is_cut_and_an_earlier_one_refuses_to_start() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        await start_broker(controller)
        before_kept = disk.size(LOG)
        await controller.create_topics([CreatableTopic(name="kept")])
        before_last = disk.size(LOG)
        await controller.create_topics([CreatableTopic(name="last")])
    whole = disk.read(LOG)

    def with_broken_byte(position: int) -> SimFileSystem:
        broken = bytearray(whole)
        broken[position] ^= 0xFF
        copy = SimFileSystem()
        copy.make_directories(LOG.parent)
        copy.open(LOG, create=True)
        copy.overwrite(LOG, bytes(broken))
        return copy

    async with running_controller(with_broken_byte(before_last + 70)) as controller:
        assert list(controller.image.topics.by_name) == ["kept"]
    for position in (before_kept + 70, before_kept + 9):  # a record, and the length of a batch
        with pytest.raises(ControllerStartError, match="whole batches follow it"):
            await build_controller(with_broken_byte(position)).start()


async def test_2_an_unknown_record_refuses_to_start() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        end, epoch = controller.log_end_offset, controller.leader_epoch
    builder = MemoryRecordsBuilder(end, partition_leader_epoch=epoch)
    builder.append(0, None, bytes([1, 99, 0, 0]))
    disk.overwrite(LOG, disk.read(LOG) + bytes(builder.build()))
    with pytest.raises(ControllerStartError, match="api key 99"):
        await build_controller(disk).start()


async def test_commands_staged_together_are_one_batch_and_one_flush() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        await start_broker(controller)
        syncs, size = disk.operations["sync"], disk.size(LOG)
        await asyncio.gather(*(controller.create_topics([CreatableTopic(name=f"t{i}")]) for i in range(20)))
        assert disk.operations["sync"] == syncs + 1
        batch = disk.read(LOG)[size:]
        assert int.from_bytes(batch[8:12], "big") + 12 == len(batch)
        assert int.from_bytes(batch[57:61], "big") == 40  # records: twenty topics, twenty partitions


async def test_a_refused_write_answers_an_error_changes_nothing_and_the_next_one_works() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        await start_broker(controller)
        before = controller.image
        disk.fail(LOG, "write")
        with pytest.raises(StorageFailure):
            await controller.create_topics([CreatableTopic(name="refused")])
        assert controller.image is before
        assert controller.storage_failures_count == 1
        reply = await beat(controller, 1, before.brokers[1].epoch)  # needs no record
        assert not reply.is_fenced
        disk.heal()
        (created,) = await controller.create_topics([CreatableTopic(name="refused")])
        assert not created.error.is_failure
    async with running_controller(disk) as controller:
        assert list(controller.image.topics.by_name) == ["refused"]


async def test_nothing_is_served_before_it_is_flushed() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        await start_broker(controller)
        high_watermark = controller.high_watermark
        creating = asyncio.ensure_future(controller.create_topics([CreatableTopic(name="t")]))
        listing = asyncio.ensure_future(controller.list_partition_reassignments(None))
        await asyncio.sleep(0)  # both commands ran, nothing is written yet
        assert not creating.done()
        assert not listing.done()  # it may have seen what is not durable
        assert controller.high_watermark == high_watermark
        assert controller.image.topics.topic("t") is None
        await creating
        assert await listing == {}
        assert controller.image.topics.topic("t") is not None


async def test_a_failed_flush_ends_the_command_task() -> None:
    disk = SimFileSystem()
    controller = build_controller(disk)
    await controller.start()
    failed: list[BaseException] = []
    controller._tasks._on_failure = lambda name, error: failed.append(error)
    async with controller.running():
        disk.fail(LOG, "sync")
        with pytest.raises(NotControllerError):
            await controller.register_broker(registration_request(1))
        assert not controller.is_active
    assert isinstance(failed[0], StorageFailure)


async def test_a_stopped_controller_refuses_commands() -> None:
    async with running_controller(SimFileSystem()) as controller:
        pass
    with pytest.raises(NotControllerError):
        await controller.create_topics([])


async def test_the_broker_of_our_own_process_is_replaced_at_once_after_a_restart() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        first = await start_broker(controller, 1)
        with pytest.raises(DuplicateBrokerRegistrationError):  # 17: while the first one is alive
            await controller.register_broker(registration_request(1, incarnation=2))
    async with running_controller(disk) as controller:
        second = await controller.register_broker(registration_request(1, incarnation=2))
        assert second > first


async def test_27_another_broker_gets_a_full_session_after_a_restart() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        await start_broker(controller, 2)
    async with running_controller(disk) as controller:
        with pytest.raises(DuplicateBrokerRegistrationError):
            await controller.register_broker(registration_request(2, incarnation=2))


def test_23_a_silent_broker_is_fenced_after_its_session_and_its_leaders_move_in_the_same_batch() -> None:
    async def story(loop: SimLoop) -> None:
        disk = SimFileSystem()
        options = {"clock": SimClock(loop), "disk": ThreadDiskExecutor()}
        async with running_controller(disk, **options) as controller:
            epochs = {broker: await start_broker(controller, broker) for broker in (2, 3)}
            await controller.create_topics([CreatableTopic(name="t", assignments=((0, (2, 3)),))])
            for _ in range(6):
                await asyncio.sleep(2)
                await beat(controller, 3, epochs[3])
            assert controller.image.brokers[2].fenced
            assert not controller.image.brokers[3].fenced
            partition = controller.image.topics.partition(TopicPartition("t", 0))
            assert partition is not None
            assert (partition.leader, partition.isr, partition.leader_epoch) == (3, (3,), 1)

    simulate(story)


def test_24_brokers_that_go_silent_together_leave_no_fenced_leader() -> None:
    async def story(loop: SimLoop) -> None:
        options = {"clock": SimClock(loop), "disk": ThreadDiskExecutor()}
        async with running_controller(SimFileSystem(), **options) as controller:
            epochs = {broker: await start_broker(controller, broker) for broker in (2, 3, 4)}
            replicas = ((0, (2, 3, 4)), (1, (3, 2, 4)))
            await controller.create_topics([CreatableTopic(name="t", assignments=replicas)])
            for _ in range(7):
                await asyncio.sleep(2)
                await beat(controller, 4, epochs[4])
            assert [broker for broker, each in controller.image.brokers.items() if each.fenced] == [2, 3]
            partitions = controller.image.topics.by_name["t"].partitions.values()
            assert [(each.leader, each.isr) for each in partitions] == [(4, (4,)), (4, (4,))]

    simulate(story)


def test_a_controller_that_was_stopped_does_not_fence_those_it_could_not_hear() -> None:
    async def story(loop: SimLoop) -> None:
        options = {"clock": SimClock(loop), "disk": ThreadDiskExecutor()}
        async with running_controller(SimFileSystem(), **options) as controller:
            epoch = await start_broker(controller, 2)
            await asyncio.sleep(2)
            loop.advance(60)  # SIGSTOP: the clock goes on, nothing runs
            await asyncio.sleep(1)
            assert not controller.image.brokers[2].fenced
            await beat(controller, 2, epoch)
            await asyncio.sleep(12)
            assert controller.image.brokers[2].fenced

    simulate(story)


def test_28_controlled_shutdown_waits_until_the_others_have_seen_it() -> None:
    async def story(loop: SimLoop) -> None:
        options = {"clock": SimClock(loop), "disk": ThreadDiskExecutor()}
        async with running_controller(SimFileSystem(), **options) as controller:
            epochs = {broker: await start_broker(controller, broker) for broker in (2, 3)}
            await controller.create_topics([CreatableTopic(name="t", assignments=((0, (2, 3)),))])
            await beat(controller, 3, epochs[3])
            first = await beat(controller, 2, epochs[2], want_shut_down=True)
            assert (first.should_shut_down, first.is_fenced) == (False, False)
            partition = controller.image.topics.partition(TopicPartition("t", 0))
            assert partition is not None
            assert (partition.leader, partition.isr) == (3, (3,))
            assert not (await beat(controller, 2, epochs[2], want_shut_down=True)).should_shut_down
            await beat(controller, 3, epochs[3])
            last = await beat(controller, 2, epochs[2], want_shut_down=True)
            assert (last.should_shut_down, last.is_fenced) == (True, True)
            end = controller.log_end_offset
            again = await beat(controller, 2, epochs[2], want_shut_down=True)
            assert (again.should_shut_down, controller.log_end_offset) == (True, end)

    simulate(story)


def test_snapshot_and_tail_give_the_same_image_and_old_segments_go() -> None:
    async def story(loop: SimLoop) -> None:
        disk = SimFileSystem()
        options = {"clock": SimClock(loop), "disk": ThreadDiskExecutor()}
        async with running_controller(disk, **options) as controller:
            await start_broker(controller, 1)
            taken = []
            for number in range(4):
                await controller.create_topics([CreatableTopic(name=f"t{number}", num_partitions=3)])
                taken.append(await controller.maintenance.take_snapshot())
            assert await controller.maintenance.take_snapshot() is None  # there is one of this state
            await controller.delete_topics(["t1"], [])
            image = controller.image
            names = disk.list_directory(LOG.parent)
            assert [name for name in names if name.endswith(".checkpoint")] == [each.file_name for each in taken[2:]]
            bases = [int(name[:20]) for name in names if name.endswith(".log")]
            assert bases[0] <= taken[2].end_offset < bases[1]
            assert taken[1].end_offset <= bases[0]
        async with running_controller(disk, **options) as controller:
            assert controller.image.topics == image.topics
            assert controller.image.features == image.features
            assert controller.snapshot_end_offset == taken[3].end_offset

    simulate(story)


def test_a_snapshot_is_taken_by_itself_after_enough_bytes_and_after_enough_time() -> None:
    async def story(loop: SimLoop) -> None:
        options = {"clock": SimClock(loop), "disk": ThreadDiskExecutor()}
        bytes_between = {"metadata__log__max__record__bytes__between__snapshots": "2000"}
        async with running_controller(SimFileSystem(), **options, **bytes_between) as controller:
            await start_broker(controller, 1)
            await asyncio.sleep(2)
            assert controller.snapshot_end_offset == -1
            await controller.create_topics([CreatableTopic(name="t", num_partitions=30)])
            await asyncio.sleep(2)
            assert controller.snapshot_end_offset == controller.high_watermark
        async with running_controller(SimFileSystem(), **options) as controller:
            await asyncio.sleep(3_590)
            assert controller.snapshot_end_offset == -1
            await asyncio.sleep(15)
            assert controller.snapshot_end_offset == controller.high_watermark
            end = controller.snapshot_end_offset
            await asyncio.sleep(8_000)
            assert controller.snapshot_end_offset == end  # nothing was written since

    simulate(story)


def test_acknowledged_topics_survive_power_cuts() -> None:
    async def story(loop: SimLoop) -> None:
        disk = SimFileSystem()
        chance = Chance(loop.random.randrange(1 << 30))
        disk.make_directories(DIRECTORY)
        disk.sync_everything()
        acknowledged: set[str] = set()
        for round_number in range(6):
            controller = build_controller(
                disk,
                clock=SimClock(loop),
                disk=ThreadDiskExecutor(),
                seed=round_number * 1000 + loop.random.randrange(99),
            )
            await controller.start()
            assert acknowledged <= set(controller.image.topics.by_name)
            async with controller.running():
                await start_broker(controller, 1, incarnation=round_number)

                names = [f"t-{round_number}-{number}" for number in range(30)]
                creating = [loop.create_task(_create(controller, name, acknowledged)) for name in names]
                if round_number % 2:
                    creating.append(loop.create_task(_snapshot(controller)))
                await asyncio.sleep(loop.random.random() * 0.004)
                done = set(acknowledged)
                disk.crash(chance)
                for task in creating:
                    task.cancel()
                await asyncio.gather(*creating, return_exceptions=True)
                controller._queue._waiting.clear()
                acknowledged &= done
        assert acknowledged

    for seed in range(12):
        _simulate_with_crashes(story, seed)


async def _create(controller: Controller, name: str, acknowledged: set[str]) -> None:
    (result,) = await controller.create_topics([CreatableTopic(name=name)])
    if not result.error.is_failure:
        acknowledged.add(name)


async def _snapshot(controller: Controller) -> None:
    await controller.maintenance.take_snapshot()


def _simulate_with_crashes(story: Callable[[SimLoop], Coroutine[Any, Any, None]], seed: int) -> None:
    """The tasks of a crashed controller fail, as they should: that is not the story's failure."""

    async def forgiving(loop: SimLoop) -> None:
        try:
            await story(loop)
        finally:
            loop.failures.clear()

    simulate(forgiving, seed=seed)


async def test_metrics_read_the_state() -> None:
    async with running_controller(SimFileSystem()) as controller:
        await start_broker(controller, 2)
        await controller.register_broker(registration_request(3))
        await controller.create_topics([CreatableTopic(name="t", assignments=((0, (2, 3)), (1, (3, 2))))])
        assert controller.active_broker_count == 1
        assert controller.fenced_broker_count == 1
        assert (controller.topic_count, controller.partition_count) == (1, 2)
        assert controller.offline_partition_count == 0
        assert controller.preferred_replica_imbalance_count == 1
        assert controller.log_size_bytes > 0


async def test_bootstrap_happens_once_even_if_the_first_start_ended_before_it() -> None:
    disk = SimFileSystem()
    async with running_controller(disk):
        pass
    disk.overwrite(LOG, disk.read(LOG)[:91])  # the leader change alone
    async with running_controller(disk) as controller:
        assert controller.image.features.metadata_version == LATEST_METADATA_VERSION


async def test_a_start_with_a_full_disk_works() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        await start_broker(controller)
        await controller.create_topics([CreatableTopic(name="t")])
    disk.budget_bytes = disk.used_bytes()
    async with running_controller(disk) as controller:
        await start_broker(controller, incarnation=2)
        assert controller.image.topics.by_name["t"].partitions[0].leader == 1
        (created,) = await controller.create_topics([CreatableTopic(name="u")])
        assert not created.error.is_failure


def test_the_interval_of_snapshots_is_a_setting() -> None:
    async def story(loop: SimLoop) -> None:
        options = {"clock": SimClock(loop), "disk": ThreadDiskExecutor()}
        interval = {"metadata__log__max__snapshot__interval__ms": "60000"}
        async with running_controller(SimFileSystem(), **options, **interval) as controller:
            await start_broker(controller, 1)
            await asyncio.sleep(55)
            assert controller.snapshot_end_offset == -1
            await asyncio.sleep(10)
            assert controller.snapshot_end_offset == controller.high_watermark

    simulate(story)


async def test_40_producer_ids_go_on_behind_the_last_block_after_a_restart() -> None:
    disk = SimFileSystem()
    blocks = []
    for _ in range(2):
        async with running_controller(disk) as controller:
            epoch = await start_broker(controller, 1, incarnation=len(blocks) + 1)
            blocks += [await controller.allocate_producer_ids(1, epoch) for _ in range(2)]
            with pytest.raises(StaleBrokerEpochError):
                await controller.allocate_producer_ids(1, epoch + 1)
    assert [block.first_id for block in blocks] == [0, 1000, 2000, 3000]


async def test_27_a_broker_that_was_fenced_stays_fenced_over_a_restart_and_a_shutdown_goes_on() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        epochs = {broker: await start_broker(controller, broker) for broker in (2, 3, 4)}
        await controller.create_topics([CreatableTopic(name="t", assignments=((0, (3, 4)),))])
        await beat(controller, 2, epochs[2], want_fence=True)
        assert not (await beat(controller, 3, epochs[3], want_shut_down=True)).should_shut_down
    async with running_controller(disk) as controller:
        brokers = controller.image.brokers
        assert (brokers[2].fenced, brokers[3].in_controlled_shutdown, brokers[4].is_active) == (True, True, True)
        partition = controller.image.topics.partition(TopicPartition("t", 0))
        assert partition is not None
        assert (partition.leader, partition.isr) == (4, (4,))
        await beat(controller, 4, epochs[4])
        assert (await beat(controller, 3, epochs[3], want_shut_down=True)).should_shut_down


async def test_topics_are_deleted_while_their_brokers_are_away() -> None:
    disk = SimFileSystem()
    async with running_controller(disk) as controller:
        epoch = await start_broker(controller, 2)
        await controller.create_topics([CreatableTopic(name="t", assignments=((0, (2,)),))])
        await beat(controller, 2, epoch, want_fence=True)
        (deleted,) = await controller.delete_topics(["t"], [])
        assert (deleted.name, deleted.error.is_failure) == ("t", False)
        await beat(controller, 2, epoch)
        assert controller.image.topics.by_name == {}
        assert controller.offline_partition_count == 0
