from pathlib import Path

import pytest

from broker.common.errors import StorageFailure
from broker.replication.delayed_fetch import (
    ANSWER_NOW,
    IN_REMOTE_STORAGE,
    DelayedFetch,
    available_bytes,
    parking_ms,
)
from broker.replication.fetch_params import BucketFetch, FetchParams, FetchPartition, FetchPartitionResult
from broker.replication.fetch_session import CachedPartition
from broker.replication.fetch_source import RequestedPartitions
from tests.support.builders import ReplicaWorld, batch
from tests.support.recording_leader_wal import RecordingLeaderWal
from tests.support.tiered_partition import TieredWorld, tier

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


def test_deleted_records_are_answered_with_an_error_not_waited_for(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path)
    world.create_topic()
    world.append(batch("a"), batch("b"))
    request = hosted_request(world)
    source = RequestedPartitions([request])
    ready: list[DelayedFetch] = []
    params = FetchParams(version=12, min_bytes=5000)
    source.park(DelayedFetch(params, source, on_ready=ready.append, read_again=lambda *_: None))
    world.partition().delete_records_on_leader(1)
    assert len(ready) == 1
    assert available_bytes(request, params) == ANSWER_NOW


def test_a_failing_look_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: FetchPartition, params: FetchParams) -> int:
        raise StorageFailure("unreadable")

    monkeypatch.setattr("broker.replication.delayed_fetch.available_bytes", fail)
    source = RequestedPartitions([FetchPartition("t", 0, 0, 1)])
    ready: list[DelayedFetch] = []
    operation = DelayedFetch(FetchParams(version=12), source, on_ready=ready.append, read_again=lambda *_: None)
    operation.on_partition_changed(FetchPartition("t", 0, 0, 1))
    assert ready == [operation]


def test_a_follower_that_is_held_back_is_not_woken_by_what_it_may_not_have(tmp_path: Path) -> None:
    world = ReplicaWorld(tmp_path, {"leader.replication.throttled.rate": "0"})
    world.register_brokers(1, 2, 3)
    world.create_topic(
        replicas=(1, 2, 3), isr=(1, 2), configs={"leader.replication.throttled.replicas": "*"}, leader_epoch=5
    )
    world.append(batch("a"))
    behind, in_sync = FetchParams(version=12, replica_id=3), FetchParams(version=12, replica_id=2)
    assert available_bytes(hosted_request(world), behind) == 1
    world.partition().followers.count_sent(3, 1)
    assert available_bytes(hosted_request(world), behind) == 0
    assert available_bytes(hosted_request(world), in_sync) == 1
    world.partition().log.roll()
    world.append(batch("b"))
    assert available_bytes(hosted_request(world), behind) == 0  # an older segment is no reason either
    assert available_bytes(hosted_request(world), in_sync) == ANSWER_NOW
    assert available_bytes(hosted_request(world, current_leader_epoch=4), behind) == ANSWER_NOW


FOLLOWER = FetchParams(17, replica_id=2, replica_epoch=12, max_wait_ms=500)


def through_bucket(tmp_path: Path) -> ReplicaWorld:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2)
    world.create_topic(replicas=(1, 2), leader_epoch=5)
    world.partition().leader_wal = RecordingLeaderWal()
    return world


def told(world: ReplicaWorld, bucket_fetch: BucketFetch, **keywords: int) -> CachedPartition:
    """A partition of a session whose follower knows the high watermark 0 and the log start 0."""
    cached = CachedPartition(hosted_request(world, **{"current_leader_epoch": 5, **keywords}))
    cached.hosted, cached.bucket_fetch = world.partition(), bucket_fetch
    cached.last_high_watermark = cached.last_log_start_offset = 0
    return cached


def test_what_ends_the_wait_of_a_follower_through_a_bucket(tmp_path: Path) -> None:
    world = through_bucket(tmp_path)
    caught_up, behind = told(world, BucketFetch.CAUGHT_UP), told(world, BucketFetch.BEHIND)
    refused = told(world, BucketFetch.REFUSED, current_leader_epoch=4)
    without_session = hosted_request(world, current_leader_epoch=5)
    without_session.bucket_fetch = BucketFetch.BEHIND
    everybody = (caught_up, behind, refused, without_session)
    none, now = 0, ANSWER_NOW
    assert [available_bytes(each, FOLLOWER) for each in everybody] == [none, none, none, none]
    world.append(batch("a"), batch("b"))
    assert [available_bytes(each, FOLLOWER) for each in everybody] == [now, none, none, none]
    caught_up.fetch_offset = 2
    assert [available_bytes(each, FOLLOWER) for each in everybody] == [none, none, none, none]
    world.partition().log.update_high_watermark(1)
    assert [available_bytes(each, FOLLOWER) for each in everybody] == [now, now, none, none]
    caught_up.last_high_watermark = behind.last_high_watermark = 1
    assert [available_bytes(each, FOLLOWER) for each in everybody] == [none, none, none, none]
    world.partition().delete_records_on_leader(1)
    assert [available_bytes(each, FOLLOWER) for each in everybody] == [now, now, none, none]
    caught_up.last_log_start_offset = behind.last_log_start_offset = 1
    world.place(leader_epoch=6)
    assert [available_bytes(each, FOLLOWER) for each in everybody] == [now, now, none, now]
    world.place(leader=2, leader_epoch=7)
    assert [available_bytes(each, FOLLOWER) for each in everybody] == [now, now, now, now]


