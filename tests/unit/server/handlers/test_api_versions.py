"""ApiVersions as clients of every age expect it (KIP-511, KIP-1242)."""

import struct
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import decode_response
from broker.server.connection import ServerConnection
from tests.support.requests_corpus import RecordedRequest, recorded_requests
from tests.support.socket_harness import RecordingTransport, connected, receive, server_of


def ask(frame: bytes) -> tuple[bytes, ServerConnection, RecordingTransport]:
    connection, transport = connected(server_of())
    receive(connection, struct.pack(">i", len(frame)) + frame)
    (response,) = transport.responses()
    return response, connection, transport


@pytest.mark.parametrize("recorded", recorded_requests(ApiKey.API_VERSIONS), ids=lambda each: each.name)
def test_real_clients_are_answered(recorded: RecordedRequest) -> None:
    response, connection, _ = ask(recorded.frame)
    entity = decode_response(ApiKey.API_VERSIONS, recorded.version, response)[1]
    assert entity.error_code == ErrorCode.none
    assert [(each.api_key, each.min_version, each.max_version) for each in entity.api_keys] == [(18, 0, 4)]
    if recorded.version >= 3:
        assert connection.context.client_software_name != "unknown"


@pytest.mark.parametrize("version", [5, 6, 77, 32767, -1])
def test_a_version_from_the_future_is_answered_with_version_0_and_the_connection_stays_open(version: int) -> None:
    frame = struct.pack(">hhih", 18, version, 99, 3) + b"abc" + b"\0" + b"whatever a future body holds"
    response, connection, transport = ask(frame)
    assert response == struct.pack(">ihihhh", 99, 35, 1, 18, 0, 4)
    assert not transport.is_closed
    recorded = recorded_requests(ApiKey.API_VERSIONS)[0].frame
    receive(connection, struct.pack(">i", len(recorded)) + recorded)
    assert len(transport.responses()) == 2


def software(name: bytes, version: bytes) -> bytes:
    head = struct.pack(">hhih", 18, 3, 1, -1) + b"\0"
    return head + bytes([len(name) + 1]) + name + bytes([len(version) + 1]) + version + b"\0"


@pytest.mark.parametrize(
    ("name", "version", "error"),
    [
        (b"apache-kafka-java", b"4.4.0", ErrorCode.none),
        (b"a", b"1", ErrorCode.none),
        (b"my.client-2", b"v1.0-rc.1", ErrorCode.none),
        (b"", b"1", ErrorCode.invalid_request),
        (b"librdkafka", b"", ErrorCode.invalid_request),
        (b"-client", b"1", ErrorCode.invalid_request),
        (b"client.", b"1", ErrorCode.invalid_request),
        (b"my client", b"1", ErrorCode.invalid_request),
        (b"client\n", b"1", ErrorCode.invalid_request),
        ("клиент".encode(), b"1", ErrorCode.invalid_request),
    ],
)
def test_names_of_software(name: bytes, version: bytes, error: ErrorCode) -> None:
    response, connection, transport = ask(software(name, version))
    entity: Any = decode_response(ApiKey.API_VERSIONS, 3, response)[1]
    assert entity.error_code == error
    assert not transport.is_closed
    if error == ErrorCode.none:
        assert connection.context.client_software_name == name.decode()
        assert connection.context.client_software_version == version.decode()


@pytest.mark.parametrize("size", range(12, 19))
def test_a_body_that_is_cut_closes_the_connection(size: int) -> None:
    frame = software(b"abc", b"1")[:size]
    if size >= 17:  # only the tagged fields at the end are missing, which are not read
        return
    connection, transport = connected(server_of())
    receive(connection, struct.pack(">i", len(frame)) + frame)
    assert transport.is_closed
    assert transport.written == b""
