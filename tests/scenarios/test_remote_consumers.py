"""Consumers of logs that begin in a bucket: real partitions, segments, indexes and reads (KIP-405)."""

import asyncio
import dataclasses
from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.objectstore.failing_object_store import Fault, Latency
from broker.records.control_record import ControlRecordType
from broker.records.record_batch import batches
from broker.replication.fetch_params import FetchParams, FetchPartition, FetchPartitionResult
from tests.support.builders import batch, settle, values_of
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.tiering.access_world import COMMITTED, CONSUMER, AccessWorld, reading, transactional
from tests.unit.tiering.segment_world import DELETED, DELETING, FINISHED, segment, update
from tests.unit.tiering.task_world import T0, Remote

NONE = ErrorCode.none
ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


async def consume(world: AccessWorld, params: FetchParams = CONSUMER, size: int = 1 << 20) -> list[bytes | None]:
    """The values of everything from the log's start to its end, as a consumer gets them: without aborted records."""
    offset, values = world.log.log_start_offset, []
    while offset < world.log.last_stable_offset:
        result = await world.fetch_one(offset, params, size)
        assert result.error is NONE and result.records, f"stuck at {offset}: {result.error}"
        aborted = sorted(result.aborted_transactions or (), key=lambda each: each.first_offset)
        open_aborted: set[int] = set()
        for each in batches(result.records):
            while aborted and aborted[0].first_offset <= each.last_offset:
                open_aborted.add(aborted.pop(0).producer_id)
            if each.is_control:
                open_aborted.discard(each.producer_id)
            elif not (each.is_transactional and each.producer_id in open_aborted):
                values += [record.value for record in each.records() if record.offset >= offset]
            offset = each.next_offset
    return values


def test_17_a_consumer_from_the_start_reads_everything(tmp_path: Path) -> None:
    """local.retention.ms of 1: what is copied leaves the disk with time, and the log's start stays."""

    async def story(world: AccessWorld) -> None:
        world.topic(local_retention_ms=1)
        world.append(5)
        await world.copy()
        world.log.flush()
        await asyncio.sleep(1)
        world.expire_locally()
        assert (world.log.log_start_offset, world.log.local_log_start_offset) == (0, 8)
        assert await consume(world) == [b"first", b"second"] * 5
        assert (world.counts.fetch_requests, world.counts.fetch_errors) == (4, 0)
        assert world.counts.fetch_bytes == sum(each.segment_size_in_bytes for each in world.remote.segments())

    reading(tmp_path, story)


