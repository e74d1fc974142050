import asyncio

import pytest

from broker.common.errors import (
    CoordinatorLoadInProgressError,
    MessageTooLargeError,
    NotCoordinatorError,
    StorageFailure,
)
from broker.common.identifiers import TopicPartition
from broker.coordinator.shard_state import ShardState
from broker.records.memory_records_builder import records_batch
from tests.support.group_world import after, settle
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.coordinator.counting_shard import Entry
from tests.unit.coordinator.runtime_world import RuntimeWorld


def test_requests_before_during_and_after_a_load() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        with pytest.raises(NotCoordinatorError):
            world.runtime.shard(0)
        world.runtime.on_election(0, 1)
        with pytest.raises(CoordinatorLoadInProgressError):
            world.runtime.shard(0)
        assert world.runtime.is_loading and world.runtime.count(ShardState.LOADING) == 1
        assert list(world.runtime.active_shards()) == [] and len(list(world.runtime.shards())) == 1
        await settle()
        assert world.shard.events == ["loaded"]
        assert list(world.runtime.active_shards()) == [world.shard]
        assert world.loads == [0.0]
        world.runtime.on_resignation(0, 2)
        with pytest.raises(NotCoordinatorError):
            world.runtime.shard(0)

    simulate(story)


def test_older_epochs_are_ignored() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.runtime.on_election(0, 5)
        await settle()
        shard = world.shard
        shard.context.append([Entry("a", "1")])
        world.runtime.on_election(0, 5)
        world.runtime.on_resignation(0, 5)
        world.runtime.on_resignation(0, 4)
        await settle()
        assert world.shard is shard and shard.context.epoch == 5
        world.runtime.on_election(0, 6)  # led again before anybody else did: only the epoch moves
        world.runtime.on_resignation(0, 6)
        assert world.shard is shard and shard.context.epoch == 6
        world.runtime.on_resignation(0, None)
        assert shard.events == ["loaded", "unloaded"]
        world.runtime.on_resignation(0, None)
        world.runtime.on_election(0, 7)
        await settle()
        assert world.shard.state == {"a": "1"}

    simulate(story)


def test_45_a_write_is_answered_when_it_is_committed() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.runtime.on_election(0, 1)
        await settle()
        world.log.commits_at_once = False
        context = world.shard.context
        end_offset = context.append([Entry("a", "1"), Entry("b", "2")])
        assert (end_offset, world.shard.state, world.shard.committed_offset) == (2, {"a": "1", "b": "2"}, 0)
        waiting = asyncio.create_task(context.wait_committed(end_offset))
        await settle()
        assert not waiting.done()
        world.log.commit(1)
        await settle()
        assert not waiting.done() and world.shard.committed_offset == 1
        world.log.commit(2)
        await waiting
        await context.wait_committed(2)

    simulate(story)


def test_44_unloading_fails_what_waits() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.runtime.on_election(0, 1)
        await settle()
        world.log.commits_at_once = False
        context = world.shard.context
        waiting = asyncio.create_task(context.wait_committed(context.append([Entry("a", "1")])))
        context.timer.schedule("t", 1000, lambda: pytest.fail("a timer survived"))
        await settle()
        world.runtime.on_resignation(0, 2)
        with pytest.raises(NotCoordinatorError):
            await waiting
        with pytest.raises(NotCoordinatorError):
            context.append([Entry("b", "1")])
        assert world.log.listeners == {}
        await after(2000)

    simulate(story)


def test_45_a_refused_append_changes_nothing() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.runtime.on_election(0, 1)
        await settle()
        world.log.append_error = StorageFailure("disk full")
        with pytest.raises(NotCoordinatorError):
            world.shard.context.append([Entry("a", "1")])
        assert world.shard.state == {}
        world.log.append_error = None
        assert world.shard.context.append([Entry("a", "1")]) == 1

    simulate(story)


def test_an_append_of_somebody_else_makes_the_shard_reload() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.runtime.on_election(0, 1)
        await settle()
        old = world.shard
        world.log.append(records_batch((1, b"foreign", b"1")))
        with pytest.raises(NotCoordinatorError):
            old.context.append([Entry("own", "2")])
        with pytest.raises(CoordinatorLoadInProgressError):
            world.runtime.shard(0)
        await settle()
        assert old.events == ["loaded", "unloaded"]
        assert world.shard is not old and world.shard.state == {"foreign": "1", "own": "2"}
        world.shard.context.append([Entry("more", "3")])

    simulate(story)


def test_a_record_that_cannot_be_applied_makes_the_shard_reload() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.runtime.on_election(0, 1)
        await settle()
        with pytest.raises(RuntimeError):
            world.shard.context.append([Entry("a", "1"), Entry("!", "x")])
        await settle()
        assert world.runtime.count(ShardState.FAILED) == 1  # the log cannot be replayed either

    simulate(story)


def test_a_failed_load_is_tried_again() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.log.append(records_batch((1, b"a", b"1")))
        world.log.read_error = StorageFailure("unreadable")
        world.runtime.on_election(0, 1)
        await settle()
        assert world.runtime.count(ShardState.FAILED) == 1
        with pytest.raises(NotCoordinatorError):
            world.runtime.shard(0)
        await after(10_000)  # the second try, then 20 seconds to the third
        world.log.read_error = None
        await after(19_000)
        assert world.runtime.count(ShardState.FAILED) == 1
        await after(1000)
        assert world.shard.state == {"a": "1"}

    simulate(story)


def test_a_failed_shard_loads_on_the_next_election() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.writer.is_leader = False
        world.runtime.on_election(0, 1)
        await settle()
        assert world.runtime.count(ShardState.FAILED) == 1
        world.writer.is_leader = True
        world.runtime.on_election(0, 2)
        await settle()
        assert world.shard.events == ["loaded"]

    simulate(story)


