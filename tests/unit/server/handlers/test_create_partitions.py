import asyncio
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, milliseconds
from broker.protocol.requests import encode_response
from broker.server.handlers.create_partitions import create_partitions
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


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize(("validate_only", "leaves_at"), [(False, 0.1), (True, 0.0)])
def test_the_answer_leaves_when_the_partitions_are_visible_here(
    version: int, validate_only: bool, leaves_at: float
) -> None:
    topic = schema_of(ApiKey.CREATE_PARTITIONS, version).CreatePartitionsTopic(name="t", count=2, assignments=None)
    given = request_of(
        ApiKey.CREATE_PARTITIONS, version, topics=(topic,), timeout=milliseconds(1000), validate_only=validate_only
    )
    schema = given.schema
    result = schema.CreatePartitionsTopicResult(name="t", error_code=ErrorCode.none, error_message=None)
    answer = schema.CreatePartitionsResponse(throttle_time=NO_THROTTLE, results=(result,))
    forwarding: Any = FakeForwarding(b"".join(encode_response(given.api_key, version, 7, answer))[4:])

    async def story(loop: SimLoop) -> None:
        cache = cache_with(*topic_records("t", TOPIC_ID, (1,)))
        image = image_with(*topic_records("t", TOPIC_ID, (1,), (1,)))
        asyncio.get_running_loop().call_later(0.1, cache.set_image, image)
        assert await create_partitions(given, CONTEXT, forwarding, cache) is forwarding.response
        assert loop.time() == pytest.approx(leaves_at)

    simulate(story)
    assert forwarding.forwarded == [(given, CONTEXT)]
