"""What each setting of leaders that upload changes, seen from outside, in virtual time."""

import asyncio
from pathlib import Path

import pytest

from broker.objectstore.failing_object_store import Latency
from broker.wal.cost.cost_meter import Traffic
from tests.support.builders import batch
from tests.support.sim_loop import SimLoop, simulate
from tests.support.simulated_bucket import BucketFollower, BucketWorld
from tests.unit.wal.upload_world import FOLLOWER, UploadWorld, told


async def begun_after(world: UploadWorld, seconds: float) -> int:
    """How many objects were announced within that time from now."""
    before = len(world.publisher.begun)
    await asyncio.sleep(seconds)
    return len(world.publisher.begun) - before


def test_linger_is_a_setting(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        await asyncio.sleep(1)
        world.append()
        assert await begun_after(world, 0.059) == 0
        assert await begun_after(world, 0.012) == 1

    told(tmp_path, story, remote_wal_combine_max_linger_ms="60")


def test_the_interval_is_a_setting(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        for _ in range(200):
            world.append()
            await asyncio.sleep(0.01)
        assert 10 <= len(world.publisher.begun) <= 14  # 33 or so at an interval of 10 ms

    told(tmp_path, story, remote_wal_combine_interval_ms="150")


def test_the_size_from_which_objects_do_not_wait_is_a_setting(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        await asyncio.sleep(1)
        world.append(size=800)
        assert await begun_after(world, 1) == 0
        world.append(size=300)
        assert await begun_after(world, 0.012) == 1

    linger = {"remote_wal_combine_max_linger_ms": "5000", "remote_wal_combine_economy_linger_ms": "5000"}
    told(tmp_path, story, remote_wal_combine_min_bytes="1100", **linger)


def test_the_size_of_objects_is_a_setting(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=6)
        for partition in range(6):
            world.append(size=1200, partition=partition)
        await asyncio.sleep(1)
        sizes = [len(data) for data in world.buckets.objects().values()]
        assert len(sizes) >= 2
        assert max(sizes) <= 5000
        assert [world.publisher.offsets(partition) for partition in range(6)] == [[(0, 0)]] * 6

    smaller = {"remote_wal_combine_min_bytes": "1024", "remote_wal_combine_partition_max_bytes": "5000"}
    told(tmp_path, story, remote_wal_combine_max_bytes="5000", **smaller)


def test_the_share_of_a_partition_is_a_setting(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        for _ in range(6):
            world.append(size=800)
        await asyncio.sleep(1)
        assert world.publisher.offsets() == [(0, 1), (2, 3), (4, 5)]

    told(tmp_path, story, remote_wal_combine_partition_max_bytes="2000")


@pytest.mark.parametrize(("at_once", "stored"), [("1", 1), ("3", 3)])
def test_how_many_uploads_run_at_once_is_a_setting(tmp_path: Path, at_once: str, stored: int) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic(partitions=8)
        world.store.plan.latency = Latency(1.0)
        for partition in range(8):
            world.append(partition=partition)
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.8)
        assert len(world.buckets.objects()) == stored

    told(tmp_path, story, remote_wal_upload_max_inflight=at_once)


@pytest.mark.parametrize(
    ("policy", "linger_ms", "waits"),
    [("latency", "300", False), ("economy", "300", True), ("economy", "20", False), ("balanced", "300", True)],
)
def test_what_waits_for_the_price_of_requests_is_a_setting(
    tmp_path: Path, policy: str, linger_ms: str, waits: bool
) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.traffic = Traffic(0.01, 0.01, someone_waits_for_all=False)
        await asyncio.sleep(1)
        world.append()
        assert await begun_after(world, 0.035) == (0 if waits else 1)
        assert await begun_after(world, 0.240) == 0
        assert await begun_after(world, 0.040) == (1 if waits else 0)

    told(tmp_path, story, remote_wal_cost_policy=policy, remote_wal_combine_economy_linger_ms=linger_ms)


def test_when_a_leader_sends_records_itself_is_a_setting(tmp_path: Path) -> None:
    async def story(world: UploadWorld) -> None:
        world.topic()
        world.append(3)
        await asyncio.sleep(0.1)
        wal = world.partition().leader_wal
        assert wal is not None
        served = []
        for _ in range(20):
            served.append(wal.serves_records(FOLLOWER, 0))
            await asyncio.sleep(0.1)
        assert served.index(True) == pytest.approx(10, abs=1)

    told(tmp_path, story, remote_wal_fallback_lag_ms="1000")


def test_how_long_the_fetch_of_a_follower_that_is_behind_is_held_is_a_setting(tmp_path: Path) -> None:
    async def run(loop: SimLoop) -> None:
        world = BucketWorld(tmp_path, {"remote.wal.fetch.lag.wait.ms": "50"})
        world.lead(replicas=(1, 2))
        follower = BucketFollower(world, 2)
        world.append(batch("a"))
        follower.start()
        await asyncio.sleep(1)
        assert follower.fetches_between(0, 1) == pytest.approx(20, abs=1)
        await follower.stop()

    simulate(run)
