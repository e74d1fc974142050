"""Objects nobody was told of: which they are, and which only look so."""

from typing import Any

import structlog.testing

from broker.objectstore.decorated import Operation
from broker.objectstore.failing_object_store import Fault
from broker.wal.objects.object_key import broker_prefix, cluster_prefix
from broker.wal.retention.departed_brokers import Zone
from broker.wal.retention.wal_object_table import WalObjectTable
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.wal.sweep_world import CLUSTER, SweepWorld
from tests.unit.wal.wal_world import FOO


def events(told: list[Any], name: str) -> int:
    return sum(line["event"] == name for line in told)


def test_an_orphan_goes_within_an_hour_and_what_others_own_stays() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running(), world.sweeper.running():
            known = await world.upload({FOO: 0})
            other = await world.put({FOO: 1}, broker_id=2)
            foreign = f"wal/another-cluster/1/7/2023111422/{known.rsplit('/', 1)[1]}"
            strange = broker_prefix(CLUSTER, 1) + "notes.txt"
            for key in (foreign, strange):
                await world.bucket.put(key, b"x")
            with structlog.testing.capture_logs() as told:
                await world.minutes(12)
            await world.put({FOO: 2})
            await world.minutes(75)
            assert world.keys == sorted([known, other, foreign, strange])
            assert world.stats.orphans_deleted == 1
            assert events(told, "wal_orphans_deleted") == 0

    simulate(story)


def test_all_lives_of_the_broker_id_are_swept() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running():
            for epoch in (3, 7, 7):
                await world.put({FOO: epoch}, epoch=epoch)
        world.restart()
        world.read()
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(12)
            assert world.keys == [] and world.stats.orphans_deleted == 3

    simulate(story)


def test_after_a_restart_nothing_is_an_orphan_before_the_own_events_are_read() -> None:
    """The table is empty and the consumer lags: the listing shows live objects that look as if nobody knew them."""

    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running():
            live = [await world.upload({FOO: number}) for number in range(3)]
            orphan = await world.put({FOO: 3})
        world.restart()
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(20)
            assert world.keys == sorted([*live, orphan])  # nothing read yet
            world.topic.read[world.partition] = 2
            for record in world.events[:2]:
                world.table.add(record)
            await world.minutes(20)
            assert world.keys == sorted([*live, orphan])  # not to the end that the topic had after the listing
            world.read()
            await world.minutes(1.1)
            assert world.keys == sorted(live)
            assert world.bucket.count(Operation.LIST) == 1
            assert world.topic.ends_asked == 1

    simulate(story)


def test_what_is_announced_between_listing_and_judgement_is_no_orphan() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running():
            await world.put({FOO: 0})
        late = world.last
        world.restart()
        async with world.storage.running(), world.sweeper.running():
            world.topic.is_down = True
            await world.minutes(15)
            world.announce(late)  # by a publisher that had tried for long
            world.topic.is_down = False
            await world.minutes(5)
            assert world.keys == [late.object_key]
            world.read()
            await world.minutes(70)
            assert world.keys == [late.object_key] and world.table.holds(late.object_key)

    simulate(story)


def test_the_end_of_a_topic_that_somebody_has_deleted_is_not_waited_for() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running():
            await world.put({FOO: 0})
        world.restart()
        async with world.storage.running(), world.sweeper.running():
            world.topic.ends[world.partition], world.topic.read[world.partition] = 100, 50
            await world.minutes(20)
            assert len(world.keys) == 1
            world.topic.ends[world.partition] = world.topic.read[world.partition] = 0  # of another one of its name
            live = await world.upload({FOO: 1})
            world.sweeper.topic_replaced()
            await world.minutes(5)
            assert len(world.keys) == 2 and world.bucket.count(Operation.LIST) == 1
            await world.minutes(60)
            assert world.keys == [live] and world.bucket.count(Operation.LIST) == 2

    simulate(story)


def test_a_topic_may_be_made_again_while_the_sweep_asks_for_its_end() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running():
            await world.put({FOO: 0})
        world.restart()
        end_offset = world.topic.end_offset

        async def of_the_old_one(partition: int) -> int:
            world.topic.end_offset = end_offset  # type: ignore[method-assign]
            world.sweeper.topic_replaced()
            world.read()
            return 100

        world.topic.end_offset = of_the_old_one  # type: ignore[method-assign]
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(60)
            assert len(world.keys) == 1
            await world.minutes(20)
            assert world.keys == []

    simulate(story)


def test_a_young_object_is_given_time_to_be_announced() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        world.read()
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(9)
            key = await world.put({FOO: 0})
            await world.minutes(10)
            assert world.bucket.count(Operation.LIST) == 1 and world.keys == [key]
            await world.minutes(55)
            assert world.keys == [] and world.stats.orphans_deleted == 1

    simulate(story)


