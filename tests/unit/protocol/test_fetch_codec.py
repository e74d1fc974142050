"""By example; every version against kio is in tests/properties/test_codec_fetch.py."""

import struct

import pytest

from broker.protocol import fetch_codec
from broker.protocol.errors import MalformedFrameError
from broker.protocol.frames import Frame
from broker.protocol.requests import has_request_header_tags
from broker.protocol.wire_format import unsigned_varint
from tests.support.requests_corpus import recorded_requests


def test_a_body_that_is_cut_anywhere_is_malformed() -> None:
    for recorded in recorded_requests(1)[::3]:
        frame = Frame(memoryview(recorded.frame), is_owned=True)
        if has_request_header_tags(1, frame.version):
            frame.skip_header_tags()
        for size in range(frame.body_position, len(recorded.frame)):
            with pytest.raises(MalformedFrameError):
                fetch_codec.decode(memoryview(recorded.frame)[:size], frame.body_position, frame.version)


def test_versions_without_sessions_ask_for_none() -> None:
    body = struct.pack(">iiiibi", -1, 500, 1, 100, 1, 0)
    decoded = fetch_codec.decode(memoryview(body), 0, 4)
    assert (decoded.session_id, decoded.session_epoch) == (0, -1)
    assert (decoded.replica_id, decoded.max_wait_ms, decoded.min_bytes) == (-1, 500, 1)
    assert (decoded.max_bytes, decoded.isolation_level, decoded.topics) == (100, 1, [])


@pytest.mark.parametrize("count", [3, 4, 1000])
def test_many_partitions_are_read_in_one_pass_or_one_by_one(count: int) -> None:
    partitions = b"".join(struct.pack(">iiqiqix", index, 7, index * 10, -1, -1, 1 << 20) for index in range(count))
    topic = bytes(15) + b"\x09" + unsigned_varint(count + 1) + partitions + b"\0"
    body = struct.pack(">iiibii", 500, 1, 100, 0, 0, -1) + b"\x02" + topic + b"\x01\x01\x00"
    (asked,) = fetch_codec.decode(memoryview(body), 0, 15).topics
    assert [(each.partition, each.fetch_offset) for each in asked.partitions] == [(n, n * 10) for n in range(count)]
    assert {(each.current_leader_epoch, each.max_bytes) for each in asked.partitions} == {(7, 1 << 20)}


def test_a_replica_state_that_is_too_short_is_malformed() -> None:
    body = struct.pack(">iiibii", 500, 1, 100, 0, 0, -1) + b"\x01\x01\x01" + b"\x01\x01\x02xx"
    with pytest.raises(MalformedFrameError):
        fetch_codec.decode(memoryview(body), 0, 15)
