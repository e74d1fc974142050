"""Client requests that only the controller can answer travel to it in an Envelope (KIP-590, Kafka's ForwardingManager).

The client's frame goes in verbatim and the controller's response comes out verbatim, correlation id included; the
controller judges the request by the client's principal and address, which travel beside it.
"""

import io
import ipaddress
import struct
from typing import Any, Final, TypeAlias

import structlog
from kio.schema.default_principal_data.v0.data import DefaultPrincipalData
from kio.serial import entity_writer

from broker.common.errors import ErrorCode, KafkaError
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import UnsupportedApiError
from broker.protocol.requests import Request
from broker.protocol.response_schema import RequestSchema
from broker.server.node_to_controller_channel import NodeToControllerChannel
from broker.server.request_context import RequestContext

log = structlog.get_logger(__name__)

FORWARDING_TIMEOUT_MS: Final = 60_000
ENVELOPE_VERSION: Final = 0
PRINCIPAL_DATA_VERSION: Final = 0

ForwardedResponse: TypeAlias = bytes
"""A response as the client gets it: header and body, without the length in front."""

_write_principal = entity_writer(DefaultPrincipalData)


class ForwardingFailedError(KafkaError):
    """The controller refused the envelope itself; what was in it has not been done."""

    code = ErrorCode.unknown_server_error


class ForwardingManager:
    """Sends on the channel of forwarded requests; used by the handlers and by whatever the broker itself asks for."""

    def __init__(self, channel: NodeToControllerChannel, timeout_ms: int = FORWARDING_TIMEOUT_MS) -> None:
        self._channel = channel
        self._timeout_ms = timeout_ms
        self.forwarded_count = 0

    @property
    def queue_size(self) -> int:
        return self._channel.queue_size

    async def forward(self, request: Request, context: RequestContext) -> ForwardedResponse:
        """The controller's response to a client's request.

        Raises RequestTimedOutError after the time-out, UnsupportedApiError (the connection is closed) when the
        controller does not know the version, ForwardingFailedError for any other refusal of the envelope.
        """
        try:
            return await self.forward_frame(request.frame, context)
        except UnsupportedApiError:
            raise UnsupportedApiError(request.api_key, request.version) from None

    async def forward_frame(self, frame: bytes, context: RequestContext) -> ForwardedResponse:
        """The same for a frame (header and body) that we made in a client's name."""
        envelope = RequestSchema.of(ApiKey.ENVELOPE, ENVELOPE_VERSION).EnvelopeRequest(
            request_data=frame,
            request_principal=serialize_principal(context.principal),
            client_host_address=address_bytes(context.client_host),
        )
        self.forwarded_count += 1
        response = await self._channel.send(envelope, timeout_ms=self._timeout_ms)
        if response.error_code == ErrorCode.unsupported_version:
            api_key, version = struct.unpack_from(">hh", frame)
            raise UnsupportedApiError(api_key, version)
        if response.error_code != ErrorCode.none or response.response_data is None:
            log.warning("envelope_refused", error=response.error_code.name, principal=context.principal)
            raise ForwardingFailedError(f"the controller refused the forwarded request: {response.error_code.name}")
        return bytes(response.response_data)

    async def send(self, entity: Any, *, timeout_ms: int | None = None) -> Any:
        """A request of the broker's own, directly, answered with its response entity; RequestTimedOutError."""
        return await self._channel.send(entity, timeout_ms=self._timeout_ms if timeout_ms is None else timeout_ms)


def serialize_principal(principal: str) -> bytes:
    """A principal (`User:alice`) as DefaultKafkaPrincipalBuilder writes it: version, then DefaultPrincipalData."""
    kind, _, name = principal.partition(":")
    out = io.BytesIO()
    out.write(struct.pack(">h", PRINCIPAL_DATA_VERSION))
    _write_principal(out, DefaultPrincipalData(type_=kind, name=name, token_authenticated=False))
    return out.getvalue()


def address_bytes(host: str) -> bytes:
    """An address as 4 or 16 bytes; a scope (`%eth0`) is left out, an IPv4 address inside IPv6 is written as itself."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed
    return address.packed
