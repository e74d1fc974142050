import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.log.leader_epoch_file_cache import EpochEndOffset
from broker.objectstore.errors import AccessDenied, Throttled, Unavailable
from broker.replication.leader_endpoint import LeaderUnavailableError
from broker.wal.follow import wal_fetcher
from broker.wal.follow.wal_fetcher import SET_ASIDE_MS
from broker.wal.remote_wal_stats import WalHop
from broker.wal.storage.local_wal_storage_manager import LocalWalStorageManager
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.sim_loop import SimClock, SimLoop, simulate
from tests.unit.wal.fetcher_world import WalFetcherWorld, records
from tests.unit.wal.storage_world import storage_context, storage_settings
from tests.unit.wal.wal_world import BUCKET, OTHER_BUCKET


def in_virtual_time(
    tmp_path: Path, story: Callable[[WalFetcherWorld, SimLoop], Awaitable[None]], **options: Any
) -> None:
    async def run(loop: SimLoop) -> None:
        world = WalFetcherWorld(tmp_path, **options)
        world.fetcher.clock = SimClock(loop)
        async with world.fetcher.running():
            await story(world, loop)

    simulate(run)


async def test_56_one_event_of_twenty_partitions_is_one_get(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path, partitions=20)
    async with world.fetcher.running():
        world.shake_hands()
        entries = await world.upload(*((index, 0, 2) for index in range(20)))
        world.tell(*entries)
        await world.settle()
        assert world.storage.gets == [("wal/k", 0, entries[-1].object_end)]
        assert [world.log_bytes(index) for index in range(20)] == [records(0, 2)] * 20


async def test_56_partitions_that_become_ready_in_the_same_turn_share_a_get(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path, partitions=3)
    async with world.fetcher.running():
        entries = await world.upload((0, 0, 1), (1, 0, 1), (2, 0, 1))
        for each in entries:
            world.tell(each)  # slice events, one by one; nobody may append yet
        await world.settle()
        assert world.storage.gets == []
        world.shake_hands()
        await world.settle()
        assert world.storage.gets == [("wal/k", 0, entries[-1].object_end)]
        assert [world.end(index) for index in range(3)] == [1, 1, 1]


async def test_a_partition_whose_bytes_are_on_their_way_for_others_joins_them(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path, partitions=3)
    async with world.fetcher.running():
        world.shake_hands()
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        world.storage.before = lambda bucket, key: gate
        first, second, third = await world.upload((0, 0, 1), (1, 0, 1), (2, 0, 1))
        world.tell(first, third)
        await world.settle()
        world.tell(second)
        await world.settle()
        assert world.storage.gets == [("wal/k", 0, third.object_end)]
        gate.set_result(None)
        await world.settle()
        assert [world.end(index) for index in range(3)] == [1, 1, 1]
        assert len(world.storage.gets) == 1


async def test_an_idle_fetcher_does_nothing(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path)
    async with world.fetcher.running():
        world.shake_hands()
        world.tell(*await world.upload((0, 0, 3)))
        await world.settle()
        assert world.end() == 3
        loop = asyncio.get_running_loop()
        called: list[object] = []
        call_soon = loop.call_soon
        loop.call_soon = lambda *given, **more: called.append(given) or call_soon(*given, **more)  # type: ignore
        world.answer(high_watermark=3)
        world.answer(high_watermark=3)
        assert called == []
        loop.call_soon = call_soon  # type: ignore[method-assign]
        assert len(world.storage.gets) == 1


async def test_no_more_gets_at_once_than_the_setting_says(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path, partitions=6, properties={"remote.wal.fetch.threads": "2"})
    async with world.fetcher.running():
        world.shake_hands()
        world.storage.before = lambda bucket, key: asyncio.sleep(0)
        for index in range(6):
            world.tell(*await world.upload((index, 0, 1), key=f"wal/{index}"))
        await world.settle()
        await world.settle()
        assert world.storage.under_way_max == 2
        assert [world.end(index) for index in range(6)] == [1] * 6
        assert [key for key, _, _ in world.storage.gets] == [f"wal/{index}" for index in range(6)]  # as they came


