from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.demo.layout import DemoError, DemoNode
from broker.demo.topic_routes import HEALTHY_SECONDS_MAX, TopicRoutes
from broker.network.broker_client import BrokerClientError
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import encode_request
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.demo.demo_world import layout

ORDERS = UUID(int=7)
Answer = Callable[[int, Any], Any]


class FakeConnection:
    """Answers what it is told to; what was asked must be something that can be sent."""

    def __init__(self, answer: Answer | None) -> None:
        self._answer = answer
        self.is_closed = False

    async def send(self, api_key: int, version: int, entity: Any, timeout_ms: int) -> Any:
        if self._answer is None:
            raise BrokerClientError("down")
        assert encode_request(api_key, version, 1, "test", entity)
        return self._answer(api_key, entity)

    async def exchange(self, write: Any, read: Any, timeout_ms: int) -> Any:
        raise AssertionError("not in these tests")

    async def close(self) -> None:
        self.is_closed = True


def _routes(*answers: Answer | None) -> tuple[TopicRoutes, list[FakeConnection]]:
    connections = [FakeConnection(answer) for answer in answers]

    def connect(node: DemoNode) -> FakeConnection:
        return connections[node.node_id - 1]

    return TopicRoutes(layout(brokers=len(answers)).nodes, connect), connections


def _topics(*results: tuple[str, ErrorCode]) -> Any:
    return SimpleNamespace(
        topics=[SimpleNamespace(name=name, error_code=error, error_message="why") for name, error in results]
    )


def test_topics_are_made_with_their_settings_by_whichever_broker_answers() -> None:
    asked: list[Any] = []

    def answer(api_key: int, request: Any) -> Any:
        asked.append(request)
        assert api_key == ApiKey.CREATE_TOPICS
        return _topics(("orders", ErrorCode.none), ("orders-classic", ErrorCode.topic_already_exists))

    async def story(_: SimLoop) -> None:
        routes, connections = _routes(None, answer, None)
        assert await routes.create(layout().topics(), 3) == ["orders"]
        await routes.close()
        assert all(connection.is_closed for connection in connections)

    simulate(story)
    (request,) = asked
    orders = request.topics[0]
    assert (orders.name, orders.num_partitions, orders.replication_factor) == ("orders", 3, 3)
    assert ("remote.wal.enable", "true") in {(each.name, each.value) for each in orders.configs}
    assert request.timeout == timedelta(seconds=30)


def test_a_topic_that_is_refused_is_told() -> None:
    async def story(_: SimLoop) -> None:
        routes, _ = _routes(lambda key, request: _topics(("orders", ErrorCode.invalid_config)))
        with pytest.raises(DemoError, match="topic orders: invalid_config why"):
            await routes.create(layout().topics(), 3)

    simulate(story)


def test_without_any_broker_the_last_reason_is_told() -> None:
    async def story(_: SimLoop) -> None:
        routes, _ = _routes(None, None)
        with pytest.raises(BrokerClientError, match="down"):
            await routes.find(["orders"])

    simulate(story)


def _metadata(*partitions: tuple[int, list[int]], error: ErrorCode = ErrorCode.none) -> Any:
    """Of one topic with three replicas: leader and in-sync replicas of each partition."""
    return SimpleNamespace(
        topics=[
            SimpleNamespace(
                name="orders",
                topic_id=ORDERS,
                error_code=error,
                partitions=[
                    SimpleNamespace(partition_index=index, leader_id=leader, replica_nodes=[1, 2, 3], isr_nodes=isr)
                    for index, (leader, isr) in enumerate(partitions)
                ],
            )
        ]
    )


def test_where_partitions_are_led() -> None:
    async def story(_: SimLoop) -> None:
        routes, _ = _routes(lambda key, request: _metadata((2, [2, 1, 3]), (-1, [3])))
        route = (await routes.find(["orders"]))["orders"]
        assert (route.topic_id, route.leaders, route.is_whole) == (ORDERS, {0: 2, 1: -1}, False)
        routes, _ = _routes(lambda key, request: _metadata(error=ErrorCode.unknown_topic_or_partition))
        assert await routes.find(["orders"]) == {}

    simulate(story)


def test_waiting_until_all_is_replicated() -> None:
    answers = [
        _metadata(error=ErrorCode.unknown_topic_or_partition),
        _metadata((-1, [1, 2, 3])),
        _metadata((1, [1])),
        _metadata((1, [1, 2, 3])),
    ]

    async def story(_: SimLoop) -> None:
        routes, _ = _routes(lambda key, request: answers.pop(0))
        await routes.wait_until_whole(["orders"])
        assert answers == []

    simulate(story)


def test_and_not_for_ever() -> None:
    async def story(loop: SimLoop) -> None:
        routes, _ = _routes(lambda key, request: _metadata((1, [1, 2])))
        with pytest.raises(DemoError, match="orders are not replicated after 30 s"):
            await routes.wait_until_whole(["orders"])
        assert loop.time() >= HEALTHY_SECONDS_MAX

    simulate(story)


def test_where_partitions_end() -> None:
    def answer(api_key: int, request: Any) -> Any:
        assert [each.timestamp for each in request.topics[0].partitions] == [-1, -1]
        found = [(0, 55, ErrorCode.none), (2, -1, ErrorCode.not_leader_or_follower)]
        partitions = [SimpleNamespace(partition_index=index, offset=at, error_code=error) for index, at, error in found]
        return SimpleNamespace(topics=[SimpleNamespace(partitions=partitions)])

    async def story(_: SimLoop) -> None:
        routes, _ = _routes(answer)
        assert await routes.ends(1, "orders", [0, 2]) == {0: 55}
        assert routes.client_of(9) is None

    simulate(story)
