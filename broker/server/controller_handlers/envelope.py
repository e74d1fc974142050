"""Envelope: a client's request, carried by the broker that got it."""

import dataclasses
import ipaddress
from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.default_principal_data.v0.data import DefaultPrincipalData
from kio.serial import entity_reader

from broker.common.buffers import Buffer
from broker.common.errors import ErrorCode, InvalidRequestError
from broker.controller.api_error import ApiException
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext

_read_principal = entity_reader(DefaultPrincipalData)
_VERSION_SIZE = 2

DispatchEnvelope = Callable[[Buffer, RequestContext], Awaitable[bytes]]


class EnvelopeDispatcher:
    """Where the handler finds the dispatcher it is itself called by; set once, when that exists."""

    def __init__(self) -> None:
        self.dispatch: DispatchEnvelope | None = None


@handles(ApiKey.ENVELOPE, versions=range(1))
async def envelope(request: Request, context: RequestContext, dispatcher: EnvelopeDispatcher) -> Any:
    """Envelope: unpacks a forwarded request and answers it as if the client had asked here (KIP-590).

    Behaviour: the inner answer goes back as it is, errors included.  An inner request that is not offered is
      UNSUPPORTED_VERSION, one that cannot be forwarded or read INVALID_REQUEST, a principal that cannot be read
      PRINCIPAL_DESERIALIZATION_FAILURE.
    Versions:  0.
    Left out:  authorization of the forwarding broker.
    """
    body = request.body
    inner = dataclasses.replace(
        context,
        principal=_principal(body.request_principal),
        client_host=_client_host(body.client_host_address),
        from_envelope=True,
    )
    assert dispatcher.dispatch is not None, "the dispatcher is set before the listener opens"
    response_data = await dispatcher.dispatch(body.request_data, inner)
    return request.schema.EnvelopeResponse(response_data=response_data, error_code=ErrorCode.none)


def _principal(data: bytes | None) -> str:
    """`Type:name`, from a version number and DefaultPrincipalData."""
    if data is None:
        raise ApiException(ErrorCode.principal_deserialization_failure, "The envelope has no principal.")
    try:
        if int.from_bytes(data[:_VERSION_SIZE], "big", signed=True) != 0:
            raise ValueError("its version is not 0")
        principal, _ = _read_principal(data, _VERSION_SIZE)
    except Exception as error:  # kio raises what it meets; whatever it is, these bytes are no principal
        raise ApiException(
            ErrorCode.principal_deserialization_failure, f"The principal cannot be read: {error}"
        ) from error
    return f"{principal.type_}:{principal.name}"


def _client_host(address: bytes) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise InvalidRequestError(f"A client address of {len(address)} bytes is neither IPv4 nor IPv6.") from None
