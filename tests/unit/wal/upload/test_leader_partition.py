"""A led partition: what it tells the combiner, and whom it serves."""

import asyncio
from pathlib import Path

from structlog.testing import capture_logs
from structlog.types import EventDict

from broker.wal.follow.coverage_index import OffsetRange
from broker.wal.follow.wal_interval_map import WalIntervalMap
from broker.wal.remote_wal_stats import WalHop
from broker.wal.upload.bucket_coverage import BucketCoverage
from broker.wal.upload.leader_partition import WalLeaderPartition
from tests.unit.wal.storage_world import OWN
from tests.unit.wal.upload_world import FOLLOWER, UploadWorld, told


def led(world: UploadWorld) -> WalLeaderPartition:
    found = world.combiner.led(world.place())
    assert found is not None
    return found


def test_what_is_appended_is_uploaded_and_followers_are_not_served(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        partition = world.topic()
        assert partition.leader_wal is led(world)
        world.append(3)
        assert not led(world).serves_records(FOLLOWER, 0)
        await asyncio.sleep(0.1)
        assert world.publisher.offsets() == [(0, 2)]
        assert not led(world).serves_records(FOLLOWER, 0)
        assert not led(world).is_falling_back

    told(tmp_path, story)


def test_one_append_is_timed_until_everybody_has_it_and_then_the_next(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        partition = world.topic()
        appends, marks = (world.stats.hops[hop] for hop in (WalHop.LEADER_APPEND, WalHop.HIGH_WATERMARK))
        world.append(3)
        assert appends.total == partition.append_seconds > 0
        await asyncio.sleep(0.03)
        world.append(2)
        world.fetched(2)
        assert (appends.count, marks.count) == (1, 0)
        world.fetched(3)
        assert (appends.count, marks.count, round(marks.total, 6)) == (1, 1, 0.03)
        world.append()
        assert (appends.count, marks.count) == (2, 1)

    told(tmp_path, story)


def test_24_a_follower_that_cannot_read_the_bucket_is_served_and_told_of_once(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.append(3)
        await asyncio.sleep(0.1)
        with capture_logs() as lines:
            for _ in range(49):
                assert not led(world).serves_records(FOLLOWER, 0)
                await asyncio.sleep(0.1)
            assert not lines
            for _ in range(20):
                await asyncio.sleep(0.1)
                if led(world).serves_records(FOLLOWER, 0):
                    led(world).count_fallback(FOLLOWER, 100)
            assert led(world).is_falling_back
            assert world.combiner.fallback_partition_count == 1
            await asyncio.sleep(10)
            assert not led(world).serves_records(FOLLOWER, 3)
            assert not led(world).is_falling_back
            await asyncio.sleep(1)
        told_of = [
            (line["event"], line["reason"], line.get("sent_bytes")) for line in lines if line["log_level"] != "debug"
        ]
        assert told_of[0] == ("wal_fallback_began", "follower_stuck", None)
        assert told_of[1] == ("wal_fallback_ended", "follower_stuck", world.stats.of("t").fallback_bytes)
        assert len(told_of) == 2
        assert world.stats.of("t").fallback_bytes == 1900

    told(tmp_path, story)


def fallen_back(world: UploadWorld, *, partitions: int = 1) -> None:
    """The follower asks, when nothing was announced for long, and has everything by that."""
    for index in range(partitions):
        wal = world.combiner.led(world.place(index))
        assert wal is not None
        end_offset = world.partition(index).log.log_end_offset
        assert wal.serves_records(FOLLOWER, end_offset - 1)
        wal.count_fallback(FOLLOWER, 100)
        wal.serves_records(FOLLOWER, end_offset)


def outage(lines: list[EventDict]) -> list[tuple[str, object, object]]:
    """(event, partitions, bytes sent) of the lines that are told."""
    return [
        (line["event"], line.get("partitions"), line.get("sent_bytes"))
        for line in lines
        if "fallback" in line["event"] and line["log_level"] != "debug"
    ]


def test_it_ends_although_nothing_is_appended_or_asked_any_more(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=2)
        world.publisher.may_go.clear()
        world.append()
        world.append(partition=1)
        with capture_logs() as lines:
            await asyncio.sleep(6)
            fallen_back(world, partitions=2)
            await asyncio.sleep(60)
            assert world.combiner.fallback_partition_count == 2  # for as long as nothing is announced
            world.publisher.may_go.set()
            await asyncio.sleep(9.9)
            assert world.combiner.fallback_partition_count == 2
            await asyncio.sleep(1.2)
            assert world.combiner.fallback_partition_count == 0
            await asyncio.sleep(1)
        assert outage(lines) == [("wal_fallback_began", None, None), ("wal_fallback_ended", 2, 200)]
        assert world.loop.time() < 100
        jumps = 0

        def count() -> None:
            nonlocal jumps
            jumps += 1

        world.loop.on_quiet = count
        await asyncio.sleep(3600)
        assert jumps == 1  # nobody looks any more

    told(tmp_path, story)


def test_it_ends_with_the_term_and_with_the_broker(tmp_path: Path) -> None:
    with capture_logs() as lines:

        async def story(world: UploadWorld) -> None:
            world.topic(partitions=2)
            world.publisher.may_go.clear()
            world.append()
            world.append(partition=1)
            await asyncio.sleep(6)
            fallen_back(world)
            world.elect(FOLLOWER, 1)
            assert world.combiner.fallback_partition_count == 0
            await asyncio.sleep(1.1)
            assert outage(lines) == [("wal_fallback_began", None, None), ("wal_fallback_ended", 1, 100)]
            other = world.combiner.led(world.place(1))
            assert other is not None and other.serves_records(FOLLOWER, 0)
            assert len(outage(lines)) == 3

        told(tmp_path, story)
    assert outage(lines)[3:] == [("wal_fallback_ended", 1, 0)]


def test_it_ends_when_the_follower_is_none_any_more(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.publisher.may_go.clear()
        world.append()
        await asyncio.sleep(6)
        fallen_back(world)
        del world.partition().remote_replicas[FOLLOWER]
        await asyncio.sleep(1.1)
        assert not led(world).is_falling_back

    told(tmp_path, story)


def test_fallback_can_be_forbidden_and_what_is_stuck_is_uploaded_again(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.append(3)
        await asyncio.sleep(0.1)
        again: list[tuple[int, OffsetRange]] = []
        led(world).republish = lambda replica_id, unread: again.append((replica_id, unread))
        for _ in range(120):
            assert not led(world).serves_records(FOLLOWER, 1)
            await asyncio.sleep(0.1)
        assert again == [(FOLLOWER, (1, 3))] * 2

    told(tmp_path, story, remote_wal_fallback_enable="false")


def test_records_from_before_the_uploads_are_the_leaders_to_send_unless_a_bucket_has_them(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(leader=FOLLOWER)
        log = world.partition().log
        from tests.support.builders import batch, parsed

        log.append_as_leader(parsed(batch(*["v"] * 4)), 0)
        log.update_high_watermark(4)
        world.elect(1, 1)
        assert led(world).serves_records(FOLLOWER, 1)
        assert not led(world).serves_records(FOLLOWER, 4)
        known = WalIntervalMap(OWN, 3_600_000, lambda bucket: True)
        led(world).coverage = BucketCoverage(world.partition(), known, world.clock)
        assert led(world).serves_records(FOLLOWER, 1)

    told(tmp_path, story)


def test_a_partition_that_is_not_uploaded_any_more_is_replicated_as_ever(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        wal = led(world)
        world.combiner.deactivate(world.place())
        assert wal.serves_records(FOLLOWER, 0)

    told(tmp_path, story)


def test_records_deleted_at_the_start_need_no_upload(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        partition = world.topic()
        world.store.plan.latency = type(world.store.plan.latency)(1.0)
        world.append(3)
        await asyncio.sleep(0.1)
        world.fetched(3)
        partition.delete_records_on_leader(3)
        assert (world.uploads().wal_start, world.uploads().wal_next) == (3, 3)

    told(tmp_path, story)
