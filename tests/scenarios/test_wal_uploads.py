"""Stories about a leader whose records go through the bucket: real logs, stores that fail, virtual time.

A number in a name is that of the behaviour of KIP-1176's replication it shows; an "h" and a number is a rule without
which a model of the protocol goes wrong.
"""

import asyncio
import itertools
from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from broker.objectstore.decorated import Operation
from broker.objectstore.errors import Unavailable
from broker.objectstore.failing_object_store import Fault, Latency
from broker.records.append_origin import AppendOrigin
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.records.record_batch import batches
from broker.schemas.remote_wal_metadata import RemoteWalCombinedLogSegmentMetadataRecord
from broker.wal.objects.combined_segment import CombinedSegment
from broker.wal.objects.wal_entry import entries_of
from broker.wal.upload.upload_pace import LATE_SIZE_FACTOR
from tests.support.builders import batch, parsed
from tests.support.sim_loop import EPOCH_MS, SimLoop, simulate
from tests.unit.wal.upload_world import FOLLOWER, LEADER, LOST, UploadWorld, told
from tests.unit.wal.wal_world import entry

MEBIBYTE = 1 << 20


def produced(
    world: UploadWorld, *, acks: int, timeout_ms: int = 30_000, partition: int = 0
) -> "asyncio.Task[ErrorCode]":
    """One record; the task ends with the answer."""

    async def answer() -> ErrorCode:
        entries = [(world.partition(partition).topic_partition, batch("v"))]
        (result,) = await world.replicas.produce(entries, acks=acks, timeout_ms=timeout_ms)
        return result.error

    return asyncio.ensure_future(answer())


def is_contiguous(offsets: list[tuple[int, int]]) -> bool:
    return all(one[1] + 1 == other[0] for one, other in itertools.pairwise(offsets))


def serves(world: UploadWorld, offset: int) -> bool:
    wal = world.combiner.led(world.place())
    assert wal is not None
    return wal.serves_records(FOLLOWER, offset)


