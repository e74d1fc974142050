from pathlib import Path

import pytest

from broker.replication.fetch_params import FetchPartition, FetchPartitionResult
from broker.replication.remote_log import RemoteFetch
from broker.replication.remote_reads import REMOTE_READS_MAX, RemoteReads
from tests.support.scripted_remote_log import ScriptedRemoteLog
from tests.support.tiered_partition import TieredWorld


@pytest.fixture
def world(tmp_path: Path) -> TieredWorld:
    return TieredWorld(tmp_path, 1000)


def wanted(world: TieredWorld, size_max: int = 100, *, whole_first: bool = False) -> FetchPartitionResult:
    result = FetchPartitionResult(FetchPartition("t", 0, 5, size_max))
    result.remote_fetch = RemoteFetch(world.partition(), 5, size_max, whole_first, 10, False)
    return result


def test_reads_count_as_all_they_may_bring(world: TieredWorld) -> None:
    reads = RemoteReads(ScriptedRemoteLog())
    results = [wanted(world, size) for size in (100, 50)]
    assert [reads.admit(each) for each in results] == [100, 50]
    assert (reads.results, reads.held_back) == (results, set())
    assert all(each.remote_fetch is not None for each in results)


def test_beyond_eight_partitions_nothing_is_read(world: TieredWorld) -> None:
    reads = RemoteReads(ScriptedRemoteLog())
    results = [wanted(world) for _ in range(10)]
    assert [reads.admit(each) for each in results] == [100] * REMOTE_READS_MAX + [0, 0]
    assert reads.results == results[:8]
    assert [each.remote_fetch is None for each in results] == [False] * 8 + [True] * 2


def test_only_the_first_may_exceed_its_limit(world: TieredWorld) -> None:
    reads = RemoteReads(ScriptedRemoteLog())
    results = [wanted(world, size, whole_first=True) for size in (0, 0, 10)]
    assert [reads.admit(each) for each in results] == [0, 0, 10]
    first, second, third = (each.remote_fetch for each in results)
    assert first is not None and first.min_one_message
    assert second is None
    assert third is not None and not third.min_one_message


def test_without_room_nothing_is_read(world: TieredWorld) -> None:
    reads = RemoteReads(ScriptedRemoteLog())
    result = wanted(world, 0)
    assert reads.admit(result) == 0
    assert (reads.results, reads.held_back, result.remote_fetch) == ([], set(), None)


def test_33_while_the_quota_is_exceeded_partitions_are_held_back(world: TieredWorld) -> None:
    remote_log = ScriptedRemoteLog()
    remote_log.is_fetch_quota_exceeded = True
    reads = RemoteReads(remote_log)
    result = wanted(world, whole_first=True)
    assert reads.admit(result) == 0
    assert (reads.results, reads.held_back, result.remote_fetch) == ([], {result.request}, None)
