"""The task that deletes: when, in which requests, and what it does when the bucket does not answer."""

import dataclasses

import structlog.testing

from broker.objectstore.decorated import Operation
from broker.objectstore.failing_object_store import Fault, Latency
from broker.wal.retention.object_retention import ObjectRetentionMode, RetentionSettings
from broker.wal.retention.wal_object_sweeper import make_sweeper
from tests.support.builders import broker_config
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.wal.sweep_world import CLUSTER, MINUTE_MS, SweepWorld
from tests.unit.wal.wal_world import BAR, FOO

HOUR_MINUTES = 60
REPLICATED = RetentionSettings(ObjectRetentionMode.REPLICATED, replicated_min_age_ms=10 * MINUTE_MS)


def test_an_object_goes_when_all_its_slices_are_tiered_and_on_all_replicas_and_not_before() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(11)
            lagging = await world.upload({FOO: 9, BAR: 4})
            untiered = await world.upload({FOO: 10, BAR: 5})
            done = await world.upload({FOO: 8})
            world.progress.all_at(FOO, 11)
            world.progress.all_at(BAR, 6)
            world.progress[BAR].ends[3] = 4
            world.progress[FOO].tiered, world.progress[BAR].tiered = 9, 5
            await world.minutes(1.1)
            assert world.keys == sorted([lagging, untiered]) and not world.table.holds(done)
            world.progress[BAR].ends[3] = 6
            await world.minutes(1.1)
            assert world.keys == [untiered]
            world.progress[FOO].tiered = 10
            await world.minutes(1.1)
            assert world.keys == [] and len(world.table) == 0
            assert (world.stats.of("foo").delete_requests, world.stats.of("bar").delete_requests) == (3, 2)

    simulate(story)


def test_an_object_whose_replica_never_returns_goes_in_the_end() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        world.progress[FOO].ends[3] = -1
        world.progress[FOO].local_retention_ms = HOUR_MINUTES * MINUTE_MS
        async with world.storage.running(), world.sweeper.running():
            key = await world.upload({FOO: 0})
            await world.minutes(69.9)
            assert world.keys == [key]
            await world.minutes(1.1)
            assert world.keys == []
            assert loop.time() < 71.2 * 60

    simulate(story)


def test_in_mode_replicated_an_object_goes_as_soon_as_all_have_it_and_it_is_old_enough() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop, REPLICATED)
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(10)
            key = await world.upload({FOO: 0})
            world.progress.all_at(FOO, 1)
            await world.minutes(9.9)
            assert world.keys == [key]
            await world.minutes(1.2)
            assert world.keys == []

    simulate(story)


def test_positions_of_replicas_count_in_the_current_epoch_alone() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop, REPLICATED)
        async with world.storage.running(), world.sweeper.running():
            key = await world.upload({FOO: 0})
            world.progress.all_at(FOO, 1)
            world.progress[FOO].ends[2] = -1  # a new epoch: nobody has fetched
            await world.minutes(30)
            assert world.keys == [key]
            world.progress[FOO].is_led_here = False
            world.progress.all_at(FOO, 1)
            await world.minutes(30)
            assert world.keys == [key]

    simulate(story)


def test_nothing_goes_early_in_the_first_ten_minutes_of_a_process() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop, REPLICATED)
        async with world.storage.running():
            await world.upload({FOO: 0})
        world.progress.all_at(FOO, 1)
        await world.minutes(60)
        world.restart()
        async with world.storage.running(), world.sweeper.running():
            world.read()
            await world.minutes(9.9)
            assert len(world.keys) == 1
            await world.minutes(0.2)
            assert world.keys == []

    simulate(story)


def test_a_topic_that_is_deleted_takes_its_objects_along_and_one_of_the_same_name_keeps_its_own() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        again = FOO._replace(topic_id=BAR.topic_id)
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(11)
            await world.upload({FOO: 0})
            shared = await world.upload({FOO: 1, BAR: 0})
            world.progress[FOO].is_deleted = True
            fresh = await world.upload({again: 0})
            await world.minutes(1.1)
            assert world.keys == sorted([shared, fresh])

    simulate(story)


def test_objects_are_deleted_a_thousand_in_a_request() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        world.progress[FOO].local_retention_ms = 0
        world.bucket.latency = Latency()
        async with world.storage.running(), world.sweeper.running():
            for number in range(2500):
                await world.upload({FOO: number})
            await world.minutes(12)
            assert world.keys == [] and len(world.table) == 0
            assert world.bucket.count(Operation.DELETE_MANY) == 3
            assert world.stats.of("foo").delete_requests == 2500

    simulate(story)


