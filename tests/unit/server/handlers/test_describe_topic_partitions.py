import asyncio
from typing import Any
from uuid import UUID

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.describe_topic_partitions import describe_topic_partitions
from tests.unit.server.link_support import (
    OTHER_TOPIC_ID,
    TOPIC_ID,
    ask,
    broker_record,
    cache_with,
    config_holder,
    request_of,
    schema_of,
    topic_records,
)

SCHEMA = schema_of(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
RECORDS = (
    broker_record(1),
    *topic_records("b", TOPIC_ID, (1,), (1,), (1,)),
    *topic_records("a", OTHER_TOPIC_ID, (1, 2), (1,)),
    *topic_records("c", UUID(int=0xC0C0), (1,)),
)


def get(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None, config: Any = None) -> Any:
    given = request_of(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=tuple(SCHEMA.TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=None if cursor is None else SCHEMA.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return asyncio.run(ask(describe_topic_partitions, given, cache_with(*RECORDS), config or config_holder()))


def shown(answer: Any) -> dict[str, list[int]]:
    return {topic.name: [each.partition_index for each in topic.partitions] for topic in answer.topics}


def test_no_names_are_all_topics_sorted() -> None:
    answer = get()
    assert list(shown(answer).items()) == [("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])]
    assert answer.next_cursor is None
    topic = answer.topics[0]
    assert (topic.topic_id, topic.error_code, topic.topic_authorized_operations) == (OTHER_TOPIC_ID, 0, 3576)
    partition = topic.partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes) == (1, 3, (1, 2))
    assert (partition.isr_nodes, partition.offline_replicas) == ((1, 2), (2,))
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())


def test_every_topic_asked_for_is_answered() -> None:
    answer = get("zz", "b", "b", "b@d")
    errors = {topic.name: topic.error_code for topic in answer.topics}
    assert errors == {
        "b": ErrorCode.none,
        "b@d": ErrorCode.invalid_topic_exception,
        "zz": ErrorCode.unknown_topic_or_partition,
    }
    assert len(answer.topics) == 3


def test_pages_by_cursor_show_everything_once() -> None:
    pages, cursor = [], None
    while True:
        answer = get("a", "b", "c", "nope", limit=2, cursor=cursor)
        pages.append(shown(answer))
        if answer.next_cursor is None:
            break
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index)
    assert pages == [{"a": [0, 1]}, {"b": [0, 1]}, {"b": [2], "c": [0], "nope": []}]


def test_the_brokers_limit_bounds_the_clients_and_zero_is_one() -> None:
    config = config_holder(max__request__partition__size__limit="3")
    assert shown(get(config=config)) == {"a": [0, 1], "b": [0]}
    assert shown(get(limit=0)) == {"a": [0]}


def test_a_cursor_at_a_deleted_topic_goes_on_with_the_next() -> None:
    assert shown(get(cursor=("bb", 7))) == {"c": [0]}


def test_a_negative_cursor_is_refused_at_every_topic() -> None:
    answer = get("a", "b", cursor=("a", -1))
    assert {topic.name: topic.error_code for topic in answer.topics} == dict.fromkeys("ab", ErrorCode.invalid_request)
