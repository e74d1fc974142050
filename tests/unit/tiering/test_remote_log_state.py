from pathlib import Path
from uuid import UUID

import pytest

from broker.common.errors import ReplicaNotAvailableError
from broker.tiering.errors import RemoteResourceNotFoundError, RemoteStorageError
from broker.tiering.remote_log_state import read_state_before

from .access_world import AccessWorld, reading
from .segment_world import DELETING, FINISHED, epoch_entries, segment, update
from .task_world import T0


async def state(world: AccessWorld, epoch: int, offset: int) -> object:
    return await read_state_before(world.metadata, world.remote.storage, T0, epoch, offset)


def test_38_the_state_is_that_at_the_end_of_the_segment(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(1)
        world.replicas.place(leader_epoch=2)
        for sequence in (0, 2, 4):
            world.append(1, producer_id=7, producer_epoch=0, base_sequence=sequence)
        with pytest.raises(ReplicaNotAvailableError):
            await state(world, 0, 0)
        snapshot = world.log.producer_snapshot_path(4).read_bytes()
        await world.copy()
        assert await state(world, 0, 1) == (2, epoch_entries({0: 0}), world.log.producer_snapshot_path(2).read_bytes())
        assert await state(world, 2, 2) == (4, epoch_entries({0: 0, 2: 2}), snapshot)

    reading(tmp_path, story)


def test_44_of_several_segments_it_is_the_one_that_ends_first(tmp_path: Path) -> None:
    """An old leader has copied [0-90] of epoch 0, of which this log has less: the state at 90 is of another log."""

    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(4)
        await world.copy()
        snapshots = {end: world.log.producer_snapshot_path(end).read_bytes() for end in (2, 4)}
        for number, start, end in ((77, 0, 90), (78, 1, 80)):
            await world.metadata.add_remote_log_segment_metadata(segment(number, start, end, {0: start}, partition=T0))
            await world.metadata.update_remote_log_segment_metadata(update(number, FINISHED, partition=T0))
        assert await state(world, 0, 1) == (2, epoch_entries({0: 0}), snapshots[2])
        assert await state(world, 0, 2) == (4, epoch_entries({0: 0}), snapshots[4])
        two = world.remote.segments()[3]
        assert (two.start_offset, two.end_offset) == (2, 3)
        await world.metadata.update_remote_log_segment_metadata(update(two.segment_id.int, DELETING, partition=T0))
        with pytest.raises(RemoteResourceNotFoundError, match=str(UUID(int=78))):
            await state(world, 0, 2)

    reading(tmp_path, story)


def test_40_a_segment_that_is_not_known_is_told(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(2)
        await world.copy()
        for epoch, offset in ((0, 2), (1, 1)):
            with pytest.raises(RemoteStorageError, match=f"has offset {offset} of epoch {epoch}"):
                await state(world, epoch, offset)

    reading(tmp_path, story)


@pytest.mark.parametrize("missing", ["snapshot", "leader_epoch_checkpoint"])
def test_an_object_that_is_gone_is_told(tmp_path: Path, missing: str) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(2)
        await world.copy()
        objects = world.remote.bucket.objects
        del objects[next(key for key in objects if key.endswith(missing))]
        with pytest.raises(RemoteResourceNotFoundError):
            await state(world, 0, 0)

    reading(tmp_path, story)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0\n0\n",
        b"not a checkpoint",
        b"1\n1\n0 0\n",
        b"0\n2\n0 0\n",
        b"0\n1\nzero 0\n",
        b"0\n2\n1 0\n0 1\n",  # epochs go back
        b"0\n2\n0 1\n1 0\n",  # offsets do
        b"0\n2\n0 1\n1 1\n",
        b"0\n2\n0 0\n1 2\n",  # an epoch after the segment's end
        b"0\n1\n-1 0\n",
    ],
)
def test_leader_epochs_that_cannot_be_are_told(tmp_path: Path, content: bytes) -> None:
    async def story(world: AccessWorld) -> None:
        world.tiered_topic()
        world.append(2)
        await world.copy()
        objects = world.remote.bucket.objects
        objects[next(key for key in objects if key.endswith("leader_epoch_checkpoint"))] = content
        with pytest.raises(RemoteStorageError, match="leader epochs"):
            await state(world, 0, 0)

    reading(tmp_path, story)
