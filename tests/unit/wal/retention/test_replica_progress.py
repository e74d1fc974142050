"""What the replicas of this broker and the metadata tell of the progress of partitions."""

from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicIdPartition
from broker.metadata.metadata_image import MetadataImage
from broker.wal.retention.object_retention import PartitionProgress
from broker.wal.retention.replica_progress import ReplicaProgress
from tests.support.builders import ReplicaWorld, batch, topic_uuid
from tests.support.tiered_topics import TIERED, TIERING

T = TopicIdPartition(topic_uuid("t"), "t", 0)


@pytest.fixture
def world(tmp_path: Path) -> ReplicaWorld:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2, 3)
    return world


def progress_of(world: ReplicaWorld) -> ReplicaProgress:
    return ReplicaProgress(lambda: world.metadata.image, world.replicas.hosted_partition, world.topic_config)


def fetched(world: ReplicaWorld, replica_id: int, offset: int) -> None:
    world.partition().update_follower_fetch_state(
        replica_id, fetch_offset=offset, log_start_offset=0, leader_log_end_offset=2, replica_epoch=10 + replica_id
    )


def test_the_slowest_replica_counts_and_none_before_all_have_fetched_in_this_epoch(world: ReplicaWorld) -> None:
    world.create_topic(replicas=(1, 2, 3))
    world.append(batch(b"a", b"b"))
    progress = progress_of(world)
    assert progress.of(T) == PartitionProgress(0, -1)
    fetched(world, 2, 2)
    assert progress.of(T) == PartitionProgress(0, -1)
    fetched(world, 3, 1)
    assert progress.of(T) == PartitionProgress(1, 1)
    fetched(world, 3, 2)
    assert progress.of(T) == PartitionProgress(2, 2)
    world.place(leader_epoch=1)
    assert progress.of(T) == PartitionProgress(2, -1)


def test_a_joining_replica_counts_and_one_that_has_left_does_not(world: ReplicaWorld) -> None:
    world.create_topic(replicas=(1, 2))
    world.append(batch(b"a", b"b"))
    fetched(world, 2, 2)
    progress = progress_of(world)
    assert progress.of(T) == PartitionProgress(2, 2)
    world.place(replicas=(1, 2, 3), adding_replicas=(3,))
    assert progress.of(T) == PartitionProgress(2, -1)
    world.place(replicas=(1, 2), adding_replicas=())
    assert progress.of(T) == PartitionProgress(2, 2)


def test_without_leadership_nothing_is_known(world: ReplicaWorld) -> None:
    world.create_topic(replicas=(1, 2), leader=2)
    progress = progress_of(world)
    assert progress.of(T) is None
    assert progress.of(T._replace(partition=1)) is None
    world.place(leader=1, leader_epoch=1)
    assert progress.of(T) == PartitionProgress(0, -1)
    assert progress.of(T._replace(topic_id=topic_uuid("t", 1))) is None


def test_a_log_that_is_offline_tells_nothing(world: ReplicaWorld) -> None:
    world.create_topic(replicas=(1,))
    world.partition().stop(ErrorCode.kafka_storage_error, is_deleted=False)
    assert progress_of(world).of(T) is None


def test_a_topic_is_deleted_when_metadata_without_its_id_is_there(world: ReplicaWorld) -> None:
    world.create_topic(replicas=(1,))
    progress = progress_of(world)
    assert not progress.is_deleted(T)
    world.delete_topic()
    assert progress.is_deleted(T)
    world.create_topic(replicas=(1,), incarnation=1)
    assert progress.is_deleted(T)
    starting = ReplicaProgress(lambda: MetadataImage.EMPTY, world.replicas.hosted_partition, world.topic_config)
    assert not starting.is_deleted(T)


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({"retention.ms": "5000"}, 5000),
        ({"retention.ms": "5000", "local.retention.ms": "1000"}, 1000),
        ({"retention.ms": "-1"}, None),
        ({"retention.ms": "-1", "local.retention.ms": "1000"}, 1000),
        ({"retention.ms": "5000", "local.retention.ms": "-1"}, None),
    ],
)
def test_local_retention_is_that_of_the_topic_or_its_retention(
    world: ReplicaWorld, configs: dict[str, str], expected: int | None
) -> None:
    world.create_topic(replicas=(1,), configs=configs)
    progress = progress_of(world)
    assert progress.local_retention_ms(T) == expected
    world.delete_topic()
    assert progress.local_retention_ms(T) is None


def test_what_is_tiered_is_what_the_log_of_a_leader_knows(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path, TIERING)
    world.register_brokers(1, 2)
    progress = progress_of(world)
    assert progress.highest_tiered_offset(T) == -1
    world.create_topic(replicas=(1, 2), configs=TIERED)
    assert progress.highest_tiered_offset(T) == -1
    world.partition().log.update_highest_remote_offset(41)
    assert progress.highest_tiered_offset(T) == 41
    assert progress.highest_tiered_offset(T._replace(topic_id=topic_uuid("t", 1))) == -1
    world.place(leader=2, leader_epoch=1)
    assert progress.highest_tiered_offset(T) == -1
