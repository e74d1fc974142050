"""The storage manager: keys, retries, the own success recognised, buckets of others."""

import asyncio
from collections.abc import Coroutine

import pytest
from structlog.testing import capture_logs

from broker.config.setting import ConfigError
from broker.objectstore.circuit_breaker import CircuitPolicy
from broker.objectstore.decorated import Operation
from broker.objectstore.errors import BucketNotFound, CircuitOpen, NotFound, PreconditionFailed, Throttled, Unavailable
from broker.objectstore.failing_object_store import Fault, Latency
from broker.wal.storage.bucket_wal_storage_manager import BUCKETS_MAX, PROBES_MAX
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.wal.storage_world import OWN, Buckets, storage_manager
from tests.unit.wal.wal_world import batch, bytes_of, make_object, make_slice

KEY = "wal/c/1/7/2026113002/0000000000000001-x.wal"


def told(story: Coroutine[None, None, None]) -> None:
    async def run(loop: SimLoop) -> None:
        await story

    simulate(run)


def test_an_object_is_put_and_its_range_fetched() -> None:
    async def story() -> None:
        buckets = Buckets()
        manager = storage_manager(buckets)
        assert (manager.own_bucket, buckets.opened) == (OWN, [])
        combined = make_object([make_slice(batch(0))], key=KEY)
        async with manager.running():
            assert buckets.opened == [OWN]
            await manager.copy_wal_combined_segment(combined)
            assert buckets.objects() == {KEY: bytes_of(combined)}
            assert await manager.fetch_wal_segment(OWN, KEY, 8, 20) == bytes_of(combined)[8:20]
            with pytest.raises(NotFound):
                await manager.fetch_wal_segment(OWN, "wal/other", 0, 1)
        assert [store.closed for store in buckets.stores_of(OWN)] == [True]

    told(story())


def test_the_key_prefix_is_nobody_elses_business() -> None:
    async def story() -> None:
        buckets = Buckets()
        combined = make_object([make_slice(batch(0))], key=KEY)
        manager = storage_manager(buckets, key_prefix="team/wherry/")
        async with manager.running():
            await manager.copy_wal_combined_segment(combined)
            assert list(buckets.objects()) == ["team/wherry/" + KEY]
            assert await manager.fetch_wal_segment(OWN, KEY, 0, 8) == bytes_of(combined)[:8]
            found = [each async for each in manager.list_wal_objects("wal/c/1/")]
            assert [(each.key, each.size_bytes) for each in found] == [(KEY, combined.size)]
            await manager.delete_wal_combined_segments(OWN, [KEY, "wal/gone"])
            assert buckets.objects() == {}

    told(story())


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.RESET, Fault.SLOW_DOWN])
def test_19_an_upload_is_repeated_with_the_same_key_and_bytes(fault: Fault) -> None:
    async def story() -> None:
        buckets = Buckets()
        manager = storage_manager(buckets)
        combined = make_object([make_slice(batch(0))], key=KEY)
        async with manager.running():
            buckets.store().fail_next(Operation.PUT_IF_ABSENT, fault, fault)
            await manager.copy_wal_combined_segment(combined)
            assert buckets.objects() == {KEY: bytes_of(combined)}
            assert buckets.store().occurred[fault] == 2
            assert manager.throttled_count == (2 if fault is Fault.SLOW_DOWN else 0)

    told(story())


def test_the_same_object_again_is_a_success_and_another_under_its_key_is_not() -> None:
    async def story() -> None:
        buckets = Buckets()
        manager = storage_manager(buckets, attempts_max=1)
        combined = make_object([make_slice(batch(0))], key=KEY)
        async with manager.running():
            buckets.store().fail_next(Operation.PUT_IF_ABSENT, Fault.LOST_REPLY)
            with pytest.raises(Unavailable):
                await manager.copy_wal_combined_segment(combined)
            await manager.copy_wal_combined_segment(combined)
            other = make_object([make_slice(batch(0, value=b"w"))], key=KEY)
            with pytest.raises(PreconditionFailed):
                await manager.copy_wal_combined_segment(other)
            assert buckets.objects() == {KEY: bytes_of(combined)}

    told(story())


def test_a_bucket_that_does_not_answer_is_given_up_in_time_and_then_left_alone() -> None:
    async def story(loop: SimLoop) -> None:
        buckets = Buckets()
        manager = storage_manager(buckets)
        combined = make_object([make_slice(batch(0))], key=KEY)
        async with manager.running():
            buckets.store().plan.latency = Latency(3600)
            assert manager.is_reachable(OWN)
            with pytest.raises(CircuitOpen):
                await manager.copy_wal_combined_segment(combined)
            assert 4 < loop.time() < 4.1  # two attempts of 2 s: more than 3 s without success
            assert not manager.is_reachable(OWN)
            assert manager.is_reachable("file:///never-asked")
            with pytest.raises(CircuitOpen):
                await manager.fetch_wal_segment(OWN, KEY, 0, 1)
            buckets.store().plan.latency = Latency()
            await asyncio.sleep(CircuitPolicy().open_seconds + 0.1)
            await manager.copy_wal_combined_segment(combined)
            assert manager.is_reachable(OWN)

    simulate(story)


