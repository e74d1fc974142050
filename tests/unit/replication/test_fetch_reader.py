import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.common.byte_budget import ByteBudget
from broker.common.disk import InlineDiskExecutor
from broker.common.errors import CorruptMessageError, ErrorCode, StorageFailure
from broker.log.unified_log import UnifiedLog
from broker.records.append_origin import AppendOrigin
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.replication.fetch_params import (
    BucketFetch,
    EpochEndOffset,
    FetchParams,
    FetchPartition,
    FetchPartitionResult,
)
from broker.replication.fetch_reader import FetchReader
from broker.replication.partition import Partition
from broker.replication.remote_log import RemoteFetch
from broker.replication.remote_reads import REMOTE_READS_MAX, RemoteReads
from broker.replication.replica_state import NEVER_MS
from tests.support.builders import ReplicaWorld, batch, first_batch, parsed, topic_uuid, values_of
from tests.support.recording_leader_wal import RecordingLeaderWal
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_partition import TIERED_TOPIC, TieredWorld, tier

CONSUMER = FetchParams(version=12)


def read(
    world: ReplicaWorld, requests: Sequence[FetchPartition], params: FetchParams = CONSUMER
) -> list[FetchPartitionResult]:
    """Locate and read from the page cache."""
    reader = FetchReader(world.replicas._hosted, InlineDiskExecutor())
    done: list[list[FetchPartitionResult]] = []
    reader.read_bytes(reader.locate(params, requests, is_first_read=True)[0], done.append)
    return done[0]


def asked(offset: int = 0, partition: int = 0, max_bytes: int = 1 << 20, **keywords: Any) -> FetchPartition:
    return FetchPartition("t", partition, offset, max_bytes, **keywords)


@pytest.fixture
def world(tmp_path: Path) -> ReplicaWorld:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2)
    world.create_topic(partitions=3, leader_epoch=5)
    return world


def test_records_offsets_and_start_inside_a_batch(world: ReplicaWorld) -> None:
    world.append(batch("a", "b", "c"), batch("d"))
    (result,) = read(world, [asked(1)])
    assert values_of(result.records) == [b"a", b"b", b"c", b"d"]  # whole batches: the client skips what is below
    assert first_batch(result.records).base_offset == 0
    assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (4, 4, 0)
    assert result.aborted_transactions is None
    assert result.has_more


def test_the_first_batch_exceeds_every_limit_the_others_do_not(world: ReplicaWorld) -> None:
    """KIP-74: progress is always possible, and only once per response."""
    for partition in range(3):
        world.append(batch(b"x" * 5000), batch("small"), partition=partition)
    first, second, third = read(
        world, [asked(), asked(partition=1), asked(partition=2)], FetchParams(version=12, max_bytes=10)
    )
    assert [len(values_of(each.records)) for each in (first, second, third)] == [1, 0, 0]
    assert [each.error for each in (first, second, third)] == [ErrorCode.none] * 3
    assert second.records == b""
    assert second.high_watermark == 2


def test_the_limit_of_the_partition_and_what_remains_of_the_request(world: ReplicaWorld) -> None:
    size = len(batch("a"))
    for partition in range(3):
        world.append(*(batch("a") for _ in range(5)), partition=partition)
    requests = [asked(max_bytes=3 * size + 10), asked(partition=1), asked(partition=2)]
    results = read(world, requests, FetchParams(version=12, max_bytes=4 * size + 10))
    assert [len(values_of(each.records)) for each in results] == [3, 1, 0]
    assert [each.has_more for each in results] == [True, True, True]


