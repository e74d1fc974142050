import asyncio
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, to_milliseconds
from broker.protocol.requests import decode_request, encode_response
from broker.protocol.response_schema import ResponseSchema
from broker.server.auto_topic_creation_manager import AutoTopicCreationManager
from broker.server.forwarding_manager import ForwardingManager
from broker.server.node_to_controller_channel import NodeToControllerChannel
from tests.support.builders import topic_uuid
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.link_support import (
    CONTEXT,
    CONTROLLER,
    FakeController,
    config_holder,
    finder_with_leader,
    image_with,
    response_of,
    topic_records,
)

UNKNOWN = ErrorCode.unknown_topic_or_partition


class Setup:
    """A controller that creates what it is asked for; the image follows after `lag` seconds."""

    def __init__(self, lag: float = 0.05, **properties: str) -> None:
        self.lag = lag
        self.error = ErrorCode.none
        self.cache = MetadataCache()
        self.controller = FakeController()
        self.controller.answers[ApiKey.CREATE_TOPICS] = self._create
        self.controller.answers[ApiKey.ENVELOPE] = self._create_in_envelope
        self.created: list[Any] = []
        self.channel = NodeToControllerChannel(
            "forwarding", finder_with_leader(), self.controller.connect, request_timeout_ms=60_000
        )
        self.manager = AutoTopicCreationManager(
            self.cache, ForwardingManager(self.channel), config_holder(**{"num__partitions": "3", **properties})
        )

    def _create(self, request: Any) -> Any:
        schema = ResponseSchema.of(ApiKey.CREATE_TOPICS, 7)
        self.created += request.topics
        if self.error == ErrorCode.none or self.error == ErrorCode.topic_already_exists:
            asyncio.get_running_loop().call_later(self.lag, self._show)
        return schema.CreateTopicsResponse(
            throttle_time=NO_THROTTLE,
            topics=tuple(
                schema.CreatableTopicResult(
                    name=topic.name,
                    topic_id=None,
                    error_code=self.error,
                    error_message=None,
                    num_partitions=topic.num_partitions,
                    replication_factor=topic.replication_factor,
                    configs=(),
                )
                for topic in request.topics
            ),
        )

    def _create_in_envelope(self, envelope: Any) -> Any:
        inner = decode_request(envelope.request_data)
        assert (inner.api_key, inner.version) == (ApiKey.CREATE_TOPICS, 7)
        response = b"".join(encode_response(inner.api_key, 7, inner.correlation_id, self._create(inner.body)))
        return response_of(ApiKey.ENVELOPE, 0, response_data=response[4:])

    def _show(self) -> None:
        records = [
            record
            for topic in {topic.name: topic for topic in self.created}.values()
            for record in topic_records(topic.name, topic_uuid(topic.name), (1,))
        ]
        self.cache.set_image(image_with(*records))


def run(play: Any, setup: Setup) -> None:
    async def story(loop: SimLoop) -> None:
        async with setup.channel.running(), setup.manager.running():
            await play(loop)

    simulate(story)


def test_a_topic_is_there_when_the_answer_says_so() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        assert await setup.manager.create_topics(["a", "b"]) == {"a": ErrorCode.none, "b": ErrorCode.none}
        assert setup.cache.topic("a") is not None
        assert loop.time() == pytest.approx(0.05)
        assert [(topic.name, topic.num_partitions, topic.replication_factor) for topic in setup.created] == [
            ("a", 3, 1),
            ("b", 3, 1),
        ]

    run(play, setup)


def test_in_a_clients_name_it_travels_in_an_envelope() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        assert await setup.manager.create_topics(["a"], CONTEXT) == {"a": ErrorCode.none}
        (envelope,) = setup.controller.requests(ApiKey.ENVELOPE)
        assert envelope.client_host_address == bytes([192, 0, 2, 7])

    run(play, setup)


def test_two_who_want_the_same_topic_ask_once() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        first, second = await asyncio.gather(
            setup.manager.create_topics(["a"]), setup.manager.create_topics(["a", "b"])
        )
        assert (first, second) == ({"a": ErrorCode.none}, {"a": ErrorCode.none, "b": ErrorCode.none})
        assert [topic.name for topic in setup.created] == ["a", "b"]

    run(play, setup)


def test_after_a_second_the_client_is_told_to_ask_again() -> None:
    setup = Setup(lag=30)

    async def play(loop: SimLoop) -> None:
        assert await setup.manager.create_topics(["a"]) == {"a": UNKNOWN}
        assert loop.time() == pytest.approx(1)

    run(play, setup)


def test_without_a_controller_too_and_the_request_goes_on() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        setup.controller.unreachable.add(CONTROLLER)
        assert await setup.manager.create_topics(["a"]) == {"a": UNKNOWN}
        setup.controller.unreachable.clear()
        assert await setup.manager.create_topics(["a"]) == {"a": ErrorCode.none}
        assert len(setup.created) == 1

    run(play, setup)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.topic_already_exists, ErrorCode.none),
        (ErrorCode.invalid_replication_factor, ErrorCode.invalid_replication_factor),
        (ErrorCode.invalid_topic_exception, ErrorCode.invalid_topic_exception),
        (ErrorCode.policy_violation, ErrorCode.policy_violation),
        (ErrorCode.request_timed_out, UNKNOWN),
        (ErrorCode.unknown_server_error, UNKNOWN),
    ],
)
def test_what_the_controller_says_and_what_the_client_hears(error: ErrorCode, told: ErrorCode) -> None:
    setup = Setup()
    setup.error = error

    async def play(loop: SimLoop) -> None:
        assert await setup.manager.create_topics(["a"]) == {"a": told}

    run(play, setup)


def test_other_topics_have_the_brokers_defaults_and_the_time_of_a_request() -> None:
    setup = Setup(num__partitions="4", default__replication__factor="2", request__timeout__ms="1234")

    async def play(loop: SimLoop) -> None:
        await setup.manager.create_topics(["a"])
        (request,) = setup.controller.requests(ApiKey.CREATE_TOPICS)
        (topic,) = request.topics
        assert (topic.num_partitions, topic.replication_factor, to_milliseconds(request.timeout)) == (4, 2, 1234)

    run(play, setup)
