import asyncio
from typing import Any
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import partition_for_key
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.find_coordinator import find_coordinator
from tests.unit.server.link_support import OTHER_TOPIC_ID, ask, broker_record, cache_with, request_of, topic_records

OFFSETS = topic_records("__consumer_offsets", OTHER_TOPIC_ID, (1,), (2,), (3,), (4,))
RECORDS = (
    broker_record(1),
    broker_record(2),
    broker_record(3, fenced=True),
    broker_record(4, listeners=("INSIDE",)),
    *OFFSETS,
)


def group_at(partition: int) -> str:
    return next(f"group-{n}" for n in range(99) if partition_for_key(f"group-{n}", 4) == partition)


class FakeCreation:
    def __init__(self, cache: Any = None, records: tuple[Any, ...] = ()) -> None:
        self.cache, self.records = cache, records
        self.asked: list[Any] = []

    async def create_topics(self, names: list[str]) -> dict[str, ErrorCode]:
        self.asked.append(names)
        if self.records:
            self.cache.set_image(cache_with(*self.records).image)
        return {}


def get(version: int, *keys: str, key_type: int = 0, cache: Any = None, creation: Any = None) -> Any:
    fields = {"coordinator_keys": keys} if version >= 4 else {"key": keys[0]}
    given = request_of(ApiKey.FIND_COORDINATOR, version, key_type=key_type, **fields)
    cache = cache or cache_with(*RECORDS)
    return asyncio.run(ask(find_coordinator, given, cache, creation or FakeCreation()))


@pytest.mark.parametrize("version", range(4))
def test_one_key(version: int) -> None:
    answer = get(version, group_at(1))
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (ErrorCode.none, 2, "host-2", 9002)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_many_keys_in_their_order(version: int) -> None:
    keys = [group_at(partition) for partition in (1, 0, 2, 3)]
    found = get(version, *keys).coordinators
    assert [(each.key, each.error_code, each.node_id, each.host, each.port) for each in found] == [
        (keys[0], ErrorCode.none, 2, "host-2", 9002),
        (keys[1], ErrorCode.none, 1, "host-1", 9001),
        (keys[2], ErrorCode.coordinator_not_available, -1, "", -1),  # fenced
        (keys[3], ErrorCode.coordinator_not_available, -1, "", -1),  # not on this listener
    ]
    assert "no live leader on listener PLAINTEXT" in found[2].error_message


def test_a_fresh_cluster_makes_its_offsets_topic_and_answers_well() -> None:
    cache = cache_with(broker_record(1))
    creation = FakeCreation(cache, (broker_record(1), *topic_records("__consumer_offsets", UUID(int=5), (1,))))
    (found,) = get(4, "g", cache=cache, creation=creation).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.none, 1)
    assert creation.asked == [["__consumer_offsets"]]


def test_until_it_exists_clients_come_back() -> None:
    (found,) = get(4, "g", cache=cache_with(broker_record(1))).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.coordinator_not_available, -1)
    answer = get(1, "g", cache=cache_with(broker_record(1)))
    assert (answer.error_code, answer.node_id, answer.port) == (ErrorCode.coordinator_not_available, -1, -1)


@pytest.mark.parametrize(
    ("key_type", "old_error", "text"),
    [
        (1, ErrorCode.transactional_id_authorization_failed, "no transaction coordinator"),
        (2, ErrorCode.invalid_request, "keys of type 2"),
    ],
)
def test_other_coordinators_are_refused_for_good(key_type: int, old_error: ErrorCode, text: str) -> None:
    creation = FakeCreation()
    (found,) = get(6, "x", key_type=key_type, creation=creation).coordinators
    assert (found.key, found.error_code, found.node_id) == ("x", ErrorCode.invalid_request, -1)
    assert text in found.error_message
    answer = get(2, "x", key_type=key_type, creation=creation)
    assert (answer.error_code, answer.node_id) == (old_error, -1)
    assert text in answer.error_message
    assert creation.asked == []
