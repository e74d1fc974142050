"""Forwarded requests: the client's frame must reach the controller as it came, in every version offered."""

import asyncio
from collections.abc import Callable
from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import ApiHandler
from broker.server.request_context import RequestContext
from tests.unit.server.link_support import CONTEXT, request_of

RESPONSE = b"\x00\x00\x00\x07whatever the controller says"


class FakeForwarding:
    def __init__(self, response: bytes = RESPONSE) -> None:
        self.response = response
        self.forwarded: list[tuple[Request, RequestContext]] = []

    async def forward(self, request: Request, context: RequestContext) -> bytes:
        self.forwarded.append((request, context))
        return self.response


def check_forwarded(
    function: Callable[..., Any], api_key: ApiKey, fields: Callable[[int], dict[str, Any]], **parts: object
) -> None:
    """`fields` gives those of a request of a version, `parts` is what else of the broker the handler is given."""
    handler: ApiHandler = function.__api_handler__  # type: ignore[attr-defined]
    assert handler.is_forwarded
    assert handler.api_key is api_key
    for version in handler.versions:
        forwarding = FakeForwarding()
        request = request_of(api_key, version, **fields(version))
        assert asyncio.run(function(request, CONTEXT, forwarding, **parts)) is RESPONSE
        assert forwarding.forwarded == [(request, CONTEXT)]