def test_once_replication_is_classic_again_records_are_there(tmp_path: Path) -> None:
    world = through_bucket(tmp_path)
    behind = told(world, BucketFetch.BEHIND)
    world.append(batch("a"))
    assert available_bytes(behind, FOLLOWER) == 0
    world.partition().leader_wal = None
    assert available_bytes(behind, FOLLOWER) == 1


@pytest.mark.parametrize(
    ("fetches", "params", "expected_ms"),
    [
        ((None, None), FOLLOWER, 500),
        ((BucketFetch.CAUGHT_UP,), FOLLOWER, 500),
        ((BucketFetch.CAUGHT_UP, BucketFetch.BEHIND, None), FOLLOWER, 7),
        ((BucketFetch.REFUSED, BucketFetch.CAUGHT_UP), FOLLOWER, 20),
        ((BucketFetch.REFUSED, BucketFetch.BEHIND), FOLLOWER, 7),
        ((BucketFetch.BEHIND,), FetchParams(17, replica_id=2, max_wait_ms=3), 3),
        ((BucketFetch.BEHIND,), FetchParams(17, max_wait_ms=500), 500),  # a consumer; it is about an earlier follower
    ],
)
def test_the_shortest_wait_wins(fetches: tuple[BucketFetch | None, ...], params: FetchParams, expected_ms: int) -> None:
    results = []
    for bucket_fetch in fetches:
        request = FetchPartition("t", 0, 0, 1000)
        request.bucket_fetch = bucket_fetch
        results.append(FetchPartitionResult(request))
    assert parking_ms(params, results, lag_wait_ms=7) == expected_ms


def test_a_refusal_waits_no_less_than_who_is_behind() -> None:
    request = FetchPartition("t", 0, 0, 1000)
    request.bucket_fetch = BucketFetch.REFUSED
    assert parking_ms(FOLLOWER, [FetchPartitionResult(request)], lag_wait_ms=50) == 50


def test_an_offset_that_has_left_the_local_log_is_not_waited_with(tmp_path: Path) -> None:
    world = TieredWorld(tmp_path, 1000, 2000, 3000)
    params = FetchParams(version=12, min_bytes=5000)
    request = hosted_request(world, 2)  # in the active segment
    source = RequestedPartitions([request])
    ready: list[DelayedFetch] = []
    source.park(DelayedFetch(params, source, on_ready=ready.append, read_again=lambda *_: None))
    world.append(batch("a", timestamp=3000))
    assert ready == []
    tier(world.partition().log, 3)
    assert available_bytes(request, params) == IN_REMOTE_STORAGE
    world.append(batch("b", timestamp=3000))
    assert len(ready) == 1
    world.partition().log.maybe_increment_log_start_offset(3, "test")
    assert available_bytes(request, params) == ANSWER_NOW  # it is gone for good


def test_33_what_the_quota_holds_back_is_no_reason_to_answer(tmp_path: Path) -> None:
    world = TieredWorld(tmp_path, 1000, 2000)
    tier(world.partition().log, 1)
    remote = hosted_request(world)
    local = FetchPartition("u", 0, 1, 10_000)
    local.hosted = world.create_tiered_topic("u", 1000)
    source = RequestedPartitions([remote, local])
    ready: list[DelayedFetch] = []
    params = FetchParams(version=12)
    operation = DelayedFetch(params, source, on_ready=ready.append, read_again=lambda *_: None, held_back={remote})
    source.park(operation)
    world.append(batch("a"))
    assert ready == []
    world.append(batch("b"), topic="u")
    assert ready == [operation]


def test_unless_its_partition_has_gone(tmp_path: Path) -> None:
    world = TieredWorld(tmp_path, 1000, 2000)
    tier(world.partition().log, 1)
    remote = hosted_request(world)
    source = RequestedPartitions([remote])
    ready: list[DelayedFetch] = []
    operation = DelayedFetch(
        FetchParams(version=12), source, on_ready=ready.append, read_again=lambda *_: None, held_back={remote}
    )
    source.park(operation)
    world.delete_topic()
    assert ready == [operation]
