from uuid import UUID

import pytest
from structlog.testing import capture_logs

from broker.common.errors import ReplicaNotAvailableError
from broker.common.identifiers import TopicIdPartition
from broker.schemas.remote_metadata_partitioner import metadata_partition_of
from broker.tiering.errors import RemoteStorageError
from broker.tiering.remote_log_metadata_cache import EventOutcome
from broker.tiering.remote_log_metadata_consumer import RemoteLogMetadataConsumer
from broker.tiering.remote_log_metadata_events import RemoteLogMetadataEvent, encode_event
from broker.tiering.remote_partition_metadata_store import RemotePartitionMetadataStore
from tests.support.memory_metadata_topic import MemoryMetadataTopic

from .segment_world import DELETED, DELETING, FINISHED, segment, update

COUNT = 4


def _in_place(place: int) -> list[TopicIdPartition]:
    """User partitions with their events there, in order of their numbers."""
    topic = UUID(int=0xF00)
    everyone = (TopicIdPartition(topic, "foo", number) for number in range(100))
    return [each for each in everyone if metadata_partition_of(topic, each.partition, COUNT) == place]


ONE, OTHER, THIRD = _in_place(1)[:3]
ELSEWHERE = _in_place(2)[0]


class Setup:
    """The topic is known from the beginning on, unless told otherwise."""

    def __init__(self, *, is_known: bool = True) -> None:
        self.topic = MemoryMetadataTopic(COUNT)
        self.store = RemotePartitionMetadataStore()
        self.consumer = RemoteLogMetadataConsumer(self.topic, self.store)
        self.topic.on_metadata = self.consumer.on_metadata
        self.topic.on_replaced = self.consumer.on_replaced
        self.applied: list[RemoteLogMetadataEvent] = []
        apply = self.store.apply

        def noted(event: RemoteLogMetadataEvent) -> EventOutcome:
            self.applied.append(event)
            return apply(event)

        self.store.apply = noted  # type: ignore[method-assign]
        if is_known:
            self.consumer.begin(COUNT)

    async def tell(self, *events: RemoteLogMetadataEvent | bytes, place: int = 1) -> None:
        for event in events:
            await self.topic.append(place, [event if isinstance(event, bytes) else encode_event(event)])

    def known(self, partition: TopicIdPartition) -> set[int]:
        return {each.segment_id.int for each in self.store.list_remote_log_segments(partition)}


async def test_what_was_told_before_is_read_until_then_nobody_knows() -> None:
    setup = Setup()
    await setup.tell(segment(1, 0, 9, partition=ONE), update(1, FINISHED, partition=ONE))
    await setup.tell(segment(2, 10, 19, partition=ONE))

    setup.consumer.assign([ONE])

    assert setup.consumer.unsettled.is_set()
    setup.topic.deliver(at_most=2)
    with pytest.raises(ReplicaNotAvailableError):
        setup.known(ONE)
    await setup.tell(segment(3, 20, 29, partition=ONE))  # later than all that counts
    setup.topic.deliver(at_most=1)
    assert setup.known(ONE) == {1, 2}
    assert not setup.consumer.unsettled.is_set()
    setup.topic.deliver()
    assert setup.known(ONE) == {1, 2, 3}
    assert setup.store.highest_offset_for_epoch(ONE, 0) == 9


async def test_only_what_has_something_of_ours_is_read() -> None:
    setup = Setup()
    await setup.tell(segment(1, 0, 9, partition=ELSEWHERE), place=2)
    await setup.tell(segment(2, 0, 9, partition=OTHER), segment(3, 0, 9, partition=ONE))
    setup.consumer.assign([ONE])
    setup.topic.deliver()
    assert [setup.topic.position(place) for place in range(COUNT)] == [None, 2, None, None]
    assert setup.applied == [segment(3, 0, 9, partition=ONE)]


async def test_of_a_partition_without_events_nothing_is_told_and_all_is_known() -> None:
    setup = Setup()
    setup.consumer.assign([ONE])
    setup.topic.deliver()
    assert not setup.store.is_initialized(ONE)
    setup.consumer.settle()
    assert (setup.known(ONE), setup.consumer.unsettled.is_set()) == (set(), False)


async def test_a_new_partition_has_its_place_read_again_and_others_are_told_nothing_twice() -> None:
    setup = Setup()
    await setup.tell(segment(1, 0, 9, partition=ONE), segment(2, 0, 9, partition=OTHER))
    setup.consumer.assign([ONE])
    setup.topic.deliver()
    await setup.tell(segment(3, 10, 19, partition=ONE))

    setup.consumer.assign([OTHER])

    assert setup.topic.read_again_of == [1]
    assert setup.known(ONE) == {1}  # it is answered for all the time
    with pytest.raises(ReplicaNotAvailableError):
        setup.known(OTHER)
    setup.topic.deliver()
    assert (setup.known(ONE), setup.known(OTHER)) == ({1, 3}, {2})
    assert setup.applied == [
        segment(1, 0, 9, partition=ONE),
        segment(2, 0, 9, partition=OTHER),
        segment(3, 10, 19, partition=ONE),
    ]


