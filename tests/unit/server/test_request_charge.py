"""What requests other than Produce and Fetch cost (tests/scenarios/test_client_quotas.py has those two)."""

import asyncio
import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, milliseconds
from broker.protocol.requests import Request, encode_response
from broker.protocol.response_schema import RequestSchema, ResponseSchema
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext
from tests.support.quota_world import QuotaClient, QuotaWorld
from tests.support.sim_loop import SimLoop, simulate

SECOND = timedelta(seconds=1)


class Desk:
    """What the handlers of this test do is decided here."""

    def __init__(self) -> None:
        self.controller_throttle_ms = 0
        self.steps = 1
        self.error: Exception | None = None


@handles(ApiKey.LIST_GROUPS, versions=range(6))
def list_groups(request: Request, context: RequestContext, desk: Desk) -> Any:
    return request.schema.ListGroupsResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, groups=())


@handles(ApiKey.HEARTBEAT, versions=range(5))
async def heartbeat(request: Request, context: RequestContext, desk: Desk) -> Any:
    for _ in range(desk.steps - 1):
        await asyncio.sleep(5)
    if desk.error is not None:
        raise desk.error
    return request.schema.HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none)


@handles(ApiKey.CREATE_TOPICS, versions=range(2, 8), is_forwarded=True)
async def create_topics(request: Request, context: RequestContext, desk: Desk) -> bytes:
    schema = ResponseSchema.of(request.api_key, request.version)
    entity = schema.CreateTopicsResponse(throttle_time=milliseconds(desk.controller_throttle_ms), topics=())
    return b"".join(encode_response(request.api_key, request.version, request.correlation_id, entity))[4:]


@handles(ApiKey.WRITE_TXN_MARKERS, versions=range(1, 3))
def write_txn_markers(request: Request, context: RequestContext, desk: Desk) -> Any:
    return request.schema.WriteTxnMarkersResponse(markers=())


def tell(directory: Path, story: Any) -> None:
    async def run(loop: SimLoop) -> None:
        desk = Desk()
        handlers = (list_groups, heartbeat, create_topics, write_txn_markers)
        world = QuotaWorld(directory, loop, *handlers, services=[desk])
        async with world.running():
            await story(world, desk, world.client())

    simulate(run)


async def ask(client: QuotaClient, api_key: ApiKey, version: int, **fields: Any) -> Any:
    schema = RequestSchema.of(api_key, version)
    client.send(api_key, version, getattr(schema, f"{api_key.title}Request")(**fields))
    return await client.answer(api_key, version)


async def list_all(client: QuotaClient) -> Any:
    return await ask(client, ApiKey.LIST_GROUPS, 3, states_filter=())


async def beat(client: QuotaClient) -> Any:
    return await ask(client, ApiKey.HEARTBEAT, 3, group_id="g", generation_id=1, member_id="m", group_instance_id=None)


def test_the_time_in_the_handler_is_what_a_request_costs(tmp_path: Path) -> None:
    async def story(world: QuotaWorld, desk: Desk, client: QuotaClient) -> None:
        world.set_quota({"request_percentage": 1.0})
        world.work_seconds = 0.06  # 6 % of a second over ten seconds: 0.6 %
        assert (await list_all(client)).throttle_time == NO_THROTTLE
        assert world.quotas.request.recorded == pytest.approx(6)
        answer = await list_all(client)
        assert answer.throttle_time == SECOND  # (1.2 - 1) / 1 of ten seconds would be two
        assert await client.wait_until_read() == pytest.approx(1, abs=0.002)
        assert world.quotas.request.throttled_ms == 1000

    tell(tmp_path, story)