async def test_57_what_is_under_way_or_early_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = WalFetcherWorld(tmp_path, partitions=4)
    size = len(records(0, 1))
    monkeypatch.setattr(wal_fetcher, "BYTES_MAX", 3 * size)
    async with world.fetcher.running():
        world.shake_hands()
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        world.storage.before = lambda bucket, key: gate if key.endswith("-0") else None
        for number in range(4):
            for index in range(4):
                world.tell(*await world.upload((index, number, 1), key=f"wal/{index}-{number}"))
        await world.settle()
        assert world.fetcher.bytes_held == 3 * size
        gate.set_result(None)
        for _ in range(5):
            await world.settle()
        assert [world.log_bytes(index) for index in range(4)] == [records(0, 4)] * 4
        assert world.fetcher.bytes_held == 0


async def test_when_early_slices_fill_the_memory_one_get_is_still_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they wait for must come, or they would wait for ever."""
    world = WalFetcherWorld(tmp_path)
    async with world.fetcher.running():
        world.shake_hands()
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        world.storage.before = lambda bucket, key: gate if key == "wal/gone" else None
        alternative = await world.upload((0, 0, 1), key="wal/alternative", bucket=OTHER_BUCKET)
        gone = await world.upload((0, 0, 1), key="wal/gone", is_stored=False)
        second = await world.upload((0, 1, 1), key="wal/second")
        world.tell(*alternative, *gone, *second)
        await world.settle()
        assert world.follower().early_count == 1
        monkeypatch.setattr(wal_fetcher, "BYTES_MAX", second[0].size)
        gate.set_result(None)
        await world.settle()
        assert world.end() == 2


async def test_followers_are_planned_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_fetcher, "PLAN_MAX", 2)
    world = WalFetcherWorld(tmp_path, partitions=5)
    async with world.fetcher.running():
        world.shake_hands()
        world.tell(*await world.upload(*((index, 0, 1) for index in range(5)), key="wal/k"))
        await world.settle()
        assert [world.end(index) for index in range(5)] == [1] * 5
        assert len(world.storage.gets) == 1  # it waits for all: they want what is in the same object
        entries = await world.upload((4, 1, 1), key="wal/last")
        world.map(4).add(*entries)
        world.fetcher.wake(world.place_of(index) for index in range(5))  # the first four want nothing
        await world.settle()
        assert world.end(4) == 2


async def test_a_large_answer_is_appended_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_fetcher, "YIELD_BYTES", 1)
    world = WalFetcherWorld(tmp_path, partitions=4)
    async with world.fetcher.running():
        world.shake_hands()
        world.tell(*await world.upload(*((index, 0, 1) for index in range(4))))
        seen = set()
        for _ in range(40):
            await asyncio.sleep(0)
            seen.add(sum(world.end(index) for index in range(4)))
        assert seen == {0, 1, 2, 3, 4}


async def test_what_two_wanted_is_counted_once(tmp_path: Path) -> None:
    """A partition is followed anew while the bytes are on their way for its former follower."""
    world = WalFetcherWorld(tmp_path)
    async with world.fetcher.running():
        world.shake_hands()
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        world.storage.before = lambda bucket, key: gate
        (entry,) = await world.upload((0, 0, 2))
        world.tell(entry)
        await world.settle()
        world.states[0].stop()
        world.states[0] = world.follow()
        world.shake_hands()
        await world.settle()
        gate.set_result(None)
        await world.settle()
        assert (world.end(), len(world.storage.gets)) == (2, 1)
        assert world.stats.of("t").fetch_bytes == entry.size


async def test_23_slices_are_appended_in_order_in_whichever_they_come(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path)
    async with world.fetcher.running():
        world.shake_hands()
        gates = {f"wal/{start}": asyncio.get_running_loop().create_future() for start in (0, 2, 4)}
        world.storage.before = lambda bucket, key: gates[key]
        for start in (4, 0, 2):
            world.tell(*await world.upload((0, start, 2), key=f"wal/{start}"))
        await world.settle()
        for key, end in (("wal/4", 0), ("wal/2", 0), ("wal/0", 6)):
            gates[key].set_result(None)
            await world.settle()
            assert world.end() == end
        assert world.log_bytes() == records(0, 6)
        assert world.follower().early_count == 0


async def test_28_an_object_that_is_gone_gives_way_to_the_next_candidate(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path)
    async with world.fetcher.running():
        world.shake_hands()
        other = await world.upload((0, 0, 2), key="wal/other", bucket=OTHER_BUCKET)
        gone = await world.upload((0, 0, 2), key="wal/gone", is_stored=False)
        world.tell(*gone, *other)
        await world.settle()
        assert [key for key, _, _ in world.storage.gets] == ["wal/gone", "wal/other"]
        assert world.log_bytes() == records(0, 2)
        stats = world.stats.of("t")
        assert (stats.stale_metadata, stats.fetch_errors, stats.fetch_requests, stats.corrupt) == (1, 1, 2, 0)
        world.tell(*gone)
        await world.settle()
        assert len(world.storage.gets) == 2


async def test_26_flipped_bytes_are_fetched_once_more_and_then_never_again(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path, partitions=2)
    async with world.fetcher.running():
        world.shake_hands()
        entries = await world.upload((0, 0, 2), (1, 0, 2))
        bad = entries[0]

        def flip(key: str, data: bytes) -> bytes:
            return data[:-1] + bytes([data[-1] ^ 1]) if len(data) == bad.size else bytes([data[0] ^ 1]) + data[1:]

        world.storage.change = flip
        world.tell(*entries)
        await world.settle()
        assert world.storage.gets == [("wal/k", 0, entries[1].object_end), ("wal/k", 0, bad.size)]
        assert (world.end(0), world.end(1)) == (0, 2)  # the other slice of the object is good
        assert world.stats.of("t").corrupt == 2
        world.tell(*await world.upload((0, 0, 2), key="wal/other", bucket=OTHER_BUCKET))
        world.storage.change = lambda key, data: data
        await world.settle()
        assert world.log_bytes(0) == records(0, 2)


async def test_26_bytes_that_are_right_the_second_time_are_appended(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path)
    async with world.fetcher.running():
        world.shake_hands()
        world.storage.change = lambda key, data: data if len(world.storage.gets) > 1 else data[::-1]
        world.tell(*await world.upload((0, 0, 2)))
        await world.settle()
        assert world.log_bytes() == records(0, 2)
        assert (world.stats.of("t").corrupt, len(world.storage.gets)) == (1, 2)


@pytest.mark.parametrize("is_refused", [True, False])
async def test_27_an_object_that_ends_early_costs_only_what_is_missing(tmp_path: Path, is_refused: bool) -> None:
    world = WalFetcherWorld(tmp_path, partitions=2)
    async with world.fetcher.running():
        world.shake_hands()
        whole, cut = await world.upload((0, 0, 2), (1, 0, 2))
        name = whole.bucket, whole.object_key
        if is_refused:  # as 416 or a short body is reported
            world.storage.objects[name] = world.storage.objects[name][: cut.object_end - 1]
        else:
            world.storage.change = lambda key, data: data[:-1] if world.storage.gets[-1][2] == cut.object_end else data
        world.tell(whole, cut)
        await world.settle()
        assert (world.end(0), world.end(1)) == (2, 0)
        assert world.storage.gets[0][2] == cut.object_end
        assert sorted(world.storage.gets[1:]) == [("wal/k", 0, whole.size), ("wal/k", whole.size, cut.object_end)]
        assert world.stats.of("t").corrupt == 3


@pytest.mark.parametrize("error", [Unavailable("down"), AccessDenied("no"), OSError("gone")])
def test_29_a_bucket_that_fails_is_left_alone_for_five_seconds(tmp_path: Path, error: Exception) -> None:
    async def story(world: WalFetcherWorld, loop: SimLoop) -> None:
        world.shake_hands()
        failing = [error]

        def fail(bucket: str, key: str) -> None:
            if failing:
                raise failing[0]

        world.storage.before = fail
        began = loop.time()
        world.tell(*await world.upload((0, 0, 2)))
        await asyncio.sleep(SET_ASIDE_MS / 1000 - 0.1)
        assert len(world.storage.gets) == 1
        failing.clear()
        while not world.end():
            await asyncio.sleep(0.01)
        assert SET_ASIDE_MS / 1000 <= loop.time() - began <= SET_ASIDE_MS / 1000 + 1.1
        assert len(world.storage.gets) == 2
        stats = world.stats.of("t")
        assert (stats.stale_metadata, stats.fetch_errors) == (1, 1)

    in_virtual_time(tmp_path, story)


def test_a_bucket_that_asks_for_fewer_requests_is_asked_sooner(tmp_path: Path) -> None:
    async def story(world: WalFetcherWorld, loop: SimLoop) -> None:
        world.shake_hands()

        def throttle(bucket: str, key: str) -> None:
            if len(world.storage.gets) == 1:
                raise Throttled("slow down")

        world.storage.before = throttle
        world.tell(*await world.upload((0, 0, 2)))
        await asyncio.sleep(0.9)
        assert world.end() == 0
        await asyncio.sleep(1.2)
        assert world.end() == 2

    in_virtual_time(tmp_path, story)


def test_29_a_dead_bucket_gives_way_to_another_at_once(tmp_path: Path) -> None:
    """Forty partitions have slices in a bucket that never answers; the new leader's bucket has them as well."""

    async def story(world: WalFetcherWorld, loop: SimLoop) -> None:
        world.shake_hands()

        def answer(bucket: str, key: str) -> Any:
            return asyncio.sleep(3600) if bucket == OTHER_BUCKET else asyncio.sleep(0.005)

        world.storage.before = answer
        world.epochs.answers[1] = EpochEndOffset(1, 100)
        for index in range(40):
            live = await world.upload((index, 0, 4), key=f"wal/live{index}")
            dead = await world.upload((index, 0, 4), key=f"wal/dead{index}", bucket=OTHER_BUCKET, publisher=2)
            world.tell(*live, *dead)  # a newer leader's are preferred
        began = loop.time()
        while any(world.end(index) < 4 for index in range(40)):
            await asyncio.sleep(0.1)
            assert loop.time() - began < 10

    in_virtual_time(tmp_path, story, partitions=40, leader_epoch=2, properties={"remote.wal.fetch.timeout.ms": "1000"})


