from pathlib import Path

import pytest

from broker.tiering.tiered_partition import LogChangedError, TieredPartition

from .segment_world import segment
from .task_world import OTHER, T0, TaskWorld, told


def followed_or_led(world: TaskWorld) -> TieredPartition:
    world.topic(replicas=(1, OTHER), isr=(1,))
    world.append(2)
    return world.tiered()


def test_a_log_that_only_grows_stays_what_it_was(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        view = followed_or_led(world).look(as_leader=True)
        assert view is not None
        world.append(2)
        world.log.maybe_increment_log_start_offset(2, "test")
        world.replicas.place(leader_epoch=1)
        view.check()

    told(tmp_path, story)


@pytest.mark.parametrize("change", ["leader", "truncation", "no disk", "closed"])
def test_whatever_else_happens_ends_it(tmp_path: Path, change: str) -> None:
    async def story(world: TaskWorld) -> None:
        view = followed_or_led(world).look(as_leader=True)
        assert view is not None
        if change == "leader":
            world.replicas.place(leader=OTHER, leader_epoch=1)
        elif change == "truncation":
            world.log.truncate_to(2)
        elif change == "no disk":
            world.replicas.partition().local_log = None
        else:
            world.log.close()
        assert not view.is_current
        with pytest.raises(LogChangedError):
            view.check()

    told(tmp_path, story)


def test_a_follower_is_no_leader(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        tiered = followed_or_led(world)
        world.replicas.place(leader=OTHER, leader_epoch=1)
        assert tiered.look(as_leader=True) is None
        view = tiered.look(as_leader=False)
        assert view is not None
        world.replicas.place(leader=1, leader_epoch=2)
        assert not view.is_current  # it is another's task now

    told(tmp_path, story)


@pytest.mark.parametrize(
    ("lost", "highest"), [((0, 1), 5), ((0, 2), 1), ((2, 3), 1), ((4, 5), 3), ((6, 7), 5), (None, 1)]
)
def test_what_is_lost_counts_as_copied_no_more(tmp_path: Path, lost: tuple[int, int] | None, highest: int) -> None:
    async def story(world: TaskWorld) -> None:
        tiered = followed_or_led(world)
        world.append(2)
        world.log.update_high_watermark(8)
        world.log.maybe_increment_local_log_start_offset(2, "test")
        world.log.update_highest_remote_offset(5)
        tiered.lose(None if lost is None else segment(1, *lost, partition=T0))
        assert (world.log.highest_remote_offset, tiered.losses) == (highest, 1)
        world.replicas.partition().local_log = None
        tiered.lose(None)
        assert tiered.losses == 2

    told(tmp_path, story)


def test_without_a_log_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    async def story(world: TaskWorld) -> None:
        tiered = followed_or_led(world)
        assert (tiered.partition, tiered.name) == (T0, "t-0")
        world.log.close()
        assert tiered.look(as_leader=False) is None
        world.replicas.partition().local_log = None
        assert tiered.look(as_leader=False) is None

    told(tmp_path, story)
