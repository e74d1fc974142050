"""A new leader uploads again what no bucket in reach holds, beside its live records."""

import asyncio
import contextlib
import dataclasses
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from broker.objectstore.decorated import Operation
from broker.objectstore.errors import Unavailable
from broker.objectstore.failing_object_store import Fault, Latency
from broker.wal.follow.coverage_index import OffsetRange
from broker.wal.objects.wal_entry import WalEntry
from broker.wal.storage.bucket_wal_storage_manager import PROBES_MAX
from tests.support.sim_loop import EPOCH_MS
from tests.unit.wal.upload_world import FOLLOWER, LEADER, LOST, UploadWorld, told
from tests.unit.wal.wal_world import entry as entry_at

ELSEWHERE = "file:///zone-b"


def entry(start: int, end: int) -> WalEntry:
    """Announced a moment ago, of another zone."""
    return entry_at(start, end, bucket=ELSEWHERE, timestamp=EPOCH_MS)


def elected(world: UploadWorld, *counts: int, high_watermark: int) -> None:
    """Broker 1 is about to lead after broker 2, whose records it has; what that one uploaded is lost."""
    world.topic(leader=FOLLOWER)
    world.append_as_follower(*counts)
    world.partition().log.update_high_watermark(high_watermark)
    world.map_of().add(entry_at(0, high_watermark - 1, bucket=LOST, timestamp=EPOCH_MS))