def test_a_request_that_waits_costs_what_its_steps_take(tmp_path: Path) -> None:
    async def story(world: QuotaWorld, desk: Desk, client: QuotaClient) -> None:
        world.set_quota({"request_percentage": 10.0})
        world.work_seconds = 0.01
        desk.steps = 3
        client.send(
            ApiKey.HEARTBEAT,
            0,
            RequestSchema.of(ApiKey.HEARTBEAT, 0).HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        )
        await asyncio.sleep(11)
        assert (await client.answer(ApiKey.HEARTBEAT, 0)).error_code is ErrorCode.none
        assert world.quotas.request.recorded == pytest.approx(3.0)  # three steps of a hundredth of a second

    tell(tmp_path, story)


def test_a_request_that_waits_for_a_client_that_leaves_is_cancelled(tmp_path: Path) -> None:
    async def story(world: QuotaWorld, desk: Desk, client: QuotaClient) -> None:
        world.set_quota({"request_percentage": 10.0})
        desk.steps = 2
        client.send(
            ApiKey.HEARTBEAT,
            0,
            RequestSchema.of(ApiKey.HEARTBEAT, 0).HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
        )
        await asyncio.sleep(1)
        client.connection.connection_lost(None)
        await asyncio.sleep(10)
        assert world.quotas.request.recorded == 0
        assert [task for task in asyncio.all_tasks() if "heartbeat" in task.get_name()] == []

    tell(tmp_path, story)


def test_an_error_is_an_answer_like_any(tmp_path: Path) -> None:
    async def story(world: QuotaWorld, desk: Desk, client: QuotaClient) -> None:
        world.set_quota({"request_percentage": 0.001})
        world.work_seconds = 1.0
        desk.error = ValueError("a defect")
        answer = await beat(client)
        assert (answer.error_code, answer.throttle_time) == (ErrorCode.unknown_server_error, SECOND)

    tell(tmp_path, story)


@pytest.mark.parametrize(("controller_ms", "delay_ms"), [(0, 1000), (700, 1000), (1700, 1700)])
def test_the_longer_delay_of_broker_and_controller_counts(tmp_path: Path, controller_ms: int, delay_ms: int) -> None:
    async def story(world: QuotaWorld, desk: Desk, client: QuotaClient) -> None:
        world.set_quota({"request_percentage": 0.001})
        world.work_seconds = 1.0
        desk.controller_throttle_ms = controller_ms
        answer = await ask(client, ApiKey.CREATE_TOPICS, 7, topics=(), timeout=SECOND, validate_only=False)
        assert answer.throttle_time == milliseconds(delay_ms)
        assert await client.wait_until_read() == pytest.approx(delay_ms / 1000, abs=0.002)

    tell(tmp_path, story)


def test_what_brokers_ask_each_other_is_exempt(tmp_path: Path) -> None:
    async def story(world: QuotaWorld, desk: Desk, client: QuotaClient) -> None:
        world.set_quota({"request_percentage": 0.001})
        world.work_seconds = 1.0
        await ask(client, ApiKey.WRITE_TXN_MARKERS, 1, markers=())
        assert client.is_read
        assert world.quotas.request.recorded == 0
        assert world.value("broker_client_quota_exempt_seconds_total") == 1

    tell(tmp_path, story)


def test_users_are_bound_by_their_name(tmp_path: Path) -> None:
    async def story(world: QuotaWorld, desk: Desk, client: QuotaClient) -> None:
        world.set_quota({"request_percentage": 0.001}, user="alice")
        world.work_seconds = 1.0
        assert (await list_all(client)).throttle_time == NO_THROTTLE
        client.connection.context = dataclasses.replace(client.connection.context, principal="User:alice")
        assert (await list_all(client)).throttle_time == SECOND

    tell(tmp_path, story)


def test_without_quotas_nothing_is_made(tmp_path: Path) -> None:
    async def story(world: QuotaWorld, desk: Desk, client: QuotaClient) -> None:
        charged: list[object] = []
        world.quotas.charge_of = charged.append  # type: ignore[method-assign,assignment]
        assert (await list_all(client)).throttle_time == NO_THROTTLE
        assert charged == []

    tell(tmp_path, story)
