import asyncio
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, milliseconds
from broker.protocol.requests import Request, encode_response
from broker.server.handlers.create_topics import create_topics
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.handlers.forwarding_support import FakeForwarding
from tests.unit.server.link_support import (
    CONTEXT,
    TOPIC_ID,
    cache_with,
    image_with,
    request_of,
    schema_of,
    topic_records,
)


def request(version: int, validate_only: bool = False) -> Request:
    schema = schema_of(ApiKey.CREATE_TOPICS, version)
    topic = schema.CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=(), configs=())
    return request_of(
        ApiKey.CREATE_TOPICS, version, topics=(topic,), timeout=milliseconds(1000), validate_only=validate_only
    )


def response(given: Request) -> bytes:
    schema = given.schema
    result = schema.CreatableTopicResult(
        name="t",
        topic_id=TOPIC_ID,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=1,
        replication_factor=1,
        configs=None,
    )
    answer = schema.CreateTopicsResponse(throttle_time=NO_THROTTLE, topics=(result,))
    return b"".join(encode_response(given.api_key, given.version, 7, answer))[4:]


@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.parametrize(("validate_only", "leaves_at"), [(False, 0.1), (True, 0.0)])
def test_the_answer_leaves_when_the_topic_is_visible_here(version: int, validate_only: bool, leaves_at: float) -> None:
    given = request(version, validate_only)
    forwarding: Any = FakeForwarding(response(given))

    async def story(loop: SimLoop) -> None:
        cache = cache_with()
        image = image_with(*topic_records("t", TOPIC_ID, (1,)))
        asyncio.get_running_loop().call_later(0.1, cache.set_image, image)
        assert await create_topics(given, CONTEXT, forwarding, cache) is forwarding.response
        assert loop.time() == pytest.approx(leaves_at)

    simulate(story)
    assert forwarding.forwarded == [(given, CONTEXT)]