def test_47_exactly_what_is_uncovered_goes_into_the_own_bucket(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        elected(world, *[10] * 6, high_watermark=50)
        world.map_of().add(entry(10, 29))
        world.elect(LEADER, 1)
        await asyncio.sleep(1)
        assert sorted(world.in_bucket()) == [
            (0, 9, 0),
            (30, 39, 0),
            (40, 49, 0),
            (50, 59, 0),  # beyond the high watermark: as live records
        ]
        assert {each.leader_epoch for each in world.publisher.entries} == {1}
        assert world.publisher.offsets() == [(0, 9), (30, 49), (50, 59)]
        assert (world.publisher.encoded, world.publisher.with_slices) == (0, world.publisher.published)
        assert world.stats.of("t").republish_bytes == world.stats.of("t").copy_bytes * 3 // 4
        assert world.backfill.is_idle

    told(tmp_path, story)


def test_a_topic_that_is_switched_on_is_not_uploaded_from_its_beginning(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(leader=FOLLOWER)
        world.append_as_follower(10, 10)
        world.partition().log.update_high_watermark(20)
        world.elect(LEADER, 1)
        world.append(2)
        await asyncio.sleep(2)
        assert world.publisher.offsets() == [(20, 21)]
        wal = world.combiner.led(world.place())
        assert wal is not None and wal.serves_records(FOLLOWER, 5) and not wal.serves_records(FOLLOWER, 20)

    told(tmp_path, story)


def test_nothing_is_uploaded_when_others_have_it_and_the_metadata_is_waited_for(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        elected(world, 10, 10, high_watermark=20)
        world.metadata_lag = 5
        world.elect(LEADER, 1)
        await asyncio.sleep(0.5)
        assert world.buckets.objects() == {}
        world.map_of().add(entry(0, 19))
        world.metadata_lag = 0
        await asyncio.sleep(2)
        assert world.buckets.objects() == {}
        wal = world.combiner.led(world.place())
        assert wal is not None and not wal.serves_records(FOLLOWER, 0)

    told(tmp_path, story)


def test_a_metadata_topic_that_lags_for_long_is_not_waited_for(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        elected(world, 10, high_watermark=10)
        world.metadata_lag = 5
        world.elect(LEADER, 1)
        await asyncio.sleep(0.9)
        assert world.publisher.offsets() == []
        await asyncio.sleep(0.3)
        assert world.publisher.offsets() == [(0, 9)]

    told(tmp_path, story)


def test_nothing_is_uploaded_while_there_is_no_metadata_topic(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        elected(world, 10, high_watermark=10)
        world.publisher.is_ready = False
        world.elect(LEADER, 1)
        await asyncio.sleep(15)
        assert world.buckets.objects() == {}
        world.publisher.is_ready = True
        await asyncio.sleep(1.1)
        assert world.publisher.offsets() == [(0, 9)]

    told(tmp_path, story)


def test_once_it_is_uploaded_followers_find_it_in_the_bucket(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        elected(world, 10, high_watermark=10)
        world.store.fail_next(Operation.PUT_IF_ABSENT, *[Fault.SLOW_DOWN] * 13)
        world.elect(LEADER, 1)
        wal = world.combiner.led(world.place())
        assert wal is not None and wal.serves_records(FOLLOWER, 0)
        with capture_logs() as lines:
            await asyncio.sleep(2.5)
        assert [line["event"] for line in lines] == ["wal_backfill_failed"] * 2
        assert [line["log_level"] for line in lines] == ["warning", "debug"]  # once until it works
        assert wal.serves_records(FOLLOWER, 0)
        await asyncio.sleep(2.1)
        assert world.publisher.offsets() == [(0, 9)]
        assert not wal.serves_records(FOLLOWER, 0)

    told(tmp_path, story)


def test_what_older_leaders_announced_beyond_the_log_is_void(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic("new", partitions=2)
        elected(world, 10, high_watermark=10)
        world.publisher.may_go.clear()
        world.elect(LEADER, 1)
        world.append()  # does not wait for it
        await asyncio.sleep(0.1)
        world.publisher.may_go.set()
        await asyncio.sleep(0.1)
        assert world.publisher.invalidated == [(world.place(), 1, 10)]
        assert sorted(world.publisher.offsets()) == [(0, 9), (10, 10)]

    told(tmp_path, story)


def test_it_keeps_to_its_rate(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(leader=FOLLOWER)
        for _ in range(9):
            world.append_as_follower(*[1] * 100)
        local = world.partition().log
        local.update_high_watermark(900)
        world.map_of().add(entry_at(0, 899, bucket=LOST, timestamp=EPOCH_MS))
        seconds = local.size_bytes / 20_000
        world.elect(LEADER, 1)
        began = world.loop.time()
        while not world.backfill.is_idle:
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        assert world.publisher.offsets() == [(0, 899)]
        world.append()
        wal = world.combiner.led(world.place())
        assert wal is not None and wal.republish is not None
        wal.republish(OffsetRange(0, 900))
        await asyncio.sleep(seconds * 0.9)
        assert len(world.publisher.offsets()) == 2  # the live one; the other waits for its turn
        await asyncio.sleep(seconds * 0.2)
        assert world.publisher.offsets()[2] == (0, 899)
        assert world.loop.time() - began < seconds * 1.3

    told(tmp_path, story, remote_wal_republish_max_bytes_per_second="20000")


def test_what_a_follower_cannot_read_is_uploaded_again(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.append(3)
        world.append(2)
        await asyncio.sleep(0.1)
        wal = world.combiner.led(world.place())
        assert wal is not None
        for _ in range(52):
            assert not wal.serves_records(FOLLOWER, 3)
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        assert world.publisher.offsets() == [(0, 4), (3, 4)]

    told(tmp_path, story, remote_wal_fallback_enable="false")


def test_a_leader_that_is_deposed_announces_nothing_more(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        elected(world, 10, high_watermark=10)
        world.publisher.may_go.clear()
        world.elect(LEADER, 1)
        await asyncio.sleep(0.5)
        assert len(world.publisher.begun) == 1
        world.elect(FOLLOWER, 2)
        await asyncio.sleep(1.5)
        world.publisher.may_go.set()
        await asyncio.sleep(1)
        assert world.publisher.published == []

    told(tmp_path, story)


def test_a_log_that_was_cut_within_a_term_is_not_announced(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        elected(world, 10, 10, high_watermark=20)
        world.store.plan.latency = Latency(0.2)
        world.elect(LEADER, 1)
        await asyncio.sleep(0.1)
        world.partition().log.truncate_to(10)
        world.append(10)
        await asyncio.sleep(1)
        assert world.publisher.published == []

    told(tmp_path, story)


def test_it_gives_way_to_live_records_that_wait_for_uploads(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic("live")
        world.store.plan.latency = Latency(0.5)
        elected(world, 10, high_watermark=10)
        for _ in range(4):
            world.append(topic="live")
            await asyncio.sleep(0.025)
        assert world.combiner.is_pressed
        world.elect(LEADER, 1)
        await asyncio.sleep(0.85)  # the uploads end after 0.4 s
        assert world.publisher.offsets() == []
        await asyncio.sleep(0.15)
        assert world.publisher.offsets() == [(0, 9)]

    told(tmp_path, story)


def test_a_bucket_that_is_lost_is_made_up_for(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        elected(world, 10, high_watermark=10)
        world.map_of().add(entry(0, 9))
        world.elect(LEADER, 1)
        world.map_of().log_moved(10, 10)
        await asyncio.sleep(2)
        assert world.publisher.offsets() == []
        world.buckets.store(ELSEWHERE).plan.down = Fault.RESET
        for _ in range(8):
            with contextlib.suppress(Unavailable):
                await world.storage.fetch_wal_segment(ELSEWHERE, "a", 0, 1)
            await asyncio.sleep(1)
        assert not world.storage.is_reachable(ELSEWHERE)
        await asyncio.sleep(3)
        assert world.publisher.offsets() == [(0, 9)]

    told(tmp_path, story)


def test_49_a_bucket_that_was_lost_with_its_leader_is_made_up_for(tmp_path: Path) -> None:
    """Nobody reads from it any more, so nobody would find out: the new leader asks, once for all partitions."""

    async def story(world: UploadWorld) -> None:
        world.topic(leader=FOLLOWER, partitions=2)
        for partition in (0, 1):
            world.append_as_follower(10, partition=partition)
            world.partition(partition).log.update_high_watermark(10)
            known = world.map_of(partition)
            known.add(dataclasses.replace(entry(0, 9), partition=world.place(partition)))
            known.log_moved(10, 10)
        elsewhere = world.buckets.store(ELSEWHERE)
        elsewhere.plan.down = Fault.RESET
        world.elect(LEADER, 1)
        await asyncio.sleep(4)
        assert world.publisher.offsets() == [(0, 9)]
        assert elsewhere.occurred[Fault.RESET] == PROBES_MAX
        world.elect(LEADER, 1, partition=1)
        await asyncio.sleep(1)
        assert world.publisher.offsets(1) == [(0, 9)]
        assert elsewhere.occurred[Fault.RESET] == PROBES_MAX

    told(tmp_path, story)


@pytest.mark.parametrize("mode", ["none"])
def test_it_can_be_switched_off(tmp_path: Path, mode: str) -> None:
    async def story(world: UploadWorld) -> None:
        elected(world, 10, high_watermark=10)
        world.elect(LEADER, 1)
        await asyncio.sleep(3)
        assert world.buckets.objects() == {}

    told(tmp_path, story, remote_wal_republish_mode=mode)
