from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import ReplicaNotAvailableError
from broker.log.unified_log import UnifiedLog
from broker.tiering.errors import RemoteStorageError
from broker.tiering.first_epochs import ensure_epoch_is_known, lacks_first_epochs, restore_first_epochs
from broker.tiering.leader_epochs import LeaderEpochs
from broker.tiering.tiered_partition import LogChangedError, LogView

from .access_world import AccessWorld, reading
from .segment_world import DELETED, DELETING, FINISHED, epoch_entries, segment, update
from .task_world import T0

EPOCHS = epoch_entries({0: 0, 2: 4, 3: 6})


async def moved(world: AccessWorld) -> UnifiedLog:
    """Records 0 to 7 are in the bucket alone, 8 and 9 on the disk alone."""
    world.tiered_topic()
    for epoch, count in ((0, 2), (2, 1), (3, 2)):
        world.replicas.place(leader_epoch=epoch)
        world.append(count)
    await world.move()
    assert (world.log.local_log_start_offset, world.log.leader_epochs.entries) == (8, EPOCHS)
    return world.log


def know(log: UnifiedLog, epochs: Mapping[int, int]) -> None:
    """Forget all other epochs."""
    log.leader_epochs.clear()
    for epoch, start_offset in epochs.items():
        log.leader_epochs.assign(epoch, start_offset)
    log.epochs_changed()


def view_of(world: AccessWorld) -> LogView:
    view = world.tiered().look(as_leader=True)
    assert view is not None
    return view


async def restore(world: AccessWorld) -> None:
    await restore_first_epochs(T0, view_of(world), world.context)


async def finished(world: AccessWorld, *segments: Any) -> None:
    for each in segments:
        await world.metadata.add_remote_log_segment_metadata(each)
        await world.metadata.update_remote_log_segment_metadata(update(each.segment_id.int, FINISHED, partition=T0))


