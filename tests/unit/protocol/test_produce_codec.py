"""By example; every version against kio is in tests/properties/test_codec_produce.py."""

import struct
from uuid import UUID

import pytest

from broker.protocol import produce_codec
from broker.protocol.errors import MalformedFrameError
from broker.protocol.frames import Frame
from broker.protocol.requests import has_request_header_tags
from broker.protocol.wire_format import compact_string, unsigned_varint
from tests.support.requests_corpus import recorded_requests

V9 = b"\0" + struct.pack(">hi", -1, 1500) + b"\x02\x02t\x02" + struct.pack(">i", 3) + b"\x04abc\0\0\0"


def test_a_request_names_where_its_records_are() -> None:
    decoded = produce_codec.decode(memoryview(b"head" + V9 + b"behind"), 4, 9)
    ((name, topic_id, partitions),) = decoded.topics
    assert (decoded.transactional_id, decoded.acks, decoded.timeout_ms) == (None, -1, 1500)
    assert (name, topic_id) == ("t", None)
    ((partition, start, end),) = partitions
    assert partition == 3
    assert (b"head" + V9)[start:end] == b"abc"


def test_version_13_tells_topics_by_id() -> None:
    topic_id = UUID(int=77)
    body = V9.replace(b"\x02t", topic_id.bytes)
    ((name, decoded_id, _),) = produce_codec.decode(memoryview(body), 0, 13).topics
    assert (name, decoded_id) == (None, topic_id)


@pytest.mark.parametrize(("version", "topic"), [(9, b"\x05once"), (13, UUID(int=0xFACE).bytes)])
def test_the_head_of_a_client_s_requests_is_read_once(version: int, topic: bytes) -> None:
    hits = produce_codec.known_head.cache_info().hits
    for partition, records in enumerate((b"\x04abc", b"\x00", b"\x02x")):
        body = b"\0" + struct.pack(">hi", 1, 77) + b"\x02" + topic + b"\x02" + struct.pack(">i", partition)
        decoded = produce_codec.decode(memoryview(body + records + b"\0\0\0"), 0, version)
        assert (decoded.acks, decoded.timeout_ms, decoded.topics[0].partitions[0][0]) == (1, 77, partition)
    assert produce_codec.known_head.cache_info().hits == hits + 2


@pytest.mark.parametrize(
    ("transactional_id", "names"),
    [(None, ["x" * 126]), (None, ["x" * 127]), ("t", ["a"]), (None, ["a", "b"]), (None, [])],
)
def test_any_head_is_read(transactional_id: str | None, names: list[str]) -> None:
    body = compact_string(transactional_id) + struct.pack(">hi", 1, 77) + unsigned_varint(len(names) + 1)
    for name in names:
        body += compact_string(name) + b"\x02" + struct.pack(">i", 3) + b"\x04abc\0\0"
    decoded = produce_codec.decode(memoryview(body + b"\0"), 0, 9)
    assert (decoded.transactional_id, [topic.name for topic in decoded.topics]) == (transactional_id, names)
    assert all(len(topic.partitions) == 1 for topic in decoded.topics)


@pytest.mark.parametrize("version", [9, 13])
def test_tagged_fields_of_the_future_are_skipped(version: int) -> None:
    topic = b"\x02t" if version == 9 else UUID(int=77).bytes
    tags = b"\x01\x40\x02zz"
    body = b"\0" + struct.pack(">hi", 1, 1) + b"\x02" + topic + b"\x02" + struct.pack(">i", 3) + b"\x04abc" + tags * 3
    decoded = produce_codec.decode(memoryview(body), 0, version)
    assert len(decoded.topics[0].partitions) == 1


def test_a_body_that_is_cut_anywhere_is_malformed() -> None:
    for recorded in recorded_requests(0):
        frame = Frame(memoryview(recorded.frame), is_owned=True)
        if has_request_header_tags(0, frame.version):
            frame.skip_header_tags()
        for size in range(frame.body_position, len(recorded.frame)):
            with pytest.raises(MalformedFrameError):
                produce_codec.decode(memoryview(recorded.frame)[:size], frame.body_position, frame.version)


@pytest.mark.parametrize("version", [3, 9])
def test_absurd_counts_are_malformed(version: int) -> None:
    counts = struct.pack(">i", 0x7FFFFFFF) if version < 9 else b"\xff\xff\xff\xff\x0f"
    null = b"\xff\xff" if version < 9 else b"\0"
    body = null + struct.pack(">hi", 1, 1) + counts
    with pytest.raises(MalformedFrameError):
        produce_codec.decode(memoryview(body), 0, version)


def test_a_topic_id_is_made_once() -> None:
    raw = UUID(int=1234).bytes
    assert produce_codec.topic_id_of(raw) is produce_codec.topic_id_of(bytes(raw))
