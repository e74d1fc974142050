"""Bytes that are almost a request decode, or are refused as malformed; nothing else is ever raised."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.protocol import fetch_codec, produce_codec
from broker.protocol.errors import MalformedFrameError, ProtocolError
from broker.protocol.frames import Frame
from broker.protocol.requests import decode_request
from tests.support.requests_corpus import recorded_requests

RECORDED = [each.frame for each in recorded_requests()]
PRODUCE = [each.frame for each in recorded_requests(0)]
FETCH = [each.frame for each in recorded_requests(1)]
HEADER_SIZE = 8  # key, version and correlation id stay what they are, or most inputs end there


@st.composite
def mutated(draw: st.DrawFn, frames: list[bytes]) -> bytes:
    frame = bytearray(draw(st.sampled_from(frames)))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(HEADER_SIZE, max(len(frame) - 1, HEADER_SIZE)))
        kind = draw(st.sampled_from(["set", "insert", "remove", "cut"]))
        if kind == "set" and position < len(frame):
            frame[position] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, draw(st.integers(0, 255))]))
        elif kind == "insert":
            frame[position:position] = draw(st.binary(min_size=1, max_size=6))
        elif kind == "remove":
            del frame[position : position + draw(st.integers(1, 6))]
        else:
            del frame[position:]
    return bytes(frame)


@settings(max_examples=500)
@given(mutated(RECORDED))
def test_any_request(frame: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_request(frame)


@settings(max_examples=200)
@given(st.binary(max_size=200), st.integers(0, 92), st.integers(0, 18))
def test_noise_with_a_valid_key(noise: bytes, api_key: int, version: int) -> None:
    with contextlib.suppress(ProtocolError):
        decode_request(api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + noise)


@settings(max_examples=300)
@given(mutated(PRODUCE), st.integers(3, 13))
def test_produce_in_any_version(frame: bytes, version: int) -> None:
    with contextlib.suppress(MalformedFrameError):
        head = Frame(memoryview(frame), is_owned=True)
        request = produce_codec.decode(head.buffer, head.body_position, version)
        for topic in request.topics:
            assert all(-1 <= start <= end <= len(frame) for _, start, end in topic.partitions)


@settings(max_examples=300)
@given(mutated(FETCH), st.integers(4, 18))
def test_fetch_in_any_version(frame: bytes, version: int) -> None:
    with contextlib.suppress(MalformedFrameError):
        head = Frame(memoryview(frame), is_owned=True)
        fetch_codec.decode(head.buffer, head.body_position, version)