def test_who_knows_all_asks_nobody(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        await moved(world)
        view, passed = view_of(world), len(world.steps.passed)
        await restore_first_epochs(T0, view, world.context)
        assert len(world.steps.passed) == passed
        assert world.log.leader_epochs.entries == EPOCHS

    reading(tmp_path, story)


@pytest.mark.parametrize(
    ("known", "log_start_offset", "restored"),
    [
        ({3: 8}, 0, {0: 0, 2: 4, 3: 6}),  # what the batches of the disk say
        ({}, 0, {0: 0, 2: 4, 3: 6}),  # the disk has none
        ({4: 8}, 0, {0: 0, 2: 4, 3: 6, 4: 8}),  # of a leader that wrote nothing that is remote
        ({2: 5, 3: 6}, 0, {0: 0, 2: 4, 3: 6}),
        ({3: 8}, 5, {2: 5, 3: 6}),
        ({3: 8}, 6, {3: 6}),
        ({3: 8}, 8, {3: 8}),
        ({}, 8, {}),  # nothing of it is remote
    ],
)
def test_what_is_not_known_is_read_from_the_bucket(
    tmp_path: Path, known: Mapping[int, int], log_start_offset: int, restored: Mapping[int, int]
) -> None:
    async def story(world: AccessWorld) -> None:
        log = await moved(world)
        know(log, known)
        log.maybe_increment_log_start_offset(log_start_offset, "test")
        assert lacks_first_epochs(log) is (known != restored)
        await restore(world)
        assert log.leader_epochs.entries == epoch_entries(restored)
        assert not lacks_first_epochs(log)
        assert log.newest_epoch == max(restored, default=-1)

    reading(tmp_path, story)


def test_what_a_segment_was_copied_with_may_not_be_all_that_is_there(tmp_path: Path) -> None:
    """A broker that had lost them too has copied it."""

    async def story(world: AccessWorld) -> None:
        log = await moved(world)
        objects = world.remote.bucket.objects
        for segment_of_6 in [each for each in world.remote.segments() if each.start_offset == 6]:
            mark = next(key for key in objects if f"{6:020d}-" in key and key.endswith("leader_epoch_checkpoint"))
            assert segment_of_6.segment_leader_epochs == epoch_entries({3: 6})
            objects[mark] = b"0\n1\n3 6\n"
        know(log, {3: 8})
        await restore(world)
        assert log.leader_epochs.entries == EPOCHS

    reading(tmp_path, story)


def test_a_log_whose_remote_part_is_gone_has_no_others(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        log = await moved(world)
        for each in world.remote.segments():
            for state in (DELETING, DELETED):
                told = update(each.segment_id.int, state, partition=T0)
                await world.metadata.update_remote_log_segment_metadata(told)
        know(log, {3: 8})
        await restore(world)
        assert log.leader_epochs.entries == epoch_entries({3: 8})

    reading(tmp_path, story)


@pytest.mark.parametrize("others", [[(1, 6, 9, {1: 6})], [(1, 2, 7, {1: 2}), (2, 4, 8, {1: 4})]])
def test_of_two_logs_neither_is_taken(tmp_path: Path, others: list[tuple[int, int, int, dict[int, int]]]) -> None:
    """The disk has records of epoch 4 alone, and nothing tells whether they follow those of epoch 1 or 3."""

    async def story(world: AccessWorld) -> None:
        log = await moved(world)
        await finished(world, *(segment(*each, partition=T0) for each in others))
        know(log, {4: 8})
        with pytest.raises(RemoteStorageError, match="which of its segments are of this log"):
            await restore(world)
        know(log, {3: 8})  # but of an epoch that the disk has there is one log alone
        await restore(world)
        assert log.leader_epochs.entries == EPOCHS

    reading(tmp_path, story)


def test_a_hole_below_is_not_taken_for_the_begin(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        log = await moved(world)
        for each in world.remote.segments():
            if each.start_offset == 6:
                told = update(each.segment_id.int, DELETING, partition=T0)
                await world.metadata.update_remote_log_segment_metadata(told)
        know(log, {4: 8})
        with pytest.raises(RemoteStorageError, match="below offset 8"):
            await restore(world)
        assert log.leader_epochs.entries == epoch_entries({4: 8})

    reading(tmp_path, story)


def test_epochs_that_cannot_be_below_are_not_taken(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        log = await moved(world)
        know(log, {1: 8})  # older than what is below
        with pytest.raises(RemoteStorageError, match="below offset 8"):
            await restore(world)

    reading(tmp_path, story)


@pytest.mark.parametrize(
    ("overtake", "epochs"),
    [
        (lambda log: log.leader_epochs.prepend(EPOCHS), EPOCHS),  # another task has done it
        (lambda log: log.maybe_increment_log_start_offset(5, "DeleteRecords"), epoch_entries({2: 5, 3: 6})),
        (lambda log: log.maybe_increment_log_start_offset(8, "DeleteRecords"), epoch_entries({3: 8})),
    ],
)
def test_what_happens_meanwhile_counts(
    tmp_path: Path, overtake: Callable[[UnifiedLog], object], epochs: LeaderEpochs
) -> None:
    async def story(world: AccessWorld) -> None:
        log = await moved(world)
        know(log, {3: 8})
        view = view_of(world)
        world.steps.told["list"] = lambda: overtake(log)
        await restore_first_epochs(T0, view, world.context)
        assert log.leader_epochs.entries == epochs

    reading(tmp_path, story)


def test_a_log_that_is_cut_meanwhile_is_left_alone(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        log = await moved(world)
        know(log, {3: 8})
        view = view_of(world)
        world.steps.told["list"] = lambda: log.truncate_to(8)
        with pytest.raises(LogChangedError):
            await restore_first_epochs(T0, view, world.context)
        assert log.leader_epochs.entries == ()

    reading(tmp_path, story)


def test_an_epoch_that_is_not_known_is_no_offset_out_of_range(tmp_path: Path) -> None:
    async def story(world: AccessWorld) -> None:
        log = await moved(world)
        log.maybe_increment_log_start_offset(2, "test")
        for offset in range(11):
            ensure_epoch_is_known(log, offset)
        know(log, {3: 7})
        for offset in range(11):
            if 2 <= offset < 7:
                with pytest.raises(ReplicaNotAvailableError, match="below offset 7"):
                    ensure_epoch_is_known(log, offset)
            else:
                ensure_epoch_is_known(log, offset)

    reading(tmp_path, story)
