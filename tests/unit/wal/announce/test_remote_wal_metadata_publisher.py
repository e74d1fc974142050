import asyncio
import dataclasses
from collections.abc import Sequence

import pytest

from broker.common.metadata_topic import MetadataTopicError
from broker.config.config_holder import ConfigHolder
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of, metadata_partition_of
from broker.schemas.remote_wal_metadata import (
    RemoteWalMetadataRecord,
    RemoteWalPartitionInvalidateRecord,
    TopicIdPartitionEntry,
    decode,
    encode,
    slice_records,
)
from broker.wal.announce import remote_wal_metadata_publisher
from broker.wal.announce.remote_wal_metadata_publisher import RemoteWalMetadataPublisher
from broker.wal.remote_wal_stats import RemoteWalStats, WalHop
from tests.support.builders import SettableClock, broker_config
from tests.support.memory_metadata_topic import MemoryMetadataTopic
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.wal.wal_world import BAR, FOO, log_bytes, make_object, make_slice

BROKER = 1
COUNT = 50
COMBINED = make_object(
    [
        make_slice(log_bytes((0, 3)), partition=FOO),
        make_slice(log_bytes((0, 2), start=3), start=3, partition=FOO),
        make_slice(log_bytes((0, 2), start=5), start=5, partition=BAR),
    ]
).metadata
COMBINED_PLACE = combined_event_partition_of(BROKER, COUNT)
FOO_PLACE = metadata_partition_of(FOO.topic_id, FOO.partition, COUNT)
BAR_PLACE = metadata_partition_of(BAR.topic_id, BAR.partition, COUNT)


class SlowTopic(MemoryMetadataTopic):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(COUNT)
        self.lingering: list[bool] = []
        self.unanswered: list[asyncio.Future[None]] = []

    def append(self, partition: int, values: Sequence[bytes], *, may_linger: bool = False) -> "asyncio.Future[None]":
        self.lingering.append(may_linger)
        self.appends.append((partition, tuple(values)))
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.unanswered.append(answer)
        return answer


class Publishing:
    def __init__(self, topic: MemoryMetadataTopic | None = None, **properties: str) -> None:
        self.topic = topic or MemoryMetadataTopic(COUNT)
        self.stats = RemoteWalStats()
        config = broker_config({name.replace("_", "."): value for name, value in properties.items()})
        clock = SettableClock(2_500)
        self.publisher = RemoteWalMetadataPublisher(self.topic, ConfigHolder(config), BROKER, clock, self.stats)

    async def publish(self) -> None:
        await self.publisher.publish(COMBINED)
        await self.publisher.publish_slices(COMBINED)

    @property
    def sent(self) -> list[tuple[int, RemoteWalMetadataRecord]]:
        return [(partition, decode(value)) for partition, values in self.topic.appends for value in values]


async def test_the_object_is_told_first_and_each_slice_where_its_partition_is() -> None:
    assert (COMBINED_PLACE, FOO_PLACE, BAR_PLACE) == (40, 5, 13)
    publishing = Publishing()

    await publishing.publish()

    first, second, third = slice_records(COMBINED)
    assert [each.start_offset for each in (first, second, third)] == [0, 3, 5]
    assert publishing.sent == [(40, COMBINED), (5, first), (5, second), (13, third)]
    assert [partition for partition, _ in publishing.topic.appends] == [40, 5, 13]
    assert publishing.stats.hops[WalHop.PUBLISH].count == 1


async def test_slices_need_not_be_told_one_by_one() -> None:
    publishing = Publishing(remote_wal_metadata_slice_events_enable="false")

    await publishing.publish()

    assert publishing.sent == [(40, COMBINED)]


async def test_a_new_leader_voids_what_older_ones_announced() -> None:
    publishing = Publishing()

    publishing.publisher.publish_invalidate(FOO, 4, 150)

    assert publishing.sent == [
        (
            FOO_PLACE,
            RemoteWalPartitionInvalidateRecord(
                topic_id_partition=TopicIdPartitionEntry.of(FOO),
                broker_id=BROKER,
                leader_epoch=4,
                from_offset=150,
                event_timestamp_ms=2_500,
            ),
        )
    ]


def test_what_voids_announcements_is_waited_for_by_nobody_and_fails_nothing() -> None:
    topic = SlowTopic()
    publisher = Publishing(topic).publisher

    async def story(loop: SimLoop) -> None:
        publisher.publish_invalidate(FOO, 4, 150)
        await asyncio.sleep(5)
        assert (publisher.is_failing, publisher.oldest_wait_seconds) == (False, 0.0)
        topic.unanswered[0].set_exception(MetadataTopicError("no"))
        await asyncio.sleep(5)
        assert (publisher.is_failing, publisher.last_error_age, len(topic.appends)) == (False, None, 1)
        topic.partition_count = None
        publisher.publish_invalidate(BAR, 4, 150)
        assert len(topic.appends) == 1

    simulate(story)


def test_what_is_refused_is_sent_again_as_it_was_until_it_is_acknowledged() -> None:
    publishing = Publishing()
    publishing.topic.fail_appends = 2
    publishing.topic.lose_answers = 1

    async def story(loop: SimLoop) -> None:
        await publishing.publish()
        assert loop.time() == pytest.approx(0.1 + 0.2 + 0.4)
        assert (publishing.publisher.error_count, publishing.publisher.is_failing) == (3, False)
        assert publishing.publisher.last_error_age == pytest.approx(0.4)

    simulate(story)
    first, second, third, fourth = publishing.topic.appends[:4]
    assert first == second == third == fourth
    assert [partition for partition, _ in publishing.topic.appends[4:]] == [FOO_PLACE, BAR_PLACE]


