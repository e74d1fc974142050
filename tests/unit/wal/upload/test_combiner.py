"""The combiner over real logs in virtual time; what it decides by is tested with the queue."""

import asyncio
import itertools
from pathlib import Path

from structlog.testing import capture_logs

from broker.objectstore.decorated import Operation
from broker.objectstore.failing_object_store import Fault, Latency
from broker.wal.cost.cost_meter import Traffic
from broker.wal.objects.combined_segment import append_time_of, read_object
from broker.wal.remote_wal_stats import WalHop
from tests.unit.wal.upload_world import FOLLOWER, LEADER, UploadWorld, told


def test_15_a_lone_record_leaves_within_linger_and_tick(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        await asyncio.sleep(1)
        world.append()
        await asyncio.sleep(0.019)
        assert world.publisher.begun == []
        await asyncio.sleep(0.012)
        assert world.publisher.offsets() == [(0, 0)]

    told(tmp_path, story)


def test_an_idle_broker_neither_wakes_up_nor_asks(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=3)
        world.append()
        await asyncio.sleep(1)
        assert len(world.buckets.objects()) == 1
        jumps = 0

        def count() -> None:
            nonlocal jumps
            jumps += 1

        world.loop.on_quiet = count
        await asyncio.sleep(3600)
        assert jumps == 1
        assert len(world.buckets.objects()) == 1

    told(tmp_path, story)


def test_13_one_object_holds_slices_of_many_partitions_back_to_back(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=4)
        for index in range(4):
            world.append(2, partition=index)
        await asyncio.sleep(0.1)
        ((key, data),) = world.buckets.objects().items()
        (metadata,) = world.publisher.published
        assert read_object(data) == metadata
        assert (world.publisher.encoded, world.publisher.with_slices) == (0, [metadata])
        assert (metadata.object_key, metadata.bucket, metadata.broker_epoch) == (key, "file:///zone-a", 11)
        assert [world.publisher.offsets(index) for index in range(4)] == [[(0, 1)]] * 4
        assert world.stats.of("t").copy_requests == 1
        assert world.stats.of("t").copy_bytes == sum(row.size_in_bytes for row in metadata.slices)
        assert (world.stats.objects_stored, world.stats.slice_counts.total) == (1, 4)

    told(tmp_path, story)


def test_an_event_tells_when_its_oldest_record_was_appended(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=2)
        await asyncio.sleep(1)
        appended_ms = world.clock.now_ms()
        world.append()
        await asyncio.sleep(0.008)
        world.append(partition=1)
        await asyncio.sleep(0.1)
        (metadata,) = world.publisher.published
        assert append_time_of(metadata.custom_metadata) == appended_ms
        assert metadata.event_timestamp_ms == appended_ms + 20
        assert world.stats.hops[WalHop.COMBINE_WAIT].count == 2
        assert world.stats.hops[WalHop.COMBINE_WAIT].total == 0.020 + 0.012

    told(tmp_path, story)


def test_many_bytes_do_not_wait_for_the_tick(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.append()
        await asyncio.sleep(0.021)
        world.append(400, size=1400)
        await asyncio.sleep(0.001)
        assert len(world.publisher.begun) == 2

    told(tmp_path, story)


def test_14_a_batch_larger_than_an_object_travels_alone(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=2)
        world.append()
        world.append(700, size=1400, partition=1)
        world.append(partition=1)
        await asyncio.sleep(0.2)
        sizes = sorted(len(data) for data in world.buckets.objects().values())
        assert len(sizes) == 3 and sizes[1] < 600 < 980_000 < sizes[2]
        assert world.publisher.offsets(1) == [(0, 699), (700, 700)]

    told(tmp_path, story)


def test_19_a_put_that_fails_twice_changes_nothing(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.store.fail_next(Operation.PUT_IF_ABSENT, Fault.RESET, Fault.LOST_REPLY)
        world.append(3)
        await asyncio.sleep(1)
        assert world.publisher.offsets() == [(0, 2)]
        assert len(world.buckets.objects()) == 1
        assert world.stats.of("t").copy_errors == 0

    told(tmp_path, story)


def test_20_a_put_that_fails_for_good_is_read_again_and_later_ones_are_not_announced(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.store.fail_next(Operation.PUT_IF_ABSENT, *[Fault.SLOW_DOWN] * 4)
        world.append(3)
        with capture_logs() as lines:
            await asyncio.sleep(0.27)
            assert world.uploads().wal_next == 0
            world.append(2)
            await asyncio.sleep(0.03)
            world.store.fail_next(Operation.PUT_IF_ABSENT, Fault.SLOW_DOWN)
            await asyncio.sleep(1)
        assert [line["event"] for line in lines] == ["wal_upload_failed"]
        assert len(world.buckets.objects()) == 2  # that of the second range alone is an orphan
        assert world.publisher.offsets() == [(0, 4)]
        assert world.stats.of("t").copy_errors == 1
        assert world.in_bucket() == [(0, 2, 0), (3, 4, 0)]

    told(tmp_path, story)


def test_uploads_that_fail_on_and_on_are_told_of_once_until_one_succeeds(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        with capture_logs() as lines:
            for _ in range(2):
                world.store.fail_next(Operation.PUT_IF_ABSENT, *[Fault.RESET] * 9)  # probes are answered
                world.append(3)
                await asyncio.sleep(60)
        assert world.stats.of("t").copy_errors > 6
        told_of = [line["event"] for line in lines if line["log_level"] == "warning"]
        assert told_of == ["bucket_unavailable", "wal_upload_failed"] * 2
        assert [line["event"] for line in lines if line["log_level"] == "info"] == ["bucket_available"] * 2
        assert world.publisher.offsets() == [(0, 2), (3, 5)]

    told(tmp_path, story)


def test_what_nobody_can_be_told_of_is_not_uploaded(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.publisher.is_ready = False
        world.append(3)
        await asyncio.sleep(15)
        assert world.buckets.objects() == {}
        world.publisher.is_ready = True
        await asyncio.sleep(0.3)
        assert world.publisher.offsets() == [(0, 2)]

    told(tmp_path, story)


def test_a_bucket_that_asks_for_fewer_requests_gets_fewer(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.append()
        await asyncio.sleep(0.1)
        assert world.combiner.interval_ms == 10
        for _ in range(4):
            world.store.fail_next(Operation.PUT_IF_ABSENT, Fault.SLOW_DOWN)
            world.append()
            await asyncio.sleep(0.3)
        world.append()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.combiner.interval_ms > 30
        for _ in range(60):
            world.append()
            await asyncio.sleep(0.2)
        assert world.combiner.interval_ms == 10

    told(tmp_path, story)


def test_a_dead_bucket_is_not_hammered(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.store.plan.down = Fault.RESET
        asked = 0
        for _ in range(600):
            world.append()
            await asyncio.sleep(0.1)
            asked = world.store.occurred[Fault.RESET]
        assert asked < 40  # a probe each 5 s, and what opened the circuit
        assert world.stats.of("t").copy_errors < 15  # nor is the log read for nothing
        world.store.plan.down = None
        await asyncio.sleep(10)
        assert world.uploads().wal_next == 600
        offsets = world.publisher.offsets()
        assert offsets[0][0] == 0 and offsets[-1][1] == 599
        assert all(one[1] + 1 == other[0] for one, other in itertools.pairwise(offsets))

    told(tmp_path, story)


def test_a_bucket_that_refuses_on_and_on_is_asked_ever_more_rarely(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.store.plan.down = Fault.SLOW_DOWN
        for _ in range(600):
            world.append()
            await asyncio.sleep(0.1)
        assert world.stats.of("t").copy_errors < 60

    told(tmp_path, story)


def test_what_lost_its_ground_on_its_way_is_left_out_of_the_event(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=3)
        world.store.plan.latency = Latency(0.1)
        for index in range(3):
            world.append(partition=index)
        await asyncio.sleep(0.05)
        world.elect(FOLLOWER, 1, partition=1)
        await asyncio.sleep(0.2)
        assert [world.publisher.offsets(index) for index in range(3)] == [[(0, 0)], [], [(0, 0)]]

    told(tmp_path, story)


def test_whoever_waits_with_acks_all_ends_the_saving_of_others(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.traffic = Traffic(0.01, 0.01, someone_waits_for_all=False)
        world.append()
        await asyncio.sleep(0.01)
        entries = [(world.partition().topic_partition, _batch())]
        produced = asyncio.ensure_future(world.replicas.produce(entries, acks=-1))
        await asyncio.sleep(0.02)
        assert len(world.publisher.begun) == 1
        world.fetched(2)
        await produced

    told(tmp_path, story)


def test_whoever_waits_with_acks_all_does_not_wait_for_a_loop_that_is_late(tmp_path: Path) -> None:
    """What is late makes rarer objects for the sake of those who do not wait for them."""

    async def story(world: UploadWorld) -> None:
        world.topic()
        world.be_late()
        world.append()
        await asyncio.sleep(0.03)
        assert (len(world.publisher.begun), world.combiner.interval_ms, world.combiner.linger_ms) == (1, 100, 20)
        world.append()
        await asyncio.sleep(0.03)
        world.append()
        await asyncio.sleep(0.01)
        assert len(world.publisher.begun) == 1
        entries = [(world.partition().topic_partition, _batch())]
        produced = asyncio.ensure_future(world.replicas.produce(entries, acks=-1))
        await asyncio.sleep(0.015)
        assert world.publisher.offsets() == [(0, 0), (1, 3)]
        world.fetched(4)
        await produced

    told(tmp_path, story)


def test_prices_let_records_wait_unless_somebody_waits_with_acks_all(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.traffic = Traffic(0.01, 0.01, someone_waits_for_all=False)
        world.append()
        await asyncio.sleep(0.09)
        assert (world.publisher.begun, world.combiner.linger_ms) == ([], 100)
        await asyncio.sleep(0.02)
        assert len(world.publisher.begun) == 1
        produced = asyncio.ensure_future(
            world.replicas.produce([(world.partition().topic_partition, _batch())], acks=-1)
        )
        await asyncio.sleep(0.03)
        assert len(world.publisher.begun) == 2
        world.fetched(2)
        await produced

    told(tmp_path, story)


def _batch() -> bytearray:
    from tests.support.builders import batch

    return batch("v")


def test_shutdown_sends_what_waits_and_serves_followers(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.store.plan.latency = Latency(0.2)
        world.append(2)
        wal = world.combiner.led(world.place())
        assert wal is not None and not wal.serves_records(FOLLOWER, 0)
        began = world.loop.time()
        await world.combiner.flush()
        assert 0.2 <= world.loop.time() - began < 0.25  # no linger
        assert world.publisher.offsets() == [(0, 1)]
        assert wal.serves_records(FOLLOWER, 0)
        world.publisher.may_go.clear()
        world.append()
        began = world.loop.time()
        await world.combiner.flush()
        assert 1.0 <= world.loop.time() - began < 1.1

    told(tmp_path, story)


def test_a_log_that_cannot_be_read_is_left_alone_for_a_while(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=2)
        world.append()
        world.append(partition=1)
        path = next(tmp_path.glob("0/t-0/*.log"))
        whole = path.read_bytes()
        path.write_bytes(whole[:16] + b"\x07" + whole[17:])  # no magic that exists
        with capture_logs() as lines:
            await asyncio.sleep(0.5)
        assert [line["event"] for line in lines] == ["wal_slice_unreadable"]
        assert (world.publisher.offsets(0), world.publisher.offsets(1)) == ([], [(0, 0)])
        world.append(partition=1)
        await asyncio.sleep(0.05)
        assert world.publisher.offsets(1) == [(0, 0), (1, 1)]  # others wait no longer than ever
        with capture_logs() as lines:
            await asyncio.sleep(2)
        assert [line["log_level"] for line in lines] == ["debug"] * 2  # told of once
        path.write_bytes(whole)
        await asyncio.sleep(1.1)
        assert world.publisher.offsets(0) == [(0, 0)]

    told(tmp_path, story)


def test_what_was_announced_and_lost_its_ground_is_not_announced_on(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=2)
        world.publisher.may_go.clear()
        world.append()
        await asyncio.sleep(0.1)
        assert len(world.publisher.begun) == 1
        world.elect(FOLLOWER, 1)
        await asyncio.sleep(0)
        world.publisher.may_go.set()
        await asyncio.sleep(1)
        assert world.publisher.published == []
        world.elect(LEADER, 2)
        world.append(2)
        await asyncio.sleep(0.1)
        assert world.in_bucket()[-1] == (1, 2, 2)

    told(tmp_path, story)


def test_an_object_that_cannot_be_announced_for_long_is_given_up_and_made_anew(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.publisher.may_go.clear()
        world.append()
        with capture_logs() as lines:
            await asyncio.sleep(320)
        assert "wal_object_abandoned" in [line["event"] for line in lines]
        world.publisher.may_go.set()
        await asyncio.sleep(1)
        assert world.publisher.offsets() == [(0, 0)]
        assert len(world.buckets.objects()) == 2  # one is an orphan

    told(tmp_path, story)


def test_the_lag_is_what_followers_cannot_find_yet(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.publisher.may_go.clear()
        world.append()
        size = world.partition().log.size_bytes
        await asyncio.sleep(0.5)
        assert world.combiner.lag_of(world.place()) == (size, 500)
        world.append()
        assert world.combiner.lag_of(world.place()) == (2 * size, 500)
        world.publisher.may_go.set()
        await asyncio.sleep(0.1)
        assert world.combiner.lag_of(world.place()) == (0, 0)

    told(tmp_path, story)
