import asyncio
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, milliseconds
from broker.protocol.requests import Request, encode_response
from broker.server.handlers.delete_topics import delete_topics
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.handlers.forwarding_support import FakeForwarding
from tests.unit.server.link_support import (
    CONTEXT,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    cache_with,
    image_with,
    request_of,
    schema_of,
    topic_records,
)


def requests() -> list[Request]:
    """By name in the old and the new form, and by id."""
    names = [
        request_of(ApiKey.DELETE_TOPICS, version, topic_names=("t", "gone"), timeout=milliseconds(1000))
        for version in range(1, 6)
    ]
    schema = schema_of(ApiKey.DELETE_TOPICS, 6)
    states = [schema.DeleteTopicState(name="t", topic_id=None), schema.DeleteTopicState(name=None, topic_id=TOPIC_ID)]
    return names + [
        request_of(ApiKey.DELETE_TOPICS, 6, topics=(state,), timeout=milliseconds(1000)) for state in states
    ]


@pytest.mark.parametrize("given", requests(), ids=lambda given: f"v{given.version}")
@pytest.mark.parametrize(("error", "leaves_at"), [(ErrorCode.none, 0.1), (ErrorCode.topic_deletion_disabled, 0.0)])
def test_the_answer_leaves_when_the_topic_has_gone_here(given: Request, error: ErrorCode, leaves_at: float) -> None:
    schema = given.schema
    result = schema.DeletableTopicResult(name="t", topic_id=TOPIC_ID, error_code=error, error_message=None)
    answer = schema.DeleteTopicsResponse(throttle_time=NO_THROTTLE, responses=(result,))
    forwarding: Any = FakeForwarding(b"".join(encode_response(given.api_key, given.version, 7, answer))[4:])

    async def story(loop: SimLoop) -> None:
        other = topic_records("other", OTHER_TOPIC_ID, (1,))
        cache = cache_with(*topic_records("t", TOPIC_ID, (1,)), *other)
        asyncio.get_running_loop().call_later(0.1, cache.set_image, image_with(*other))
        assert await delete_topics(given, CONTEXT, forwarding, cache) is forwarding.response
        assert loop.time() == pytest.approx(leaves_at)

    simulate(story)
    assert forwarding.forwarded == [(given, CONTEXT)]