def test_an_empty_first_partition_does_not_use_up_the_first_batch(world: ReplicaWorld) -> None:
    world.append(batch(b"x" * 5000), partition=1)
    first, second = read(world, [asked(), asked(partition=1, max_bytes=1)])
    assert (values_of(first.records), len(values_of(second.records))) == ([], 1)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (asked(3), ErrorCode.offset_out_of_range),
        (asked(-1), ErrorCode.offset_out_of_range),
        (asked(0), ErrorCode.offset_out_of_range),
        (asked(1, current_leader_epoch=4), ErrorCode.fenced_leader_epoch),
        (asked(1, current_leader_epoch=6), ErrorCode.unknown_leader_epoch),
        (asked(1, partition=7), ErrorCode.unknown_topic_or_partition),
        (asked(1, topic_id=UUID(int=700)), ErrorCode.inconsistent_topic_id),
        (asked(1, topic_id=topic_uuid("t"), current_leader_epoch=5), ErrorCode.none),
        (FetchPartition(None, 0, 0, 100, topic_id=UUID(int=700)), ErrorCode.unknown_topic_id),
        (asked(0, last_fetched_epoch=5), ErrorCode.offset_out_of_range),
        (asked(1, last_fetched_epoch=6), ErrorCode.offset_out_of_range),
    ],
)
def test_errors(world: ReplicaWorld, request_: FetchPartition, error: ErrorCode) -> None:
    world.append(batch("a"), batch("b"))
    world.partition().delete_records_on_leader(1)
    request_.hosted = None
    (result,) = read(world, [request_])
    assert result.error is error
    if error is not ErrorCode.none:
        assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (-1, -1, -1)
        assert (result.records, result.aborted_transactions) == (b"", None)
        is_unknown = error in (ErrorCode.unknown_topic_id, ErrorCode.unknown_topic_or_partition)
        assert result.is_unresolved == is_unknown
        assert result.completes_fetch == (not is_unknown)


def test_divergence_is_told_with_offsets_and_without_records(world: ReplicaWorld) -> None:
    world.append(batch("a"), batch("b"))
    world.place(leader=1, leader_epoch=8)
    world.append(batch("c"))
    (result,) = read(world, [asked(3, last_fetched_epoch=6)])
    assert (result.error, result.diverging_epoch) == (ErrorCode.none, EpochEndOffset(5, 2))
    assert (result.high_watermark, result.records, result.completes_fetch) == (3, b"", True)
    (result,) = read(world, [asked(3, last_fetched_epoch=5)])
    assert result.diverging_epoch == EpochEndOffset(5, 2)
    (result,) = read(world, [asked(2, last_fetched_epoch=5)])
    assert (result.diverging_epoch, values_of(result.records)) == (None, [b"c"])


def test_read_committed_ends_at_the_last_stable_offset_and_lists_aborted_transactions(world: ReplicaWorld) -> None:
    def transactional(value: str, producer_id: int, sequence: int = 0) -> bytearray:
        return batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)

    def end(producer_id: int, kind: ControlRecordType) -> bytearray:
        return end_transaction_marker_batch(
            EndTransactionMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=1
        )

    world.append(transactional("a", 7), transactional("b", 8))
    committed = FetchParams(version=12, isolation_level=1)
    (result,) = read(world, [asked()], committed)
    assert (result.records, result.aborted_transactions, result.last_stable_offset) == (b"", (), 0)
    partition = world.partition()
    partition.append_records_to_leader(parsed(end(7, ControlRecordType.ABORT)), AppendOrigin.COORDINATOR)
    (result,) = read(world, [asked()], committed)
    assert (values_of(result.records), result.last_stable_offset) == ([b"a"], 1)
    assert [(each.producer_id, each.first_offset) for each in result.aborted_transactions or ()] == [(7, 0)]
    partition.append_records_to_leader(parsed(end(8, ControlRecordType.COMMIT)), AppendOrigin.COORDINATOR)
    (result,) = read(world, [asked()], committed)
    assert (values_of(result.records), result.last_stable_offset, result.high_watermark) == ([b"a", b"b"], 4, 4)
    (plain,) = read(world, [asked()])
    assert (values_of(plain.records), plain.aborted_transactions) == ([b"a", b"b"], None)


def test_an_older_segment_answers_at_once(world: ReplicaWorld) -> None:
    world.append(batch("a"))
    world.partition().log.roll()
    world.append(batch("b"))
    (result,) = read(world, [asked()])
    assert (values_of(result.records), result.completes_fetch) == ([b"a"], True)
    (result,) = read(world, [asked(1)])
    assert (values_of(result.records), result.completes_fetch) == ([b"b"], False)


def test_requests_are_counted_by_topic(world: ReplicaWorld) -> None:
    read(world, [asked(), asked(9), asked(current_leader_epoch=9)])
    stats = world.partition().topic_stats
    assert (stats.total_fetch_requests, stats.failed_fetch_requests) == (3, 0)


