"""Every request real clients send can be refused as a whole, and the refusal says why in each place it can."""

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.error_counts import error_counts
from broker.protocol.error_responses import error_response
from broker.protocol.requests import Request, decode_request, decode_response, encode_response
from tests.support.requests_corpus import RecordedRequest, recorded_requests

ONE_OF_EACH = list({(each.api_key, each.version): each for each in recorded_requests()}.values())


def refused(api_key: ApiKey, version: int) -> tuple[Request, object]:
    recorded = next(each for each in recorded_requests(api_key) if each.version == version)
    request = decode_request(recorded.frame)
    return request, error_response(request, ErrorCode.not_coordinator, "no")


@pytest.mark.parametrize("recorded", ONE_OF_EACH, ids=lambda each: each.name)
def test_every_refusal_encodes_and_tells_the_code(recorded: RecordedRequest) -> None:
    request = decode_request(recorded.frame)
    entity = error_response(request, ErrorCode.not_coordinator, "no")
    (encoded,) = encode_response(request.api_key, request.version, 1, entity)
    assert decode_response(request.api_key, request.version, encoded[4:]) == (1, entity)
    counts = error_counts(entity)
    if request.api_key == ApiKey.METADATA and not request.body.topics:
        return  # the protocol has no place for it
    assert set(counts) == {ErrorCode.not_coordinator}


def test_what_was_asked_for_is_named() -> None:
    request, entity = refused(ApiKey.LIST_OFFSETS, 3)
    asked = request.body.topics[0]
    topic = entity.topics[0]  # type: ignore[attr-defined]
    partition = topic.partitions[0]
    assert (topic.name, partition.partition_index) == (asked.name, asked.partitions[0].partition_index)
    assert (partition.timestamp, partition.offset) == (-1, -1), "what was asked for was not found"


def test_plain_names_and_numbers_are_answered_by_entries() -> None:
    request, entity = refused(ApiKey.DESCRIBE_GROUPS, 5)
    assert [group.group_id for group in entity.groups] == list(request.body.groups)  # type: ignore[attr-defined]
    request, entity = refused(ApiKey.DELETE_TOPICS, 4)
    names = [topic.name for topic in entity.responses]  # type: ignore[attr-defined]
    assert names == list(request.body.topic_names)


def test_a_message_is_told_where_there_is_room() -> None:
    _, entity = refused(ApiKey.FIND_COORDINATOR, 1)
    assert (entity.error_message, entity.node_id, entity.host) == ("no", -1, "")  # type: ignore[attr-defined]


def test_neutral_values() -> None:
    _, entity = refused(ApiKey.JOIN_GROUP, 5)
    assert (entity.generation_id, entity.leader, entity.members) == (-1, "", ())  # type: ignore[attr-defined]
