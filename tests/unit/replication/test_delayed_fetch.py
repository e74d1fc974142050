from pathlib import Path

from broker.replication.delayed_fetch import ANSWER_NOW, DelayedFetch, available_bytes
from broker.replication.fetch_params import FetchParams, FetchPartition
from broker.replication.fetch_source import RequestedPartitions
from tests.support.builders import ReplicaWorld, batch

BATCH_BYTES = len(batch("a"))


def hosted_request(world: ReplicaWorld, offset: int = 0, partition: int = 0, **keywords: int) -> FetchPartition:
    request = FetchPartition("t", partition, offset, keywords.pop("max_bytes", 10_000), **keywords)
    request.hosted = world.partition("t", partition)
    return request


def test_bytes_add_up_over_partitions_until_min_bytes(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.create_topic(partitions=2)
    requests = [hosted_request(world, partition=index) for index in range(2)]
    source = RequestedPartitions(requests)
    ready: list[DelayedFetch] = []
    params = FetchParams(version=12, min_bytes=3 * BATCH_BYTES)
    operation = DelayedFetch(params, source, on_ready=ready.append, read_again=lambda *_: None)
    source.park(operation)
    world.append(batch("a"))
    world.append(batch("b"))
    assert ready == []
    assert not operation.try_complete()
    world.append(batch("c"), partition=1)
    assert ready == [operation]
    assert operation.try_complete()
    world.append(batch("d"))  # told once
    assert ready == [operation]


def test_what_is_available(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.create_topic(leader_epoch=5)
    one, many = FetchParams(version=12), FetchParams(version=12, min_bytes=2)
    request = hosted_request(world)
    assert available_bytes(request, one) == 0
    world.append(batch("a"), batch("b"))
    assert available_bytes(request, one) == 1
    assert available_bytes(request, many) == 2 * BATCH_BYTES
    assert available_bytes(hosted_request(world, max_bytes=50), many) == 50
    assert available_bytes(hosted_request(world, 3), one) == ANSWER_NOW  # above what it may see
    assert available_bytes(hosted_request(world, current_leader_epoch=4), one) == ANSWER_NOW
    assert available_bytes(hosted_request(world, 2, current_leader_epoch=5), one) == 0
    assert available_bytes(hosted_request(world, 2, last_fetched_epoch=4), one) == ANSWER_NOW
    assert available_bytes(hosted_request(world, 2, last_fetched_epoch=5), one) == 0


def test_an_older_segment_is_not_waited_with(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.create_topic()
    world.append(batch("a"))
    world.partition().log.roll()
    assert available_bytes(hosted_request(world), FetchParams(version=12, min_bytes=500)) == BATCH_BYTES
    world.append(batch("b"))
    assert available_bytes(hosted_request(world), FetchParams(version=12, min_bytes=500)) == ANSWER_NOW


def test_no_partition_and_no_leader_are_answered(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.create_topic(replicas=(1, 2))
    request = hosted_request(world)
    world.place(leader=2, leader_epoch=1)
    assert available_bytes(request, FetchParams(version=10)) == ANSWER_NOW
    assert available_bytes(request, FetchParams(version=11)) == 0
    request.hosted = None
    assert available_bytes(request, FetchParams(version=11)) == ANSWER_NOW