def test_who_asks_whether_a_bucket_is_there_knows_it_afterwards() -> None:
    async def story(loop: SimLoop) -> None:
        buckets = Buckets()
        manager = storage_manager(buckets)
        async with manager.running():
            there, gone, deaf = "file:///there", "file:///gone", "file:///deaf"
            buckets.store(there).fail_next(Operation.PROBE, *[Fault.RESET] * (PROBES_MAX - 1))  # once is not for ever
            buckets.store(gone).plan.down = Fault.RESET
            buckets.store(deaf).plan.latency = Latency(3600)
            for bucket in (there, gone, deaf):
                await manager.probe(bucket)
            assert [manager.is_reachable(bucket) for bucket in (there, gone, deaf)] == [True, False, False]
            assert buckets.store(gone).occurred[Fault.RESET] == PROBES_MAX
            assert loop.time() < 10
            await manager.probe(gone)  # it is left alone
            assert buckets.store(gone).occurred[Fault.RESET] == PROBES_MAX
            await manager.probe("nowhere://")

    simulate(story)


def test_an_own_bucket_that_does_not_answer_is_told_of_at_the_start() -> None:
    async def start(*faults: Fault) -> list[tuple[str, str]]:
        buckets = Buckets()
        buckets.store().fail_next(Operation.PROBE, *faults)
        manager = storage_manager(buckets)
        with capture_logs() as lines:
            async with manager.running():
                await asyncio.sleep(60)
                assert manager.is_reachable(OWN)
        assert buckets.store().occurred.total() == len(faults)
        return [(line["event"], line["bucket"]) for line in lines]

    async def story(loop: SimLoop) -> None:
        assert await start() == []
        assert await start(Fault.RESET) == []  # once is no trouble
        assert await start(Fault.SLOW_DOWN) == []
        assert await start(Fault.RESET, Fault.RESET) == [("wal_bucket_not_answering", OWN)]

    simulate(story)


def test_a_fetch_is_tried_three_times() -> None:
    async def story() -> None:
        buckets = Buckets()
        manager = storage_manager(buckets)
        async with manager.running():
            await buckets.store().put("a", b"abc")
            buckets.store().fail_next(Operation.GET_RANGE, *[Fault.SLOW_DOWN] * 5)
            with pytest.raises(Throttled):
                await manager.fetch_wal_segment(OWN, "a", 0, 3)
            assert await manager.fetch_wal_segment(OWN, "a", 0, 3) == b"abc"

    told(story())


def test_buckets_of_others_are_opened_when_asked_and_only_so_many() -> None:
    async def story(loop: SimLoop) -> None:
        buckets = Buckets()
        manager = storage_manager(buckets)
        urls = [f"file:///zone-{number}" for number in range(BUCKETS_MAX)]
        for url in urls:
            await buckets.store(url).put("a", url.encode())
        async with manager.running():
            for url in urls[:-1]:
                assert await manager.fetch_wal_segment(url, "a", 0, 5) == b"file:"
            assert await manager.fetch_wal_segment(urls[0], "a", 0, 5) == b"file:"
            assert buckets.opened == [OWN, *urls[:-1]]
            await manager.fetch_wal_segment(urls[-1], "a", 0, 5)
            assert [url for url in urls if buckets.stores_of(url)[0].closed] == [urls[1]]  # unused for longest
            assert await manager.fetch_wal_segment(urls[1], "a", 0, 5) == b"file:"

    simulate(story)


def test_a_bucket_in_use_is_not_closed() -> None:
    async def story(loop: SimLoop) -> None:
        buckets = Buckets()
        manager = storage_manager(buckets)
        urls = [f"file:///zone-{number}" for number in range(BUCKETS_MAX)]
        for url in urls:
            await buckets.store(url).put("a", b"x")
            buckets.store(url).plan.latency = Latency(1.0)
        async with manager.running(), asyncio.TaskGroup() as group:
            for url in urls[:-1]:
                group.create_task(manager.fetch_wal_segment(url, "a", 0, 1))
            await asyncio.sleep(0.5)
            with pytest.raises(Throttled, match="32 other buckets are in use"):
                await manager.fetch_wal_segment(urls[-1], "a", 0, 1)
        assert len(buckets.opened) == 1 + BUCKETS_MAX

    simulate(story)


def test_a_bucket_asked_by_two_at_once_is_open_once() -> None:
    async def story(loop: SimLoop) -> None:
        buckets = Buckets()
        await buckets.store("file:///zone-b").put("a", b"x")
        manager = storage_manager(buckets)
        buckets.opening_seconds = 0.1
        async with manager.running(), asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(manager.fetch_wal_segment("file:///zone-b", "a", 0, 1))
            await asyncio.sleep(0.2)
            stores = buckets.stores_of("file:///zone-b")
            assert [store.closed for store in stores] == [False, True]

    simulate(story)


@pytest.mark.parametrize("url", ["nonsense", "gs://bucket"])
def test_metadata_that_names_no_bucket(url: str) -> None:
    async def story() -> None:
        manager = storage_manager(Buckets())
        async with manager.running():
            with pytest.raises(BucketNotFound, match="is not a bucket"):
                await manager.fetch_wal_segment(url, "a", 0, 1)

    told(story())


@pytest.mark.parametrize("bucket", ["", "wal", "s3://zone-a"])
def test_an_own_bucket_that_cannot_be(bucket: str) -> None:
    with pytest.raises(ConfigError, match=r"rwsm\.config\.bucket"):
        storage_manager(Buckets(), bucket)
