import dataclasses
from pathlib import Path

import pytest

from broker.cli.wal_logs import PartitionLogs
from broker.cli.wal_pointers import WalPointers
from broker.cli.wal_topic import ClusterView
from broker.cli.wal_verification import Finding, Problem, VerificationLimits, WalVerification
from broker.schemas.remote_wal_metadata import encode
from tests.support.wal_directory import wal_slice
from tests.unit.wal.wal_world import log_bytes

from .test_wal_logs import write_log
from .wal_look_world import BAR, FOO, NOW_MS, PREFIX, LookWorld

LIMITS = VerificationLimits(NOW_MS, orphan_age_ms=600_000, min_life_ms=300_000)


@pytest.fixture
def world() -> LookWorld:
    return LookWorld()


def verification(world: LookWorld, *, logs: PartitionLogs | None = None, alone: bool = False) -> WalVerification:
    async def read_pointers() -> tuple[ClusterView, WalPointers]:
        return world.cluster, world.pointers

    return WalVerification(world.bucket, LIMITS, read_pointers=None if alone else read_pointers, logs=logs)


async def findings(look: WalVerification) -> list[Finding]:
    return [finding async for finding in look.findings()]


async def problems(world: LookWorld, *, alone: bool = False) -> list[tuple[Problem, str]]:
    return [(each.problem, each.what) for each in await findings(verification(world, alone=alone))]


async def test_a_whole_bucket_has_no_problems(world: LookWorld) -> None:
    look = verification(world)
    assert await findings(look) == []
    assert (look.counts.objects, look.counts.slices) == (2, 3)
    assert look.counts.bytes_read == world.first.size + world.second.size


@pytest.mark.parametrize("position", [0, 80, -1, -40])
async def test_a_flipped_byte_is_corrupt_wherever_it_is(world: LookWorld, position: int) -> None:
    world.flip(world.first, position)
    key = world.first.metadata.object_key
    assert await problems(world) == [(Problem.CORRUPT, key)]
    assert await problems(world, alone=True) == [(Problem.CORRUPT, key)]


async def test_a_slice_is_named_that_is_corrupt(world: LookWorld) -> None:
    world.flip(world.second, 3)
    (finding,) = await findings(verification(world))
    assert str(finding).startswith(f"corrupt   {world.second.metadata.object_key}: Slice 5 to 6 of foo-0 in ")
    assert "CRC" in finding.reason


async def test_an_object_that_ends_early_is_corrupt(world: LookWorld) -> None:
    key = world.first.metadata.object_key
    world.put_bytes(key, world.store.objects[PREFIX + key][:-5])
    assert await problems(world) == [(Problem.CORRUPT, key)]


async def test_a_pointer_without_an_object(world: LookWorld) -> None:
    del world.store.objects[PREFIX + world.second.metadata.object_key]
    (finding,) = await findings(verification(world))
    assert str(finding) == f"missing   {world.second.metadata.object_key}: announced 5 s ago"
    assert await findings(verification(world, alone=True)) == []


async def test_what_retention_may_have_deleted_is_not_missing(world: LookWorld) -> None:
    old = dataclasses.replace(
        world.build(wal_slice(FOO, 9, log_bytes((1, 1), start=7), leader_epoch=1)).metadata,
        event_timestamp_ms=NOW_MS - LIMITS.min_life_ms,
    )
    just = dataclasses.replace(old, event_timestamp_ms=old.event_timestamp_ms + 1, object_key="wal/other")
    of_deleted_topic = dataclasses.replace(
        world.build(wal_slice(BAR, 9, log_bytes((1, 1), start=7), leader_epoch=1)).metadata, object_key="wal/deleted"
    )
    elsewhere = dataclasses.replace(old, event_timestamp_ms=NOW_MS, object_key="wal/there", bucket="file:///zone-b")
    world.announce(*(encode(each) for each in (old, just, of_deleted_topic, elsewhere)))
    world.cluster = ClusterView(world.cluster.cluster_id, frozenset({FOO.topic_id}))
    look = verification(world)
    assert [(each.problem, each.what) for each in await findings(look)] == [(Problem.MISSING, "wal/other")]
    assert look.counts.expired == 2


