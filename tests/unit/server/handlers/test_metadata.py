import asyncio
from typing import Any
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.authorized_operations import NOT_REQUESTED, TOPIC_OPERATIONS
from broker.server.handlers.metadata import metadata
from tests.unit.server.link_support import (
    CLUSTER_ID,
    CONTEXT,
    DIRECTORIES,
    IDENTITY,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    ask,
    broker_record,
    cache_with,
    config_holder,
    partition_record,
    request_of,
    schema_of,
    topic_records,
)

RECORDS = (
    broker_record(1),
    broker_record(2, rack="b"),
    broker_record(3, fenced=True),
    *topic_records("t", TOPIC_ID, (1, 2), (2, 3)),
    *topic_records("__consumer_offsets", OTHER_TOPIC_ID, (1,)),
)


class FakeCreation:
    def __init__(self, *outcomes: ErrorCode) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[tuple[list[str], Any]] = []

    async def create_topics(self, names: list[str], context: Any) -> dict[str, ErrorCode]:
        self.asked.append((names, context))
        return dict(zip(names, self.outcomes, strict=True))


def request(version: int, *topics: str | UUID | None, everything: bool = False, **fields: Any) -> Request:
    schema = schema_of(ApiKey.METADATA, version)
    entries = tuple(
        schema.MetadataRequestTopic(
            name=topic if isinstance(topic, str) else None, topic_id=topic if isinstance(topic, UUID) else None
        )
        for topic in topics
    )
    values = {
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }
    return request_of(ApiKey.METADATA, version, topics=None if everything else entries, **values | fields)


def get(given: Request, *records: Any, creation: Any = None, config: Any = None) -> Any:
    services = cache_with(*(records or RECORDS)), creation or FakeCreation(), config or config_holder(), IDENTITY
    return asyncio.run(ask(metadata, given, *services))


@pytest.mark.parametrize("version", range(1, 14))
def test_all_topics_in_every_version(version: int) -> None:
    answer = get(request(version, everything=True))
    assert [(each.node_id, each.host, each.port, each.rack) for each in answer.brokers] == [
        (1, "host-1", 9001, None),
        (2, "host-2", 9002, "b"),
    ]
    assert answer.controller_id == 1
    topics = {topic.name: topic for topic in answer.topics}
    assert topics.keys() == {"t", "__consumer_offsets"}
    assert (topics["t"].is_internal, topics["__consumer_offsets"].is_internal) == (False, True)
    partition = topics["t"].partitions[1]
    assert (partition.partition_index, partition.error_code, partition.leader_id) == (1, ErrorCode.none, 2)
    assert (partition.replica_nodes, partition.isr_nodes) == ((2, 3), (2, 3))
    if version >= 2:
        assert answer.cluster_id == CLUSTER_ID
    if version >= 5:
        assert partition.offline_replicas == (3,)
    if version >= 7:
        assert partition.leader_epoch == 3
    if version >= 10:
        assert topics["t"].topic_id == TOPIC_ID
    if version >= 13:
        assert answer.error_code == ErrorCode.none


def test_an_empty_list_is_everything_in_version_0_and_nothing_after() -> None:
    assert len(get(request(0)).topics) == 2
    assert get(request(1)).topics == ()


def test_version_0_hides_dead_replicas() -> None:
    (topic,) = get(request(0, "t")).topics
    first, second = topic.partitions
    assert (first.error_code, first.replica_nodes) == (ErrorCode.none, (1, 2))
    assert (second.error_code, second.replica_nodes, second.isr_nodes) == (ErrorCode.replica_not_available, (2,), (2,))


def test_topics_by_id() -> None:
    unknown = UUID(int=0xF00D)
    known, missing = get(request(12, TOPIC_ID, unknown)).topics
    assert (known.name, known.topic_id, known.error_code) == ("t", TOPIC_ID, ErrorCode.none)
    assert (missing.name, missing.topic_id, missing.error_code) == (None, unknown, ErrorCode.unknown_topic_id)
    assert missing.partitions == ()


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("topic", [TOPIC_ID, None])
def test_ids_and_null_names_are_refused_before_version_12(version: int, topic: UUID | None) -> None:
    (entry,) = get(request(version, topic)).topics
    assert entry.error_code == ErrorCode.invalid_request


