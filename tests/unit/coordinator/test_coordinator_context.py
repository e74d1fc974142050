import pytest

from broker.common.errors import ErrorCode, KafkaError, NotCoordinatorError, StorageFailure
from broker.coordinator.shard_state import ShardState
from broker.records.record_batch import CompressionType, RecordBatch
from tests.support.group_world import settle
from tests.support.sim_loop import EPOCH_MS, SimLoop, simulate
from tests.unit.coordinator.counting_shard import Entry
from tests.unit.coordinator.runtime_world import RuntimeWorld


async def active(world: RuntimeWorld) -> RuntimeWorld:
    world.runtime.on_election(0, 1)
    await settle()
    return world


def test_records_of_one_append_are_one_batch_with_the_time_of_the_append() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(RuntimeWorld(loop))
        world.shard.context.append([Entry("a", "1"), Entry("b", None)])
        (batch,) = (RecordBatch.parse(each) for each in world.log.batches)
        assert [(each.key, each.value, each.timestamp) for each in batch.records()] == [
            (b"a", b"1", EPOCH_MS),
            (b"b", None, EPOCH_MS),
        ]
        assert (batch.compression, batch.is_transactional) == (CompressionType.NONE, False)

    simulate(story)


def test_the_codec_of_the_offsets_topic() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(RuntimeWorld(loop, offsets_topic_compression_codec="1"))
        world.shard.context.append([Entry("a", "1")])
        assert RecordBatch.parse(world.log.batches[0]).compression is CompressionType.GZIP

    simulate(story)


def test_what_is_not_replayed_is_the_callers_to_apply() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(RuntimeWorld(loop))
        assert world.shard.context.append([Entry("a", "1")], is_replayed=False) == 1
        assert world.shard.state == {}

    simulate(story)


def test_no_timer_outlives_the_shard() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(RuntimeWorld(loop))
        world.log.commits_at_once = False
        context = world.shard.context
        end_offset = context.append([Entry("a", "1")])
        context.when_committed(end_offset, lambda _: context.timer.schedule("late", 1000, lambda: None))
        world.runtime.on_resignation(0, 2)
        assert len(context.timer) == 0

    simulate(story)


def test_the_high_watermark_of_an_append_is_seen_after_its_records() -> None:
    """A reply that is released within the append must not write before the append's own records are in memory."""

    async def story(loop: SimLoop) -> None:
        world = await active(RuntimeWorld(loop))
        context = world.shard.context
        world.log.commits_at_once = False
        first = context.append([Entry("a", "1")])
        seen: list[dict[str, str]] = []
        context.when_committed(
            first, lambda _: (seen.append(dict(world.shard.state)), context.append([Entry("c", "3")]))
        )
        world.log.commits_at_once = True
        context.append([Entry("b", "2")])
        assert seen == [{"a": "1", "b": "2"}]
        assert world.shard.state == {"a": "1", "b": "2", "c": "3"}
        assert context.last_written_offset == 3 and context.state is ShardState.ACTIVE

    simulate(story)


def test_a_high_watermark_that_moves_in_a_failed_append_counts() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(RuntimeWorld(loop))
        context = world.shard.context
        world.log.commits_at_once = False
        told: list[object] = []
        context.when_committed(context.append([Entry("a", "1")]), told.append)

        class Failing(StorageFailure):
            def __init__(self) -> None:
                world.log.commit()
                super().__init__("disk full")

        append = world.log.append
        world.log.append = lambda batch: (_ for _ in ()).throw(Failing())  # type: ignore[method-assign]
        with pytest.raises(NotCoordinatorError):
            context.append([Entry("b", "1")])
        world.log.append = append  # type: ignore[method-assign]
        assert told == [None]

    simulate(story)


def test_states_that_cannot_follow_each_other() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(RuntimeWorld(loop))
        with pytest.raises(AssertionError, match="cannot become"):
            world.shard.context.transition_to(ShardState.LOADING)

    simulate(story)


def test_the_time_for_a_commit_is_a_setting() -> None:
    async def story(loop: SimLoop) -> None:
        world = await active(RuntimeWorld(loop, offsets_commit_timeout_ms="700"))
        world.log.commits_at_once = False
        end_offset = world.shard.context.append([Entry("a", "1")])
        with pytest.raises(KafkaError) as raised:
            await world.shard.context.wait_committed(end_offset)
        assert (raised.value.code, loop.time()) == (ErrorCode.request_timed_out, pytest.approx(0.7))

    simulate(story)
