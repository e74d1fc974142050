import asyncio
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.common.errors import ReplicaNotAvailableError
from broker.common.identifiers import TopicIdPartition
from broker.schemas.remote_log_metadata import RemotePartitionDeleteState
from broker.schemas.remote_metadata_partitioner import metadata_partition_of
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_log_metadata_events import decode_event, encode_event
from broker.tiering.remote_log_segment_metadata import RemoteLogSegmentMetadata, RemotePartitionDeleteMetadata
from broker.tiering.topic_based_remote_log_metadata_manager import (
    TopicBasedRemoteLogMetadataManager,
    TopicBasedSettings,
)
from tests.support.builders import broker_config
from tests.support.memory_metadata_topic import MemoryMetadataTopic
from tests.support.sim_loop import SimLoop, simulate

from .segment_world import FINISHED, PARTITION, STARTED, segment, update

COUNT = 4
PLACE = metadata_partition_of(PARTITION.topic_id, PARTITION.partition, COUNT)
SETTINGS = TopicBasedSettings(
    COUNT, consume_wait_ms=5_000, initialization_max_ms=60_000, initialization_interval_ms=100
)


class Setup:
    def __init__(self, partition_count: int | None = COUNT, **settings: int) -> None:
        self.topic = MemoryMetadataTopic(partition_count)
        self.could_exist = True
        self.fatal: list[str] = []
        self.manager = TopicBasedRemoteLogMetadataManager(
            self.topic,
            SETTINGS._replace(**settings),
            could_exist=lambda: self.could_exist,
            on_fatal=lambda error: self.fatal.append(str(error)),
        )
        self.topic.on_metadata = self.manager.on_metadata
        self.topic.on_replaced = self.manager.on_replaced

    async def lead(self) -> None:
        """Lead the partition, and know all of it."""
        self.manager.on_partition_leadership_changes([PARTITION], [])
        await asyncio.sleep(1)
        assert self.manager.is_ready(PARTITION)


def run(setup: Setup, play: Callable[[SimLoop], Coroutine[Any, Any, None]]) -> None:
    async def story(loop: SimLoop) -> None:
        async with setup.manager.running():
            assert setup.topic.is_running
            await play(loop)
        assert not setup.topic.is_running

    simulate(story)


def test_a_change_is_done_when_it_was_read_back() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        await setup.lead()
        begun = asyncio.ensure_future(setup.manager.add_remote_log_segment_metadata(segment(1, 0, 9)))
        await asyncio.sleep(1)
        assert (setup.topic.appends, begun.done()) == ([(PLACE, (encode_event(segment(1, 0, 9)),))], False)
        assert setup.manager.lag == 1
        setup.topic.deliver()
        await begun
        finished = asyncio.ensure_future(setup.manager.update_remote_log_segment_metadata(update(1, FINISHED)))
        await asyncio.sleep(1)
        assert await setup.manager.highest_offset_for_epoch(PARTITION, 0) is None
        setup.topic.deliver()
        await finished
        assert await setup.manager.highest_offset_for_epoch(PARTITION, 0) == 9
        assert (setup.manager.publish_errors, setup.manager.lag) == (0, 0)

    run(setup, play)


def test_a_partition_deletion_is_told_too() -> None:
    setup = Setup()
    deletion = RemotePartitionDeleteMetadata(PARTITION, 1, 7000, RemotePartitionDeleteState.DELETE_PARTITION_MARKED)

    async def play(loop: SimLoop) -> None:
        await setup.lead()
        told = asyncio.ensure_future(setup.manager.put_remote_partition_delete_metadata(deletion))
        await asyncio.sleep(0)
        setup.topic.deliver()
        await told
        assert decode_event(setup.topic.logs[PLACE][0].value) == deletion

    run(setup, play)


def test_what_was_told_is_what_is_answered() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        await setup.topic.append(PLACE, [encode_event(segment(1, 0, 9)), encode_event(update(1, FINISHED))])
        setup.manager.on_partition_leadership_changes([], [PARTITION])
        setup.topic.deliver()
        await asyncio.sleep(0.2)
        setup.topic.deliver()
        manager = setup.manager
        expected = segment(1, 0, 9).updated(update(1, FINISHED))
        assert await manager.remote_log_segment_metadata(PARTITION, 0, 5) == expected
        assert await manager.remote_log_segment_metadata(PARTITION, 0, 10) is None
        assert await manager.list_remote_log_segments(PARTITION) == [expected]
        assert await manager.list_remote_log_segments(PARTITION, 1) == []
        assert await manager.remote_log_size(PARTITION, 0) == 100

    run(setup, play)


