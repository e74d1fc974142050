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
from broker.schemas.remote_wal_metadata import encode
from broker.wal.follow.coverage_index import OffsetRange
from broker.wal.objects.combined_segment import EVENT_SIZE_MAX
from broker.wal.objects.wal_entry import WalEntry, entries_of
from broker.wal.storage.bucket_wal_storage_manager import PROBES_MAX
from broker.wal.upload import backfill
from broker.wal.upload.upload_queue import ANNOUNCE_WITHIN_MS
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
        world.publisher.may_go.clear()  # nothing is acknowledged
        world.elect(LEADER, 1)
        world.append()
        await asyncio.sleep(0.1)
        assert world.publisher.invalidated == [(world.place(), 1, 10)]
        world.publisher.may_go.set()
        await asyncio.sleep(0.1)
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
        wal.republish(FOLLOWER, OffsetRange(0, 900))
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
        await stand_still(world, 5.3, at=3)
        assert world.publisher.offsets() == [(0, 4), (3, 4)]
        await stand_still(world, 5, at=3)  # that did not help
        assert world.publisher.offsets() == [(0, 4), (3, 4), (3, 4)]

    told(tmp_path, story, remote_wal_fallback_enable="false")


async def stand_still(world: UploadWorld, seconds: float, *partitions: int, at: int = 0) -> None:
    """The follower fetches from the same offset all the time."""
    for _ in range(round(seconds * 10)):
        for partition in partitions or (0,):
            wal = world.combiner.led(world.place(partition))
            assert wal is not None and not wal.serves_records(FOLLOWER, at)
        await asyncio.sleep(0.1)


@pytest.fixture
def slow_and_small(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Settings for a republish of two slices, a batch of `append(100)` each, in about three seconds."""
    monkeypatch.setattr(backfill, "SLICE_BYTES_MAX", 3000)
    monkeypatch.setattr(backfill, "OBJECT_BYTES_MAX", 5000)
    return {"remote_wal_fallback_enable": "false", "remote_wal_republish_max_bytes_per_second": "2000"}


def test_what_a_follower_cannot_read_waits_for_its_upload_once(tmp_path: Path, slow_and_small: dict[str, str]) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        for _ in range(20):
            world.append(100)
            await stand_still(world, 3)
        told_of = len(world.publisher.offsets())
        await asyncio.sleep(40)
        assert world.backfill.is_idle
        queued = world.publisher.offsets()[told_of:]
        assert 0 < sum(end + 1 - start for start, end in queued) <= 2000

    told(tmp_path, story, **slow_and_small)


def test_what_a_follower_has_got_is_not_uploaded_again(tmp_path: Path, slow_and_small: dict[str, str]) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        for _ in range(20):
            world.append(100)
        await stand_still(world, 10)
        told_of = len(world.publisher.offsets())
        world.fetched(1900)
        await asyncio.sleep(20)
        assert world.publisher.offsets()[told_of:] == [(1900, 1999)]
        assert world.backfill.is_idle

    told(tmp_path, story, **slow_and_small)


def test_a_follower_that_stands_still_for_long_does_not_hold_up_others(
    tmp_path: Path, slow_and_small: dict[str, str]
) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=2)
        for _ in range(20):
            world.append(100)
        world.append(partition=1)
        await stand_still(world, 10)
        assert world.publisher.offsets(1) == [(0, 0)]
        await stand_still(world, 10, 0, 1)
        assert world.publisher.offsets(1) == [(0, 0), (0, 0)]

    told(tmp_path, story, **slow_and_small)


def test_partitions_whose_followers_stand_still_have_their_turns(
    tmp_path: Path, slow_and_small: dict[str, str]
) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=4)
        for partition in range(4):
            for _ in range(5):
                world.append(100, partition=partition)
        await asyncio.sleep(0.2)
        told_of = len(world.publisher.published)
        await stand_still(world, 16, 0, 1, 2, 3)
        objects = world.publisher.published[told_of:]
        assert [{each.partition.partition for each in entries_of(metadata)} for metadata in objects] == [
            {0, 1},
            {2, 3},
            {0, 1},
            {2, 3},
        ]

    told(tmp_path, story, **slow_and_small)


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


def test_h16_what_cannot_be_announced_for_long_is_given_up_and_uploaded_anew(tmp_path: Path) -> None:
    """The sweep may take the object for an orphan later, so it must not be announced any more by then."""

    async def story(world: UploadWorld) -> None:
        elected(world, 10, 10, high_watermark=20)
        world.publisher.may_go.clear()
        world.elect(LEADER, 1)
        await asyncio.sleep(ANNOUNCE_WITHIN_MS / 1000 - 1)
        (first,) = world.publisher.begun
        with capture_logs() as lines:
            await asyncio.sleep(5)
        assert [line["object"] for line in lines if line["event"] == "wal_object_abandoned"] == [first.object_key]
        (again,) = world.publisher.begun[1:]
        assert again.object_key != first.object_key
        world.publisher.may_go.set()
        await asyncio.sleep(2)
        assert world.publisher.published == [again]
        assert world.publisher.offsets() == [(0, 19)]
        assert world.backfill.is_idle

    told(tmp_path, story)


def test_what_cannot_be_announced_does_not_hold_up_others_for_ever(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic("u", leader=FOLLOWER)
        elected(world, 10, high_watermark=10)
        world.publisher.may_go.clear()
        world.elect(LEADER, 1)
        await asyncio.sleep(1)
        world.append_as_follower(10, topic="u")
        world.partition(0, "u").log.update_high_watermark(10)
        lost = dataclasses.replace(entry_at(0, 9, bucket=LOST, timestamp=EPOCH_MS), partition=world.place(0, "u"))
        world.map_of(0, "u").add(lost)
        world.elect(LEADER, 1, topic="u")
        await asyncio.sleep(ANNOUNCE_WITHIN_MS / 1000 + 5)
        begun = world.publisher.begun[-1].slices
        assert {each.remote_log_segment_id.topic_id_partition.name for each in begun} == {"t", "u"}

    told(tmp_path, story)


def test_an_event_stays_within_what_the_metadata_topic_takes_however_many_ranges(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        ranges, topic = 1600, "t" * 249
        world.topic(topic, leader=FOLLOWER)
        world.append_as_follower(*[1] * 2 * ranges, topic=topic)
        world.partition(0, topic).log.update_high_watermark(2 * ranges)
        known = world.map_of(0, topic)
        for offset in range(0, 2 * ranges, 2):
            known.add(dataclasses.replace(entry(offset, offset), partition=world.place(0, topic)))
        world.elect(LEADER, 1, topic=topic)
        await asyncio.sleep(60)
        assert [start for start, _ in world.publisher.offsets(0, topic)] == list(range(1, 2 * ranges, 2))
        assert len(world.publisher.published) == 2
        assert max(len(encode(each)) for each in world.publisher.published) <= EVENT_SIZE_MAX

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
