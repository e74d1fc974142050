from pathlib import Path

from broker.replication.delayed_fetch import DelayedFetch
from broker.replication.fetch_params import FetchParams, FetchPartition
from broker.replication.fetch_source import RequestedPartitions
from tests.support.builders import ReplicaWorld, batch


def test_requested_partitions_are_watched_only_while_parked(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.create_topic()
    request, unknown = FetchPartition("t", 0, 0, 100), FetchPartition("x", 0, 0, 100)
    request.hosted = world.partition()
    source = RequestedPartitions([request, unknown])
    told: list[DelayedFetch] = []
    operation = DelayedFetch(FetchParams(version=12), source, on_ready=told.append, read_again=lambda *_: None)
    assert list(source.partitions_to_read()) == [request, unknown]
    assert len(source) == 2
    source.park(operation)
    source.unpark(operation)
    operation2 = DelayedFetch(FetchParams(version=12), source, on_ready=told.append, read_again=lambda *_: None)
    source.park(operation2)

    world.append(batch("a"))
    assert told == [operation2]