def test_who_has_nothing_asks_nothing_of_the_bucket() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(24 * 60)
            # Whether it is there at all, and what earlier processes left.
            assert [each.operation for each in world.bucket.asked] == [Operation.PROBE, Operation.LIST]
            assert world.topic.ends_asked == 0

    simulate(story)


def test_a_bucket_that_is_down_is_told_once_and_asked_again() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        world.progress[FOO].local_retention_ms = 0
        with structlog.testing.capture_logs() as told:
            async with world.storage.running(), world.sweeper.running():
                await world.upload({FOO: 0})
                world.bucket.faults.plan.down = Fault.RESET
                await world.minutes(20)
                assert len(world.keys) == 1 and len(world.table) == 1
                errors = world.stats.of("foo").delete_errors
                assert 1 <= errors <= 11
                assert [line["event"] for line in told].count("wal_sweep_failed") == 1
                world.bucket.heal()
                await world.minutes(2)
                assert world.keys == [] and world.stats.of("foo").delete_requests == 1
                assert world.stats.of("foo").delete_errors - errors <= 1
        assert [line["event"] for line in told].count("wal_sweep_failed") == 1

    simulate(story)


def test_a_bucket_that_is_down_is_asked_for_one_batch_an_interval() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        world.progress[FOO].local_retention_ms = 0
        world.bucket.latency = Latency()
        async with world.storage.running(), world.sweeper.running():
            for number in range(3500):
                await world.upload({FOO: number})
            await world.minutes(9.5)
            world.bucket.faults.plan.down = Fault.RESET
            await world.minutes(1)
            assert world.bucket.count(Operation.DELETE_MANY) == 3  # the same one, again and again
            assert world.stats.of("foo").delete_errors == 1000

    simulate(story)


def test_a_deletion_whose_answer_was_lost_is_done_again() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        world.progress[FOO].local_retention_ms = 0
        async with world.storage.running(), world.sweeper.running():
            await world.upload({FOO: 0})
            world.bucket.faults.fail_next(Operation.DELETE_MANY, *[Fault.LOST_REPLY] * 3)
            await world.minutes(12)
            assert world.keys == [] and len(world.table) == 0
            assert world.stats.of("foo").delete_requests == 1

    simulate(story)


def test_a_bucket_of_former_days_that_fails_does_not_hold_back_the_own_one() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        world.progress[FOO].local_retention_ms = 0
        world.buckets.zone(1).faults.plan.down = Fault.RESET
        async with world.storage.running(), world.sweeper.running():
            await world.put({FOO: 5})
            former = world.last.object_key
            world.table.add(dataclasses.replace(world.last, bucket=world.buckets.urls[1]))
            key = await world.upload({FOO: 0})
            await world.minutes(12)
            assert world.keys == [former]  # which is another object in another bucket
            assert world.table.holds(former) and not world.table.holds(key)

    simulate(story)


def test_expired_coverage_is_dropped_at_each_interval() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running(), world.sweeper.running():
            start_ms = world.clock.now_ms()
            await world.minutes(2.5)
            assert world.told == [start_ms + MINUTE_MS, start_ms + 2 * MINUTE_MS]

    simulate(story)


def test_a_broker_sweeps_by_its_settings() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        settings = {
            "remote.wal.object.retention.mode": "replicated",
            "remote.wal.object.min.retention.ms": "1200000",
            "remote.wal.gc.interval.ms": "1000",
            "remote.wal.orphan.min.age.ms": "900000",
            "rwlmm.config.remote.wal.log.metadata.topic.retention.ms": "3600000",
        }
        sweeper = make_sweeper(
            broker_config(settings),
            CLUSTER,
            table=world.table,
            storage=world.storage,
            topic=world.topic,
            progress=world.progress,
            zone=lambda: world.zone,
            clock=world.clock,
            stats=world.stats,
            drop_expired=world.told.append,
        )
        async with world.storage.running(), sweeper.running():
            replicated = await world.upload({FOO: 0})
            lagging = await world.upload({BAR: 0})
            world.progress.all_at(FOO, 1)
            orphan = await world.put({FOO: 1})
            await world.minutes(14.9)
            assert world.keys == sorted([replicated, lagging, orphan])
            await world.minutes(0.3)
            assert world.keys == sorted([replicated, lagging])
            await world.minutes(5)
            assert world.keys == [lagging]
            await world.minutes(49.7)
            assert world.keys == [lagging]
            await world.minutes(0.3)
            assert world.keys == []
            assert len(world.told) == 4212

    simulate(story)