class SilentStore(MemoryObjectStore):
    """Answers a probe and nothing else."""

    async def get_range(self, key: str, position: int, size_bytes: int) -> bytes:
        await asyncio.sleep(3600)
        raise AssertionError("nobody waits for that long")


def test_29_with_deadlines_retries_and_circuit_a_dead_bucket_costs_less_than_ten_seconds(tmp_path: Path) -> None:
    """The newest leader announced in the bucket that died; what it needs was announced elsewhere by an older one."""
    stores = {BUCKET: MemoryObjectStore(BUCKET), OTHER_BUCKET: SilentStore(OTHER_BUCKET)}

    async def open_store(url: str) -> MemoryObjectStore:
        return stores[url]

    async def run(loop: SimLoop) -> None:
        context = replace(storage_context(storage_settings(BUCKET), None), open_store=open_store)
        storage = LocalWalStorageManager(context)
        world = WalFetcherWorld(tmp_path, partitions=10, leader_epoch=2, storage=storage)
        world.fetcher.clock = SimClock(loop)
        async with storage.running(), world.fetcher.running():
            world.shake_hands()
            world.epochs.answers[1] = EpochEndOffset(1, 100)
            for index in range(10):
                for start in range(0, 20, 2):
                    live = await world.upload((index, start, 2), key=f"wal/live-{index}-{start}")
                    dead = await world.upload(
                        (index, start, 2), key=f"wal/dead-{index}-{start}", bucket=OTHER_BUCKET, publisher=2
                    )
                    await stores[BUCKET].put(live[0].object_key, world.storage.objects[BUCKET, live[0].object_key])
                    world.tell(*live, *dead)
            ends = dict.fromkeys(range(10), 0)
            stood_since, longest = loop.time(), 0.0
            while min(ends.values()) < 20:
                await asyncio.sleep(0.05)
                now_ends = {index: world.end(index) for index in range(10)}
                if now_ends != ends:
                    stood_since = loop.time()
                ends, longest = now_ends, max(longest, loop.time() - stood_since)
                assert loop.time() < 60
            assert longest < 10 and loop.time() < 10

    simulate(run)


