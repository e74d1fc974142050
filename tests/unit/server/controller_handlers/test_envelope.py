import io
from typing import Any

import pytest
from kio.schema.default_principal_data.v0.data import DefaultPrincipalData
from kio.serial import entity_writer

from broker.common.errors import ErrorCode, InvalidRequestError, KafkaError, UnsupportedVersionError
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import decode_response
from broker.server.controller_handlers.envelope import EnvelopeDispatcher, envelope
from broker.server.request_context import RequestContext
from tests.unit.server.controller_handlers.controller_handler_support import CONTEXT, controller_client
from tests.unit.server.link_support import request_of

ADDRESS = bytes([192, 0, 2, 9])


def principal(name: str = "alice") -> bytes:
    out = io.BytesIO()
    out.write(b"\0\0")
    entity_writer(DefaultPrincipalData)(out, DefaultPrincipalData(type_="User", name=name, token_authenticated=False))
    return out.getvalue()


async def send(dispatcher: EnvelopeDispatcher, data: bytes, **fields: Any) -> Any:
    values: dict[str, Any] = {
        "request_data": data,
        "request_principal": principal(),
        "client_host_address": ADDRESS,
    }
    return await envelope(request_of(ApiKey.ENVELOPE, 0, **{**values, **fields}), CONTEXT, dispatcher)


async def test_39_the_inner_answer_goes_back_as_it_is() -> None:
    async with controller_client() as client:
        await client.start_brokers(2)
        dispatcher = EnvelopeDispatcher()
        dispatcher.dispatch = client.dispatcher.dispatch_envelope
        inner = request_of(ApiKey.UNREGISTER_BROKER, 0, broker_id=9)
        answer = await send(dispatcher, inner.frame)
        assert answer.error_code is ErrorCode.none
        correlation_id, entity = decode_response(ApiKey.UNREGISTER_BROKER, 0, answer.response_data)
        assert correlation_id == inner.correlation_id
        assert entity.error_code is ErrorCode.broker_id_not_registered
        unsupported = bytes([0, 42]) + inner.frame[2:]  # DeleteGroups: no controller offers it
        with pytest.raises(UnsupportedVersionError):
            await send(dispatcher, unsupported)
        with pytest.raises(InvalidRequestError):
            await send(dispatcher, b"\0")


async def test_39_the_handler_sees_the_client_and_not_the_broker() -> None:
    seen: list[RequestContext] = []

    async def dispatch(frame: object, context: RequestContext) -> bytes:
        seen.append(context)
        return b"answer"

    dispatcher = EnvelopeDispatcher()
    dispatcher.dispatch = dispatch
    assert (await send(dispatcher, b"x")).response_data == b"answer"
    assert (await send(dispatcher, b"x", client_host_address=bytes(15) + b"\x01")).response_data == b"answer"
    assert [context.principal for context in seen] == ["User:alice"] * 2
    assert [context.client_host for context in seen] == ["192.0.2.9", "::1"]
    assert [context.from_envelope for context in seen] == [True, True]
    assert not CONTEXT.from_envelope


@pytest.mark.parametrize("data", [None, b"", b"\0\1" + principal()[2:], principal()[:-3]])
async def test_principals_that_cannot_be_read(data: bytes | None) -> None:
    with pytest.raises(KafkaError) as raised:
        await send(EnvelopeDispatcher(), b"x", request_principal=data)
    assert raised.value.code is ErrorCode.principal_deserialization_failure


async def test_addresses_that_are_none() -> None:
    with pytest.raises(InvalidRequestError):
        await send(EnvelopeDispatcher(), b"x", client_host_address=b"\1\2\3")