def test_without_uploads_nothing_is_listed_and_with_them_once_an_hour() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(60)
            assert world.bucket.count(Operation.LIST) == 1
            await world.upload({FOO: 0})
            await world.minutes(12 * 60)
            assert world.bucket.count(Operation.LIST) == 2
            assert world.bucket.count(Operation.DELETE_MANY) == 1
            for _ in range(6):
                await world.upload({FOO: 1})
                await world.minutes(30)
            assert world.bucket.count(Operation.LIST) == 5

    simulate(story)


def test_an_upload_that_may_have_been_stored_is_a_reason_to_look() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        world.read()
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(30)
            await world.put({FOO: 0})
            world.stats.objects_stored -= 1  # the answer was lost
            world.stats.of("foo").copy_errors += 1
            await world.minutes(70)
            assert world.keys == []

    simulate(story)


def test_a_listing_that_fails_is_repeated_at_the_next_interval() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running():
            await world.put({FOO: 0})
        world.restart()
        world.read()
        async with world.storage.running(), world.sweeper.running():
            world.bucket.faults.plan.down = Fault.RESET
            with structlog.testing.capture_logs() as told:
                await world.minutes(20)
            assert events(told, "wal_sweep_failed") == 1 and len(world.keys) == 1
            world.bucket.heal()
            await world.minutes(3)
            assert world.keys == []

    simulate(story)


def test_a_listing_of_before_cannot_hurt() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running():
            await world.put({FOO: 0})
        world.restart()
        world.read()
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(12)
            kept = await world.upload({FOO: 1})
            world.bucket.faults.plan.probabilities[Fault.STALE_LIST] = 1.0
            await world.minutes(65)
            assert world.keys == [kept] and world.bucket.count(Operation.LIST) == 2

    simulate(story)


def test_what_the_table_had_to_forget_stays_until_its_pointer_is_gone() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        world.table = world.orphans._table = world.sweeper._table = WalObjectTable(CLUSTER, 1, objects_max=1)
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(5)
            forgotten = await world.upload({FOO: 0})
            known = await world.upload({FOO: 1})
            assert not world.table.holds(forgotten)
            await world.minutes(125)
            assert world.keys == sorted([forgotten, known])
            await world.minutes(75)
            assert world.keys == [] and world.stats.orphans_deleted == 1

    simulate(story)


def test_a_broker_that_does_not_come_back_is_swept_by_the_lowest_of_its_zone() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        world.zone = Zone(frozenset({1, 2}), frozenset({1, 2, 3}))
        async with world.storage.running(), world.sweeper.running():
            left = await world.put({FOO: 0}, broker_id=2)
            alive_elsewhere = await world.put({FOO: 0}, broker_id=3)
            await world.minutes(5)
            world.zone = Zone(frozenset({1}), frozenset({1, 3}))
            await world.minutes(130)
            assert world.keys == sorted([left, alive_elsewhere])
            await world.minutes(80)
            assert world.keys == [alive_elsewhere]
            lists = world.bucket.count(Operation.LIST)
            await world.minutes(24 * 60)
            assert world.bucket.count(Operation.LIST) == lists

    simulate(story)


def test_what_a_departed_broker_uploaded_lately_is_left_to_grow_old() -> None:
    """It was away for the controller alone: its followers may still read it."""

    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        world.zone = Zone(frozenset({1, 2}), frozenset({1, 2}))
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(5)
            world.zone = Zone(frozenset({1}), frozenset({1}))
            await world.minutes(100)
            late = await world.put({FOO: 0}, broker_id=2)
            await world.minutes(128)
            assert world.keys == [late]
            await world.minutes(65)
            assert world.keys == []

    simulate(story)


def test_one_that_was_removed_before_is_found_by_what_it_left() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop)
        async with world.storage.running():
            await world.put({FOO: 0}, broker_id=9)
        await world.minutes(24 * 60)
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(12)
            assert [each.key for each in world.bucket.asked if each.operation is Operation.LIST] == [
                cluster_prefix(CLUSTER)
            ]
            assert len(world.keys) == 1
            await world.minutes(200)
            assert world.keys == []

    simulate(story)


def test_others_of_the_zone_list_no_more_than_their_own() -> None:
    async def story(loop: SimLoop) -> None:
        world = SweepWorld(loop, broker_id=2)
        world.zone = Zone(frozenset({1, 2}), frozenset({1, 2}))
        async with world.storage.running(), world.sweeper.running():
            await world.minutes(12)
            asked = [(each.operation, each.key) for each in world.bucket.asked]
            assert asked == [(Operation.PROBE, ""), (Operation.LIST, broker_prefix(CLUSTER, 2))]

    simulate(story)
