import dataclasses
from pathlib import Path

import pytest

from broker.objectstore.errors import Refused
from broker.tiering.errors import RemoteStorageError
from broker.tiering.segment_deletion import delete_segment, update_of

from .segment_world import DELETED, DELETING, FINISHED, segment
from .task_world import T0, TaskWorld, told


async def known(world: TaskWorld) -> None:
    world.topic()
    world.tiered()
    await world.metadata.add_remote_log_segment_metadata(segment(1, 0, 9, partition=T0))


def test_an_update_says_who_and_when(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        update = update_of(segment(1, 0, 9), FINISHED, world.context, b"c")
        assert (update.broker_id, update.event_timestamp_ms) == (world.broker_id, world.clock.now_ms())
        assert (update.state, update.custom_metadata) == (FINISHED, b"c")

    told(tmp_path, story)


def test_it_is_told_before_and_after(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        await known(world)
        assert await delete_segment(segment(1, 0, 9, partition=T0), world.context) is None
        assert world.steps.passed[-5:] == ["tell DELETING", "told DELETING", "delete", "tell DELETED", "told DELETED"]
        assert world.remote.segments() == []
        assert (world.counts.delete_requests, world.counts.delete_errors) == (1, 0)

    told(tmp_path, story)


def test_a_bucket_that_refuses_leaves_it_begun(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        await known(world)
        world.steps.fail("delete", Refused("no"))
        failure = await delete_segment(segment(1, 0, 9, partition=T0), world.context)
        assert isinstance(failure, RemoteStorageError)
        assert [each.state for each in world.remote.segments()] == [DELETING]
        assert (world.counts.delete_requests, world.counts.delete_errors) == (1, 1)

    told(tmp_path, story)


def test_what_was_begun_is_not_told_again(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        await known(world)
        await world.metadata.update_remote_log_segment_metadata(
            update_of(segment(1, 0, 9, partition=T0), DELETING, world.context)
        )
        begun = dataclasses.replace(segment(1, 0, 9, partition=T0), state=DELETING)
        assert await delete_segment(begun, world.context) is None
        assert world.metadata.states[-2:] == [DELETING, DELETED]

    told(tmp_path, story)


def test_what_cannot_be_told_is_not_done(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        await known(world)
        world.steps.fail("tell DELETING", RemoteStorageError("nobody hears"))
        with pytest.raises(RemoteStorageError):
            await delete_segment(segment(1, 0, 9, partition=T0), world.context)
        assert "delete" not in world.steps.passed
        assert world.counts.delete_errors == 1

    told(tmp_path, story)


def test_a_storage_manager_of_ones_own_may_raise_anything(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        await known(world)
        world.steps.fail("delete", ZeroDivisionError("?"))
        failure = await delete_segment(segment(1, 0, 9, partition=T0), world.context)
        assert isinstance(failure, RemoteStorageError)
        assert "ZeroDivisionError" in str(failure)
        assert world.counts.delete_errors == 1

    told(tmp_path, story)