def test_slices_are_told_behind_their_object_and_nobody_waits_for_them() -> None:
    topic = SlowTopic()
    publishing = Publishing(topic)

    async def story(loop: SimLoop) -> None:
        task = asyncio.create_task(publishing.publish())
        await asyncio.sleep(0.5)
        assert [partition for partition, _ in topic.appends] == [COMBINED_PLACE]
        topic.unanswered[0].set_result(None)
        await task
        assert (topic.appends[1:], topic.lingering) == (
            [
                (FOO_PLACE, tuple(encode(record) for record in slice_records(COMBINED)[:2])),
                (BAR_PLACE, (encode(slice_records(COMBINED)[2]),)),
            ],
            [False, True, True],
        )
        assert not publishing.publisher.is_failing
        topic.unanswered[1].set_exception(MetadataTopicError("no"))
        topic.unanswered[2].set_result(None)
        await asyncio.sleep(0)
        assert (publishing.publisher.slice_error_count, publishing.publisher.is_failing) == (1, False)

    simulate(story)


def test_an_event_waits_for_the_topic() -> None:
    publishing = Publishing()
    publishing.topic.partition_count = None

    async def story(loop: SimLoop) -> None:
        loop.call_later(1.55, lambda: setattr(publishing.topic, "partition_count", COUNT))
        waiting = asyncio.create_task(publishing.publish())
        await asyncio.sleep(1.2)
        assert publishing.publisher.is_failing
        await waiting
        assert loop.time() == pytest.approx(1.6)
        assert not publishing.publisher.is_failing

    simulate(story)


def test_without_a_topic_it_is_not_ready_and_after_a_second_fails() -> None:
    publishing = Publishing()
    publisher = publishing.publisher

    async def story(loop: SimLoop) -> None:
        assert (publisher.is_ready, publisher.is_failing) == (True, False)
        publishing.topic.partition_count = None
        assert (publisher.is_ready, publisher.is_failing) == (False, False)
        await asyncio.sleep(1.0)
        assert not publisher.is_failing
        await asyncio.sleep(0.01)
        assert publisher.is_failing
        publishing.topic.partition_count = COUNT
        assert (publisher.is_ready, publisher.is_failing) == (True, False)

    simulate(story)


def test_it_fails_while_nothing_is_heard_for_a_second_and_at_once_when_refused() -> None:
    topic = SlowTopic()
    publishing = Publishing(topic, remote_wal_metadata_slice_events_enable="false")
    publisher = publishing.publisher

    async def story(loop: SimLoop) -> None:
        one = asyncio.create_task(publisher.publish(COMBINED))
        await asyncio.sleep(1)
        assert (publisher.is_failing, publisher.oldest_wait_seconds) == (False, 1.0)
        other = asyncio.create_task(publisher.publish(COMBINED))
        await asyncio.sleep(0.01)
        assert publisher.is_failing
        topic.unanswered[0].set_result(None)
        await one
        assert not publisher.is_failing
        assert publisher.oldest_wait_seconds == pytest.approx(0.01)
        topic.unanswered[1].set_exception(MetadataTopicError("no"))
        await asyncio.sleep(0.01)
        assert publisher.is_failing
        assert publisher.last_error_age == pytest.approx(0.01)
        await asyncio.sleep(0.1)
        topic.unanswered[2].set_result(None)
        await other
        assert not publisher.is_failing

    simulate(story)


def test_who_gives_up_leaves_nothing_waiting() -> None:
    topic = SlowTopic()
    publishing = Publishing(topic)

    async def story(loop: SimLoop) -> None:
        task = asyncio.create_task(publishing.publish())
        await asyncio.sleep(0.5)
        topic.unanswered[0].set_exception(MetadataTopicError("no"))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [each.cancelled() for each in topic.unanswered] == [False, True]
        assert (publishing.publisher.oldest_wait_seconds, publishing.stats.hops[WalHop.PUBLISH].count) == (0.0, 0)

    simulate(story)


async def test_one_append_is_never_too_large_for_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_wal_metadata_publisher, "APPEND_BYTES_MAX", 200)
    publishing = Publishing()

    await publishing.publish()

    assert sorted(partition for partition, _ in publishing.topic.appends) == [5, 5, 13, 40]
    assert [record for place, record in publishing.sent if place == 5] == list(slice_records(COMBINED)[:2])


async def test_what_is_encoded_already_is_sent_as_it_is() -> None:
    publishing = Publishing()

    await publishing.publisher.publish(COMBINED, b"encoded")

    assert publishing.topic.appends == [(COMBINED_PLACE, (b"encoded",))]


async def test_others_run_between_slices_and_objects_are_told_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_wal_metadata_publisher, "BREATHE_SECONDS", -1)
    publishing = Publishing()
    later = dataclasses.replace(COMBINED, slices=COMBINED.slices[1:])
    first = asyncio.create_task(publishing.publisher.publish_slices(COMBINED))
    await asyncio.sleep(0)
    assert not first.done()
    await publishing.publisher.publish_slices(later)  # left to the one that is at it
    assert publishing.topic.appends == []
    await first
    assert [record for _, record in publishing.sent] == [*slice_records(COMBINED), *slice_records(later)]


async def test_slices_nobody_has_time_to_tell_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_wal_metadata_publisher, "BREATHE_SECONDS", -1)
    monkeypatch.setattr(remote_wal_metadata_publisher, "UNTOLD_MAX", 2)
    publishing = Publishing()
    first = asyncio.create_task(publishing.publisher.publish_slices(COMBINED))
    await asyncio.sleep(0)
    for _ in range(3):
        await publishing.publisher.publish_slices(COMBINED)
    await first
    assert (len(publishing.sent), publishing.publisher.slice_error_count) == (9, 1)
    await publishing.publisher.publish_slices(COMBINED)
    assert len(publishing.sent) == 12
