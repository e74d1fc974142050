from pathlib import Path

import pytest

from broker.common.errors import ReplicaNotAvailableError
from broker.log.leader_epoch_file_cache import EpochEntry

from .segment_world import DELETING, FINISHED, segment, update
from .task_world import OTHER, T0, TaskWorld, told


async def finished(world: TaskWorld, number: int, start: int, end: int, epochs: dict[int, int] | None = None) -> None:
    """Another broker has copied it."""
    await world.metadata.add_remote_log_segment_metadata(segment(number, start, end, epochs, partition=T0))
    await world.metadata.update_remote_log_segment_metadata(update(number, FINISHED, partition=T0))


def followed(world: TaskWorld, batches: int) -> None:
    world.topic(replicas=(1, OTHER), isr=(1, OTHER))
    world.append(batches)
    world.replicas.place(leader=OTHER, leader_epoch=1)


def test_a_follower_learns_what_was_copied(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        followed(world, 3)
        task = world.follower_task()
        await task.run()
        assert world.log.highest_remote_offset == -1
        await finished(world, 1, 0, 1)
        await task.run()
        assert world.log.highest_remote_offset == 1
        await finished(world, 2, 2, 3)
        await task.run()
        assert world.log.highest_remote_offset == 3

    told(tmp_path, story)


def test_no_more_than_the_follower_has(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        followed(world, 2)
        await_task = world.follower_task()
        await finished(world, 1, 0, 9)
        await await_task.run()
        assert world.log.highest_remote_offset == 3

    told(tmp_path, story)


def test_epochs_that_change_meanwhile_are_looked_at_again(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        followed(world, 3)
        task = world.follower_task()
        await finished(world, 1, 0, 3)
        world.steps.told["highest"] = lambda: world.log.leader_epochs.assign(1, 2)  # the leader's epoch began there
        await task.run()
        assert world.log.leader_epochs.entries == (EpochEntry(0, 0), EpochEntry(1, 2))
        assert world.log.highest_remote_offset == 1

    told(tmp_path, story)


@pytest.mark.parametrize("step", ["highest", "lookup"])
def test_what_is_lost_meanwhile_does_not_count(tmp_path: Path, step: str) -> None:
    async def story(world: TaskWorld) -> None:
        followed(world, 4)
        tiered = world.tiered()
        world.metadata.watch_losses(lambda partition, lost: tiered.lose(lost))
        await finished(world, 1, 0, 1)
        await finished(world, 2, 2, 3)
        world.steps.told[step] = lambda: world.metadata.store.apply(update(2, DELETING, partition=T0))
        await world.follower_task(tiered).run()
        assert world.log.highest_remote_offset == 1

    told(tmp_path, story)


def test_a_follower_restores_epochs_that_its_disk_has_lost(tmp_path: Path) -> None:
    """It may lead tomorrow, and is read by consumers today."""

    async def story(world: TaskWorld) -> None:
        world.topic(replicas=(1, OTHER), isr=(1,), local_retention_bytes=1)
        world.append(3)
        await world.copy()
        world.expire_locally()
        world.replicas.place(leader=OTHER, leader_epoch=1)
        world.log.leader_epochs.clear()
        await world.follower_task().run()
        assert world.log.leader_epochs.entries == (EpochEntry(0, 0),)

    told(tmp_path, story)


def test_a_log_that_is_cut_meanwhile_ends_the_run(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        followed(world, 3)
        task = world.follower_task()
        await finished(world, 1, 0, 3)
        world.steps.told["highest"] = lambda: world.log.truncate_to(2)
        await task.run()
        assert world.log.highest_remote_offset == -1

    told(tmp_path, story)


def test_while_not_everything_is_known_there_is_no_answer(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        followed(world, 3)
        task = world.follower_task()
        world.metadata.on_stop_partitions([T0])
        with pytest.raises(ReplicaNotAvailableError):
            await task.run()

    told(tmp_path, story)


def test_without_a_disk_nothing_is_asked(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        followed(world, 1)
        task = world.follower_task()
        world.replicas.partition().local_log = None
        await task.run()
        assert world.steps.passed == []

    told(tmp_path, story)
