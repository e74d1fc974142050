"""A failure, a cancellation, a lost lead, a lost disk at each thing that a copy to remote storage, or an expiration,
waits for (KIP-405): nothing is lost, nothing readable is incomplete, and the next run completes."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from broker.common.buffers import Buffer
from broker.common.chance import Chance
from broker.common.errors import ErrorCode, KafkaError, ReplicaNotAvailableError
from broker.common.file_system import OsFileSystem
from broker.objectstore.errors import Refused
from broker.objectstore.failing_object_store import FailingObjectStore
from broker.objectstore.objects import PartSizes, Upload, UploadedPart
from broker.records.append_origin import AppendOrigin
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.tiering.errors import RemoteStorageError
from tests.support.builders import batch, parsed
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.tiering.segment_world import FINISHED, STARTED
from tests.unit.tiering.storage_world import context, settings
from tests.unit.tiering.task_world import OTHER, Remote, SteppedStore, Storage, TaskWorld, check_remote

PAIR = (1, OTHER)
HOUR_MS = 3_600_000
PART_BYTES = 100  # more than the log of the first segment has, less than that of the second


def puts(*kinds: str) -> tuple[str, ...]:
    return tuple(f"{when} {kind}" for kind in kinds for when in ("put", "has put"))


FIRST_COPY: Final = (
    *("tell STARTED", "told STARTED"),
    *puts("index", "timeindex", "snapshot", "leader_epoch_checkpoint", "log"),
    *("tell FINISHED", "told FINISHED"),
)
# An aborted transaction has ended in it, and its log goes up in two parts at once.
SECOND_COPY: Final = (
    *("tell STARTED", "told STARTED"),
    *puts("index", "timeindex", "txnindex", "snapshot", "leader_epoch_checkpoint"),
    *(
        "start log",
        "has started log",
        "part 1",
        "part 2",
        "has part 1",
        "has part 2",
        "complete log",
        "has completed log",
    ),
    *("tell FINISHED", "told FINISHED"),
)
FOUND: Final = ("highest", "lookup")
COPY_OF_TWO: Final = ("list epoch", "highest", *FIRST_COPY, *FOUND, *SECOND_COPY, *FOUND)
PLACES: Final = [pytest.param(place, id=f"{place} {name}") for place, name in enumerate(COPY_OF_TWO)]
REMOVAL: Final = ("tell DELETING", "told DELETING", "delete", "has deleted", "tell DELETED", "told DELETED")


class PartedStore(SteppedStore):
    """Uploads in parts, and what is deleted, are steps as well."""

    async def start_upload(self, key: str) -> Upload:
        await self._steps.at("start log")
        upload = await super().start_upload(key)
        await self._steps.at("has started log")
        return upload

    async def upload_part(self, upload: Upload, number: int, position: int, body: Buffer) -> UploadedPart:
        await self._steps.at(f"part {number}")
        part = await super().upload_part(upload, number, position, body)
        await self._steps.at(f"has part {number}")
        return part

    async def complete_upload(self, upload: Upload, parts: Sequence[UploadedPart]) -> None:
        await self._steps.at("complete log")
        await super().complete_upload(upload, parts)
        await self._steps.at("has completed log")

    async def abort_upload(self, upload: Upload) -> None:
        await self._steps.at("abort log")
        await super().abort_upload(upload)
        await self._steps.at("has aborted log")

    async def delete_many(self, keys: Sequence[str]) -> None:
        await super().delete_many(keys)
        await self._steps.at("has deleted")


class PartedRemote(Remote):
    def __init__(self) -> None:
        super().__init__()
        self.bucket.inner = PartedStore(self.steps)
        self.bucket.failing = FailingObjectStore(self.bucket.inner, Chance(1))
        in_parts = settings(part_sizes=PartSizes(PART_BYTES, parallel=2))
        self.storage = Storage(context(self.bucket, OsFileSystem(), storage_settings=in_parts))


def told(directory: Path, story: Callable[[TaskWorld], Awaitable[None]]) -> None:
    async def run(loop: SimLoop) -> None:
        world = TaskWorld(directory, loop, remote=PartedRemote())
        async with world.remote.storage.running():
            await story(world)

    simulate(run)


def write(world: TaskWorld) -> None:
    """Two closed segments, [0-1] and [2-3], and the active one.  What the second one has is an aborted transaction."""
    world.append(1)
    now = world.clock.now_ms()
    world.replicas.append(
        batch("a", timestamp=now, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    )
    marker = end_transaction_marker_batch(
        EndTransactionMarker(ControlRecordType.ABORT, 0), producer_id=7, producer_epoch=0, timestamp=now
    )
    (result,) = world.replicas.partition().append_records_to_leader(parsed(marker), AppendOrigin.COORDINATOR)
    assert result.error is None
    world.append(1)
    assert world.log.segments.base_offsets == [0, 2, 4]


def test_these_are_all_steps_of_a_copy(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        write(world)
        await world.copy()
        assert tuple(world.steps.passed) == COPY_OF_TWO
        check_uploads(world)

    told(tmp_path, story)


@pytest.mark.parametrize("failed", ["put txnindex", "part 2"])
def test_and_these_of_one_that_fails(tmp_path: Path, failed: str) -> None:
    async def story(world: TaskWorld) -> None:
        world.topic()
        write(world)
        world.steps.fail(failed, Refused("injected"))
        with pytest.raises(RemoteStorageError, match="injected"):
            await world.copy()
        passed = tuple(world.steps.passed)
        aborted = ("abort log", "has aborted log") if failed == "part 2" else ()
        assert passed[-len(REMOVAL) - len(aborted) :] == (*aborted, *REMOVAL)
        check_uploads(world)

    told(tmp_path, story)


def check_uploads(world: TaskWorld, interrupted: str = "") -> None:
    """What was begun in parts is given up.  That may fail, or nobody has heard what was begun: then some are left, and
    a rule of the bucket is for them (docs/operations.md)."""
    assert (world.remote.bucket.inner.uploads != {}) is (interrupted in ("has started log", "abort log"))


def is_upload(name: str) -> bool:
    return name.rpartition(" ")[0] in {
        "put",
        "has put",
        "start",
        "has started",
        "part",
        "has part",
        "complete",
        "has completed",
    }


def error_at(name: str) -> Exception:
    if is_upload(name) or name in ("abort log", "has aborted log", "delete", "has deleted"):
        return Refused("injected")
    return ReplicaNotAvailableError("?") if name in (*FOUND, "list epoch") else RemoteStorageError("injected")


async def in_the_end(world: TaskWorld) -> None:
    """Nothing is lost; the next run, or the next leader, completes; and when its records are old all of it goes."""
    check_remote(world)
    world.clock.jump(HOUR_MS)
    world.expire_locally()
    check_remote(world)
    await world.copy()
    check_remote(world)
    covered = sorted(set(world.remote.ranges()))
    assert covered[:2] == [(0, 1), (2, 3)]
    begun = world.metadata.begun
    assert len({each.segment_id for each in begun}) == len(begun)
    assert len(begun) <= len(covered) + 1  # what was finished is not copied again
    world.expire_locally()
    check_remote(world)
    world.clock.jump(48 * HOUR_MS)
    for _ in range(2):
        await world.expire()
        check_remote(world)
    assert world.remote.segments() == []
    assert world.remote.bucket.objects == {}


def tell(tmp_path: Path, story: Callable[[TaskWorld], Awaitable[None]]) -> None:
    async def run(world: TaskWorld) -> None:
        world.topic(replicas=PAIR, isr=(1,), local_retention_ms=1, retention_ms=24 * HOUR_MS)
        write(world)
        await story(world)
        assert world.steps.told == {}, "nothing happened"
        await in_the_end(world)

    told(tmp_path, run)


@pytest.mark.parametrize("place", PLACES)
def test_whatever_fails_is_done_again(tmp_path: Path, place: int) -> None:
    async def story(world: TaskWorld) -> None:
        error = error_at(COPY_OF_TWO[place])
        world.steps.fail(place, error)
        task = world.copy_task()
        with pytest.raises(KafkaError):
            await task.run()
        assert world.counts.copy_errors == (0 if isinstance(error, ReplicaNotAvailableError) else 1)
        check_remote(world)
        leftovers = {STARTED} if COPY_OF_TWO[place] in ("told STARTED", "tell FINISHED") else set()
        assert {each.state for each in world.remote.segments()} - {FINISHED} <= leftovers
        check_uploads(world, COPY_OF_TWO[place])

    tell(tmp_path, story)


@pytest.mark.parametrize("place", PLACES)
def test_whatever_is_cancelled_leaves_no_more_than_a_copy_that_was_begun(tmp_path: Path, place: int) -> None:
    async def story(world: TaskWorld) -> None:
        tiered = world.tiered()
        copying = asyncio.ensure_future(world.copy_task(tiered).run())
        world.steps.told[place] = copying.cancel
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert tiered.being_copied == set()
        assert world.counts.copy_errors == 0
        states = [each.state for each in world.remote.segments() if each.state is not FINISHED]
        assert states in ([], [STARTED])
        check_uploads(world, COPY_OF_TWO[place])

    tell(tmp_path, story)


def follows(name: str) -> str:
    """What must not be done any more after the log has changed while `name` was waited for."""
    if "STARTED" in name:
        return "put"
    return "tell FINISHED" if is_upload(name) else "tell STARTED"


@pytest.mark.parametrize("place", PLACES)
def test_who_loses_the_lead_tells_nothing_more_of_the_log(tmp_path: Path, place: int) -> None:
    async def story(world: TaskWorld) -> None:
        task = world.copy_task()
        highest: list[int] = []

        def lose() -> None:
            highest.append(world.log.highest_remote_offset)
            world.replicas.place(leader=OTHER, leader_epoch=1)

        world.steps.told[place] = lose
        await task.run()  # nobody cancels it here
        await task.run()
        assert [world.log.highest_remote_offset] == highest
        assert not any(step.startswith(follows(COPY_OF_TWO[place])) for step in world.steps.passed[place + 1 :])
        assert world.counts.copy_errors == 0
        check_uploads(world)
        world.replicas.place(leader=1, leader_epoch=2)

    tell(tmp_path, story)


@pytest.mark.parametrize("place", PLACES)
def test_a_disk_that_fails_ends_the_copy_until_it_is_back(tmp_path: Path, place: int) -> None:
    async def story(world: TaskWorld) -> None:
        partition, local = world.replicas.partition(), world.log
        task = world.copy_task()
        world.steps.told[place] = lambda: partition.stop(ErrorCode.kafka_storage_error, is_deleted=False)
        await task.run()
        await task.run()
        assert world.counts.copy_errors == 0
        partition.local_log, partition.is_leader, partition.is_offline = local, True, False

    tell(tmp_path, story)


@pytest.mark.parametrize("place", PLACES)
def test_records_that_are_deleted_meanwhile_are_not_missed(tmp_path: Path, place: int) -> None:
    """DeleteRecords, and the local files go with it."""

    async def run(world: TaskWorld) -> None:
        world.topic()
        write(world)

        def delete() -> None:
            world.log.maybe_increment_log_start_offset(2, "DeleteRecords")
            world.expire_locally()

        world.steps.told[place] = delete
        with contextlib.suppress(KafkaError):
            await world.copy()
        await world.copy()
        assert world.remote.ranges()[-1] == (2, 3)
        check_remote(world)
        await world.expire()
        assert world.remote.ranges() == [(2, 3)]
        check_remote(world)

    told(tmp_path, run)


@pytest.mark.parametrize("what", ["fail", "cancel", "lead", "disk"])
@pytest.mark.parametrize(
    ("why", "step"),
    [("a part is refused", step) for step in ("abort log", "has aborted log", *REMOVAL)]
    + [("129 bytes of custom metadata", step) for step in REMOVAL],
)
def test_whatever_happens_while_a_copy_that_failed_is_removed(tmp_path: Path, why: str, step: str, what: str) -> None:
    """Who waits for the copy hears why that failed; what is left of it goes with the records."""

    async def story(world: TaskWorld) -> None:
        partition, local = world.replicas.partition(), world.log
        if why == "a part is refused":
            world.steps.fail("part 2", Refused(why))
        else:
            world.remote.storage.custom_metadata = bytes(129)
        copying = asyncio.ensure_future(world.copy_task().run())
        if what == "fail":
            world.steps.fail(step, error_at(step))
        elif what == "cancel":
            world.steps.told[step] = copying.cancel
        elif what == "lead":
            world.steps.told[step] = lambda: world.replicas.place(leader=OTHER, leader_epoch=1)
        else:
            world.steps.told[step] = lambda: partition.stop(ErrorCode.kafka_storage_error, is_deleted=False)
        is_cancelled = what == "cancel"
        with pytest.raises(asyncio.CancelledError if is_cancelled else RemoteStorageError) as failure:
            await copying
        assert is_cancelled or why in str(failure.value)
        assert world.counts.copy_errors == (0 if is_cancelled else 1)
        check_uploads(world, step if what in ("fail", "cancel") else "")
        world.remote.storage.custom_metadata = None
        if what == "disk":
            partition.local_log, partition.is_leader, partition.is_offline = local, True, False
        world.replicas.place(leader=1, leader_epoch=2)

    tell(tmp_path, story)


@pytest.mark.parametrize("step", ["lookup", "highest", "list", *REMOVAL])
@pytest.mark.parametrize("what", ["fail", "cancel", "lead"])
def test_whatever_happens_while_segments_expire(tmp_path: Path, step: str, what: str) -> None:
    async def run(world: TaskWorld) -> None:
        world.topic(replicas=PAIR, isr=(1,), retention_ms=HOUR_MS)
        world.append(4)
        await world.copy()
        world.clock.jump(2 * HOUR_MS)
        world.log.highest_remote_offset = -1  # a restart
        expiring = asyncio.ensure_future(world.expire())
        if what == "fail":
            world.steps.fail(step, Refused("?") if "delete" in step else RemoteStorageError("?"))
        elif what == "cancel":
            world.steps.told[step] = expiring.cancel
        else:
            world.steps.told[step] = lambda: world.replicas.place(leader=OTHER, leader_epoch=1)
        with contextlib.suppress(asyncio.CancelledError, RemoteStorageError):
            await expiring
        assert world.steps.told == {}
        for one in world.remote.segments():
            assert one.state is FINISHED or one.end_offset < world.log.log_start_offset
        check_remote(world)
        world.replicas.place(leader=1, leader_epoch=2)
        await world.expire()
        assert world.remote.segments() == []
        assert world.remote.bucket.objects == {}

    told(tmp_path, run)