def test_changes_that_are_none_are_refused() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        await setup.lead()
        with pytest.raises(ValueError, match="COPY_SEGMENT_STARTED, not in COPY_SEGMENT_FINISHED"):
            await setup.manager.add_remote_log_segment_metadata(segment(1, 0, 9, state=FINISHED))
        with pytest.raises(ValueError, match="cannot begin a copy"):
            await setup.manager.update_remote_log_segment_metadata(update(1, STARTED))
        too_large = dataclasses.replace(segment(1, 0, 9), segment_size_in_bytes=1 << 31)
        with pytest.raises(ValueError, match="2147483648"):
            await setup.manager.add_remote_log_segment_metadata(too_large)
        assert (setup.topic.appends, setup.manager.publish_errors) == ([], 0)

    run(setup, play)


@pytest.mark.parametrize("is_appended", [True, False])
def test_a_change_that_is_not_read_back_in_time_is_not_known_to_have_happened(is_appended: bool) -> None:
    setup = Setup(consume_wait_ms=5_000)

    async def play(loop: SimLoop) -> None:
        await setup.lead()
        setup.topic.is_mute = not is_appended
        began = loop.time()
        with pytest.raises(RemoteStorageError, match="topic-0 was not read back from the topic within 5000 ms"):
            await setup.manager.add_remote_log_segment_metadata(segment(1, 0, 9))
        assert loop.time() == began + 5
        assert setup.manager.publish_errors == 1
        setup.topic.is_mute = False
        again = asyncio.ensure_future(setup.manager.add_remote_log_segment_metadata(segment(1, 0, 9)))
        await asyncio.sleep(0)
        setup.topic.deliver()
        await again
        assert len(await setup.manager.list_remote_log_segments(PARTITION)) == 1

    run(setup, play)


def test_a_change_that_is_refused_or_of_a_partition_that_is_not_here_has_not_happened() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        with pytest.raises(RemoteStorageError, match="topic-0 has no replica here"):
            await setup.manager.add_remote_log_segment_metadata(segment(1, 0, 9))
        await setup.lead()
        setup.topic.fail_appends = 1
        with pytest.raises(RemoteStorageError, match="not appended to the topic: refused"):
            await setup.manager.add_remote_log_segment_metadata(segment(1, 0, 9))
        waiting = asyncio.ensure_future(setup.manager.add_remote_log_segment_metadata(segment(1, 0, 9)))
        await asyncio.sleep(1)
        setup.manager.on_stop_partitions([PARTITION])
        with pytest.raises(RemoteStorageError, match="topic-0 has no replica here"):
            await waiting
        assert setup.manager.publish_errors == 3

    run(setup, play)


def test_whoever_waits_at_the_end_is_told_so() -> None:
    async def story(loop: SimLoop) -> None:
        setup = Setup()
        async with setup.manager.running():
            await setup.lead()
            waiting = asyncio.ensure_future(setup.manager.add_remote_log_segment_metadata(segment(1, 0, 9)))
            await asyncio.sleep(1)
        with pytest.raises(RemoteStorageError, match="stops"):
            await waiting

    simulate(story)


def test_questions_wait_until_all_is_known() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        await setup.topic.append(PLACE, [encode_event(segment(1, 0, 9))])
        setup.manager.on_partition_leadership_changes([PARTITION], [])
        for _ in range(2):
            await asyncio.sleep(1)
            assert not setup.manager.is_ready(PARTITION)
            for question in (
                setup.manager.remote_log_segment_metadata(PARTITION, 0, 5),
                setup.manager.highest_offset_for_epoch(PARTITION, 0),
                setup.manager.list_remote_log_segments(PARTITION),
                setup.manager.remote_log_size(PARTITION, 0),
            ):
                with pytest.raises(ReplicaNotAvailableError):
                    await question
        setup.topic.deliver()
        assert setup.manager.is_ready(PARTITION)
        setup.manager.on_stop_partitions([PARTITION])
        assert not setup.manager.is_ready(PARTITION)

    run(setup, play)