async def test_a_new_partition_in_another_place_disturbs_nobody_nor_does_one_that_is_known() -> None:
    setup = Setup()
    setup.consumer.assign([ONE, OTHER])
    setup.consumer.assign([ONE])
    setup.consumer.assign([ELSEWHERE])
    assert setup.topic.read_again_of == []
    assert [setup.topic.position(place) for place in range(COUNT)] == [None, 0, 0, None]


async def test_what_is_assigned_before_the_topic_is_known_is_read_when_it_is() -> None:
    setup = Setup(is_known=False)
    setup.consumer.assign([ONE, OTHER, ELSEWHERE])
    setup.consumer.unassign([OTHER])
    assert not setup.consumer.unsettled.is_set()
    with pytest.raises(RemoteStorageError, match="not there yet"):
        setup.consumer.metadata_partition(ONE)
    with pytest.raises(RemoteStorageError, match="no replica here"):
        setup.consumer.metadata_partition(OTHER)
    await setup.tell(segment(1, 0, 9, partition=ONE))

    setup.consumer.begin(COUNT)

    setup.topic.deliver()
    setup.consumer.settle()
    assert (setup.known(ONE), setup.known(ELSEWHERE)) == ({1}, set())
    assert (setup.consumer.metadata_partition(ONE), setup.consumer.metadata_partition(ELSEWHERE)) == (1, 2)
    assert setup.topic.read_again_of == []


async def test_who_goes_is_forgotten_and_begins_anew_when_it_comes_back() -> None:
    setup = Setup()
    setup.consumer.assign([ONE, OTHER])
    await setup.tell(segment(1, 0, 9, partition=ONE), segment(2, 0, 9, partition=OTHER))
    setup.topic.deliver()

    setup.consumer.unassign([ONE])

    assert (setup.topic.position(1), set(setup.store.partitions)) == (2, {OTHER})
    setup.consumer.assign([ONE])
    setup.topic.deliver()
    assert (setup.known(ONE), setup.known(OTHER)) == ({1}, {2})
    setup.consumer.unassign([ONE, OTHER, ELSEWHERE])
    assert setup.topic.position(1) is None
    assert setup.store.partitions == frozenset()


async def test_who_goes_before_all_is_known_leaves_nothing_unsettled() -> None:
    setup = Setup()
    await setup.tell(segment(1, 0, 9, partition=ONE))
    setup.consumer.assign([ONE])
    setup.consumer.unassign([ONE])
    assert not setup.consumer.unsettled.is_set()
    setup.consumer.settle()


async def test_transitions_that_cannot_be_are_dropped_and_reading_goes_on() -> None:
    setup = Setup()
    setup.consumer.assign([ONE])
    await setup.tell(segment(1, 0, 9, partition=ONE), update(1, FINISHED, partition=ONE))
    await setup.tell(segment(1, 0, 9, partition=ONE))  # 1 -> 0
    await setup.tell(update(1, FINISHED, partition=ONE))  # to itself
    await setup.tell(update(1, DELETED, partition=ONE))  # 1 -> 3
    setup.topic.deliver()
    (left,) = setup.store.list_remote_log_segments(ONE)
    assert left.state is FINISHED
    await setup.tell(update(1, DELETING, partition=ONE), update(1, DELETED, partition=ONE))
    await setup.tell(update(1, FINISHED, partition=ONE))  # 3 -> 1
    await setup.tell(segment(2, 10, 19, partition=ONE), update(2, DELETED, partition=ONE))  # 0 -> 3
    setup.topic.deliver()
    assert setup.known(ONE) == {2}


async def test_what_is_no_event_is_passed_over_told_of_once_and_counted_once() -> None:
    setup = Setup()
    setup.consumer.assign([ONE])
    newer = encode_event(segment(1, 0, 9, partition=ONE))
    with capture_logs() as lines:
        await setup.tell(b"nonsense", b"\x01\x63\x00" + newer[3:], segment(1, 0, 9, partition=ONE))
        setup.topic.deliver()
        setup.consumer.assign([OTHER])  # it is read again
        setup.topic.deliver()
    assert setup.known(ONE) == {1}
    assert setup.consumer.unreadable_events == 2
    told = [(line["log_level"], line["offset"]) for line in lines if line["event"].endswith("unreadable")]
    assert told == [("error", 0), ("debug", 1)]


async def test_an_event_in_a_wrong_place_is_nobodys() -> None:
    setup = Setup()
    setup.consumer.assign([ONE, ELSEWHERE])
    await setup.tell(segment(1, 0, 9, partition=ONE), place=2)
    setup.topic.deliver()
    setup.consumer.settle()
    assert setup.known(ONE) == set()


