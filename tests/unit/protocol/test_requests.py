import struct

import pytest
from kio.index import load_request_schema

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.errors import MalformedFrameError, UnsupportedApiError
from broker.protocol.requests import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    has_request_header_tags,
)
from broker.protocol.response_schema import RequestSchema, ResponseSchema
from tests.support.requests_corpus import recorded_requests


def test_bytes_behind_the_body_are_ignored() -> None:
    """librdkafka's Metadata 13 for all topics writes a null array of four bytes where one belongs (seen)."""
    frame = struct.pack(">hhih", 3, 13, 7, -1) + b"\0" + b"\0\0\0\0" + b"\1\0\0"
    request = decode_request(frame)
    assert request.body.topics is None
    for recorded in recorded_requests(ApiKey.METADATA):
        assert decode_request(recorded.frame + b"behind").body == decode_request(recorded.frame).body


@pytest.mark.parametrize("recorded", recorded_requests()[::5], ids=lambda each: each.name)
def test_a_request_that_is_cut_is_malformed_or_shorter(recorded: object) -> None:
    frame: bytes = recorded.frame  # type: ignore[attr-defined]
    for size in range(0, len(frame), 3):
        try:
            decode_request(frame[:size])
        except MalformedFrameError:
            continue
        assert size >= 10, "without a whole header nothing decodes"


@pytest.mark.parametrize(("key", "version"), [(4, 0), (99, 0), (18, 5), (0, 2), (18, -1), (1, 19)])
def test_what_has_no_schema_is_unsupported(key: int, version: int) -> None:
    with pytest.raises(UnsupportedApiError):
        decode_request(struct.pack(">hhih", key, version, 7, -1))


def test_null_where_none_is_allowed_is_malformed() -> None:
    with pytest.raises(MalformedFrameError):
        decode_request(struct.pack(">hhih", ApiKey.HEARTBEAT, 0, 7, -1) + struct.pack(">h", -1))


def test_an_absurd_array_length_takes_no_memory() -> None:
    with pytest.raises(MalformedFrameError):
        decode_request(struct.pack(">hhih", ApiKey.METADATA, 1, 7, -1) + struct.pack(">i", 0x7FFFFFFF))


@pytest.mark.parametrize("version", range(5))
def test_api_versions_is_answered_with_header_version_0(version: int) -> None:
    schema = ResponseSchema.of(ApiKey.API_VERSIONS, version)
    entity = schema.ApiVersionsResponse(error_code=ErrorCode.none, api_keys=(), throttle_time=NO_THROTTLE)
    (encoded,) = encode_response(ApiKey.API_VERSIONS, version, 7, entity)
    assert encoded[4:8] == struct.pack(">i", 7)
    assert encoded[8:10] == b"\0\0", "the error code follows at once, without tagged fields of a header"


def test_header_versions() -> None:
    assert not has_request_header_tags(ApiKey.SASL_HANDSHAKE, 1)
    assert not has_request_header_tags(ApiKey.API_VERSIONS, 2)
    assert has_request_header_tags(ApiKey.API_VERSIONS, 3)


@pytest.mark.parametrize(
    ("api_key", "versions"),
    [(ApiKey.PRODUCE, range(3, 14)), (ApiKey.FETCH, range(4, 19)), (ApiKey.API_VERSIONS, range(5))],
)
def test_header_versions_known_without_kio_are_those_of_kio(api_key: ApiKey, versions: range) -> None:
    told = {version: has_request_header_tags(api_key, version) for version in versions}
    kio = {version: load_request_schema(api_key, version).__header_schema__.__version__ >= 2 for version in versions}
    assert told == kio


@pytest.mark.parametrize("version", [0, 4])
def test_our_own_requests_come_back(version: int) -> None:
    schema = RequestSchema.of(ApiKey.HEARTBEAT, version)
    body = schema.HeartbeatRequest(group_id="g", generation_id=3, member_id="m", group_instance_id=None)
    raw = encode_request(ApiKey.HEARTBEAT, version, 11, None, body)
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4
    request = decode_request(memoryview(raw)[4:])
    assert (request.api_key, request.version, request.correlation_id) == (ApiKey.HEARTBEAT, version, 11)
    assert (request.client_id, request.body, request.frame) == (None, body, raw[4:])
    assert request.schema is ResponseSchema.of(ApiKey.HEARTBEAT, version)


def test_the_wrong_entity_is_caught_before_the_wire() -> None:
    schema = ResponseSchema.of(ApiKey.HEARTBEAT, 4)
    entity = schema.HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none)
    with pytest.raises(AssertionError):
        encode_response(ApiKey.HEARTBEAT, 3, 7, entity)
    with pytest.raises(AssertionError):
        encode_request(ApiKey.HEARTBEAT, 3, 7, None, entity)


def test_responses_with_unknown_tags_decode() -> None:
    frame = struct.pack(">i", 7) + b"\x01\x05\x01x" + struct.pack(">ih", 0, 0) + b"\x01\x63\x01x"
    correlation_id, entity = decode_response(ApiKey.HEARTBEAT, 4, frame)
    assert (correlation_id, entity.error_code) == (7, ErrorCode.none)
    with pytest.raises(MalformedFrameError):
        decode_response(ApiKey.HEARTBEAT, 4, b"\0\0")