def test_29_two_remote_partitions_both_have_data(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic(partitions=2)
        for partition in range(2):
            world.append(3, partition=partition)
            await world.move(partition=partition)
        first, second = await world.fetch(*(FetchPartition("t", partition, 0, 1000) for partition in range(2)))
        assert values_of(first.records) == values_of(second.records) == [b"first", b"second"]

    reading(tmp_path, story)


def test_30_local_and_remote_partitions_both_have_data(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic(partitions=2)
        for partition in range(2):
            world.append(3, partition=partition)
        await world.move()
        remote, local = await world.fetch(*(FetchPartition("t", partition, 0, 1000) for partition in range(2)))
        assert values_of(remote.records) == values_of(local.records) == [b"first", b"second"]
        assert world.counts.fetch_requests == 1

    reading(tmp_path, story)


def test_31_a_slow_bucket_gives_nothing_until_it_has_answered(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic(partitions=2)
        for partition in range(2):
            world.append(3, partition=partition)
        await world.move()
        world.remote.bucket.failing.plan.latency = Latency(median=2.0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        remote, local = await world.fetch(*(FetchPartition("t", partition, 0, 1000) for partition in range(2)))
        assert loop.time() - began == pytest.approx(0.5)
        assert (remote.error, remote.records, remote.high_watermark) == (NONE, b"", 6)
        assert values_of(local.records) == [b"first", b"second"]
        assert world.replicas.replicas.remote_fetches.purgatory.expired_count == 1
        await settle()
        assert world.stats.readers_busy == 0
        requests = 1
        while not (result := await world.fetch_one(0)).records:
            requests += 1
        assert values_of(result.records) == [b"first", b"second"]
        assert requests > 3  # one read of the bucket, whoever has waited for it
        assert world.indexes.downloads == 1

    reading(tmp_path, story)


def test_32_a_full_queue_fails_one_partition(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic(partitions=4)
        for partition in range(4):
            world.append(3, partition=partition)
            if partition < 3:
                await world.move(partition=partition)
        results = await world.fetch(*(FetchPartition("t", partition, 0, 1000) for partition in range(4)))
        assert [each.error for each in results] == [NONE, NONE, ErrorCode.unknown_server_error, NONE]
        assert [len(values_of(each.records)) for each in results] == [2, 2, 0, 2]

    reading(tmp_path, story, {"remote.log.reader.threads": "1", "remote.log.reader.max.pending.tasks": "1"})


def test_33_above_the_quota_remote_partitions_are_empty(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic(partitions=2)
        for partition in range(2):
            world.append(3, partition=partition)
        await world.move()
        assert (await world.fetch_one(0)).records
        remote, local = await world.fetch(*(FetchPartition("t", partition, 0, 1000) for partition in range(2)))
        assert (remote.error, remote.records) == (NONE, b"")
        assert local.records
        assert world.stats.fetch_throttle_ms.maximum > 0
        await asyncio.sleep(60)
        assert (await world.fetch_one(2)).records

    reading(tmp_path, story, {"remote.log.manager.fetch.max.bytes.per.second": "5"})


def test_34_a_large_first_batch_comes_whole_when_it_is_the_first(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic(partitions=2, internal_segment_bytes=11_000)
        large = [batch(b"x" * 10_240) for _ in range(2)]
        for partition in range(2):
            for each in large:
                world.replicas.append(bytearray(each), partition=partition)
            await world.move(partition=partition)
        requests = [FetchPartition("t", partition, 0, 1024) for partition in range(2)]
        first, second = await world.fetch(*requests, params=FetchParams(version=12, max_bytes=1 << 20))
        assert values_of(first.records) == [b"x" * 10_240]
        assert (second.error, second.records) == (NONE, b"")
        (served,) = await world.fetch(requests[1])
        assert values_of(served.records) == [b"x" * 10_240]

    reading(tmp_path, story)


def test_35_a_read_does_not_cross_segments_and_begins_where_the_index_says(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic(internal_segment_bytes=4000, index_interval_bytes=100)
        for number in range(100):
            world.replicas.append(batch(f"{number:04}"))
        await world.move()
        first = world.remote.segments()[0]
        late = first.end_offset - 2
        result = await world.fetch_one(late)
        assert values_of(result.records) == [f"{number:04}".encode() for number in range(late, first.next_offset)]
        (read,) = world.remote.bucket.inner.ranges
        assert 0 < read[0] < read[1] < first.segment_size_in_bytes
        assert await consume(world, size=500) == [f"{number:04}".encode() for number in range(100)]

    reading(tmp_path, story, chunk_bytes=512)


def test_36_an_aborted_transaction_whose_marker_is_two_remote_segments_later(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.write(batch("a"), transactional("never", 7), batch("b"), transactional("nor this", 7, 1))
        world.end(7, ABORT)
        world.write(transactional("c", 8))
        world.end(8, COMMIT)
        world.write(batch("d"), batch("last"))
        await world.move()
        assert (world.log.local_log_start_offset, world.log.log_end_offset) == (8, 9)
        result = await world.fetch_one(1, COMMITTED)
        assert values_of(result.records) == [b"never"]
        assert [(each.producer_id, each.first_offset) for each in result.aborted_transactions or ()] == [(7, 1)]
        assert await consume(world, COMMITTED) == [b"a", b"b", b"c", b"d", b"last"]
        assert len(await consume(world)) == 7
        assert (await world.fetch_one(1)).aborted_transactions is None

    reading(tmp_path, story)


def test_36_an_aborted_transaction_whose_marker_is_in_the_local_log(tmp_path: Path) -> None:
    """Its records were copied once it had ended, and the segment of the marker is the active one."""

    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.write(batch("a"), transactional("never", 7), batch("b"))
        await world.move()
        assert world.log.local_log_start_offset == 1  # the last stable offset: the transaction is open
        assert await consume(world, COMMITTED) == [b"a"]
        world.end(7, ABORT)
        await world.move()
        assert world.log.local_log_start_offset == 3
        result = await world.fetch_one(1, COMMITTED)
        assert [(each.producer_id, each.first_offset) for each in result.aborted_transactions or ()] == [(7, 1)]
        assert await consume(world, COMMITTED) == [b"a", b"b"]

    reading(tmp_path, story)


def test_36_a_committed_transaction_is_read(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.write(transactional("yes", 7))
        world.end(7, COMMIT)
        world.write(batch("last"))
        await world.move()
        result = await world.fetch_one(0, COMMITTED)
        assert (values_of(result.records), result.aborted_transactions) == ([b"yes"], ())
        assert await consume(world, COMMITTED) == [b"yes", b"last"]

    reading(tmp_path, story)


def test_37_what_is_below_the_log_or_above_it_is_out_of_range(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(4)
        await world.move()
        world.replicas.partition().delete_records_on_leader(3)
        for offset, error in (
            (2, ErrorCode.offset_out_of_range),
            (3, NONE),
            (8, NONE),
            (9, ErrorCode.offset_out_of_range),
        ):
            assert (await world.fetch_one(offset)).error is error, offset
        assert values_of((await world.fetch_one(3)).records) == [b"first", b"second"]  # the batch that has it

    reading(tmp_path, story)


def test_37_a_segment_of_which_nobody_knows_is_out_of_range(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(4)
        await world.move()
        for state in (DELETING, DELETED):
            second = world.remote.segments()[1]
            await world.metadata.update_remote_log_segment_metadata(update(second.segment_id.int, state, partition=T0))
            assert (await world.fetch_one(2)).error is ErrorCode.offset_out_of_range
        assert (await world.fetch_one(0)).error is NONE
        world.metadata.on_stop_partitions([T0])
        assert (await world.fetch_one(0)).error is ErrorCode.replica_not_available
        assert world.counts.fetch_errors == 1

    reading(tmp_path, story)


@pytest.mark.parametrize("fault", [Fault.NOT_FOUND, Fault.SHORT_READ, Fault.FLIPPED_BYTE])
def test_a_bucket_that_fails_is_an_error_of_that_partition(tmp_path: Path, fault: Fault) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic(partitions=2)
        for partition in range(2):
            world.append(3, partition=partition)
        await world.move()
        assert (await world.fetch_one(2)).records  # its indexes are here
        world.remote.bucket.failing.plan.probabilities = {fault: 1.0}
        first_read = FetchPartition("t", 0, 0, 1000)
        remote, local = await world.fetch(first_read, FetchPartition("t", 1, 0, 1000))
        assert (remote.error, remote.records) == (ErrorCode.unknown_server_error, b"")
        assert local.records
        world.remote.bucket.failing.plan.probabilities = {}
        assert values_of((await world.fetch_one(0)).records) == [b"first", b"second"]

    reading(tmp_path, story)


def test_44_after_an_unclean_election_the_old_leaders_records_are_not_read(tmp_path: Path) -> None:
    """Broker 2 has copied more of epoch 0 than broker 1 ever had; broker 1 leads now, and goes on in epoch 1."""

    async def run(loop: SimLoop) -> None:
        remote = Remote()
        old = AccessWorld(tmp_path / "old", loop, broker_id=2, remote=remote)
        new = AccessWorld(tmp_path / "new", loop, broker_id=1, remote=remote)
        async with remote.storage.running(), new.reading():
            old.topic(replicas=(1, 2), isr=(2,), leader=2, internal_segment_bytes=10_000)
            new.topic(replicas=(1, 2), isr=(2,), leader=2, local_retention_bytes=1)
            for number in range(2):
                old.replicas.append(batch(f"{number}"))
            new.replicate(old)
            for number in range(2, 6):
                old.replicas.append(batch(f"lost {number}"))
            old.log.roll()
            await old.copy()
            assert remote.ranges() == [(0, 5)]
            new.replicas.place(leader=1, isr=(1,), leader_epoch=1)
            for number in range(2, 5):
                new.replicas.append(batch(f"{number}"))
                new.log.roll()
            await new.copy()
            new.log.flush()
            new.expire_locally()
            assert new.log.local_log_start_offset >= 4
            assert await consume(new) == [b"0", b"1", b"2", b"3", b"4"]

    simulate(run)


@pytest.mark.parametrize("late", [(0, 2), (1, 3), (2, 2)])
def test_45_a_shorter_copy_that_finishes_late_hides_no_record_and_no_aborted_transaction(
    tmp_path: Path, late: tuple[int, int]
) -> None:
    """Of an old leader that was paused.  The marker, at offset 4, is in the longer copy alone."""

    async def story(world: AccessWorld) -> None:
        world.tiered_topic(internal_segment_bytes=10_000)
        for each in (batch("a"), transactional("never", 7), batch("b"), transactional("nor this", 7, 1)):
            world.replicas.append(each)
        world.end(7, ABORT, is_rolled=False)
        world.write(batch("c"))
        world.write(batch("last"))
        await world.move()
        assert world.remote.ranges() == [(0, 4), (5, 5)]
        start, end = late
        await world.metadata.add_remote_log_segment_metadata(segment(77, start, end, {0: start}, partition=T0))
        await world.metadata.update_remote_log_segment_metadata(update(77, FINISHED, partition=T0))
        assert await consume(world, COMMITTED) == [b"a", b"b", b"c", b"last"]
        for offset in range(5):
            assert (await world.fetch_one(offset, COMMITTED)).error is NONE
        result = await world.fetch_one(1, COMMITTED)
        assert [(each.producer_id, each.first_offset) for each in result.aborted_transactions or ()] == [(7, 1)]

    reading(tmp_path, story)


def test_55_a_follower_serves_what_is_in_the_bucket(tmp_path: Path) -> None:
    async def run(loop: SimLoop) -> None:
        remote = Remote()
        leader = AccessWorld(tmp_path / "leader", loop, broker_id=1, remote=remote)
        follower = AccessWorld(tmp_path / "follower", loop, broker_id=2, remote=remote)
        async with remote.storage.running(), follower.reading():
            leader.topic(replicas=(1, 2), isr=(1,), leader=1)
            follower.tiered_topic(replicas=(1, 2), isr=(1,), leader=1)
            leader.append(4)
            follower.replicate(leader)
            await leader.copy()
            await follower.follower_task().run()
            follower.log.flush()
            follower.expire_locally()
            assert not follower.replicas.partition().is_leader
            assert follower.log.local_log_start_offset == 6
            assert await consume(follower) == [b"first", b"second"] * 4
            assert follower.counts.fetch_requests == 3

    simulate(run)


def test_a_follower_that_does_not_know_how_a_transaction_ended_does_not_tell_of_it(tmp_path: Path) -> None:
    """It began with the state of the bucket, in which the transaction is open; the marker is still to come."""

    async def story(world: AccessWorld) -> None:
        world.tiered_topic(internal_segment_bytes=10_000)
        world.replicas.append(batch("a"), transactional("never", 7), batch("b"))
        world.end(7, ABORT)
        await world.copy()
        assert world.remote.ranges() == [(0, 2)]
        snapshot = world.log.producer_snapshot_path(3).read_bytes()
        marker = await world.fetch_one(3)
        world.log.restore_from_remote(3, 0, world.log.leader_epochs.entries, snapshot)
        assert (world.log.local_log_start_offset, world.log.last_stable_offset) == (3, 1)
        assert values_of((await world.fetch_one(1)).records) == [b"never", b"b"]
        result = await world.fetch_one(1, COMMITTED)
        assert (result.error, result.records, result.aborted_transactions) == (NONE, b"", ())
        result = await world.fetch_one(0, COMMITTED)
        assert (values_of(result.records), result.aborted_transactions) == ([b"a"], ())
        world.log.append_as_follower(bytes(marker.records), 0)
        world.log.update_high_watermark(4)
        assert await consume(world, COMMITTED) == [b"a", b"b"]

    reading(tmp_path, story)


def test_gaps_at_the_end_of_the_remote_log_are_passed(tmp_path: Path) -> None:
    """The last remote segment claims offsets of which it has no batch: they were compacted away."""

    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(4)
        await world.move()
        first, second, third = world.remote.segments()
        cache = world.metadata.store._caches[T0]
        for each in (second, third):
            for state in (DELETING, DELETED):
                cache.update(update(each.segment_id.int, state, partition=T0))
        cache._segments[first.segment_id] = dataclasses.replace(first, end_offset=third.end_offset)
        result: FetchPartitionResult = await world.fetch_one(3)
        assert (result.error, values_of(result.records)) == (NONE, [b"first", b"second"])
        assert next(iter(batches(result.records))).base_offset == 6
        assert result.size_bytes == len(result.records)

    reading(tmp_path, story)


def test_reads_of_thousands_of_consumers_are_few(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(3)
        await world.move()
        results = await asyncio.gather(*(world.fetch_one(0) for _ in range(100)))
        assert all(values_of(each.records) == [b"first", b"second"] for each in results)
        assert len(world.remote.bucket.inner.ranges) == 1
        assert world.counts.fetch_requests == 100
        found = world.replicas.replicas.hosted_partition(TopicPartition("t", 0))
        assert found is not None and len(found._listeners) == 0

    reading(tmp_path, story)