def test_a_replica_that_the_disk_refuses_is_loaded_again_when_it_is_back() -> None:
    """Nobody else may be elected meanwhile, and the replica that comes back knows nothing of its listeners."""

    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.runtime.on_election(0, 1)
        await settle()
        world.log.commits_at_once = False
        context = world.shard.context
        waiting = asyncio.create_task(context.wait_committed(context.append([Entry("a", "1")])))
        await settle()
        world.writer.is_leader = False
        world.writer.logs[TopicPartition("topic", 0)].lose()
        with pytest.raises(NotCoordinatorError):
            await waiting
        assert world.runtime.count(ShardState.FAILED) == 1
        world.writer.is_leader = True
        await after(10_000)
        world.log.commit()
        assert (world.shard.state, world.shard.committed_offset) == ({"a": "1"}, 1)
        await world.runtime.shutdown()

    simulate(story)


def test_leadership_that_moves_in_the_middle_of_a_load() -> None:
    """The load of an epoch that is over changes nothing, whatever its read brings and whenever it comes."""

    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.log.append(records_batch((1, b"old", b"1")))
        world.log.read_gate = asyncio.Event()
        world.runtime.on_election(0, 1)
        await settle()
        stale = world.context.shard
        world.runtime.on_resignation(0, 2)
        world.log.batches[:] = []  # the other leader never had it: we truncate
        world.log.append(records_batch((1, b"new", b"2")))
        gate, world.log.read_gate = world.log.read_gate, None
        world.runtime.on_election(0, 3)
        await settle()
        assert world.shard.state == {"new": "2"}
        gate.set()
        await settle()
        assert world.shard.state == {"new": "2"} and world.shard.events == ["loaded"]
        assert (stale.state, stale.events) == ({}, ["unloaded"])
        assert len(world.loads) == 1

    simulate(story)


def test_a_load_that_is_overtaken_by_a_resignation_ends_quietly() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.log.append(records_batch((1, b"a", b"1")))
        world.log.read_gate = asyncio.Event()
        world.runtime.on_election(0, 1)
        await settle()
        world.runtime.on_resignation(0, 2)
        world.log.read_error = StorageFailure("the file went with the replica")
        world.log.read_gate.set()
        await after(60_000)
        assert (world.runtime.count(ShardState.FAILED), world.runtime.count(ShardState.LOADING)) == (0, 0)
        with pytest.raises(NotCoordinatorError):
            world.runtime.shard(0)

    simulate(story)


def test_a_newer_epoch_of_our_own_in_the_middle_of_a_load() -> None:
    """Nobody else led in between, or an image would have said so: the load goes on, for the newer epoch."""

    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.log.append(records_batch((1, b"a", b"1")))
        world.log.read_gate = asyncio.Event()
        world.runtime.on_election(0, 1)
        await settle()
        world.runtime.on_election(0, 4)
        world.runtime.on_resignation(0, 3)
        with pytest.raises(CoordinatorLoadInProgressError):
            world.runtime.shard(0)
        world.log.read_gate.set()
        await settle()
        assert (world.shard.context.epoch, world.shard.state) == (4, {"a": "1"})

    simulate(story)


def test_a_write_whose_answer_is_on_its_way_is_not_answered_well_once_the_role_is_lost() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.runtime.on_election(0, 1)
        await settle()
        world.log.commits_at_once = False
        context = world.shard.context
        told: list[object] = []
        context.when_committed(context.append([Entry("a", "1")]), told.append)
        world.runtime.on_resignation(0, 2)
        world.log.commit()  # as a follower: another leader's high watermark
        assert [type(error) for error in told] == [NotCoordinatorError]
        assert world.log.listeners == {}

    simulate(story)


def test_losing_leadership_while_loading() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        for index in range(5):
            world.log.append(records_batch((1, b"k%d" % index, b"1")))
        world.runtime.on_election(0, 1)
        world.runtime.on_resignation(0, 2)
        world.runtime.on_election(0, 3)
        await settle()
        assert len(world.shard.state) == 5 and world.shard.context.epoch == 3
        assert len(world.loads) == 1

    simulate(story)


def test_splitting_keeps_batches_below_the_largest_message() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop, {"max.message.bytes": "1000"})
        world.runtime.on_election(0, 1)
        await settle()
        end_offset = world.shard.context.append_split([Entry(f"key-{index}", "x" * 100) for index in range(20)])
        assert end_offset == 20 and len(world.shard.state) == 20
        assert len(world.log.batches) == 7
        assert max(map(len, world.log.batches)) <= 1000
        assert world.shard.context.append_split([]) == 20
        assert world.shard.context.append_split([Entry("large", "x" * 900)]) == 21

    simulate(story)


def test_a_record_above_the_limit_is_an_unknown_error() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.runtime.on_election(0, 1)
        await settle()
        world.log.append_error = MessageTooLargeError("too large")
        with pytest.raises(Exception, match="too large") as caught:
            world.shard.context.append([Entry("a", "1")])
        assert not isinstance(caught.value, MessageTooLargeError)

    simulate(story)


def test_shutdown_unloads_everything() -> None:
    async def story(loop: SimLoop) -> None:
        world = RuntimeWorld(loop)
        world.runtime.on_election(0, 1)
        world.runtime.on_election(1, 1)
        await settle()
        shards = list(world.runtime.active_shards())
        await world.runtime.shutdown()
        assert [shard.events[-1] for shard in shards] == ["unloaded", "unloaded"]
        assert list(world.runtime.shards()) == []

    simulate(story)
