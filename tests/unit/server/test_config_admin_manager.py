import asyncio
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import encode_response
from broker.server.config_admin_manager import forward_checked
from tests.unit.server.handlers.forwarding_support import RESPONSE
from tests.unit.server.link_support import CONTEXT, request_of, schema_of

TOPIC, BROKER = 2, 4
SET, APPEND = 0, 2
KEY, VERSION = ApiKey.INCREMENTAL_ALTER_CONFIGS, 1


class FakeForwarding:
    """A controller that accepts everything it is asked, and remembers it."""

    def __init__(self) -> None:
        self.forwarded: list[bytes] = []

    async def forward(self, request: Any, _context: Any) -> bytes:
        self.forwarded.append(request.frame)
        return RESPONSE

    async def forward_frame(self, frame: bytes, _context: Any) -> bytes:
        self.forwarded.append(frame)
        schema = request().schema
        row = schema.AlterConfigsResourceResponse(
            error_code=ErrorCode.none, error_message=None, resource_type=TOPIC, resource_name="t"
        )
        entity = schema.IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=(row,))
        return b"".join(encode_response(KEY, VERSION, 7, entity))[4:]


def request(*resources: tuple[int, str, str, int, str | None]) -> Any:
    schema = schema_of(KEY, VERSION)
    return request_of(
        KEY,
        VERSION,
        resources=tuple(
            schema.AlterConfigsResource(
                resource_type=kind,
                resource_name=resource,
                configs=(schema.AlterableConfig(name=name, config_operation=operation, value=value),),
            )
            for kind, resource, name, operation, value in resources
        ),
        validate_only=False,
    )


def answered(forwarding: FakeForwarding, asked: Any) -> Any:
    response_class = asked.schema.IncrementalAlterConfigsResponse
    return asyncio.run(forward_checked(asked, CONTEXT, forwarding, response_class))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "resource",
    [
        (BROKER, "1", "log.retention.ms", SET, "1000"),
        (BROKER, "", "log.retention.ms", SET, "1000"),
        (BROKER, "1", "log.retention.ms", 1, None),
        (BROKER, "1", "listeners", APPEND, "wrong"),  # the controller knows which settings are lists
        (BROKER, "1", "no.such.setting", SET, "kept for others"),
        (TOPIC, "t", "retention.ms", SET, "soon"),  # the controller knows topics
    ],
)
def test_what_can_be_goes_to_the_controller_as_it_came(resource: tuple[int, str, str, int, str | None]) -> None:
    forwarding = FakeForwarding()
    asked = request(resource)
    assert answered(forwarding, asked) is RESPONSE
    assert forwarding.forwarded == [asked.frame]


@pytest.mark.parametrize(
    ("name", "value"), [("log.retention.ms", "soon"), ("num.replica.fetchers", "0"), ("node.id", "7")]
)
def test_what_no_broker_can_be_is_refused_here(name: str, value: str) -> None:
    forwarding = FakeForwarding()
    (row,) = answered(forwarding, request((BROKER, "1", name, SET, value))).responses
    assert (row.error_code, row.resource_type, row.resource_name) == (ErrorCode.invalid_config, BROKER, "1")
    assert name in row.error_message
    assert forwarding.forwarded == []


def test_the_others_of_a_request_are_done() -> None:
    forwarding = FakeForwarding()
    wrong, right = (BROKER, "1", "log.retention.ms", SET, "soon"), (TOPIC, "t", "retention.ms", SET, "1000")
    answer = answered(forwarding, request(wrong, right))
    assert [(row.resource_name, row.error_code) for row in answer.responses] == [
        ("t", ErrorCode.none),
        ("1", ErrorCode.invalid_config),
    ]
    assert forwarding.forwarded == [request(right).frame]
