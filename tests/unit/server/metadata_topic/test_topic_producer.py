import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from broker.common.errors import ErrorCode
from broker.common.metadata_topic import MetadataTopicError
from broker.protocol import produce_codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.frames import Frame
from broker.protocol.requests import encode_response
from broker.protocol.response_schema import ResponseSchema
from broker.records.record_batch import batches
from broker.replication.replica_fetcher_manager import LeaderAddress
from broker.server.metadata_topic import topic_producer
from broker.server.metadata_topic.topic_producer import TopicProducer
from broker.server.metadata_topic.topic_queue import LINGER_SECONDS
from tests.support.builders import SettableClock
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.metadata_topic_support import TOPIC_ID, World, encoded

LATENCY_S = 0.01
FIRST_OFFSET = 700  # of every batch


class Asked(NamedTuple):
    """One request, as its leader reads it."""

    at: float
    leader: int
    acks: int
    timeout_ms: int
    values: dict[int, list[str]]


class Leaders:
    """All leaders: they say yes after a while, unless told otherwise."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.say: Callable[[int, int], ErrorCode | Exception | None] = lambda leader, partition: ErrorCode.none
        self.connections = 0
        self.closed: list[int] = []

    def connect(self, leader: LeaderAddress) -> "_Connection":
        self.connections += 1
        return _Connection(self, leader.broker_id)


class _Connection:
    def __init__(self, leaders: Leaders, leader: int) -> None:
        self._leaders = leaders
        self._leader = leader

    async def exchange(self, write: Callable[[int, str], bytes], read: Callable[[bytes], Any], timeout_ms: int) -> Any:
        frame = Frame(memoryview(bytearray(write(7, "test")[4:])), is_owned=True)
        assert (frame.api_key, frame.version, timeout_ms) == (ApiKey.PRODUCE, 13, 1_500)
        frame.skip_header_tags()
        request = produce_codec.decode(frame.buffer, frame.body_position, 13)
        (topic,) = request.topics
        assert (topic.topic_id, request.transactional_id) == (TOPIC_ID, None)
        values = {}
        for partition, start, end in topic.partitions:
            (batch,) = batches(frame.buffer[start:end])
            values[partition] = [(record.value or b"?").decode() for record in batch.records()]
        now = asyncio.get_running_loop().time()
        self._leaders.asked.append(Asked(now, self._leader, request.acks, request.timeout_ms, values))
        outcomes = {partition: self._leaders.say(self._leader, partition) for partition in values}
        await asyncio.sleep(LATENCY_S)
        for outcome in outcomes.values():
            if isinstance(outcome, Exception):
                raise outcome
        return read(_response({partition: code for partition, code in outcomes.items() if code is not None}))

    async def close(self) -> None:
        self._leaders.closed.append(self._leader)


def _response(codes: dict[int, Any]) -> bytes:
    schema = ResponseSchema.of(ApiKey.PRODUCE, 13)
    partitions = tuple(
        schema.PartitionProduceResponse(
            index=index,
            error_code=code,
            base_offset=FIRST_OFFSET,
            log_append_time=None,
            log_start_offset=0,
            record_errors=(),
            error_message=None,
        )
        for index, code in codes.items()
    )
    topic = schema.TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=partitions)
    entity = schema.ProduceResponse(responses=(topic,), throttle_time=NO_THROTTLE)
    return b"".join(encode_response(ApiKey.PRODUCE, 13, 7, entity))[4:]


class Setup(World):
    def __init__(self, *leaders: int, acks: int = -1) -> None:
        super().__init__(*leaders)
        self.leaders = Leaders()
        self.producer = TopicProducer(self.routes, self.leaders.connect, acks, SettableClock())
        self.cache.add_listener(lambda image: self.producer.reroute())

    def append(self, partition: int, *values: str, may_linger: bool = False) -> "asyncio.Future[int]":
        return self.producer.append(partition, encoded(values), may_linger=may_linger)

    @property
    def sent(self) -> list[tuple[int, dict[int, list[str]]]]:
        return [(asked.leader, asked.values) for asked in self.leaders.asked]


def run(setup: Setup, play: Callable[[SimLoop], Coroutine[Any, Any, None]]) -> None:
    async def story(loop: SimLoop) -> None:
        async with setup.producer.running():
            await play(loop)

    simulate(story)


@pytest.mark.parametrize("acks", [-1, 1])
def test_what_is_acknowledged_is_told(acks: int) -> None:
    setup = Setup(1, 2, acks=acks)

    async def play(loop: SimLoop) -> None:
        assert await setup.append(1, "a", "b") == FIRST_OFFSET + 1
        assert loop.time() == pytest.approx(LATENCY_S)
        assert setup.leaders.asked == [Asked(0.0, 2, acks, 1_000, {1: ["a", "b"]})]
        assert (setup.producer.queued_bytes, setup.producer.error_count) == (0, 0)

    run(setup, play)


def test_one_request_is_on_its_way_to_a_leader_and_the_next_has_all_that_came_meanwhile() -> None:
    setup = Setup(1, 1, 2)

    async def play(loop: SimLoop) -> None:
        first = setup.append(0, "a")
        await asyncio.sleep(0.001)
        others = [setup.append(0, "b"), setup.append(1, "c", "d"), setup.append(2, "e"), setup.append(0, "f")]
        await asyncio.wait([first, *others])
        assert setup.sent == [(1, {0: ["a"]}), (2, {2: ["e"]}), (1, {0: ["b", "f"], 1: ["c", "d"]})]
        assert [each.result() - FIRST_OFFSET for each in (first, *others)] == [0, 0, 1, 0, 1]
        assert [asked.at for asked in setup.leaders.asked] == pytest.approx([0.0, 0.001, 0.01])
        assert setup.leaders.connections == 2

    run(setup, play)


def test_what_may_linger_goes_along_with_others_or_after_a_moment() -> None:
    setup = Setup(1, 1, 2)

    async def play(loop: SimLoop) -> None:
        along = [setup.append(1, "b", may_linger=True), setup.append(2, "c", may_linger=True)]
        await asyncio.sleep(0.02)
        assert setup.sent == []
        await setup.append(0, "a")
        assert setup.sent == [(1, {0: ["a"], 1: ["b"]})]
        await asyncio.sleep(0.01)
        later = setup.append(2, "d", may_linger=True)
        await asyncio.wait([*along, later])
        assert setup.sent[1:] == [(2, {2: ["c", "d"]})]
        assert setup.leaders.asked[1].at == pytest.approx(LINGER_SECONDS)

    run(setup, play)


def test_a_new_leader_is_sent_what_the_old_one_refused_at_once_and_in_order() -> None:
    setup = Setup(1)
    setup.leaders.say = lambda leader, partition: ErrorCode.not_leader_or_follower if leader == 1 else ErrorCode.none

    async def play(loop: SimLoop) -> None:
        waiting = [setup.append(0, "a"), setup.append(0, "b")]
        await asyncio.sleep(0.2)
        tries = len(setup.sent)
        assert 2 <= tries <= 4
        waiting.append(setup.append(0, "c"))
        setup.lead(2, epoch=4)
        await asyncio.wait(waiting)
        assert loop.time() == pytest.approx(0.2 + LATENCY_S)
        assert setup.sent[tries:] == [(2, {0: ["a", "b", "c"]})]
        await asyncio.sleep(0)
        assert setup.leaders.closed == [1]  # it leads nothing any more

    run(setup, play)


def test_a_request_without_an_answer_is_sent_again() -> None:
    setup = Setup(1, 1)
    failures: list[Any] = [TimeoutError("late"), ConnectionError("gone"), None]
    setup.leaders.say = lambda leader, partition: failures.pop(0) if failures and partition == 0 else ErrorCode.none

    async def play(loop: SimLoop) -> None:
        await asyncio.wait([setup.append(0, "a"), setup.append(1, "b")])
        await asyncio.sleep(1)
        both = {0: ["a"], 1: ["b"]}
        assert setup.sent == [(1, both), (1, both), (1, both), (1, {0: ["a"]})]
        assert setup.producer.error_count == 2 + 2 - 1

    run(setup, play)


def test_replicas_that_are_missing_are_waited_for_without_an_end() -> None:
    setup = Setup(1)
    setup.leaders.say = lambda leader, partition: ErrorCode.not_enough_replicas

    async def play(loop: SimLoop) -> None:
        waiting = setup.append(0, "a")
        await asyncio.sleep(60)
        assert not waiting.done()
        assert 55 <= len(setup.sent) <= 66  # about once a second in the end
        setup.leaders.say = lambda leader, partition: ErrorCode.none
        await waiting

    run(setup, play)


def test_what_can_never_be_appended_is_told_at_once_and_what_follows_goes_on() -> None:
    setup = Setup(1)
    answers = [ErrorCode.message_too_large]
    setup.leaders.say = lambda leader, partition: answers.pop() if answers else ErrorCode.none

    async def play(loop: SimLoop) -> None:
        one = setup.append(0, "a")
        await asyncio.sleep(0)
        other = setup.append(0, "b")
        with pytest.raises(MetadataTopicError, match="message_too_large"):
            await one
        await other
        assert setup.sent == [(1, {0: ["a"]}), (1, {0: ["b"]})]

    run(setup, play)


def test_refusals_are_told_of_once_until_something_is_appended() -> None:
    setup = Setup(1)
    answers = [ErrorCode.none, *[ErrorCode.topic_authorization_failed] * 3] * 2
    setup.leaders.say = lambda leader, partition: answers.pop()

    async def play(loop: SimLoop) -> None:
        with capture_logs() as lines:
            while answers:
                await asyncio.gather(setup.append(0, "a"), return_exceptions=True)
        refusals = [line["log_level"] for line in lines if line["event"] == "metadata_topic_append_refused"]
        assert refusals == ["error", "debug", "debug"] * 2

    run(setup, play)


def test_what_has_no_leader_waits_for_one() -> None:
    setup = Setup(-1, 1)

    async def play(loop: SimLoop) -> None:
        waiting = setup.append(0, "a")
        await setup.append(1, "b")
        await asyncio.sleep(5)
        assert not waiting.done()
        setup.lead(3, 1)
        await waiting
        assert setup.sent == [(1, {1: ["b"]}), (3, {0: ["a"]})]

    run(setup, play)


def test_nothing_is_taken_without_the_topic_or_for_a_partition_it_does_not_have() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        with pytest.raises(MetadataTopicError, match="not there yet"):
            await setup.append(0, "a")
        setup.lead(1, 1)
        with pytest.raises(MetadataTopicError, match="no partition 2, only 2"):
            await setup.append(2, "a")
        assert setup.sent == []

    run(setup, play)


def test_a_partition_that_takes_nothing_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_producer, "QUEUE_BYTES_MAX", 800)
    monkeypatch.setattr(topic_producer, "PARTITION_QUEUE_BYTES_MAX", 400)
    setup = Setup(-1, -1, -1, 1)

    async def play(loop: SimLoop) -> None:
        value = "x" * 276  # and 24 of overhead
        kept = [setup.append(0, value), setup.append(1, value)]
        with pytest.raises(MetadataTopicError, match="300 bytes wait for partition 0"):
            await setup.append(0, value)
        kept.append(setup.append(2, "y" * 100))
        with pytest.raises(MetadataTopicError, match=r"^724 bytes wait$"):
            await setup.append(2, "z" * 100)
        await setup.append(3, "s" * 500)  # the first of a partition is always taken
        assert not any(each.done() for each in kept)
        for each in kept:
            each.cancel()

    run(setup, play)


def test_a_request_has_its_limit_and_who_was_served_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_producer, "REQUEST_BYTES_MAX", 60)
    setup = Setup(1, 1, 1)

    async def play(loop: SimLoop) -> None:
        first = [setup.append(number, f"{number}" * 10) for number in range(3)]
        await asyncio.sleep(0.001)
        second = setup.append(0, "again")
        await asyncio.wait([*first, second])
        assert [list(values) for _, values in setup.sent] == [[0, 1], [2, 0]]

    run(setup, play)


def test_the_end_leaves_nobody_waiting() -> None:
    setup = Setup(1)

    async def story(loop: SimLoop) -> None:
        async with setup.producer.running():
            sent = setup.append(0, "a")
            await asyncio.sleep(0.001)
            queued = setup.append(0, "b")
        for each in (sent, queued):
            with pytest.raises(MetadataTopicError, match="stops"):
                await each
        assert setup.leaders.closed == [1]

    simulate(story)
