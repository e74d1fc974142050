import asyncio
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request, encode_response
from broker.server.forwarded_requests import forward, forward_and_see
from broker.server.request_context import RequestContext
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.link_support import (
    CONTEXT,
    TOPIC_ID,
    cache_with,
    image_with,
    request_of,
    schema_of,
    topic_records,
)

SCHEMA = schema_of(ApiKey.DELETE_TOPICS, 1)
REQUEST = request_of(ApiKey.DELETE_TOPICS, 1, topic_names=("t",), timeout=NO_THROTTLE)


class FakeForwarding:
    """Answers every forwarded request with one error code."""

    def __init__(self, error: ErrorCode = ErrorCode.none) -> None:
        result = response_of_topic(error)
        self.response = b"".join(encode_response(ApiKey.DELETE_TOPICS, 1, 7, result))[4:]
        self.forwarded: list[tuple[Request, RequestContext]] = []

    async def forward(self, request: Request, context: RequestContext) -> bytes:
        self.forwarded.append((request, context))
        return self.response


def response_of_topic(error: ErrorCode) -> Any:
    from broker.protocol.response_schema import ResponseSchema

    schema = ResponseSchema.of(ApiKey.DELETE_TOPICS, 1)
    return schema.DeleteTopicsResponse(
        throttle_time=NO_THROTTLE, responses=(schema.DeletableTopicResult(name="t", error_code=error),)
    )


async def test_the_request_is_passed_on_as_it_is() -> None:
    forwarding: Any = FakeForwarding()
    assert await forward(REQUEST, CONTEXT, forwarding) is forwarding.response
    assert forwarding.forwarded == [(REQUEST, CONTEXT)]


def play(error: ErrorCode, appears_after: float) -> float:
    """When the answer leaves."""

    async def story(loop: SimLoop) -> float:
        cache = cache_with(*topic_records("t", TOPIC_ID, (1,)))
        asyncio.get_running_loop().call_later(appears_after, cache.set_image, image_with())
        forwarding: Any = FakeForwarding(error)
        response = await forward_and_see(REQUEST, CONTEXT, forwarding, cache, lambda image: not image.topics)
        assert response is forwarding.response
        return loop.time()

    return simulate(story)


@pytest.mark.parametrize(
    ("error", "appears_after", "leaves_at"),
    [
        (ErrorCode.none, 0.2, 0.2),
        (ErrorCode.none, 9.0, 0.5),  # another broker is faster: not our client's problem
        (ErrorCode.unknown_topic_or_partition, 0.2, 0.0),
    ],
)
def test_a_success_waits_for_our_image_and_nothing_else_does(
    error: ErrorCode, appears_after: float, leaves_at: float
) -> None:
    assert play(error, appears_after) == pytest.approx(leaves_at)
