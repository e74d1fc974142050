from pathlib import Path

import pytest

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.common.errors import (
    ErrorCode,
    InconsistentTopicIdError,
    NotLeaderOrFollowerError,
    StorageFailure,
    UnknownTopicOrPartitionError,
)
from broker.common.file_system import OsFileSystem
from broker.common.identifiers import TopicPartition
from broker.log.log_manager import LogManager
from broker.metadata.partition_registration import PartitionRegistration
from broker.metrics.log_metrics import LogMetrics
from broker.metrics.registry import MetricsRegistry
from broker.replication.fetch_params import LeaderHint
from broker.replication.partition import Partition
from broker.schemas.cluster_metadata import PartitionRecord, RemoveTopicRecord, TopicRecord
from tests.support.builders import ReplicaWorld, batch, topic_uuid
from tests.support.sim_loop import SimLoop, simulate

T = TopicPartition("t", 0)


@pytest.fixture
def world(tmp_path: Path) -> ReplicaWorld:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2)
    return world


def test_the_three_reasons_for_not_finding_a_partition(world: ReplicaWorld) -> None:
    world.create_topic("elsewhere", replicas=(2,), leader=2)
    world.create_topic("t")
    assert world.replicas.partition(T).topic_id == topic_uuid("t")
    with pytest.raises(UnknownTopicOrPartitionError):
        world.replicas.partition(TopicPartition("missing", 0))
    with pytest.raises(NotLeaderOrFollowerError):
        world.replicas.partition(TopicPartition("elsewhere", 0))
    world.logs.failure = StorageFailure("disk")
    world.create_topic("broken")
    with pytest.raises(StorageFailure):
        world.replicas.partition(TopicPartition("broken", 0))
    assert world.replicas.lookup_error(TopicPartition("broken", 0)) is ErrorCode.kafka_storage_error


def test_a_log_that_cannot_be_opened_does_not_stop_the_others(world: ReplicaWorld) -> None:
    world.logs.failure = StorageFailure("disk")
    world.create_topic("broken")
    world.logs.failure = None
    world.create_topic("t")
    assert world.partition("broken").is_offline
    assert world.partition("t").is_leader
    world.place("broken")
    assert world.partition("broken").is_leader  # the next change of it tries again


@pytest.mark.parametrize("leader", [1, 2])
def test_a_defect_in_one_partition_leaves_the_others_of_the_change_alone(
    world: ReplicaWorld, monkeypatch: pytest.MonkeyPatch, leader: int
) -> None:
    become = "make_leader" if leader == 1 else "make_follower"
    real = getattr(Partition, become)
    is_broken = True

    def fail_for_one(partition: Partition, registration: PartitionRegistration) -> bool:
        if partition.topic_partition.partition == 1 and is_broken:
            raise ValueError("a checkpoint nobody can read")
        return bool(real(partition, registration))

    monkeypatch.setattr(Partition, become, fail_for_one)
    world.create_topic(partitions=3, replicas=(1, 2), leader=leader)
    found = [world.partition(partition=index) for index in range(3)]
    assert [each.leader_id for each in found] == [leader, -1, leader]
    assert [each.is_offline for each in found] == [False, True, False]
    world.replicas._hosted.reopen_offline(world.metadata.image, world.replicas.context)
    assert found[1].is_offline
    is_broken = False
    world.replicas._hosted.reopen_offline(world.metadata.image, world.replicas.context)
    assert (found[1].is_offline, found[1].leader_id) == (False, leader)


