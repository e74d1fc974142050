"""Creation, growth and deletion of topics.  38 and 40 are behaviours of a KRaft controller."""

from typing import Any

import pytest

from broker.common.errors import ErrorCode, KafkaError, PolicyViolationError
from broker.controller.api_error import ApiError
from broker.controller.topic_control_manager import (
    CreatableTopic,
    CreatePartitionsTopic,
    CreateTopicResult,
)
from broker.metadata.configs_image import ConfigResourceType
from broker.schemas.cluster_metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from tests.support.tiered_topics import TIERING
from tests.unit.controller.controller_support import ControlWorld, directory_of


@pytest.fixture
def world() -> ControlWorld:
    world = ControlWorld(num__partitions="3", default__replication__factor="2")
    world.start_brokers(1, 2)
    return world


def create(world: ControlWorld, name: str = "t", **fields: Any) -> CreateTopicResult:
    (result,) = world.apply(world.topics.create_topics([CreatableTopic(name=name, **fields)]))
    return result


def test_defaults_configs_and_the_order_of_records(world: ControlWorld) -> None:
    result = create(world, configs={"retention.ms": "1000"})
    assert (result.num_partitions, result.replication_factor) == (3, 2)
    assert {entry.name: entry.value for entry in result.configs}["retention.ms"] == "1000"
    assert [type(record) for record in world.records] == [TopicRecord, ConfigRecord, *[PartitionRecord] * 3]
    partition = world.partition("t")
    assert partition.isr == partition.replicas
    assert partition.leader == partition.replicas[0]
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert partition.directories == tuple(map(directory_of, partition.replicas))
    assert world.image.topics.by_name["t"].id == result.topic_id


def test_fenced_replicas_are_not_in_sync(world: ControlWorld) -> None:
    world.fence(2)
    result = create(world, num_partitions=1, replication_factor=2)
    assert not result.error.is_failure
    assert (world.partition("t").replicas, world.leadership("t")) == ((1, 2), (1, (1,)))


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"name": "__cluster_metadata"}, ErrorCode.invalid_request, "is prohibited"),
        ({"name": "a b"}, ErrorCode.invalid_topic_exception, "Topic name is invalid"),
        ({"name": "there"}, ErrorCode.topic_already_exists, "Topic 'there' already exists."),
        ({"name": "t_x"}, ErrorCode.invalid_topic_exception, "Topic 't_x' collides with existing topic: t.x"),
        ({"replication_factor": 0}, ErrorCode.invalid_replication_factor, "must be larger than 0"),
        ({"replication_factor": -2}, ErrorCode.invalid_replication_factor, "must be larger than 0"),
        ({"replication_factor": 3}, ErrorCode.invalid_replication_factor, "only 2 broker(s) are registered"),
        ({"num_partitions": 0}, ErrorCode.invalid_partitions, "non-positive"),
        ({"num_partitions": -2}, ErrorCode.invalid_partitions, "non-positive"),
        ({"configs": {"no.such": "1"}}, ErrorCode.invalid_config, "Unknown topic config name: no.such"),
        ({"configs": {"retention.ms": "x"}}, ErrorCode.invalid_config, "retention.ms='x'"),
        ({"configs": {"retention.ms": None}}, ErrorCode.invalid_config, "Null value not supported"),
        ({"configs": {"remote.wal.enable": "true"}}, ErrorCode.invalid_config, "only where brokers and controllers"),
        ({"assignments": ((0, (1,)),), "num_partitions": 1}, ErrorCode.invalid_request, "numPartitions"),
        ({"assignments": ((0, (1,)),), "replication_factor": 1}, ErrorCode.invalid_request, "replication factor"),
        ({"assignments": ((1, (1,)),)}, ErrorCode.invalid_replica_assignment, "consecutive 0-based"),
        ({"assignments": ((0, (1,)), (0, (1,)))}, ErrorCode.invalid_replica_assignment, "consecutive 0-based"),
        ({"assignments": ((0, ()),)}, ErrorCode.invalid_replica_assignment, "empty replica list"),
        ({"assignments": ((0, (1, 1)),)}, ErrorCode.invalid_replica_assignment, "more than once"),
        ({"assignments": ((0, (1, 9)),)}, ErrorCode.invalid_replica_assignment, "no such broker is registered"),
        ({"assignments": ((0, (1, 2)), (1, (1,)))}, ErrorCode.invalid_replica_assignment, "not consistent"),
        ({"assignments": ((0, (3,)),)}, ErrorCode.invalid_replica_assignment, "are fenced or in controlled shutdown"),
    ],
)
def test_38_topics_that_cannot_be(world: ControlWorld, fields: dict[str, Any], code: ErrorCode, reason: str) -> None:
    create(world, "there")
    create(world, "t.x")
    if fields.get("assignments") == ((0, (3,)),):
        world.register(3)
    result = create(world, **{"name": "t", **fields})
    assert result.error.code is code
    assert reason in (result.error.message or "")
    assert world.records == []


