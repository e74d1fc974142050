import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from broker.common.chance import Chance
from broker.common.errors import ErrorCode
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.response_schema import ResponseSchema
from broker.server.forwarding_manager import ForwardingManager
from broker.server.metadata_topic.topic_creator import TopicCreator
from broker.server.node_to_controller_channel import NodeToControllerChannel
from broker.server.topic_spec import TopicSpec
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.link_support import (
    CONTROLLER,
    FakeController,
    broker_record,
    config_holder,
    finder_with_leader,
    image_with,
    topic_records,
)

TOPIC = "__remote_log_metadata"


class Setup:
    """A controller that creates what it is asked for; the image follows a little later."""

    def __init__(self, brokers: int = 3, *, replicas: int = 1) -> None:
        self.brokers = brokers
        self.answer = ErrorCode.none
        self.cache = MetadataCache()
        self.controller = FakeController()
        self.controller.answers[ApiKey.CREATE_TOPICS] = self._create
        self.config = config_holder()
        self.channel = NodeToControllerChannel(
            "forwarding", finder_with_leader(), self.controller.connect, request_timeout_ms=2_000
        )
        forwarding = ForwardingManager(self.channel, timeout_ms=2_000)
        self.creator = TopicCreator(
            TopicSpec(TOPIC, 7, replicas, {"cleanup.policy": "delete"}), self.cache, forwarding, self.config, Chance(1)
        )
        self.show()

    def show(self, *, topic: bool = False) -> None:
        records = [broker_record(number, fenced=number > self.brokers) for number in (1, 2, 3)]
        records += topic_records(TOPIC, UUID(int=7), (1,)) if topic else []
        self.cache.set_image(image_with(*records))

    @property
    def asked(self) -> list[Any]:
        return self.controller.requests(ApiKey.CREATE_TOPICS)

    def _create(self, request: Any) -> Any:
        (topic,) = request.topics
        if self.answer in (ErrorCode.none, ErrorCode.topic_already_exists):
            asyncio.get_running_loop().call_later(0.1, lambda: self.show(topic=True))
        schema = ResponseSchema.of(ApiKey.CREATE_TOPICS, 7)
        result = schema.CreatableTopicResult(
            name=topic.name,
            topic_id=None,
            error_code=self.answer,
            error_message=None,
            num_partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            configs=(),
        )
        return schema.CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=(result,))


def run(setup: Setup, play: Callable[[SimLoop], Coroutine[Any, Any, None]]) -> list[Any]:
    async def story(loop: SimLoop) -> None:
        async with setup.channel.running():
            task = loop.create_task(setup.creator.run())
            await play(loop)
            task.cancel()

    with capture_logs() as logs:
        simulate(story)
    return [entry for entry in logs if entry["event"] == "metadata_topic_not_created_yet"]


@pytest.mark.parametrize("answer", [ErrorCode.none, ErrorCode.topic_already_exists])
def test_it_is_asked_for_once(answer: ErrorCode) -> None:
    setup = Setup(replicas=3)
    setup.answer = answer

    async def play(loop: SimLoop) -> None:
        await asyncio.sleep(100)
        (request,) = setup.asked
        (topic,) = request.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == (TOPIC, 7, 3)
        assert [(each.name, each.value) for each in topic.configs] == [("cleanup.policy", "delete")]

    assert run(setup, play) == []


def test_a_topic_that_is_there_is_not_asked_for() -> None:
    setup = Setup()
    setup.show(topic=True)

    async def play(loop: SimLoop) -> None:
        await asyncio.sleep(100)
        assert setup.asked == []

    run(setup, play)


def test_it_waits_for_as_many_brokers_as_it_needs_and_says_so_once() -> None:
    setup = Setup(2, replicas=3)

    async def play(loop: SimLoop) -> None:
        await asyncio.sleep(500)
        assert setup.asked == []
        setup.brokers = 3
        setup.show()
        await asyncio.sleep(0.05)
        assert len(setup.asked) == 1

    (line,) = run(setup, play)
    assert line["reason"] == "3 brokers are needed, 2 are there"


def test_brokers_that_are_still_starting_are_not_worth_a_warning() -> None:
    setup = Setup(0, replicas=3)

    async def play(loop: SimLoop) -> None:
        await asyncio.sleep(9)
        setup.brokers = 3
        setup.show()
        await asyncio.sleep(1)
        assert setup.cache.topic(TOPIC) is not None

    assert run(setup, play) == []


def test_what_the_controller_refuses_is_asked_for_again_more_and_more_seldom() -> None:
    setup = Setup(replicas=3)
    setup.answer = ErrorCode.invalid_replication_factor

    async def play(loop: SimLoop) -> None:
        await asyncio.sleep(300)
        assert 10 <= len(setup.asked) <= 15
        setup.answer = ErrorCode.none
        await asyncio.sleep(60)
        assert setup.cache.topic(TOPIC) is not None

    (line,) = run(setup, play)
    assert line["reason"] == "invalid_replication_factor: None"


def test_a_controller_that_does_not_answer_is_asked_again() -> None:
    setup = Setup()
    setup.controller.unreachable.add(CONTROLLER)

    async def play(loop: SimLoop) -> None:
        await asyncio.sleep(20)
        setup.controller.unreachable.clear()
        await asyncio.sleep(40)
        assert setup.cache.topic(TOPIC) is not None

    assert len(run(setup, play)) == 1


def test_a_topic_that_is_deleted_is_created_again() -> None:
    setup = Setup()
    setup.show(topic=True)

    async def play(loop: SimLoop) -> None:
        await asyncio.sleep(10)
        setup.show()
        await asyncio.sleep(1)
        assert len(setup.asked) == 1
        assert setup.cache.topic(TOPIC) is not None

    run(setup, play)