async def test_an_object_nobody_announced_is_an_orphan_when_it_is_old(world: LookWorld) -> None:
    young = world.put(wal_slice(FOO, 8, log_bytes((1, 1), start=7), leader_epoch=1), age_ms=599_999)
    old = world.put(wal_slice(FOO, 9, log_bytes((1, 1), start=8), leader_epoch=1), age_ms=600_000)
    look = verification(world)
    (finding,) = await findings(look)
    assert str(finding) == f"orphan    {old.metadata.object_key}: stored 600 s ago, never announced"
    assert look.counts.pending == 1
    assert young.metadata.object_key != old.metadata.object_key
    assert await findings(verification(world, alone=True)) == []


async def test_what_is_no_object_of_this_cluster_is_foreign(world: LookWorld) -> None:
    world.put_bytes("readme.txt", b"hello")
    other = world.put(
        wal_slice(FOO, 9, log_bytes((1, 1), start=8), leader_epoch=1), cluster_id="AAAAAAAAAAAAAAAAAAAAAA"
    )
    key = world.second.metadata.object_key.replace("0000000000000002", "0000000000000005")
    world.put_bytes(key, world.store.objects[PREFIX + world.second.metadata.object_key], age_ms=0)
    found = {each.what: str(each) for each in await findings(verification(world))}
    assert found == {
        "readme.txt": "foreign   readme.txt: no key of an object of the WAL",
        other.metadata.object_key: f"foreign   {other.metadata.object_key}: of the cluster AAAAAAAAAAAAAAAAAAAAAA",
        key: f"foreign   {key}: it calls itself {world.second.metadata.object_key}",
    }


async def test_a_pointer_that_tells_otherwise(world: LookWorld) -> None:
    (row,) = world.second.metadata.slices
    wrong = dataclasses.replace(world.second.metadata, slices=(dataclasses.replace(row, position_in_object=1),))
    world.announce(encode(wrong))
    (finding,) = await findings(verification(world))
    assert (finding.problem, finding.reason) == (
        Problem.DIFFERENT,
        "1 of 2 slices announced are not in its table",
    )
    world = LookWorld()
    world.pointers = WalPointers()
    world.announce(world.first.event, encode(dataclasses.replace(world.second.metadata, bucket="file:///zone-b")))
    (finding,) = await findings(verification(world))
    assert finding == Finding(Problem.DIFFERENT, world.second.metadata.object_key, "announced as in file:///zone-b")


async def test_slices_that_were_never_announced_are_fine(world: LookWorld) -> None:
    """Their leader was deposed between upload and announcement."""
    world.pointers = WalPointers()
    one = dataclasses.replace(world.first.metadata, slices=world.first.metadata.slices[1:])
    world.announce(encode(one), world.second.event)
    assert await findings(verification(world)) == []


async def test_a_record_that_cannot_be_read_is_a_problem(world: LookWorld) -> None:
    world.announce(b"\x01\x04\x00")
    (finding,) = await findings(verification(world))
    assert (finding.problem, finding.what) == (Problem.POINTER, "__remote_wal_log_metadata")


async def test_objects_that_go_while_we_look_are_counted(world: LookWorld) -> None:
    look = verification(world)
    read_pointers = look._read_pointers
    assert read_pointers is not None

    async def deleting() -> tuple[ClusterView, WalPointers]:
        del world.store.objects[PREFIX + world.first.metadata.object_key]
        return await read_pointers()

    look._read_pointers = deleting
    assert await findings(look) == []
    assert (look.counts.gone, look.counts.objects) == (1, 1)


async def test_slices_are_compared_with_the_logs(world: LookWorld, tmp_path: Path) -> None:
    write_log(tmp_path / "one", FOO, {0: world.foo_log})
    look = verification(world, logs=PartitionLogs([tmp_path / "one"]))
    assert await findings(look) == []
    assert (look.counts.equal_batches, look.counts.absent_batches, look.counts.superseded_batches) == (3, 0, 0)
    damaged = bytearray(world.foo_log)
    damaged[70] ^= 1
    write_log(tmp_path / "two", FOO, {0: bytes(damaged)})
    (finding,) = await findings(verification(world, logs=PartitionLogs([tmp_path / "one", tmp_path / "two"])))
    assert finding.problem is Problem.LOG
    assert finding.reason.startswith("foo-0: offset 0 of epoch 0 has other bytes in ")