async def test_what_the_topic_has_lost_is_not_known_any_more() -> None:
    setup = Setup()
    setup.consumer.assign([ONE, OTHER, ELSEWHERE])
    await setup.tell(segment(1, 0, 9, partition=ONE), segment(2, 0, 9, partition=OTHER))
    await setup.tell(segment(3, 10, 19, partition=ONE))
    setup.topic.deliver()
    setup.consumer.settle()
    setup.topic.lose(1, keep=1)
    await setup.tell(segment(4, 10, 19, partition=ONE))

    with capture_logs() as lines:
        setup.topic.deliver(at_most=1)

    assert [line["event"] for line in lines] == ["remote_log_metadata_lost"]
    assert setup.store.is_initialized(ELSEWHERE)
    setup.topic.deliver()
    assert (setup.known(ONE), setup.known(OTHER)) == ({1, 4}, set())


async def test_while_what_is_left_is_read_again_nobody_knows() -> None:
    setup = Setup()
    setup.consumer.assign([ONE])
    await setup.tell(*(segment(number, number, number, partition=ONE) for number in range(5)))
    setup.topic.deliver()
    setup.topic.lose(1, keep=3)
    setup.topic.deliver(at_most=2)
    assert (setup.store.is_initialized(ONE), setup.consumer.unsettled.is_set()) == (False, True)
    setup.topic.deliver()
    assert setup.known(ONE) == {0, 1, 2}


async def test_of_a_topic_that_was_made_again_nothing_is_known_until_it_is_read() -> None:
    setup = Setup()
    setup.consumer.assign([ONE, ELSEWHERE])
    await setup.tell(*(segment(number, number, number, partition=ONE) for number in range(2)))
    await setup.tell(segment(7, 0, 9, partition=ELSEWHERE), place=2)
    setup.topic.deliver()
    waiting = setup.consumer.applied(ONE, 2)

    with capture_logs() as lines:
        setup.topic.replace()

    assert [(line["event"], line["log_level"], line["metadata_partition"]) for line in lines] == [
        ("remote_log_metadata_lost", "error", 1),
        ("remote_log_metadata_lost", "error", 2),
    ]
    assert setup.consumer.unsettled.is_set()
    for partition in (ONE, ELSEWHERE):
        with pytest.raises(ReplicaNotAvailableError):
            setup.known(partition)
    with pytest.raises(RemoteStorageError, match="made again"):  # offsets begin at 0: it could be told by another event
        waiting.result()
    await setup.tell(segment(8, 0, 9, partition=ONE))
    with capture_logs() as lines:
        setup.topic.deliver()
        setup.consumer.settle()
    assert (setup.known(ONE), setup.known(ELSEWHERE), lines) == ({8}, set(), [])
    assert setup.consumer.applied(ONE, 0).done()


async def test_a_topic_that_was_made_again_before_it_was_known_here_tells_nobody() -> None:
    setup = Setup(is_known=False)
    setup.consumer.assign([ONE])
    with capture_logs() as lines:
        setup.topic.replace()
    assert lines == []


async def test_who_waits_is_told_when_the_event_was_applied() -> None:
    setup = Setup()
    setup.consumer.assign([ONE, OTHER])
    await setup.tell(segment(1, 0, 9, partition=ONE), segment(2, 10, 19, partition=ONE))
    first, second = setup.consumer.applied(ONE, 0), setup.consumer.applied(ONE, 1)
    of_other = setup.consumer.applied(OTHER, 0)
    setup.topic.deliver(at_most=1)
    assert (first.done(), second.done(), of_other.done()) == (True, False, False)
    given_up = setup.consumer.applied(ONE, 1)
    given_up.cancel()
    setup.topic.deliver()
    assert (second.done(), of_other.done()) == (True, False)
    assert setup.consumer.applied(ONE, 1).done()


async def test_who_waits_for_a_partition_that_goes_is_told_so() -> None:
    setup = Setup()
    setup.consumer.assign([ONE, OTHER])
    one, other = setup.consumer.applied(ONE, 5), setup.consumer.applied(OTHER, 5)
    setup.consumer.unassign([ONE])
    setup.consumer.close()
    for answer, words in (
        (one, "foo-.* has no replica here"),
        (other, "stops"),
        (setup.consumer.applied(ONE, 5), "no"),
    ):
        with pytest.raises(RemoteStorageError, match=words):
            answer.result()


async def test_whoever_comes_late_or_has_nothing_to_say_is_not_listened_to() -> None:
    setup = Setup()
    setup.consumer.on_metadata(1, setup.topic.logs.get(1, []))
    await setup.tell(segment(1, 0, 9, partition=THIRD))
    setup.consumer.on_metadata(1, setup.topic.logs[1])
    assert setup.applied == []
