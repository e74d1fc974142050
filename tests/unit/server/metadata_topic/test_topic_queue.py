import asyncio
import math

import pytest

from broker.common.metadata_topic import MetadataTopicError
from broker.records.compression import CompressionType
from broker.records.record_batch import RecordBatch
from broker.server.metadata_topic import topic_queue
from broker.server.metadata_topic.topic_queue import TopicAppend, TopicQueue
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.metadata_topic_support import address, encoded

LEADER = address(1)


def add(queue: TopicQueue, *values: str, now: float = 5.0, may_linger: bool = False) -> "asyncio.Future[int]":
    acknowledged: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    queue.add(TopicAppend(encoded(values), acknowledged), now, may_linger=may_linger)
    return acknowledged


def values_of(batch: bytearray | None) -> list[bytes | None]:
    assert batch is not None
    parsed = RecordBatch.parse(batch)
    parsed.ensure_valid()
    return [record.value for record in parsed.records()]


async def test_what_waits_becomes_one_batch() -> None:
    queue = TopicQueue(4)
    one, other = add(queue, "a", "b"), add(queue, "c")
    assert queue.is_ready

    batch = queue.take(LEADER, 1_234)

    assert values_of(batch) == [b"a", b"b", b"c"]
    assert batch is not None
    parsed = RecordBatch.parse(batch)
    assert (parsed.compression, parsed.max_timestamp, parsed.producer_id) == (CompressionType.LZ4, 1_234, -1)
    assert {record.key for record in parsed.records()} == {None}
    assert (queue.is_ready, queue.sent_to, queue.size_bytes) == (False, LEADER, 3 + 3 * 24)
    queue.succeeded(100)
    assert (one.result(), other.result(), queue.size_bytes, len(queue)) == (101, 102, 0, 0)


async def test_behind_what_is_on_its_way_the_rest_waits() -> None:
    queue = TopicQueue(4)
    add(queue, "a")
    queue.take(LEADER, 0)
    late = add(queue, "b")
    assert not queue.is_ready
    queue.succeeded(100)
    assert (queue.is_ready, late.done()) == (True, False)
    assert values_of(queue.take(LEADER, 0)) == [b"b"]


def test_what_failed_comes_first_again_later_and_later() -> None:
    async def story(loop: SimLoop) -> None:
        queue = TopicQueue(4)
        one = add(queue, "a")
        due = []
        for _ in range(7):
            queue.take(LEADER, 0)
            add(queue, "b")
            queue.failed(10.0)
            due.append(queue.due_at)
        assert due == pytest.approx([10.05, 10.1, 10.2, 10.4, 10.8, 11.0, 11.0])
        assert values_of(queue.take(LEADER, 0)) == [b"a"] + [b"b"] * 7
        assert not one.done()
        queue.succeeded(100)
        assert (one.done(), queue.retry_at) == (True, 0.0)
        add(queue, "c")
        queue.take(LEADER, 0)
        queue.failed(20.0)
        assert queue.due_at == pytest.approx(20.05)

    simulate(story)


async def test_what_may_linger_is_due_later_unless_somebody_else_is_not_or_there_is_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = TopicQueue(4)
    assert queue.due_at == math.inf
    add(queue, "a", may_linger=True)
    add(queue, "b", now=5.03, may_linger=True)
    assert queue.due_at == pytest.approx(5.0 + topic_queue.LINGER_SECONDS)
    add(queue, "c", now=5.04)
    assert queue.due_at == 5.04
    assert values_of(queue.take(LEADER, 0)) == [b"a", b"b", b"c"]
    add(queue, "d", now=6.0, may_linger=True)
    queue.succeeded(100)
    assert queue.due_at == pytest.approx(6.0 + topic_queue.LINGER_SECONDS)
    monkeypatch.setattr(topic_queue, "BATCH_BYTES_MAX", 50)
    add(queue, "e", now=6.01, may_linger=True)
    assert queue.due_at == 6.01


async def test_a_batch_has_its_limit_and_what_is_larger_travels_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_queue, "BATCH_BYTES_MAX", 100)
    queue = TopicQueue(4)
    for text in ("a" * 30, "b" * 30, "c" * 500, "d"):
        add(queue, text)
    taken = []
    while queue.is_ready:
        taken.append([value and value[:1] for value in values_of(queue.take(LEADER, 0))])
        queue.succeeded(100)
    assert taken == [[b"a"], [b"b"], [b"c"], [b"d"]]


async def test_who_has_given_up_is_left_out() -> None:
    queue = TopicQueue(4)
    one, _ = add(queue, "a"), add(queue, "b")
    one.cancel()
    assert values_of(queue.take(LEADER, 0)) == [b"b"]
    queue.succeeded(100)
    alone = add(queue, "c")
    alone.cancel()
    assert queue.take(LEADER, 0) is None
    assert (queue.is_ready, queue.size_bytes) == (False, 0)


async def test_who_gave_up_on_the_way_is_not_told() -> None:
    queue = TopicQueue(4)
    one, other = add(queue, "a"), add(queue, "b")
    queue.take(LEADER, 0)
    one.cancel()
    queue.succeeded(100)
    assert (one.cancelled(), other.result()) == (True, 101)


async def test_a_refusal_is_for_what_was_sent_and_an_end_for_all() -> None:
    queue = TopicQueue(4)
    one = add(queue, "a")
    queue.take(LEADER, 0)
    other = add(queue, "b")
    queue.refused(MetadataTopicError("no"))
    assert isinstance(one.exception(), MetadataTopicError)
    assert not other.done()
    queue.take(LEADER, 0)
    third = add(queue, "c")
    queue.close(MetadataTopicError("over"))
    assert [str(each.exception()) for each in (other, third)] == ["over", "over"]
    assert (len(queue), queue.size_bytes) == (0, 0)