def test_an_open_circuit_that_closes_is_found_out(tmp_path: Path) -> None:
    async def story(world: WalFetcherWorld, loop: SimLoop) -> None:
        world.shake_hands()
        (each,) = await world.upload((0, 0, 2))
        world.storage.closed.add(each.bucket)
        world.tell(each)
        await asyncio.sleep(7)
        assert world.storage.gets == []
        world.storage.closed.clear()
        await asyncio.sleep(1.1)
        assert world.end() == 2

    in_virtual_time(tmp_path, story)


def test_32_the_leader_is_asked_once_about_what_older_leaders_announced(tmp_path: Path) -> None:
    async def story(world: WalFetcherWorld, loop: SimLoop) -> None:
        answer: asyncio.Future[EpochEndOffset] = loop.create_future()
        world.epochs.answers[1] = answer
        world.tell(*await world.upload((0, 0, 4), epoch=1))
        await asyncio.sleep(1)
        assert world.epochs.asked == []  # not before the handshake
        world.shake_hands()
        world.fetcher.wake([world.place_of()])
        await asyncio.sleep(1)
        world.fetcher.wake([world.place_of()])
        await asyncio.sleep(1)
        topic_partition = world.place_of().topic_partition
        assert world.epochs.asked == [(2, topic_partition, 1, 3)]
        answer.set_result(EpochEndOffset(1, 3))
        await asyncio.sleep(1)
        assert world.log_bytes() == records(0, 3)
        assert world.epochs.asked == [(2, topic_partition, 1, 3)]

    in_virtual_time(tmp_path, story, leader_epoch=3)