def test_a_failure_that_is_the_brokers_own_is_counted(world: ReplicaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nonsense(*_: Any, **__: Any) -> None:
        raise CorruptMessageError("no batch at position 0")

    world.append(batch("a"))
    monkeypatch.setattr(UnifiedLog, "read", find_nonsense)
    (result,) = read(world, [asked()])
    stats = world.partition().topic_stats
    assert (result.error, stats.failed_fetch_requests) == (ErrorCode.corrupt_message, 1)


class ColdDisk(InlineDiskExecutor):
    """Runs in the next turn of the loop, as a thread would."""

    def __init__(self) -> None:
        self.calls = 0

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "asyncio.Future[Any]":
        self.calls += 1
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        loop.call_soon(lambda: future.set_result(function(*args, **kwargs)))
        return future


def test_what_is_not_in_the_page_cache_is_read_in_a_thread(
    world: ReplicaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.replication.fetch_reader.read_cached", lambda file_slice: None)

    async def story(loop: SimLoop) -> None:
        world.append(batch("a"))
        world.append(batch("b"), partition=1)
        disk = ColdDisk()
        reader = FetchReader(world.replicas._hosted, disk)
        answered: asyncio.Future[list[FetchPartitionResult]] = loop.create_future()
        located = reader.locate(CONSUMER, [asked(), asked(partition=1), asked(partition=2)], is_first_read=True)[0]
        reader.read_bytes(located, answered.set_result)
        assert not answered.done()
        results = await answered
        assert [values_of(each.records) for each in results] == [[b"a"], [b"b"], []]
        assert disk.calls == 1

    simulate(story)


def test_a_fetch_gets_what_the_clients_that_do_not_read_have_left(world: ReplicaWorld) -> None:
    size = len(batch("a"))
    for partition in range(2):
        world.append(*(batch("a") for _ in range(5)), partition=partition)
    budget = ByteBudget(100 * size)
    reader = FetchReader(world.replicas._hosted, InlineDiskExecutor(), answer_budget=budget)

    def sizes() -> list[int]:
        results = reader.locate(CONSUMER, [asked(), asked(partition=1)], is_first_read=True)[0]
        return [result.size_bytes // size for result in results]

    assert sizes() == [5, 5]
    budget.acquire(93 * size)
    assert sizes() == [5, 2]
    budget.acquire(4 * size)
    assert sizes() == [3, 0]
    budget.acquire(50 * size)
    assert sizes() == [1, 0], "never less than a batch: a client that reads goes on"


def test_only_the_first_read_of_a_fetch_tells_what_a_follower_has(world: ReplicaWorld) -> None:
    """The read out of the purgatory is about what it had when it asked."""
    world.create_topic("r", replicas=(1, 2), isr=(1,))
    reader = FetchReader(world.replicas._hosted, InlineDiskExecutor())
    follower, request = FetchParams(17, replica_id=2, replica_epoch=12), FetchPartition("r", 0, 0, 1000)
    known = world.partition("r").remote_replicas[2]
    reader.locate(follower, [request], is_first_read=False)
    assert (known.log_end_offset, known.broker_epoch) == (-1, -1)
    assert world.alter_partition.proposals == []
    asked_ms = world.now_ms
    reader.locate(follower, [request], is_first_read=True)
    world.append(batch("a"), topic="r")
    world.now_ms += 10
    reader.locate(follower, [request], is_first_read=False)
    assert (known.log_end_offset, known.mark_offset) == (0, 0)
    assert (known.mark_time_ms, known.last_caught_up_time_ms) == (asked_ms, asked_ms)


def test_clients_that_do_not_read_leave_followers_their_share(
    world: ReplicaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.register_brokers(1, 2)
    world.create_topic("r", replicas=(1, 2))
    size = len(batch("a"))
    monkeypatch.setattr("broker.replication.fetch_reader.FOLLOWER_SHARE_BYTES", 3 * size)
    world.append(*(batch("a") for _ in range(9)), topic="r")
    budget = ByteBudget(100 * size)
    reader = FetchReader(world.replicas._hosted, InlineDiskExecutor(), answer_budget=budget)

    def batches_for(params: FetchParams) -> int:
        (result,) = reader.locate(params, [FetchPartition("r", 0, 0, 100_000)], is_first_read=True)[0]
        return result.size_bytes // size

    follower = FetchParams(17, replica_id=2, replica_epoch=12)
    assert batches_for(follower) == 9
    budget.acquire(95 * size)
    assert batches_for(follower) == 5
    budget.acquire(50 * size)
    assert batches_for(follower) == 3
    assert batches_for(FetchParams(17, replica_id=2, replica_epoch=12, max_bytes=2 * size)) == 2


def test_what_is_being_read_from_the_disk_counts_as_unread(
    world: ReplicaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.replication.fetch_reader.read_cached", lambda file_slice: None)

    async def story(loop: SimLoop) -> None:
        world.append(batch("a"))
        budget = ByteBudget(1000)
        reader = FetchReader(world.replicas._hosted, ColdDisk(), answer_budget=budget)
        answered: asyncio.Future[list[FetchPartitionResult]] = loop.create_future()
        reader.read_bytes(reader.locate(CONSUMER, [asked()], is_first_read=True)[0], answered.set_result)
        assert budget.used_bytes == len(batch("a"))
        await answered
        assert budget.used_bytes == 0

    simulate(story)


def test_a_failed_or_shortened_read_is_a_storage_error(world: ReplicaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_or_shorten(file_slice: Any) -> bytes:
        if file_slice.position == 0:
            raise StorageFailure("unreadable")
        return b"short"

    monkeypatch.setattr("broker.replication.fetch_reader.read_cached", lambda file_slice: None)
    monkeypatch.setattr("broker.replication.fetch_reader.read", fail_or_shorten)

    async def story(loop: SimLoop) -> None:
        world.append(batch("a"))
        world.append(batch("a"), batch("b"), partition=1)
        reader = FetchReader(world.replicas._hosted, ColdDisk())
        answered: asyncio.Future[list[FetchPartitionResult]] = loop.create_future()
        located = reader.locate(CONSUMER, [asked(), asked(1, partition=1)], is_first_read=True)[0]
        reader.read_bytes(located, answered.set_result)
        for result in await answered:
            assert (result.error, result.records, result.high_watermark) == (ErrorCode.kafka_storage_error, b"", -1)

    simulate(story)


class OtherReplica:
    """Sends every consumer to broker 2."""

    def select(self, partition: Partition, params: FetchParams, request: FetchPartition) -> int:
        return 2


def test_a_selector_may_send_consumers_to_another_replica(world: ReplicaWorld) -> None:
    world.append(batch("a"))
    reader = FetchReader(world.replicas._hosted, InlineDiskExecutor(), OtherReplica())
    (sent,) = reader.locate(CONSUMER, [asked()], is_first_read=True)[0]
    assert (sent.preferred_read_replica, sent.size_bytes, sent.high_watermark) == (2, 0, 1)
    assert sent.completes_fetch
    (old,) = reader.locate(FetchParams(version=10), [asked()], is_first_read=True)[0]
    assert (old.preferred_read_replica, old.size_bytes) == (-1, len(batch("a")))


def test_a_follower_that_catches_up_is_held_back_by_the_throttle(tmp_path: Path) -> None:
    """KIP-73: no records above the rate, but its progress counts; in-sync followers are counted, and not held back."""
    world = ReplicaWorld(tmp_path, {"leader.replication.throttled.rate": "100"})
    world.register_brokers(1, 2, 3)
    throttled = {"leader.replication.throttled.replicas": "0:1"}
    world.create_topic(replicas=(1, 2, 3), isr=(1, 2), partitions=2, configs=throttled)
    for partition in range(2):
        world.append(batch(b"x" * 1000), batch("y"), partition=partition)
    behind = FetchParams(version=12, replica_id=3, replica_epoch=13)

    first, other = read(world, [asked(0, max_bytes=1), asked(0, 1)], behind)
    world.replicas.count_bytes_out([first, other], 3)
    assert first.size_bytes > 1000
    assert world.replicas.context.leader_throttle.byte_rate == first.size_bytes  # of the covered partition alone
    held, other = read(world, [asked(1), asked(0, 1)], behind)
    assert (held.size_bytes, held.error, held.has_more, held.completes_fetch) == (0, ErrorCode.none, True, False)
    assert (held.high_watermark, world.partition().remote_replicas[3].log_end_offset) == (0, 1)
    assert other.size_bytes > 1000
    in_sync = FetchParams(version=12, replica_id=2, replica_epoch=12)
    (unhindered,) = read(world, [asked(1)], in_sync)
    assert values_of(unhindered.records) == [b"y"]
    world.now_ms += 11_000
    (again,) = read(world, [asked(1)], behind)
    assert values_of(again.records) == [b"y"]


# Followers that take their records from a bucket

BUCKET_FOLLOWER = FetchParams(17, replica_id=2, replica_epoch=12)


@pytest.fixture
def bucket(world: ReplicaWorld) -> RecordingLeaderWal:
    """Of topic `r`: epoch 5, two batches, broker 2 in sync."""
    world.create_topic("r", replicas=(1, 2), leader_epoch=5)
    world.append(batch("a"), batch("b"), topic="r")
    world.partition("r").leader_wal = wal = RecordingLeaderWal()
    return wal


def asked_of_bucket(offset: int = 0, **keywords: Any) -> FetchPartition:
    return FetchPartition("r", 0, offset, 1 << 20, **{"current_leader_epoch": 5, "log_start_offset": 0, **keywords})


def test_a_follower_through_a_bucket_gets_offsets_alone_and_leaves_the_limits_to_others(
    world: ReplicaWorld, bucket: RecordingLeaderWal
) -> None:
    world.create_topic("classic", replicas=(1, 2))
    world.append(batch(b"x" * 5000), topic="classic")
    limits = FetchParams(17, replica_id=2, replica_epoch=12, max_bytes=1)
    through_bucket, classic = read(world, [asked_of_bucket(1), FetchPartition("classic", 0, 0, 1 << 20)], limits)
    assert (through_bucket.error, through_bucket.records, through_bucket.size_bytes) == (ErrorCode.none, b"", 0)
    assert (through_bucket.high_watermark, through_bucket.log_start_offset) == (1, 0)  # this fetch has moved it
    assert through_bucket.last_stable_offset == 1
    assert classic.size_bytes > 5000
    assert bucket.asked == [(2, 1)]
    assert through_bucket.request.bucket_fetch is BucketFetch.BEHIND
    assert classic.request.bucket_fetch is None


@pytest.mark.parametrize(
    ("request_fields", "params", "error"),
    [
        ({"current_leader_epoch": 4}, BUCKET_FOLLOWER, ErrorCode.fenced_leader_epoch),
        ({"current_leader_epoch": 6}, BUCKET_FOLLOWER, ErrorCode.unknown_leader_epoch),
        ({"current_leader_epoch": -1}, BUCKET_FOLLOWER, ErrorCode.fenced_leader_epoch),
        ({}, FetchParams(11, replica_id=2), ErrorCode.fenced_leader_epoch),
        ({}, FetchParams(17, replica_id=2, replica_epoch=11), ErrorCode.not_leader_or_follower),
        ({}, FetchParams(17, replica_id=3, replica_epoch=13), ErrorCode.unknown_leader_epoch),
        ({"offset": 3}, BUCKET_FOLLOWER, ErrorCode.offset_out_of_range),
        ({"topic_id": UUID(int=9)}, BUCKET_FOLLOWER, ErrorCode.inconsistent_topic_id),
        ({"offset": 2, "last_fetched_epoch": 7}, BUCKET_FOLLOWER, ErrorCode.offset_out_of_range),  # never heard of
        ({"offset": 2, "last_fetched_epoch": 4}, BUCKET_FOLLOWER, ErrorCode.none),  # it has diverged
    ],
)
def test_every_check_comes_first_and_who_fails_one_has_told_nothing(
    world: ReplicaWorld,
    bucket: RecordingLeaderWal,
    request_fields: dict[str, Any],
    params: FetchParams,
    error: ErrorCode,
) -> None:
    """Else a follower whose log is another one would be counted for the high watermark."""
    (result,) = read(world, [asked_of_bucket(**request_fields)], params)
    assert result.error is error
    assert (result.diverging_epoch == EpochEndOffset(4, 0)) == (error is ErrorCode.none)
    known = world.partition("r").remote_replicas[2]
    assert (known.log_end_offset, known.mark_offset, known.mark_time_ms) == (-1, -1, NEVER_MS)
    assert known.last_caught_up_time_ms == 1_000_000  # when the epoch began
    assert world.partition("r").log.high_watermark == 0
    assert bucket.asked == []


def test_the_choice_of_a_fetch_holds_until_it_is_answered(world: ReplicaWorld, bucket: RecordingLeaderWal) -> None:
    reader, request = FetchReader(world.replicas._hosted, InlineDiskExecutor()), asked_of_bucket()
    for falls_back in (True, False):
        bucket.falls_back = {2} if falls_back else set()
        (first,) = reader.locate(BUCKET_FOLLOWER, [request], is_first_read=True)[0]
        bucket.falls_back = set() if falls_back else {2}
        (second,) = reader.locate(BUCKET_FOLLOWER, [request], is_first_read=False)[0]
        assert (first.size_bytes > 0, second.size_bytes > 0) == (falls_back, falls_back)
    assert bucket.asked == [(2, 0), (2, 0)]


def test_outside_the_isr_it_is_looked_at_each_time(world: ReplicaWorld, bucket: RecordingLeaderWal) -> None:
    (in_sync,) = read(world, [asked_of_bucket(2)], BUCKET_FOLLOWER)
    assert not in_sync.has_more
    world.place("r", isr=(1,))
    world.register_brokers(2, fenced=True)
    (outside,) = read(world, [asked_of_bucket(2)], BUCKET_FOLLOWER)
    assert outside.has_more


# Offsets whose records are in remote storage alone (KIP-405)

TIERED_FOLLOWER = FetchParams(version=17, replica_id=2, replica_epoch=12)


@pytest.fixture
def tiered(tmp_path: Path) -> TieredWorld:
    """Four records, of which the first two are in remote storage alone."""
    world = TieredWorld(tmp_path, 1000, 2000, 3000, 4000)
    tier(world.partition().log, 2)
    return world


def locate(
    world: TieredWorld, *requests: FetchPartition, params: FetchParams = CONSUMER
) -> tuple[list[FetchPartitionResult], RemoteReads | None]:
    return world.replicas._reader.locate(params, requests, is_first_read=True)


def locate_one(world: TieredWorld, offset: int, params: FetchParams = CONSUMER) -> FetchPartitionResult:
    return locate(world, asked(offset), params=params)[0][0]


def test_a_consumer_below_the_local_log_is_to_be_read_from_remote_storage(tiered: TieredWorld) -> None:
    (result,), reads = locate(tiered, asked(1, max_bytes=700))
    assert (result.error, result.records, result.size_bytes, result.file_slice) == (ErrorCode.none, b"", 0, None)
    assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (4, 4, 0)
    assert result.remote_fetch == RemoteFetch(tiered.partition(), 1, 700, True, 4, False)
    assert reads is not None and reads.results == [result]
    assert result.has_more and result.aborted_transactions is None


def test_the_local_log_is_read_as_ever(tiered: TieredWorld) -> None:
    (result,), reads = locate(tiered, asked(2))
    assert (result.remote_fetch, reads) == (None, None)
    assert result.file_slice is not None


def test_36_read_committed_ends_at_the_last_stable_offset_in_remote_storage_as_well(tiered: TieredWorld) -> None:
    result = locate_one(tiered, 1, FetchParams(version=12, isolation_level=1))
    assert result.remote_fetch == RemoteFetch(tiered.partition(), 1, 1 << 20, True, 4, True)
    assert result.aborted_transactions == ()
    tiered.partition().log._first_unstable_offset = 1  # a follower that began at 2 does not know how it ended
    for offset, may_read, is_answered in ((0, True, False), (1, False, False)):
        result = locate_one(tiered, offset, FetchParams(version=12, isolation_level=1))
        assert (result.remote_fetch is not None, result.has_more) == (may_read, may_read)
        assert result.completes_fetch == is_answered
    tiered.partition().log._first_unstable_offset = 0
    result = locate_one(tiered, 1, FetchParams(version=12, isolation_level=1))
    assert (result.remote_fetch, result.completes_fetch) == (None, True)  # as in the local log


@pytest.mark.parametrize("params", [TIERED_FOLLOWER, FetchParams(version=12, replica_id=-3)])
def test_replicas_are_told_that_the_offset_has_moved(tmp_path: Path, params: FetchParams) -> None:
    world = TieredWorld(tmp_path)
    world.create_topic("r", replicas=(1, 2), configs=TIERED_TOPIC)
    world.append(batch("a"), batch("b"), topic="r")
    world.partition("r").log.update_high_watermark(2)
    tier(world.partition("r").log, 1)
    (result,), reads = locate(world, FetchPartition("r", 0, 0, 1000), params=params)
    assert (result.error, result.completes_fetch) == (ErrorCode.offset_moved_to_tiered_storage, True)
    assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (2, 2, 0)
    assert (result.records, result.remote_fetch, reads) == (b"", None, None)
    assert world.partition("r").topic_stats.failed_fetch_requests == 0
    if params.is_from_follower:
        assert world.partition("r").remote_replicas[2].log_end_offset == -1  # it has said nothing of what it has


def test_a_replica_that_has_diverged_hears_that_first(tmp_path: Path) -> None:
    world = TieredWorld(tmp_path)
    world.create_topic("r", replicas=(1, 2), configs=TIERED_TOPIC, leader_epoch=5)
    world.append(batch("a"), topic="r")
    world.place("r", leader_epoch=8)
    world.append(batch("b"), batch("c"), topic="r")
    world.partition("r").log.update_high_watermark(3)
    tier(world.partition("r").log, 3)
    request = FetchPartition("r", 0, 2, 1000, last_fetched_epoch=6)
    (result,), _ = locate(world, request, params=TIERED_FOLLOWER)
    assert (result.error, result.diverging_epoch) == (ErrorCode.none, EpochEndOffset(5, 1))
    request = FetchPartition("r", 0, 2, 1000, last_fetched_epoch=8)
    (result,), _ = locate(world, request, params=TIERED_FOLLOWER)
    assert result.error is ErrorCode.offset_moved_to_tiered_storage


@pytest.mark.parametrize("params", [CONSUMER, FetchParams(version=12, replica_id=-3)])
def test_37_an_offset_that_is_nowhere_is_out_of_range(tiered: TieredWorld, params: FetchParams) -> None:
    tiered.partition().log.maybe_increment_log_start_offset(1, "test")
    for offset in (-1, 0, 5):
        (result,), reads = locate(tiered, asked(offset), params=params)
        assert (result.error, result.remote_fetch, reads) == (ErrorCode.offset_out_of_range, None, None)
        assert (result.high_watermark, result.log_start_offset) == (-1, -1)


@pytest.mark.parametrize("params", [CONSUMER, FetchParams(version=12, replica_id=-3)])
def test_without_remote_storage_it_is_out_of_range(tiered: TieredWorld, params: FetchParams) -> None:
    reader = FetchReader(tiered.replicas._hosted, InlineDiskExecutor())
    (result,), reads = reader.locate(params, [asked(1)], is_first_read=True)
    assert (result.error, reads) == (ErrorCode.offset_out_of_range, None)
    tiered.partition().log.is_tiered = False
    assert locate_one(tiered, 1, params).error is ErrorCode.offset_out_of_range


def test_a_second_look_does_not_ask_remote_storage(tiered: TieredWorld) -> None:
    (result,), reads = tiered.replicas._reader.locate(CONSUMER, [asked(1)], is_first_read=False)
    assert (result.error, result.remote_fetch, result.has_more, reads) == (ErrorCode.none, None, True, None)


def test_29_remote_partitions_share_the_bytes_of_the_request(tiered: TieredWorld) -> None:
    for name in ("u", "v", "w"):
        tier(tiered.create_tiered_topic(name, 1000, 2000).log, 1)
    requests = [FetchPartition(name, 0, 0, 1000) for name in ("t", "u", "v", "w")]
    results, reads = locate(tiered, *requests, params=FetchParams(version=12, max_bytes=1700))
    asked_for = [None if each.remote_fetch is None else each.remote_fetch[2:4] for each in results]
    assert asked_for == [(1000, True), (700, False), None, None]
    assert reads is not None and reads.results == results[:2]
    assert [each.error for each in results] == [ErrorCode.none] * 4
    assert [(each.has_more, each.records) for each in results[2:]] == [(True, b"")] * 2


def test_29_beyond_eight_of_them_partitions_are_empty(tiered: TieredWorld) -> None:
    names = [f"u{number}" for number in range(10)]
    for name in names:
        tier(tiered.create_tiered_topic(name, 1000, 2000).log, 1)
    results, reads = locate(tiered, *(FetchPartition(name, 0, 0, 1000) for name in names))
    assert [each.remote_fetch is not None for each in results] == [True] * REMOTE_READS_MAX + [False] * 2
    assert reads is not None and reads.results == results[:REMOTE_READS_MAX]


def test_30_a_local_partition_gets_its_first_batch_whatever_remote_ones_may_bring(tiered: TieredWorld) -> None:
    tiered.create_tiered_topic("u", 1000)
    tiered.append(batch("second"), topic="u")
    remote, local = FetchPartition("t", 0, 1, 1000), FetchPartition("u", 0, 0, 1000)
    (_, result), _ = locate(tiered, remote, local, params=FetchParams(version=12, max_bytes=1000))
    assert len(list(values_of(_bytes_of(tiered, result)))) == 1
    (result, after), reads = locate(tiered, local, remote, params=FetchParams(version=12, max_bytes=10))
    assert result.size_bytes > 10
    assert (after.remote_fetch, after.error) == (None, ErrorCode.none)
    assert reads is not None and not reads.results


def _bytes_of(world: TieredWorld, result: FetchPartitionResult) -> Any:
    world.replicas._reader.read_bytes([result], lambda results: None)
    return result.records


def test_33_nothing_is_read_while_the_quota_is_exceeded(tiered: TieredWorld) -> None:
    tiered.create_tiered_topic("u", 1000)
    tiered.remote.is_fetch_quota_exceeded = True
    remote, local = FetchPartition("t", 0, 1, 1000), FetchPartition("u", 0, 0, 1000)
    (first, second), reads = locate(tiered, remote, local)
    assert (first.error, first.remote_fetch, first.completes_fetch) == (ErrorCode.none, None, False)
    assert (first.high_watermark, first.has_more) == (4, True)
    assert second.size_bytes > 0
    assert reads is not None and (reads.results, reads.held_back) == ([], {remote})


def test_55_a_follower_has_consumers_read_from_remote_storage_as_well(tiered: TieredWorld) -> None:
    tiered.place(replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1)
    assert not tiered.partition().is_leader
    assert locate_one(tiered, 1).remote_fetch == RemoteFetch(tiered.partition(), 1, 1 << 20, True, 4, False)
    old = FetchParams(version=10)  # may read from leaders only
    assert locate_one(tiered, 1, old).error is ErrorCode.not_leader_or_follower


def test_a_preferred_replica_is_told_before_anything_is_read(tmp_path: Path) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    world = TieredWorld(tmp_path, properties={"replica.selector.class": selector, "broker.rack": "here"})
    world.register_brokers(1, rack="here")
    world.register_brokers(2, rack="there")
    world.create_topic("r", replicas=(1, 2), configs=TIERED_TOPIC)
    world.append(batch("a"), batch("b"), topic="r")
    world.partition("r").update_follower_fetch_state(
        2, fetch_offset=2, log_start_offset=0, leader_log_end_offset=2, replica_epoch=12
    )
    tier(world.partition("r").log, 1)
    near = FetchParams(version=12, rack_id="there", listener_name="PLAINTEXT")
    (result,), reads = locate(world, FetchPartition("r", 0, 0, 1000), params=near)
    assert (result.preferred_read_replica, result.remote_fetch, reads) == (2, None, None)
    here = FetchParams(version=12, rack_id="here", listener_name="PLAINTEXT")
    (result,), reads = locate(world, FetchPartition("r", 0, 0, 1000), params=here)
    assert result.preferred_read_replica == -1 and result.remote_fetch is not None
