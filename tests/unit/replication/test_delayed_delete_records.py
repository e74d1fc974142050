from pathlib import Path

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.replication.delayed_delete_records import DelayedDeleteRecords, DeleteRecordsResult
from tests.support.builders import ReplicaWorld, batch

T = TopicPartition("t", 0)


def waiting_world(tmp_path: Path) -> ReplicaWorld:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2)
    world.create_topic(replicas=(1, 2))
    world.append(batch("a"), batch("b"))
    follower_fetches(world, log_start_offset=0)
    world.partition().delete_records_on_leader(1)
    return world


def follower_fetches(world: ReplicaWorld, *, log_start_offset: int) -> None:
    world.partition().update_follower_fetch_state(
        2, fetch_offset=2, log_start_offset=log_start_offset, leader_log_end_offset=2, replica_epoch=12
    )


def operation_of(world: ReplicaWorld, answered: list[object]) -> DelayedDeleteRecords:
    result = DeleteRecordsResult(T, partition=world.partition(), required_offset=1)
    refused = DeleteRecordsResult(TopicPartition("x", 0), ErrorCode.unknown_topic_or_partition)
    return DelayedDeleteRecords([result, refused], answered.append, world.replicas.lookup_error)


def test_it_waits_for_the_low_watermark(tmp_path: Path) -> None:
    world, answered = waiting_world(tmp_path), []
    operation = operation_of(world, answered)
    assert world.partition().delete_records_waiting == 1
    assert not operation.try_complete()
    world.partition().remote_replicas[2].log_start_offset = 1
    assert operation.try_complete()
    operation.on_complete(expired=False)
    assert [(each.error, each.low_watermark) for each in operation.results] == [
        (ErrorCode.none, 1),
        (ErrorCode.unknown_topic_or_partition, -1),
    ]
    assert answered == [operation.results]
    assert world.partition().delete_records_waiting == 0


def test_it_times_out(tmp_path: Path) -> None:
    world = waiting_world(tmp_path)
    operation = operation_of(world, [])
    operation.on_complete(expired=True)
    assert operation.results[0].error is ErrorCode.request_timed_out
    assert operation.results[0].low_watermark == -1
    assert world.partition().log.log_start_offset == 1


def test_a_lost_leadership_is_told(tmp_path: Path) -> None:
    world = waiting_world(tmp_path)
    operation = operation_of(world, [])
    world.partition().is_leader = False
    assert operation.try_complete()
    assert operation.results[0].error is ErrorCode.not_leader_or_follower
