"""Clients over their quotas: answers leave at once and tell the delay, and the connection is not read until then."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import encode_request
from tests.support.builders import batch, settle, values_of
from tests.support.quota_world import QuotaClient, QuotaWorld
from tests.support.sim_loop import SimLoop, simulate
from tests.support.socket_harness import receive
from tests.unit.server.handlers.test_fetch import request as fetch_request
from tests.unit.server.handlers.test_produce import request as produce_request

NONE = timedelta(0)


def tell(directory: Path, story: Callable[[QuotaWorld], Coroutine[Any, Any, None]]) -> None:
    async def run(loop: SimLoop) -> None:
        world = QuotaWorld(directory, loop)
        async with world.running():
            await story(world)

    simulate(run)


def fetched(answer: Any) -> list[bytes]:
    return [value for topic in answer.responses for each in topic.partitions for value in values_of(each.records)]


def test_a_producer_at_ten_times_its_quota_is_slowed_to_it(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        world.set_quota({"producer_byte_rate": 100_000.0})
        client = world.client()
        offered_s, sent, delays = 0.01, 0, 0
        # The first window is a burst the quota allows; what is long enough after it is the quota.
        began, counted = 0.0, 0
        while world.loop.time() < 200:
            size, answer = await client.produce(10_000)  # 1 MB per second, as long as it is read
            sent += size
            if answer.throttle_time > NONE:
                delays += 1
                assert not client.is_read
                waited = await client.wait_until_read()
                assert waited == pytest.approx(answer.throttle_time.total_seconds(), abs=0.002)
            if not began and world.loop.time() > 30:
                began, counted = world.loop.time(), sent
            await asyncio.sleep(offered_s)
        assert (sent - counted) / (world.loop.time() - began) == pytest.approx(100_000, rel=0.1)
        assert delays > 50
        assert world.value("broker_client_quota_throttles_total", quota="produce") == delays
        assert world.value("broker_client_quota_recorded_total", quota="produce") == sent
        assert world.partition().log.log_end_offset == client.answered  # whatever was answered was appended

    tell(tmp_path, story)


def test_the_delay_is_exact_and_ends_on_time(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        world.set_quota({"producer_byte_rate": 1000.0})
        client, other = world.client(), world.client("other")
        size, answer = await client.produce(14_000)
        delay_ms = round((size / 10 - 1000) / 1000 * 10_000)
        assert answer.throttle_time == timedelta(milliseconds=delay_ms)
        assert world.value("broker_throttled_connections") == 1
        assert world.value("broker_client_quota_throttle_seconds_total", quota="produce") == delay_ms / 1000
        assert world.value("broker_client_quota_entities", quota="produce") == 1
        await asyncio.sleep(delay_ms / 1000 - 0.001)
        assert not client.is_read
        await asyncio.sleep(0.0011)
        await settle()
        assert client.is_read
        assert world.value("broker_throttled_connections") == 0
        _, answer = await other.produce(14_000)  # whom no quota binds
        assert (answer.throttle_time, other.is_read) == (NONE, True)

    tell(tmp_path, story)


def test_a_quota_is_of_all_connections_and_each_is_delayed_by_itself(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        world.set_quota({"producer_byte_rate": 1000.0})
        first, second = world.client(), world.client()
        await first.produce(9_000)
        _, answer = await second.produce(9_000)
        assert answer.throttle_time > NONE
        assert (first.is_read, second.is_read) == (True, False)

    tell(tmp_path, story)


def test_requests_that_follow_wait_their_turn(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        world.set_quota({"producer_byte_rate": 1000.0})
        client = world.client()
        await client.produce(14_000)
        answered = len(client.transport.responses())
        await asyncio.sleep(1)
        assert len(client.transport.responses()) == answered
        assert not client.is_read
        await client.wait_until_read()
        _, answer = await client.produce(10)
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none

    tell(tmp_path, story)


def test_pipelined_requests_are_answered_and_the_longest_delay_counts(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        world.set_quota({"producer_byte_rate": 1000.0})
        client = world.client()
        for _ in range(3):  # in one turn: all are started before the first is answered
            client.send(ApiKey.PRODUCE, 9, produce_request(9, ("t", 0, bytes(batch(b"x" * 9000)))))
        delays = [(await client.answer(ApiKey.PRODUCE, 9)).throttle_time for _ in range(3)]
        assert delays == sorted(delays)
        assert delays[2] > delays[1] > NONE
        assert await client.wait_until_read() == pytest.approx(delays[2].total_seconds(), abs=0.002)

    tell(tmp_path, story)


def test_a_shorter_delay_does_not_end_a_longer_one(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        client = world.client()
        for delay_ms in (700, 300, 900, 100):
            client.connection.throttle(delay_ms)
        assert await client.wait_until_read() == pytest.approx(0.9, abs=0.002)

    tell(tmp_path, story)


def test_what_came_with_a_request_that_is_throttled_waits_too(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        await world.fill(3, 1000)
        world.set_quota({"consumer_byte_rate": 150.0})
        client = world.client()
        await client.fetch(0, partition_max_bytes=1000)
        frames = [
            encode_request(ApiKey.FETCH, 12, number, "app", fetch_request(12, ("t", 0, 1), partition_max_bytes=1000))
            for number in range(2)
        ]
        receive(client.connection, b"".join(frames))
        first = await client.answer(ApiKey.FETCH, 12)
        assert first.throttle_time > NONE
        assert len(client.transport.responses()) == client.answered
        await asyncio.sleep(first.throttle_time.total_seconds() - 0.001)
        assert len(client.transport.responses()) == client.answered
        await asyncio.sleep(0.002)
        await client.answer(ApiKey.FETCH, 12)

    tell(tmp_path, story)


def test_without_an_answer_the_connection_is_still_not_read(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        world.set_quota({"producer_byte_rate": 1000.0})
        client = world.client()
        size, _ = await client.produce(14_000, acks=0)
        assert client.transport.responses() == []
        assert not client.is_read
        waited = await client.wait_until_read()
        assert waited == pytest.approx(size / 1000 - 10, abs=0.002)

    tell(tmp_path, story)


def test_a_consumer_over_its_quota_gets_nothing_and_stays_where_it_is(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        await world.fill(20, 1000)
        world.set_quota({"consumer_byte_rate": 1000.0})
        client, position, empty = world.client(), 0, 0
        while position < 20:
            answer = await client.fetch(position, partition_max_bytes=4000)
            values = fetched(answer)
            if answer.throttle_time > NONE:
                empty += 1
                assert (answer.error_code, answer.session_id, answer.responses) == (ErrorCode.none, 0, ())
                assert not client.is_read
                waited = await client.wait_until_read()
                assert waited == pytest.approx(answer.throttle_time.total_seconds(), abs=0.002)
            position += len(values)
        assert empty > 0
        assert 22 < world.loop.time() < 25  # 22 KB, never more than 10 in the 11 seconds of a window
        recorded = world.value("broker_client_quota_recorded_total", quota="fetch")
        assert recorded == pytest.approx(20 * 1100, rel=0.1)  # what was not sent does not count
        assert world.value("broker_client_quota_throttles_total", quota="fetch") == empty

    tell(tmp_path, story)


def test_one_fetch_gets_no_more_than_the_quota_ever_allows(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        await world.fill(20, 1000)
        world.set_quota({"consumer_byte_rate": 500.0})
        answer = await world.client().fetch(0)
        assert (len(fetched(answer)), answer.throttle_time) == (4, NONE)  # 5,000 bytes are ten seconds of it

    tell(tmp_path, story)


def test_a_session_outlives_a_throttled_answer(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        await world.fill(3, 1000)
        client = world.client()
        opened = await client.fetch(0, session_epoch=0)
        session = opened.session_id
        assert len(fetched(opened)) == 3
        assert session
        world.set_quota({"consumer_byte_rate": 150.0})
        await world.fill(2, 1000)
        first = await client.fetch(3, session_id=session, session_epoch=1, partition_max_bytes=1000)
        assert len(fetched(first)) == 1
        throttled = await client.fetch(4, session_id=session, session_epoch=2, partition_max_bytes=1000)
        assert throttled.throttle_time > NONE
        assert (throttled.error_code, throttled.session_id, throttled.responses) == (ErrorCode.none, session, ())
        world.set_quota({"consumer_byte_rate": None})
        await client.wait_until_read()
        entity = {"session_id": session, "session_epoch": 3}
        told = await client.fetch(4, **entity)
        assert (len(fetched(told)), told.session_id, told.throttle_time) == (1, session, NONE)

    tell(tmp_path, story)


def test_a_full_fetch_that_is_throttled_opens_no_session(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        await world.fill(2, 1000)
        world.set_quota({"consumer_byte_rate": 120.0})
        client = world.client()
        assert len(fetched(await client.fetch(0, partition_max_bytes=10))) == 1
        throttled = await client.fetch(1, session_epoch=0)
        assert throttled.throttle_time > NONE
        assert (throttled.error_code, throttled.session_id, throttled.responses) == (ErrorCode.none, 0, ())
        assert len(world.sessions.cache) == 0

    tell(tmp_path, story)


def test_followers_are_exempt(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        await world.fill(5, 1000)
        world.work_seconds = 0.5
        world.set_quota({"consumer_byte_rate": 1.0, "request_percentage": 0.001}, client_id=None)
        follower = world.client("broker-2-fetcher-0")
        answer = await follower.fetch(0, replica=(2, -1))
        assert (answer.throttle_time, follower.is_read) == (NONE, True)
        assert (world.value("broker_client_quota_exempt_seconds_total") or 0) > 0
        assert world.value("broker_client_quota_entities", quota="fetch") == 0

    tell(tmp_path, story)


def test_the_time_of_requests_is_shared_out_too(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        world.set_quota({"request_percentage": 1.0, "producer_byte_rate": 1e9})
        client = world.client()
        world.work_seconds = 0.15  # between two readings of the stopwatch
        _, answer = await client.produce(10)
        assert answer.throttle_time == timedelta(seconds=1)  # more, but at most a sample
        assert await client.wait_until_read() == pytest.approx(1, abs=0.002)
        assert world.value("broker_client_quota_throttles_total", quota="request") == 1
        assert world.value("broker_client_quota_throttles_total", quota="produce") == 0

    tell(tmp_path, story)


def test_quotas_that_are_gone_bind_nobody(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        assert not world.quotas.is_configured
        world.set_quota({"producer_byte_rate": 1000.0})
        assert world.quotas.is_configured
        world.set_quota({"producer_byte_rate": None})
        assert not world.quotas.is_configured
        client: QuotaClient = world.client()
        _, answer = await client.produce(50_000)
        assert (answer.throttle_time, client.is_read) == (NONE, True)

    tell(tmp_path, story)


def test_a_throttled_connection_is_not_idle_and_may_close(tmp_path: Path) -> None:
    async def story(world: QuotaWorld) -> None:
        world.set_quota({"producer_byte_rate": 10.0})
        client = world.client()
        await client.produce(14_000)
        await asyncio.sleep(60)
        world.server.close_idle(30)
        assert not client.transport.is_closed
        client.connection.connection_lost(None)
        assert world.value("broker_throttled_connections") == 0

    tell(tmp_path, story)