def test_missing_topics_are_created_and_answered() -> None:
    creation = FakeCreation(ErrorCode.none, ErrorCode.unknown_topic_or_partition, ErrorCode.invalid_replication_factor)
    given = request(12, "t", "new", "late", "many", "b@d", "new", allow_auto_topic_creation=True)
    answer = get(given, creation=creation)
    assert creation.asked == [(["new", "late", "many"], CONTEXT)]
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "t": ErrorCode.none,
        "new": ErrorCode.unknown_topic_or_partition,  # the fake creates nothing: the image decides
        "late": ErrorCode.unknown_topic_or_partition,
        "many": ErrorCode.invalid_replication_factor,
        "b@d": ErrorCode.invalid_topic_exception,
    }
    assert [topic.topic_id for topic in answer.topics] == [TOPIC_ID, None, None, None, None]


def test_a_topic_that_was_created_is_in_the_same_answer() -> None:
    cache = cache_with(broker_record(1))

    class Creates:
        async def create_topics(self, names: list[str], context: Any) -> dict[str, ErrorCode]:
            cache.set_image(cache_with(broker_record(1), *topic_records("new", TOPIC_ID, (1,))).image)
            return {"new": ErrorCode.none}

    given = request(9, "new", allow_auto_topic_creation=True)
    (topic,) = asyncio.run(ask(metadata, given, cache, Creates(), config_holder(), IDENTITY)).topics
    assert (topic.name, topic.error_code, topic.partitions[0].leader_id) == ("new", ErrorCode.none, 1)


@pytest.mark.parametrize(
    ("version", "flag", "property_", "creates"),
    [(3, False, "true", True), (4, False, "true", False), (4, True, "true", True), (4, True, "false", False)],
)
def test_when_topics_are_created(version: int, flag: bool, property_: str, creates: bool) -> None:
    creation = FakeCreation(ErrorCode.unknown_topic_or_partition)
    config = config_holder(auto__create__topics__enable=property_)
    (topic,) = get(request(version, "new", allow_auto_topic_creation=flag), creation=creation, config=config).topics
    assert topic.error_code == ErrorCode.unknown_topic_or_partition
    assert bool(creation.asked) is creates


def test_nothing_is_created_for_all_topics() -> None:
    creation = FakeCreation()
    get(request(4, everything=True, allow_auto_topic_creation=True), creation=creation)
    assert creation.asked == []


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.leader_not_available), (6, ErrorCode.listener_not_found)])
def test_a_leader_without_the_listener(version: int, error: ErrorCode) -> None:
    records = (broker_record(1), broker_record(2, listeners=("INSIDE",)), *topic_records("t", TOPIC_ID, (2,)))
    (topic,) = get(request(version, "t"), *records).topics
    assert (topic.error_code, topic.partitions[0].error_code) == (ErrorCode.none, error)
    assert topic.partitions[0].leader_id == -1


def test_a_partition_without_a_leader_keeps_its_epoch() -> None:
    from broker.schemas.cluster_metadata import TopicRecord

    leaderless = partition_record(
        TOPIC_ID, 0, (1, 2), leader=-1, isr=(2,), directories=(DIRECTORIES[1], DIRECTORIES[2])
    )
    (topic,) = get(request(9, "t"), broker_record(1), TopicRecord(name="t", topic_id=TOPIC_ID), leaderless).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (
        ErrorCode.leader_not_available,
        -1,
        3,
    )
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ((1, 2), (2,), (2,))


def test_authorized_operations_only_when_asked_for() -> None:
    assert get(request(8, "t")).topics[0].topic_authorized_operations == NOT_REQUESTED
    answer = get(request(8, "t", include_topic_authorized_operations=True, include_cluster_authorized_operations=True))
    assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    assert answer.cluster_authorized_operations == 8096
    assert get(request(8, "t")).cluster_authorized_operations == NOT_REQUESTED


def test_there_is_always_a_broker() -> None:
    answer = get(request(12, everything=True), broker_record(1, fenced=True))
    assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [(1, "127.0.0.1", 9092)]
    assert answer.controller_id == 1