def test_38_all_fenced_is_a_replication_factor_nobody_can_give(world: ControlWorld) -> None:
    world.fence(1)
    world.fence(2)
    error = create(world, replication_factor=1).error
    assert error.code is ErrorCode.invalid_replication_factor
    assert "All brokers are currently fenced" in (error.message or "")


def test_each_topic_by_itself_and_collisions_inside_a_request(world: ControlWorld) -> None:
    wanted = [CreatableTopic(name=name) for name in ("a.b", "a_b", "c", "d", "d")]
    results = {each.name: each.error.code for each in world.apply(world.topics.create_topics(wanted))}
    assert results == {
        "a.b": ErrorCode.none,
        "a_b": ErrorCode.invalid_topic_exception,
        "c": ErrorCode.none,
        "d": ErrorCode.invalid_request,
    }
    assert list(world.image.topics.by_name) == ["a.b", "c"]


def test_validation_alone_writes_nothing(world: ControlWorld) -> None:
    (result,) = world.apply(world.topics.create_topics([CreatableTopic(name="t")], validate_only=True))
    assert (result.error.code, result.num_partitions, world.records) == (ErrorCode.none, 3, [])


def test_more_than_one_batch_holds_is_a_policy_violation(world: ControlWorld) -> None:
    assert create(world, num_partitions=10_001).error.code is ErrorCode.policy_violation
    with pytest.raises(PolicyViolationError):
        world.topics.create_topics([CreatableTopic(name=f"t{i}", num_partitions=6_000) for i in range(2)])


def grow(world: ControlWorld, count: int, assignments: Any = None, name: str = "t") -> ApiError:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return world.apply(world.topics.create_partitions([topic]))[name]


def test_growth(world: ControlWorld) -> None:
    create(world)
    assert not grow(world, 5).is_failure
    assert sorted(world.image.topics.by_name["t"].partitions) == [0, 1, 2, 3, 4]
    assert len(world.partition("t", 4).replicas) == 2
    assert not grow(world, 6, ((2, 1),)).is_failure
    assert (world.partition("t", 5).replicas, world.partition("t", 5).leader) == ((2, 1), 2)


@pytest.mark.parametrize(
    ("count", "assignments", "name", "code"),
    [
        (3, None, "t", ErrorCode.invalid_partitions),
        (2, None, "t", ErrorCode.invalid_partitions),
        (20_000, None, "t", ErrorCode.policy_violation),
        (4, None, "missing", ErrorCode.unknown_topic_or_partition),
        (5, ((1, 2),), "t", ErrorCode.invalid_replica_assignment),
        (4, ((1,),), "t", ErrorCode.invalid_replica_assignment),
        (4, ((1, 9),), "t", ErrorCode.invalid_replica_assignment),
    ],
)
def test_growth_that_cannot_be(world: ControlWorld, count: int, assignments: Any, name: str, code: ErrorCode) -> None:
    create(world)
    assert grow(world, count, assignments, name).code is code
    assert world.records == []