def test_9_acks_1_does_not_need_the_bucket(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.store.plan.down = Fault.RESET
        began = world.loop.time()
        for _ in range(100):
            assert await produced(world, acks=1) is ErrorCode.none
        assert world.loop.time() == began
        await asyncio.sleep(20)
        assert world.partition().log.log_end_offset == 100
        assert world.uploads().wal_next == 0

    told(tmp_path, story)


def test_10_11_the_first_acks_all_record_is_uploaded_before_it_is_committed(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(min_insync_replicas="2")
        world.fetched(0)
        answer = produced(world, acks=-1)
        await asyncio.sleep(0.1)
        assert world.partition().log.high_watermark == 0
        assert world.in_bucket() == [(0, 0, 0)]
        assert not answer.done()
        world.fetched(1)  # the follower has it, from the bucket
        assert await answer is ErrorCode.none

    told(tmp_path, story)


def test_12_open_transactions_and_their_markers_are_uploaded(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.replicas.append(
            batch("open", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
        )
        await asyncio.sleep(0.1)
        assert world.in_bucket() == [(0, 0, 0)]
        marker = end_transaction_marker_batch(
            EndTransactionMarker(ControlRecordType.ABORT, 0), producer_id=7, producer_epoch=0, timestamp=1000
        )
        world.partition().append_records_to_leader(parsed(bytearray(marker)), AppendOrigin.COORDINATOR)
        await asyncio.sleep(0.1)
        last = world.publisher.entries[-1]
        data = world.buckets.objects()[last.object_key][last.position : last.object_end]
        (uploaded,) = batches(data)
        assert (uploaded.base_offset, uploaded.is_control, uploaded.is_transactional) == (1, True, True)

    told(tmp_path, story)


@pytest.mark.parametrize("factor", [1, LATE_SIZE_FACTOR])
def test_13_14_objects_are_full_and_within_their_bound(tmp_path: Path, factor: int) -> None:
    """A loop that is late makes larger ones."""

    async def story(world: UploadWorld) -> None:
        world.topic(partitions=40)
        if factor > 1:
            world.be_late()
        for _ in range(10 * factor):
            for index in range(40):
                world.append(2, size=4000, partition=index)
        await asyncio.sleep(1)
        sizes = [len(data) for data in world.buckets.objects().values()]
        assert max(sizes) <= factor * 524_288
        assert sum(sizes[:-1]) / len(sizes[:-1]) > 0.95 * factor * 524_288
        assert max(each.size for each in world.publisher.entries) <= factor * 131_072
        for index in range(40):
            assert world.uploads(index).wal_next == 20 * factor
            assert is_contiguous(world.publisher.offsets(index))

    told(tmp_path, story)


def test_16_no_partition_starves_among_two_hundred(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=200)
        world.store.plan.latency = Latency(0.01)
        for _ in range(30):
            for index in range(200):
                world.append(size=8000 if index < 10 else 100, partition=index)
            await asyncio.sleep(0.01)
        for index in range(200):
            since_ms = world.combiner.unannounced_since_ms(world.place(index))
            assert since_ms is None or world.loop.time() * 1000 - since_ms < 150
        await asyncio.sleep(1)
        assert {world.uploads(index).wal_next for index in range(200)} == {30}
        assert len(world.publisher.published) < 60  # not one object for each slice

    told(tmp_path, story)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("interval_ms", [10, 50, 100])
def test_many_partitions_with_few_records_share_their_objects(tmp_path: Path, interval_ms: int, acks: int) -> None:
    """200 partitions of three brokers, and 100 records a second in all: each broker makes as many objects as there are
    intervals at most, and not one for each record or partition."""
    seconds = 10

    async def led(world: UploadWorld, partitions: int) -> None:
        world.topic(partitions=partitions)

        def follow(metadata: RemoteWalCombinedLogSegmentMetadataRecord) -> None:
            for each in entries_of(metadata):
                world.fetched(each.end_offset + 1, each.partition.partition)

        for index in range(partitions):
            world.fetched(0, index)
        world.publisher.on_published = follow
        async with world.running():
            await asyncio.sleep(seconds + 1)

    async def story(loop: SimLoop) -> None:
        settings = {"remote.wal.combine.interval.ms": str(interval_ms)}
        worlds = [UploadWorld(tmp_path / str(number), loop, settings) for number in range(3)]
        counts = (67, 67, 66)
        brokers = [asyncio.ensure_future(led(world, count)) for world, count in zip(worlds, counts, strict=True)]
        await asyncio.sleep(0.5)
        answers = []
        for _ in range(100 * seconds):
            broker = loop.random.randrange(3)
            answers.append(produced(worlds[broker], acks=acks, partition=loop.random.randrange(counts[broker])))
            await asyncio.sleep(loop.random.uniform(0, 0.02))
        assert set(await asyncio.gather(*answers)) == {ErrorCode.none}
        await asyncio.gather(*brokers)
        entries = [each for world in worlds for each in world.publisher.entries]
        assert sum(each.end_offset + 1 - each.start_offset for each in entries) == 100 * seconds
        for world in worlds:
            made_ms = [each.event_timestamp_ms for each in world.publisher.begun]
            assert min(later - earlier for earlier, later in itertools.pairwise(made_ms)) >= interval_ms - 1  # rounded
        objects = sum(len(world.buckets.objects()) for world in worlds)
        assert objects < 0.7 * 100 * seconds
        assert objects <= 3 * (loop.time() + 1) * 1000 / interval_ms

    simulate(story)


def test_17_a_segment_that_rolls_between_ticks_makes_two_slices(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(internal_segment_bytes="250")
        for _ in range(7):
            world.append()
        bases = world.partition().log.segments.base_offsets
        assert len(bases) > 2
        await asyncio.sleep(1)
        offsets = world.publisher.offsets()
        assert [start for start, _ in offsets] == bases
        assert is_contiguous(offsets) and offsets[-1][1] == 6
        files = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("0/t-0/*.log")))
        uploaded = b"".join(
            world.buckets.objects()[each.object_key][each.position : each.object_end]
            for each in world.publisher.entries
        )
        assert uploaded == files

    told(tmp_path, story)


def test_18_slices_are_announced_in_order_whatever_order_their_uploads_end_in(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        delays = iter([0.4, 0.3, 0.2, 0.1])
        ended: list[str] = []
        copy = world.storage.copy_wal_combined_segment

        async def slower(combined: CombinedSegment) -> None:
            await asyncio.sleep(next(delays, 0.0))
            await copy(combined)
            ended.append(combined.metadata.object_key)

        world.storage.copy_wal_combined_segment = slower  # type: ignore[method-assign]
        for _ in range(4):
            world.append()
            await asyncio.sleep(0.025)
        assert world.combiner.inflight_count == 4
        assert world.publisher.begun == []
        await asyncio.sleep(1)
        keys = [each.object_key for each in world.publisher.begun]
        assert ended == keys[::-1]
        assert world.publisher.offsets() == [(0, 0), (1, 1), (2, 2), (3, 3)]

    told(tmp_path, story)


def test_18_slices_are_announced_in_order_without_waiting_for_acknowledgements(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=2)
        world.publisher.seconds = 0.5
        world.append()
        await asyncio.sleep(0.05)
        world.append()
        await asyncio.sleep(0.05)
        await asyncio.sleep(0.05)
        begun = [[row.start_offset for row in each.slices] for each in world.publisher.begun]
        assert begun == [[0], [1]]  # a publication takes half a second
        await asyncio.sleep(1)
        assert world.publisher.offsets() == [(0, 0), (1, 1)]

    told(tmp_path, story)


def test_19_failures_leave_no_gap_and_no_duplicate(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.store.plan.probabilities = {Fault.LOST_REPLY: 0.2, Fault.SLOW_DOWN: 0.2}
        for _ in range(200):
            world.append()
            await asyncio.sleep(0.02)
        world.store.plan.probabilities = {}
        await asyncio.sleep(10)
        offsets = world.publisher.offsets()
        assert (offsets[0][0], offsets[-1][1]) == (0, 199)
        assert is_contiguous(offsets)
        assert world.store.occurred.total() > 30

    told(tmp_path, story)


def test_20_nothing_later_is_announced_while_an_upload_fails(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.append()
        await asyncio.sleep(0.1)
        copy, first = world.storage.copy_wal_combined_segment, True

        async def fails_first(combined: CombinedSegment) -> None:
            nonlocal first
            if first:
                first = False
                await asyncio.sleep(0.3)
                raise Unavailable("injected")
            await copy(combined)

        world.storage.copy_wal_combined_segment = fails_first  # type: ignore[method-assign]
        world.append()
        await asyncio.sleep(0.05)
        world.append()
        await asyncio.sleep(0.05)
        assert world.uploads().wal_next == 1
        assert len(world.publisher.begun) == 1
        await asyncio.sleep(3)
        assert world.publisher.offsets() == [(0, 0), (1, 2)]

    told(tmp_path, story)


def test_21_what_cannot_be_announced_is_not_after_leadership_is_lost(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.store.plan.latency = Latency(0.1)
        world.append()
        await asyncio.sleep(0.05)
        world.elect(FOLLOWER, 1)  # while it is on its way to the bucket
        await asyncio.sleep(1)
        assert len(world.buckets.objects()) == 1
        assert world.publisher.begun == []

    told(tmp_path, story)


def test_24_a_stalled_bucket_is_bridged_and_used_again_when_it_has_recovered(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.store.plan.down = Fault.RESET
        world.append()
        began = world.loop.time()
        while not serves(world, 0):
            await asyncio.sleep(0.1)
        assert 4.9 < world.loop.time() - began < 5.2
        world.store.plan.down = None
        while world.uploads().wal_next < 1:
            assert serves(world, 1)
            await asyncio.sleep(0.1)
        began = world.loop.time()
        while serves(world, 1):
            await asyncio.sleep(0.1)
        assert 9.9 < world.loop.time() - began < 10.2

    told(tmp_path, story)


def test_a_metadata_topic_that_fails_is_bridged_at_once(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.publisher.may_go.clear()
        world.publisher.is_failing = True
        assert not serves(world, 0)
        world.append()
        await asyncio.sleep(0.1)
        assert serves(world, 0)

    told(tmp_path, story)


def test_48_live_records_are_not_delayed_by_what_is_uploaded_again(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic("live")
        world.store.plan.latency = Latency(0.01)

        async def slowest(count: int) -> float:
            worst = 0.0
            for number in range(count):
                began = world.loop.time()
                world.append(topic="live")
                first = world.partition(0, "live").log.log_end_offset
                while world.uploads(0, "live").wal_next < first:
                    await asyncio.sleep(0.001)
                worst = max(worst, world.loop.time() - began)
                await asyncio.sleep(0.001 * (number % 7))
            return worst

        alone = await slowest(50)
        world.topic(leader=FOLLOWER)
        local = world.partition().log
        for _ in range(24):
            data = batch(b"v" * MEBIBYTE, base_offset=local.log_end_offset, partition_leader_epoch=0)
            local.append_as_follower(data, 0)
        local.update_high_watermark(24)
        world.map_of().add(entry(0, 23, bucket=LOST, timestamp=EPOCH_MS))
        world.elect(LEADER, 1)
        beside = await slowest(50)
        assert not world.backfill.is_idle  # it took longer than that
        assert beside < 2 * alone
        await asyncio.sleep(10)
        assert world.backfill.is_idle
        assert sorted(world.publisher.offsets()) == [(number, number) for number in range(24)]

    told(tmp_path, story, remote_wal_republish_max_bytes_per_second=str(8 * MEBIBYTE))


@pytest.mark.parametrize("factor", [1, LATE_SIZE_FACTOR])
def test_57_memory_is_bounded_while_the_bucket_stalls(tmp_path: Path, factor: int) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=4 * factor)
        if factor > 1:
            world.be_late()
        held = most = 0
        copy = world.storage.copy_wal_combined_segment

        async def counted(combined: CombinedSegment) -> None:
            nonlocal held, most
            held += combined.size
            most = max(most, held)
            try:
                await copy(combined)
            finally:
                held -= combined.size

        world.storage.copy_wal_combined_segment = counted  # type: ignore[method-assign]
        world.store.plan.latency = Latency(10.0)
        for number in range(1000):
            world.append(size=50_000, partition=number % (4 * factor))
            if number % (10 * factor) == 0:
                await asyncio.sleep(0.1)
            slices = sum(each.size for making in world.combiner.queue.objects for each in making.slices)
            assert slices <= factor * 524_288
        assert 2 * factor * 524_288 < most <= 4 * factor * 524_288
        assert world.combiner.inflight_count <= 4

    told(tmp_path, story, remote_wal_upload_timeout_ms="60000")


def test_h3_bytes_read_in_one_epoch_are_never_vouched_for_in_another(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        gate = asyncio.Event()
        run = world.disk.run

        async def slow_disk(function, *args, **keywords):  # type: ignore[no-untyped-def]
            data = await run(function, *args, **keywords)
            await gate.wait()
            return data

        world.disk.run = slow_disk  # type: ignore[method-assign]
        world.append(1, size=600_000)  # more than is read in the loop
        await asyncio.sleep(0.1)
        world.elect(FOLLOWER, 1)
        world.partition().log.truncate_to(0)
        world.elect(LEADER, 2)
        world.append(1, size=600_001)
        gate.set()
        await asyncio.sleep(1)
        assert world.in_bucket() == [(0, 0, 2)]
        assert [(each.leader_epoch, each.leader_epochs) for each in world.publisher.entries] == [(2, ((2, 0),))]

    told(tmp_path, story)


def test_h3_an_upload_of_an_earlier_term_is_not_announced_in_the_next(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.store.plan.latency = Latency(0.2)
        world.append(2)
        await asyncio.sleep(0.1)
        world.elect(FOLLOWER, 1)
        world.partition().log.truncate_to(0)
        world.elect(LEADER, 2)
        world.append(2)
        await asyncio.sleep(1)
        assert world.in_bucket() == [(0, 1, 2)]
        assert len(world.buckets.objects()) == 2

    told(tmp_path, story)


def test_h3_a_log_that_was_cut_and_grew_again_within_a_term_is_not_announced(tmp_path: Path) -> None:
    """No leader may do that; if one does, nothing of it gets out."""

    async def story(world: UploadWorld) -> None:
        world.topic()
        world.store.plan.latency = Latency(0.2)
        world.append(2)
        await asyncio.sleep(0.1)
        world.partition().log.truncate_to(0)
        world.append(2)
        await asyncio.sleep(1)
        assert world.publisher.published == []
        assert serves(world, 0)

    told(tmp_path, story)


def test_h12_the_tail_beyond_the_high_watermark_goes_out_live_and_first(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(leader=FOLLOWER)
        world.append_as_follower(4, 3, 3)
        world.partition().log.update_high_watermark(5)  # within a batch
        world.elect(LEADER, 1)
        world.append(2)
        await asyncio.sleep(0.05)
        entries = world.publisher.entries
        assert [(each.start_offset, each.end_offset, each.leader_epoch) for each in entries[-1:]] == [(4, 11, 1)]
        assert entries[-1].leader_epochs == ((0, 4), (1, 10))
        assert (world.uploads().wal_start, world.uploads().wal_next) == (4, 12)

    told(tmp_path, story)


def test_h12_a_leader_that_fails_over_to_itself_sends_again_what_nobody_has_acknowledged(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.append(2)
        await asyncio.sleep(0.1)
        world.publisher.may_go.clear()
        world.append(2)
        await asyncio.sleep(0.1)
        world.elect(LEADER, 1)  # the same broker in a new epoch; nothing is known of the follower any more
        world.publisher.may_go.set()
        world.append(1)
        await asyncio.sleep(0.1)
        assert world.publisher.offsets() == [(0, 1), (0, 4)]
        assert [each.leader_epoch for each in world.publisher.entries] == [0, 1]

    told(tmp_path, story)


def test_h14_what_was_released_and_ends_later_moves_nothing(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        delays = iter([0.1, 2.0])
        copy = world.storage.copy_wal_combined_segment

        async def delayed(combined: CombinedSegment) -> None:
            delay = next(delays, 0.0)
            await asyncio.sleep(delay)
            if delay == 0.1:
                world.store.fail_next(Operation.PUT_IF_ABSENT, *[Fault.SLOW_DOWN] * 5)
            await copy(combined)

        world.storage.copy_wal_combined_segment = delayed  # type: ignore[method-assign]
        world.append()
        await asyncio.sleep(0.03)
        world.append()  # on its way for two seconds, and released when the first one fails
        await asyncio.sleep(1.5)
        assert world.publisher.offsets() == [(0, 1)]
        assert world.uploads().wal_next == 2
        await asyncio.sleep(1)
        assert world.publisher.offsets() == [(0, 1)]
        assert len(world.buckets.objects()) == 2
        assert world.uploads().wal_next == 2

    told(tmp_path, story)


@pytest.mark.parametrize("keep_for", [0.0, 0.3])
def test_h15_records_deleted_beyond_what_was_announced_break_no_contiguity(tmp_path: Path, keep_for: float) -> None:
    async def story(world: UploadWorld) -> None:
        partition = world.topic()
        world.store.plan.latency = Latency(0.2)
        for _ in range(6):
            world.append()
        await asyncio.sleep(keep_for)
        world.fetched(6)
        partition.delete_records_on_leader(4)
        world.append()
        await asyncio.sleep(1)
        offsets = world.publisher.offsets()
        assert is_contiguous(offsets) and offsets[-1][1] == 6
        assert (world.uploads().wal_start, world.uploads().wal_next) == (offsets[0][0], 7)
        assert world.uploads().wal_start >= 4 or keep_for > 0

    told(tmp_path, story)


def test_h15_a_range_that_is_deleted_before_it_is_read_is_read_from_the_new_start(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        partition = world.topic()
        for _ in range(3):
            world.append()
        world.fetched(3)
        partition.log.maybe_increment_log_start_offset(2, "retention")  # which nobody tells
        await asyncio.sleep(0.5)
        assert world.publisher.offsets() == [(2, 2)]
        assert world.stats.of("t").copy_errors == 0
        assert (world.uploads().wal_start, world.uploads().wal_next) == (2, 3)

    told(tmp_path, story)
