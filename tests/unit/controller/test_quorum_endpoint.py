"""What observers are answered.  The numbers are behaviours of a KRaft controller."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from broker.common.disk import ThreadDiskExecutor
from broker.common.errors import ErrorCode, KafkaError
from broker.controller import quorum_endpoint
from broker.controller.controller import Controller
from broker.controller.metadata_log import OffsetAndEpoch
from broker.controller.metadata_snapshot import SnapshotId
from broker.controller.quorum_endpoint import MetadataFetchRequest, MetadataFetchResult
from broker.controller.topic_control_manager import CreatableTopic
from broker.records.record_batch import batches
from tests.support.sim_disk import SimFileSystem
from tests.support.sim_loop import SimClock, SimLoop, simulate
from tests.unit.controller.controller_support import running_controller, start_broker


async def fetch(controller: Controller, **fields: Any) -> MetadataFetchResult:
    values: dict[str, Any] = {
        "replica_id": 2,
        "current_leader_epoch": controller.leader_epoch,
        "fetch_offset": 0,
        "last_fetched_epoch": 0,
        "bytes_max": 1 << 20,
        "wait_max_ms": 0,
    }
    return await controller.quorum.fetch(MetadataFetchRequest(**{**values, **fields}))


def offsets(result: MetadataFetchResult) -> list[int]:
    return [batch.base_offset for batch in batches(result.records)]


async def test_6_an_older_epoch_is_fenced_and_a_newer_one_unknown() -> None:
    async with running_controller(SimFileSystem()) as controller:
        assert (await fetch(controller, current_leader_epoch=0)).error is ErrorCode.fenced_leader_epoch
        assert (await fetch(controller, current_leader_epoch=9)).error is ErrorCode.unknown_leader_epoch
        fetched = await fetch(controller)
        assert (fetched.error, fetched.high_watermark, offsets(fetched)) == (ErrorCode.none, 4, [0, 1])


async def test_requests_that_cannot_be() -> None:
    async with running_controller(SimFileSystem()) as controller:
        for fields in ({"fetch_offset": -1}, {"last_fetched_epoch": 2}):
            assert (await fetch(controller, **fields)).error is ErrorCode.invalid_request


async def test_10_a_log_that_is_no_prefix_is_told_where_it_diverges() -> None:
    async with running_controller(SimFileSystem()) as controller:
        diverging = await fetch(controller, fetch_offset=1_000_000, last_fetched_epoch=1)
        assert (diverging.diverging, diverging.records) == (OffsetAndEpoch(4, 1), b"")


async def test_11_an_empty_observer_is_sent_to_the_snapshot_and_goes_on_behind_it() -> None:
    async with running_controller(SimFileSystem()) as controller:
        await start_broker(controller)
        snapshot = await controller.maintenance.take_snapshot()
        assert snapshot == SnapshotId(controller.high_watermark, 1)
        assert (await fetch(controller)).snapshot == snapshot
        await controller.create_topics([CreatableTopic(name="t")])
        behind = await fetch(controller, fetch_offset=snapshot.end_offset, last_fetched_epoch=snapshot.epoch)
        assert offsets(behind) == [snapshot.end_offset]
        content = b""
        while True:
            chunk = controller.quorum.read_snapshot(snapshot, len(content), 13)
            content += chunk.data
            if len(content) == chunk.size_bytes:
                break
        assert [batch.is_control for batch in batches(content)] == [True, False, True]


async def test_12_snapshots_that_are_not_there() -> None:
    async with running_controller(SimFileSystem()) as controller:
        snapshot = await controller.maintenance.take_snapshot()
        assert snapshot is not None
        for wanted, position, code in (
            (SnapshotId(1, 1), 0, ErrorCode.snapshot_not_found),
            (snapshot, 1_000_000, ErrorCode.position_out_of_range),
            (snapshot, -1, ErrorCode.position_out_of_range),
        ):
            with pytest.raises(KafkaError) as raised:
                controller.quorum.read_snapshot(wanted, position, 100)
            assert raised.value.code is code


def test_a_fetch_waits_for_news_and_no_longer() -> None:
    async def story(loop: SimLoop) -> None:
        options = {"clock": SimClock(loop), "disk": ThreadDiskExecutor()}
        async with running_controller(SimFileSystem(), **options) as controller:
            await start_broker(controller)
            position = {"fetch_offset": controller.high_watermark, "last_fetched_epoch": 1, "wait_max_ms": 500}
            started = loop.time()
            assert (await fetch(controller, **position)).records == b""
            assert loop.time() - started == pytest.approx(0.5)
            waiting = loop.create_task(fetch(controller, **position))
            await asyncio.sleep(0.1)
            await controller.create_topics([CreatableTopic(name="t")])
            started = loop.time()
            assert offsets(await waiting) == [position["fetch_offset"]]
            assert loop.time() == started
            # Since version 18 the follower says what it knows: news of the high watermark alone are news.
            position["fetch_offset"] = controller.high_watermark
            assert (await fetch(controller, **position, high_watermark=0)).records == b""
            assert loop.time() == started
            await fetch(controller, **position, high_watermark=controller.high_watermark)
            assert loop.time() - started == pytest.approx(0.5)

    simulate(story)


def test_parked_fetches_are_answered_when_the_controller_stops() -> None:
    async def story(loop: SimLoop) -> None:
        options = {"clock": SimClock(loop), "disk": ThreadDiskExecutor()}
        async with running_controller(SimFileSystem(), **options) as controller:
            waiting = loop.create_task(fetch(controller, fetch_offset=4, last_fetched_epoch=1, wait_max_ms=60_000))
            await asyncio.sleep(1)
        assert (await waiting).error is ErrorCode.broker_not_available
        assert loop.time() < 2

    simulate(story)


def test_observers_are_described_until_they_are_silent_for_five_minutes() -> None:
    async def story(loop: SimLoop) -> None:
        clock = SimClock(loop)
        async with running_controller(SimFileSystem(), clock=clock, disk=ThreadDiskExecutor()) as controller:
            directory = UUID(int=0x800)
            await fetch(controller, replica_directory_id=directory, fetch_offset=2, last_fetched_epoch=1)
            await fetch(controller, replica_id=-1)
            description = controller.quorum.describe()
            assert (description.leader_id, description.leader_epoch, description.high_watermark) == (1, 1, 4)
            assert (description.voter.replica_id, description.voter.log_end_offset) == (1, 4)
            (observer,) = description.observers
            assert (observer.replica_id, observer.directory_id, observer.log_end_offset) == (2, directory, 2)
            assert (observer.last_fetch_ms, observer.last_caught_up_ms) == (clock.now_ms(), -1)
            await fetch(controller, replica_directory_id=directory, fetch_offset=4, last_fetched_epoch=1)
            assert controller.quorum.describe().observers[0].last_caught_up_ms == clock.now_ms()
            await asyncio.sleep(301)
            assert controller.quorum.describe().observers == ()

    simulate(story)


async def test_the_voter_is_no_observer_of_itself() -> None:
    """The broker in the controller's own process fetches the log under the voter's id (combined roles)."""
    async with running_controller(SimFileSystem()) as controller:
        await fetch(controller, replica_id=1, replica_directory_id=UUID(int=0x801))
        await fetch(controller, replica_id=2, replica_directory_id=UUID(int=0x802))
        assert [each.replica_id for each in controller.quorum.describe().observers] == [2]


async def test_observers_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_endpoint, "OBSERVERS_MAX", 3)
    async with running_controller(SimFileSystem()) as controller:
        for replica_id in (2, 3, 4, 2, 5):
            await fetch(controller, replica_id=replica_id)
        assert [each.replica_id for each in controller.quorum.describe().observers] == [2, 4, 5]