def test_leaders_are_known_before_the_topic_is() -> None:
    setup = Setup(None)

    async def play(loop: SimLoop) -> None:
        setup.manager.on_partition_leadership_changes([PARTITION], [])
        await asyncio.sleep(30)
        assert not setup.manager.is_ready(PARTITION)
        with pytest.raises(RemoteStorageError, match="not there yet"):
            await setup.manager.add_remote_log_segment_metadata(segment(1, 0, 9))
        setup.topic.partition_count = COUNT
        await asyncio.sleep(0.2)
        assert setup.manager.is_ready(PARTITION)
        assert setup.fatal == []

    run(setup, play)


def test_nothing_is_done_while_there_is_nothing_to_find_out() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        await setup.lead()
        looked = 0

        def has_caught_up(partition: int) -> bool:
            nonlocal looked
            looked += 1
            return True

        setup.topic.has_caught_up = has_caught_up  # type: ignore[method-assign]
        await asyncio.sleep(1_000)
        assert looked == 0

    run(setup, play)


@pytest.mark.parametrize("partition_count", [COUNT - 1, COUNT + 1])
def test_a_topic_of_another_size_is_fatal(partition_count: int) -> None:
    setup = Setup(None)

    async def play(loop: SimLoop) -> None:
        setup.manager.on_partition_leadership_changes([PARTITION], [])
        await asyncio.sleep(1)
        setup.topic.partition_count = partition_count
        with capture_logs() as lines:
            await asyncio.sleep(1_000)
        assert setup.fatal == [f"__remote_log_metadata has {partition_count} partitions, and the settings say {COUNT}"]
        assert [line["event"] for line in lines] == ["remote_log_metadata_not_initialized"]
        assert not setup.manager.is_ready(PARTITION)

    run(setup, play)


def test_a_topic_that_was_made_again_is_all_there_is() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        await setup.lead()
        await setup.topic.append(PLACE, [encode_event(segment(1, 0, 9))])
        setup.topic.deliver()
        lost: list[tuple[TopicIdPartition, RemoteLogSegmentMetadata | None]] = []
        setup.manager.watch_losses(lambda partition, each: lost.append((partition, each)))
        with capture_logs() as lines:
            setup.topic.replace()
            assert not setup.manager.is_ready(PARTITION)
            assert lost == [(PARTITION, None)]
            await asyncio.sleep(1)
        assert [line["event"] for line in lines] == ["remote_log_metadata_lost"]
        assert await setup.manager.list_remote_log_segments(PARTITION) == []

    run(setup, play)


def test_one_that_was_made_again_in_another_size_is_told_of_and_stops_nobody() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        await setup.lead()
        setup.topic.partition_count = 1
        with capture_logs() as lines:
            setup.topic.replace()
        assert lines[-1] == {
            "event": "remote_log_metadata_topic_misfit",
            "log_level": "error",
            "partitions": 1,
            "needed": COUNT,
        }
        await asyncio.sleep(1_000)
        assert setup.fatal == []

    run(setup, play)


def test_no_topic_is_fatal_but_only_the_time_in_which_there_could_be_one_counts() -> None:
    setup = Setup(None, initialization_max_ms=60_000)

    async def play(loop: SimLoop) -> None:
        setup.could_exist = False
        await asyncio.sleep(1_000)
        setup.could_exist = True
        await asyncio.sleep(40)
        setup.could_exist = False
        await asyncio.sleep(1_000)
        setup.could_exist = True
        await asyncio.sleep(19)
        assert setup.fatal == []
        await asyncio.sleep(2)
        assert setup.fatal == ["__remote_log_metadata is not there after 60000 ms"]
        await asyncio.sleep(1_000)
        assert len(setup.fatal) == 1

    run(setup, play)


def test_what_cannot_be_read_is_counted() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        await setup.lead()
        await setup.topic.append(PLACE, [b"nonsense", encode_event(segment(1, 0, 9))])
        setup.topic.deliver()
        assert setup.manager.unreadable_events == 1
        assert len(await setup.manager.list_remote_log_segments(PARTITION)) == 1

    run(setup, play)


def test_the_settings_are_those_of_the_broker() -> None:
    prefix = "rlmm.config.remote.log.metadata"
    config = broker_config(
        {
            f"{prefix}.topic.num.partitions": "7",
            f"{prefix}.consume.wait.ms": "11",
            f"{prefix}.initialization.retry.max.timeout.ms": "12",
            f"{prefix}.initialization.retry.interval.ms": "13",
        }
    )
    assert TopicBasedSettings.of(config) == TopicBasedSettings(7, 11, 12, 13)
