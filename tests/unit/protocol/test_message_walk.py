"""Clients of the future send tagged fields we do not know (KIP-482): they are skipped, wherever they stand."""

from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader

from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.errors import MalformedFrameError
from broker.protocol.message_walk import readable_by_kio, without_unknown_tags
from broker.protocol.requests import decode_request, encode_request
from broker.protocol.response_schema import RequestSchema
from broker.protocol.wire_format import unsigned_varint
from tests.support.requests_corpus import RecordedRequest, recorded_requests

UNKNOWN = unsigned_varint(1000) + unsigned_varint(5) + b"later"
SEEN: dict[tuple[int, int], RecordedRequest] = {(each.api_key, each.version): each for each in recorded_requests()}


def is_flexible(recorded: RecordedRequest) -> bool:
    return bool(load_request_schema(recorded.api_key, recorded.version).__flexible__)


FLEXIBLE = [each for each in SEEN.values() if is_flexible(each)]


def body_start(recorded: RecordedRequest) -> int:
    """Behind the client id and the empty tagged fields of the header."""
    return 10 + max(int.from_bytes(recorded.frame[8:10], "big", signed=True), 0) + 1


def body_of(recorded: RecordedRequest) -> tuple[type, bytes]:
    """The class, and the body alone without anything behind it."""
    entity = load_request_schema(recorded.api_key, recorded.version)
    start = body_start(recorded)
    size = entity_reader(entity)(recorded.frame, start)[1]
    return entity, recorded.frame[start : start + size]


@pytest.mark.parametrize("recorded", FLEXIBLE, ids=lambda each: each.name)
def test_a_message_without_unknown_tags_is_copied_as_it_is(recorded: RecordedRequest) -> None:
    entity, body = body_of(recorded)
    assert without_unknown_tags(entity, b"xx" + body + b"behind", 2) == body


@pytest.mark.parametrize("recorded", FLEXIBLE, ids=lambda each: each.name)
def test_an_unknown_tag_at_the_end_of_the_body_is_left_out(recorded: RecordedRequest) -> None:
    plain = decode_request(recorded.frame)
    _, body = body_of(recorded)
    assert body.endswith(b"\0"), "no recorded request ends in a known tag"
    end = body_start(recorded) + len(body)
    frame = recorded.frame[: end - 1] + b"\x01" + UNKNOWN + recorded.frame[end:]
    assert decode_request(frame).body == plain.body


def test_an_unknown_tag_in_the_header_is_skipped() -> None:
    recorded = SEEN[(18, 3)]
    position = 10 + int.from_bytes(recorded.frame[8:10], "big")
    frame = recorded.frame[:position] + b"\x01" + UNKNOWN + recorded.frame[position + 1 :]
    assert decode_request(frame).body == decode_request(recorded.frame).body


def test_unknown_tags_of_nested_entities_are_left_out_and_known_ones_kept() -> None:
    schema = RequestSchema.of(ApiKey.FETCH, 17)
    directory = UUID(int=5)
    body = schema.FetchRequest(
        cluster_id="cluster",
        replica_state=schema.ReplicaState(replica_id=1, replica_epoch=2),
        max_wait=milliseconds(500),
        min_bytes=1,
        max_bytes=2,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(
            schema.FetchTopic(
                topic_id=UUID(int=9),
                partitions=(
                    schema.FetchPartition(
                        partition=0, fetch_offset=0, partition_max_bytes=1, replica_directory_id=directory
                    ),
                ),
            ),
        ),
        forgotten_topics_data=(),
        rack_id="",
    )
    frame = encode_request(ApiKey.FETCH, 17, 1, None, body)[4:]
    known = b"\x01\x00\x10" + directory.bytes
    assert frame.count(known) == 1
    with_unknown = frame.replace(known, b"\x02" + known[1:] + UNKNOWN)
    assert decode_request(with_unknown).body == body


@pytest.mark.parametrize("recorded", FLEXIBLE[::4], ids=lambda each: each.name)
def test_a_message_that_is_cut_is_malformed(recorded: RecordedRequest) -> None:
    entity, body = body_of(recorded)
    for size in range(len(body)):
        with pytest.raises(MalformedFrameError):
            without_unknown_tags(entity, body[:size], 0)


@pytest.mark.parametrize("key", [(11, 5), (8, 3), (1, 11)])
def test_older_encodings_are_walked_too(key: tuple[int, int]) -> None:
    recorded = SEEN[key]
    entity = load_request_schema(*key)
    start = 10 + max(int.from_bytes(recorded.frame[8:10], "big", signed=True), 0)
    assert without_unknown_tags(entity, recorded.frame, start) == recorded.frame[start:]


@pytest.mark.parametrize("recorded", SEEN.values(), ids=lambda each: each.name)
def test_what_kio_can_read_is_read_in_place(recorded: RecordedRequest) -> None:
    entity = load_request_schema(recorded.api_key, recorded.version)
    start = body_start(recorded) if is_flexible(recorded) else body_start(recorded) - 1
    assert readable_by_kio(entity, recorded.frame, start) == (recorded.frame, start)


@pytest.mark.parametrize("count", ["7fffffff", "10000000", "00000100"])
def test_a_legacy_array_longer_than_its_frame_never_reaches_kio(count: str) -> None:
    """kio would take memory for all of it first, and that ends the process."""
    frame = bytes.fromhex("0003000100000007ffff" + count) + b"\0\1t"
    with pytest.raises(MalformedFrameError, match="an array of"):
        decode_request(frame)


@pytest.mark.parametrize("count", ["ffffffff0f", "ffffff7f", "8002"])
def test_a_compact_array_longer_than_its_frame_never_reaches_kio(count: str) -> None:
    frame = bytes.fromhex("0003000900000007ffff00" + count) + b"\2t\0"
    with pytest.raises(MalformedFrameError, match="an array of"):
        decode_request(frame)


def test_what_stands_in_a_known_tagged_field_is_checked_too() -> None:
    entity, body = body_of(SEEN[(1, 17)])
    tagged = body[:-1] + b"\x01\x00\x03\x7fab"  # cluster_id, a string of 126 bytes in a field of three
    with pytest.raises(MalformedFrameError):
        readable_by_kio(entity, tagged, 0)


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (ApiKey.CREATE_TOPICS, 4, b"\xff\xff\xff\xff" + bytes(5)),
        (ApiKey.CREATE_TOPICS, 7, bytes(7)),
        (ApiKey.DELETE_TOPICS, 3, b"\xff\xff\xff\xff" + bytes(4)),
    ],
)
def test_null_is_refused_where_an_array_may_not_be_null(api_key: ApiKey, version: int, body: bytes) -> None:
    """Kafka: "non-nullable field topics was serialized as null"."""
    with pytest.raises(MalformedFrameError, match="null array"):
        readable_by_kio(load_request_schema(api_key, version), body, 0)