@pytest.mark.parametrize("name", ["__remote_wal_log_metadata", "__remote_log_metadata"])
def test_topics_whose_partitions_are_places_never_grow(world: ControlWorld, name: str) -> None:
    create(world, name, num_partitions=2)
    refused = grow(world, 3, name=name)
    assert refused.code is ErrorCode.invalid_partitions
    assert "for the life of the cluster" in (refused.message or "")


def test_growth_of_a_topic_named_twice_is_refused(world: ControlWorld) -> None:
    create(world)
    topics = [CreatePartitionsTopic(name="t", count=count) for count in (4, 5)]
    results = world.apply(world.topics.create_partitions(topics))
    assert (results["t"].code, world.records) == (ErrorCode.invalid_request, [])


def test_deletion_by_name_and_by_id(world: ControlWorld) -> None:
    topic_id = create(world, "a", configs={"retention.ms": "5"}).topic_id
    create(world, "b")
    other = world.image.topics.by_name["b"].id
    results = world.apply(world.topics.delete_topics(["a"], [other]))
    assert [(each.name, each.topic_id, each.error.code) for each in results] == [
        ("a", topic_id, ErrorCode.none),
        ("b", other, ErrorCode.none),
    ]
    assert [type(record) for record in world.records] == [RemoveTopicRecord] * 2
    assert len(world.image.topics) == 0
    assert world.image.configs.properties(ConfigResourceType.TOPIC, "a") == {}


def test_deletion_of_what_is_not_there_or_named_twice(world: ControlWorld) -> None:
    topic_id = create(world, "a").topic_id
    assert topic_id is not None
    results = world.apply(world.topics.delete_topics(["a", "x", "y", "y"], [topic_id, directory_of(77)]))
    assert [(each.name, each.error.code) for each in results] == [
        ("a", ErrorCode.invalid_request),
        ("x", ErrorCode.unknown_topic_or_partition),
        ("y", ErrorCode.invalid_request),
        (None, ErrorCode.invalid_request),
        (None, ErrorCode.unknown_topic_id),
    ]
    assert "a" in world.image.topics.by_name


def test_deletion_can_be_disabled() -> None:
    world = ControlWorld(delete__topic__enable="false")
    with pytest.raises(KafkaError) as raised:
        world.topics.delete_topics(["a"])
    assert raised.value.code is ErrorCode.topic_deletion_disabled


def test_the_topic_that_tells_what_is_in_tiered_storage_stays_while_there_is_any() -> None:
    name = "__remote_log_metadata"
    tiering = ControlWorld(**{each.replace(".", "__"): value for each, value in TIERING.items()})
    tiering.start_brokers(1)
    topic_id = create(tiering, name).topic_id
    create(tiering, "a")
    assert topic_id is not None
    for names, topic_ids in (([name, "a"], []), ([], [topic_id])):
        refused, *others = tiering.apply(tiering.topics.delete_topics(names, topic_ids))
        assert (refused.name, refused.topic_id) == (name, topic_id)
        assert refused.error.code is ErrorCode.policy_violation
        assert "remote.log.storage.system.enable=true" in (refused.error.message or "")
        assert [each.error.code for each in others] == [ErrorCode.none] * len(others)
    assert set(tiering.image.topics.by_name) == {name}


def test_without_tiered_storage_it_is_a_topic_like_others(world: ControlWorld) -> None:
    create(world, "__remote_log_metadata")
    (deleted,) = world.apply(world.topics.delete_topics(["__remote_log_metadata"]))
    assert (deleted.error.code, len(world.image.topics)) == (ErrorCode.none, 0)


def test_40_a_topic_created_again_has_another_id(world: ControlWorld) -> None:
    first = create(world).topic_id
    world.apply(world.topics.delete_topics(["t"]))
    assert create(world).topic_id != first