def test_a_partition_that_cannot_be_deleted_leaves_the_others_alone(
    world: ReplicaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create_topic("t", partitions=3)
    world.create_topic("u")
    real = Partition.stop

    def fail_for_one(partition: Partition, error: ErrorCode, *, is_deleted: bool) -> None:
        real(partition, error, is_deleted=is_deleted)
        if partition.topic_partition.partition == 1:
            raise ValueError("a listener nobody has tested")

    monkeypatch.setattr(Partition, "stop", fail_for_one)
    world.replay(
        RemoveTopicRecord(topic_id=topic_uuid("t")),
        PartitionRecord(
            partition_id=1,
            topic_id=topic_uuid("u"),
            replicas=(1,),
            isr=(1,),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        ),
    )
    assert {each.topic_partition for each in world.replicas.partitions()} == {("u", 0), ("u", 1)}


def test_a_topic_that_is_deleted_and_made_again_in_one_delta(world: ReplicaWorld) -> None:
    world.create_topic("t")
    world.append(batch("a"))
    old = world.partition()
    again = topic_uuid("t", 1)
    world.replay(
        RemoveTopicRecord(topic_id=topic_uuid("t")),
        TopicRecord(name="t", topic_id=again),
        PartitionRecord(
            partition_id=0, topic_id=again, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0
        ),
    )
    new = world.partition()
    assert new is not old
    assert (new.topic_id, new.log.log_end_offset, old.local_log) == (again, 0, None)
    assert world.logs.deleted == [T]


def test_counts_of_a_deleted_topic_are_forgotten(world: ReplicaWorld) -> None:
    world.create_topic("t", partitions=2)
    world.append(batch("a"))
    assert set(world.replicas.topic_counts) == {"t", ""}
    world.delete_topic()
    assert set(world.replicas.topic_counts) == {""}
    assert list(world.replicas.partitions()) == []


def test_a_log_of_an_earlier_incarnation_is_replaced(world: ReplicaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic was deleted and made again while this broker was down."""
    create, refused = world.logs.get_or_create, []

    def get_or_create(topic_partition: TopicPartition, topic_id: object) -> object:
        if not refused:
            refused.append(topic_id)
            raise InconsistentTopicIdError("other id")
        return create(topic_partition, topic_id)  # type: ignore[arg-type]

    monkeypatch.setattr(world.logs, "get_or_create", get_or_create)
    world.create_topic("t")
    assert world.logs.set_aside == [T]
    assert world.partition().is_leader


def test_stray_logs_are_set_aside_at_start(world: ReplicaWorld) -> None:
    world.create_topic("t")
    world.create_topic("moved", replicas=(2,), leader=2)
    for topic, incarnation in (("gone", 0), ("moved", 0)):
        world.logs.get_or_create(TopicPartition(topic, 0), topic_uuid(topic, incarnation))
    world.replicas.set_stray_logs_aside(world.metadata.image)
    assert world.logs.set_aside == [TopicPartition("gone", 0), TopicPartition("moved", 0)]
    assert T in world.logs.logs


def test_who_leads_is_known_from_the_partition_or_the_metadata(world: ReplicaWorld) -> None:
    world.create_topic("t", replicas=(1, 2), leader=2, leader_epoch=4)
    world.create_topic("elsewhere", replicas=(2,), leader=2, leader_epoch=6)
    assert world.replicas.leader_hint(T) == LeaderHint(2, 4)
    assert world.replicas.leader_hint(TopicPartition("elsewhere", 0)) == LeaderHint(2, 6)
    assert world.replicas.leader_hint(TopicPartition("missing", 0)) == LeaderHint(-1, -1)


def test_with_the_real_log_manager_a_topic_comes_goes_and_comes_again(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = ReplicaWorld(tmp_path)
        manager = LogManager(
            world.config,
            clock=world.clock,
            file_system=OsFileSystem(),
            disk=InlineDiskExecutor(),
            chance=Chance(5),
            metrics=LogMetrics(MetricsRegistry()),
            topic_config=world.topic_config,
        )
        await manager.start()
        world.replicas._hosted._log_manager = manager
        world.create_topic("t", partitions=2)
        world.append(batch("a"))
        assert sorted(path.name for path in tmp_path.glob("t-*")) == ["t-0", "t-1"]
        world.delete_topic()
        assert manager.get(T) is None
        assert sum(path.name.endswith("-delete") for path in tmp_path.iterdir()) == 2
        world.create_topic("t", incarnation=1)
        assert world.partition().log is manager.get(T)
        assert world.partition().log.log_end_offset == 0
        world.replicas.set_stray_logs_aside(world.metadata.image)
        assert manager.get(T) is not None
        await manager.shutdown()

    simulate(story)