def test_a_leader_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    async def story(world: WalFetcherWorld, loop: SimLoop) -> None:
        world.epochs.answers[1] = LeaderUnavailableError("gone")
        world.tell(*await world.upload((0, 0, 4), epoch=1))
        world.shake_hands()
        await asyncio.sleep(2.5)
        assert len(world.epochs.asked) == 3
        world.epochs.answers[1] = EpochEndOffset(1, 4)
        await asyncio.sleep(1)
        assert world.end() == 4 and len(world.epochs.asked) == 4

    in_virtual_time(tmp_path, story, leader_epoch=3)


def test_h8_an_answer_to_an_older_generation_does_not_count(tmp_path: Path) -> None:
    async def story(world: WalFetcherWorld, loop: SimLoop) -> None:
        early: asyncio.Future[EpochEndOffset] = loop.create_future()
        world.epochs.answers[1] = early
        world.tell(*await world.upload((0, 0, 4), epoch=1))
        world.shake_hands()
        await asyncio.sleep(0.1)
        world.states[0].truncate_to(0)
        world.epochs.answers[1] = EpochEndOffset(1, 2)
        world.shake_hands()
        await asyncio.sleep(0.1)
        early.set_result(EpochEndOffset(1, 4))
        await asyncio.sleep(0.1)
        assert world.log_bytes() == records(0, 2)
        assert len(world.epochs.asked) == 2

    in_virtual_time(tmp_path, story, leader_epoch=3)


async def test_what_is_fetched_is_counted(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path, partitions=2)
    world.clock.time_ms = 1000  # as the batches
    world.states = [world.follow(index) for index in range(2)]
    async with world.fetcher.running():
        world.shake_hands()
        world.clock.time_ms = 1000 + 250
        entries = await world.upload((0, 0, 3), (1, 0, 2))
        world.tell(*entries)
        await world.settle()
        stats = world.stats.of("t")
        size = sum(each.size for each in entries)
        assert (stats.fetch_bytes, stats.fetch_requests, stats.fetch_bytes_from) == (size, 1, {2: size})
        hops = {hop: seen.count for hop, seen in world.stats.hops.items() if seen.count}
        assert hops == {WalHop.GET: 1, WalHop.FOLLOWER_APPEND: 2, WalHop.END_TO_END: 2}
        assert world.stats.hops[WalHop.END_TO_END].total == 0.5
        world.answer()
        assert world.stats.hops[WalHop.FOLLOWER_FETCH].count == 1


async def test_records_from_before_it_was_followed_took_no_time_on_the_way(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path)
    world.clock.time_ms = 1001  # the batches are of 1000
    world.states = [world.follow()]
    async with world.fetcher.running():
        world.shake_hands()
        world.tell(*await world.upload((0, 0, 3)))
        await world.settle()
        assert world.end() == 3
        assert world.stats.hops[WalHop.END_TO_END].count == 0


async def test_a_follower_that_stopped_is_not_woken_and_a_new_one_is(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path)
    async with world.fetcher.running():
        world.shake_hands()
        old = world.states[0]
        world.states[0] = world.follow()
        old.stop()  # after its successor was made
        world.shake_hands()
        await world.settle()
        world.tell(*await world.upload((0, 0, 2)))
        await world.settle()
        assert world.end() == 2
        world.states[0].stop()
        world.tell(*await world.upload((0, 2, 2), key="wal/more"))
        await world.settle()
        assert len(world.storage.gets) == 1


async def test_after_the_end_nothing_is_appended(tmp_path: Path) -> None:
    world = WalFetcherWorld(tmp_path)
    async with world.fetcher.running():
        world.shake_hands()
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        world.storage.before = lambda bucket, key: gate
        world.tell(*await world.upload((0, 0, 2)))
        await world.settle()
        assert world.fetcher.gets_under_way == 1
    world.tell(*await world.upload((0, 0, 2), key="wal/more"))
    await world.settle()
    assert world.end() == 0 and len(world.storage.gets) == 1
