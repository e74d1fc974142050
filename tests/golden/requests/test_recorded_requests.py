"""Every request that real clients were seen to send decodes, and encodes to the same bytes again."""

import pytest
from kio.index import load_request_schema

from broker.protocol import fetch_codec, produce_codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import to_milliseconds
from broker.protocol.frames import Frame
from broker.protocol.requests import decode_request, encode_request, has_request_header_tags
from tests.support.codec_oracle import fetch_request_of, produce_request_of
from tests.support.requests_corpus import RecordedRequest, recorded_requests

ALL = recorded_requests()


def frame_of(recorded: RecordedRequest) -> Frame:
    frame = Frame(memoryview(recorded.frame), is_owned=True)
    if has_request_header_tags(frame.api_key, frame.version):
        frame.skip_header_tags()
    return frame


def test_the_corpus_is_whole() -> None:
    assert len(ALL) == 360
    assert len({(each.api_key, each.version) for each in ALL}) == 110


@pytest.mark.parametrize("recorded", ALL, ids=lambda each: each.name)
def test_decodes(recorded: RecordedRequest) -> None:
    request = decode_request(recorded.frame)
    assert (request.api_key, request.version) == (recorded.api_key, recorded.version)
    assert isinstance(request.body, load_request_schema(recorded.api_key, recorded.version))
    assert request.frame == recorded.frame


@pytest.mark.parametrize("recorded", ALL, ids=lambda each: each.name)
def test_encodes_to_the_same_bytes(recorded: RecordedRequest) -> None:
    request = decode_request(recorded.frame)
    again = encode_request(request.api_key, request.version, request.correlation_id, request.client_id, request.body)[
        4:
    ]
    assert recorded.frame.startswith(again)


@pytest.mark.parametrize("recorded", recorded_requests(ApiKey.PRODUCE), ids=lambda each: each.name)
def test_the_produce_codec_agrees_with_kio(recorded: RecordedRequest) -> None:
    frame = frame_of(recorded)
    decoded = produce_codec.decode(frame.buffer, frame.body_position, frame.version)
    assert decoded == produce_request_of(decode_request(recorded.frame).body, recorded.frame, decoded)
    assert decoded.timeout_ms == to_milliseconds(decode_request(recorded.frame).body.timeout)


@pytest.mark.parametrize("recorded", recorded_requests(ApiKey.FETCH), ids=lambda each: each.name)
def test_the_fetch_codec_agrees_with_kio(recorded: RecordedRequest) -> None:
    frame = frame_of(recorded)
    decoded = fetch_codec.decode(frame.buffer, frame.body_position, frame.version)
    assert decoded == fetch_request_of(decode_request(recorded.frame).body)
