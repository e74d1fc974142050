import struct
from typing import Any

import pytest

from broker.common.errors import ErrorCode, RequestTimedOutError
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import UnsupportedApiError
from broker.server.forwarding_manager import (
    ForwardingFailedError,
    ForwardingManager,
    address_bytes,
    serialize_principal,
)
from broker.server.node_to_controller_channel import NodeToControllerChannel
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.link_support import (
    CONTEXT,
    CONTROLLER,
    FakeController,
    finder_with_leader,
    request_of,
    response_of,
)

REQUEST = request_of(ApiKey.UNREGISTER_BROKER, 0, broker_id=3)


def envelope_answer(data: bytes | None, error: ErrorCode = ErrorCode.none) -> Any:
    return response_of(ApiKey.ENVELOPE, 0, response_data=data, error_code=error)


def manager_for(controller: FakeController) -> tuple[NodeToControllerChannel, ForwardingManager]:
    channel = NodeToControllerChannel("forwarding", finder_with_leader(), controller.connect, request_timeout_ms=60_000)
    return channel, ForwardingManager(channel)


def forward(answers: list[Any]) -> tuple[bytes, FakeController]:
    controller = FakeController()
    controller.answers[ApiKey.ENVELOPE] = lambda _: answers.pop(0)

    async def story(loop: SimLoop) -> bytes:
        channel, forwarding = manager_for(controller)
        async with channel.running():
            return await forwarding.forward(REQUEST, CONTEXT)

    return simulate(story), controller


def test_the_frame_goes_in_and_the_response_comes_out_as_they_are() -> None:
    response, controller = forward([envelope_answer(b"\x00\x00\x00\x07rest")])
    assert response == b"\x00\x00\x00\x07rest"
    (envelope,) = controller.requests(ApiKey.ENVELOPE)
    assert envelope.request_data == REQUEST.frame
    assert struct.unpack_from(">hhi", envelope.request_data) == (64, 0, 7)
    assert envelope.client_host_address == bytes([192, 0, 2, 7])
    assert envelope.request_principal == b"\x00\x00\x05User\x0aANONYMOUS\x00\x00"


def test_a_controller_that_lost_leadership_is_left_for_the_next() -> None:
    response, controller = forward([envelope_answer(None, ErrorCode.not_controller), envelope_answer(b"ok")])
    assert response == b"ok"
    assert len(controller.requests(ApiKey.ENVELOPE)) == 2


def test_an_unknown_version_closes_the_clients_connection() -> None:
    with pytest.raises(UnsupportedApiError, match="api key 64 version 0"):
        forward([envelope_answer(None, ErrorCode.unsupported_version)])


@pytest.mark.parametrize("error", [ErrorCode.cluster_authorization_failed, ErrorCode.invalid_request])
def test_any_other_refusal_is_a_server_error(error: ErrorCode) -> None:
    with pytest.raises(ForwardingFailedError, match=error.name) as raised:
        forward([envelope_answer(None, error)])
    assert raised.value.code == ErrorCode.unknown_server_error


def test_silence_is_a_time_out_after_a_minute() -> None:
    async def story(loop: SimLoop) -> None:
        controller = FakeController()
        controller.unreachable.add(CONTROLLER)
        channel, forwarding = manager_for(controller)
        async with channel.running():
            with pytest.raises(RequestTimedOutError):
                await forwarding.forward(REQUEST, CONTEXT)
        assert loop.time() == pytest.approx(60)
        assert forwarding.forwarded_count == 1

    simulate(story)


def test_requests_of_our_own_go_without_an_envelope() -> None:
    async def story(loop: SimLoop) -> None:
        controller = FakeController()
        controller.answers[ApiKey.UNREGISTER_BROKER] = lambda request: request.broker_id
        channel, forwarding = manager_for(controller)
        async with channel.running():
            assert await forwarding.send(REQUEST.body) == 3

    simulate(story)


def test_principals_are_written_as_kafka_reads_them() -> None:
    assert serialize_principal("User:a:b") == b"\x00\x00\x05User\x04a:b\x00\x00"


@pytest.mark.parametrize(
    ("host", "packed"),
    [
        ("127.0.0.1", b"\x7f\x00\x00\x01"),
        ("::1", b"\x00" * 15 + b"\x01"),
        ("fe80::1%eth0", b"\xfe\x80" + b"\x00" * 13 + b"\x01"),
        ("::ffff:10.0.0.1", b"\x0a\x00\x00\x01"),
    ],
)
def test_addresses_are_four_or_sixteen_bytes(host: str, packed: bytes) -> None:
    assert address_bytes(host) == packed
