import pytest

from broker.common.errors import ReplicaNotAvailableError
from broker.common.identifiers import NO_OFFSET
from broker.tiering.remote_offsets import (
    NOTHING_COPIED,
    RemoteOffset,
    find_copied_offset,
    find_highest_remote_offset,
    find_log_start_offset,
)

from .memory_remote_log_metadata_manager import MemoryRemoteLogMetadataManager
from .segment_world import DELETED, DELETING, FINISHED, PARTITION, epoch_entries, segment, update


def manager_of(*copies: tuple[int, int, dict[int, int]]) -> MemoryRemoteLogMetadataManager:
    """(start, end, epochs) of segments, numbered from 1 on."""
    manager = MemoryRemoteLogMetadataManager([PARTITION])
    for number, (start, end, epochs) in enumerate(copies, 1):
        manager.store.apply(segment(number, start, end, epochs))
        manager.store.apply(update(number, FINISHED))
    return manager


async def highest(manager: MemoryRemoteLogMetadataManager, epochs: dict[int, int], end: int) -> RemoteOffset:
    return await find_highest_remote_offset(manager, PARTITION, epoch_entries(epochs), end)


async def start(manager: MemoryRemoteLogMetadataManager, epochs: dict[int, int], local_start: int) -> int:
    return await find_log_start_offset(manager, PARTITION, epoch_entries(epochs), local_start)


async def test_44_after_an_unclean_election_what_is_not_of_this_log_does_not_count() -> None:
    manager = manager_of((0, 100, {0: 0}), (101, 200, {0: 101}))
    assert await highest(manager, {0: 0, 1: 150, 2: 300}, 400) == (149, 0)
    assert manager.asked == 3


async def test_the_latest_epoch_that_was_copied_decides() -> None:
    manager = manager_of((0, 99, {0: 0, 1: 50}), (100, 149, {1: 100, 2: 120}))
    assert await highest(manager, {0: 0, 1: 50, 2: 120}, 400) == (149, 2)
    assert manager.asked == 1
    assert await highest(manager, {0: 0, 1: 50, 2: 120, 4: 300}, 400) == (149, 2)


@pytest.mark.parametrize(("end", "expected"), [(99, 98), (100, 99), (101, 99)])
async def test_it_is_never_at_the_log_end(end: int, expected: int) -> None:
    """The log was truncated, and remote storage was not."""
    assert await highest(manager_of((0, 99, {0: 0})), {0: 0}, end) == (expected, 0)


async def test_42_an_epoch_that_ended_where_the_copies_end() -> None:
    manager = manager_of((0, 49, {0: 0}))
    assert await highest(manager, {0: 0, 1: 50}, 80) == (49, 0)
    assert await highest(manager, {0: 0, 1: 49}, 80) == (48, 0)


async def test_nothing_was_copied() -> None:
    assert await highest(manager_of(), {0: 0, 1: 50}, 80) == NOTHING_COPIED == (-1, -1)
    assert await highest(manager_of((0, 99, {7: 0})), {0: 0, 1: 50}, 80) == NOTHING_COPIED
    assert await highest(manager_of((0, 99, {0: 0})), {}, 0) == NOTHING_COPIED


async def test_the_log_starts_with_the_first_segment_of_the_earliest_epoch() -> None:
    manager = manager_of((40, 59, {1: 40}), (20, 39, {0: 20, 1: 30}), (60, 79, {1: 60, 2: 70}))
    assert await start(manager, {0: 0, 1: 30, 2: 70}, 60) == 20
    assert await start(manager, {1: 30, 2: 70}, 60) == 20
    assert await start(manager, {2: 70}, 75) == 60


async def test_without_remote_segments_the_log_starts_where_it_does_locally() -> None:
    assert await start(manager_of(), {0: 0, 1: 30}, 60) == 60
    assert await start(manager_of((0, 9, {9: 0})), {0: 0}, 5) == 5
    assert await start(manager_of((0, 9, {0: 0})), {}, 5) == 5


async def test_segments_that_are_gone_do_not_count() -> None:
    manager = manager_of((0, 9, {0: 0}), (10, 19, {0: 10}))
    for state in (DELETING, DELETED):
        manager.store.apply(update(1, state))
        assert await start(manager, {0: 0}, 15) == 10
    assert await highest(manager, {0: 0}, 30) == (19, 0)


async def test_what_is_on_the_disk_is_part_of_the_log() -> None:
    assert await start(manager_of((10, 19, {0: 10})), {0: 0}, 5) == 5


async def copied(
    manager: MemoryRemoteLogMetadataManager, epochs: dict[int, int], end: int, *, known: int = NO_OFFSET
) -> int:
    return await find_copied_offset(manager, PARTITION, epoch_entries(epochs), end, known)


async def test_what_was_copied_is_what_can_be_read_without_a_hole() -> None:
    manager = manager_of((0, 9, {0: 0}), (10, 19, {0: 10, 1: 15}), (20, 29, {1: 20}), (30, 39, {1: 30}))
    epochs = {0: 0, 1: 15}
    assert await copied(manager, epochs, 60) == 39
    assert await copied(manager, epochs, 36) == 35
    manager.store.apply(update(3, DELETING))
    assert await copied(manager, epochs, 60) == 19
    assert await copied(manager, epochs, 60, known=29) == 39
    manager.store.apply(update(1, DELETING))
    assert await copied(manager, epochs, 60) == -1
    assert await copied(manager, epochs, 60, known=9) == 19


async def test_copies_that_were_all_deleted_are_none() -> None:
    """The topic was tiered no more, and now it is again."""
    manager = manager_of((0, 9, {0: 0}))
    for state in (DELETING, DELETED):
        manager.store.apply(update(1, state))
        assert await highest(manager, {0: 0}, 30) == (9, 0)
        assert await copied(manager, {0: 0}, 30) == -1


async def test_what_is_known_to_be_copied_is_not_looked_at_again() -> None:
    manager = manager_of(*((start, start + 9, {0: start}) for start in range(0, 500, 10)))
    assert await copied(manager, {0: 0}, 1000, known=479) == 499
    assert manager.asked == 1 + 2
    assert await copied(manager, {0: 0}, 1000, known=499) == 499
    assert await copied(manager, {0: 0}, 2000, known=1499) == 499  # a hole, which is not on this disk either


async def test_only_what_is_of_this_log_was_copied() -> None:
    manager = manager_of((0, 100, {0: 0}), (101, 200, {0: 101}))
    assert await copied(manager, {0: 0, 1: 150, 2: 300}, 400) == 149
    manager.store.apply(segment(3, 170, 199, {1: 170}))
    manager.store.apply(update(3, FINISHED))
    assert await copied(manager, {0: 0, 1: 150, 2: 300}, 400) == 149  # what is above that is of the other log
    assert await copied(manager, {3: 0}, 400) == -1
    assert await copied(manager, {}, 0) == -1


async def test_9_nothing_is_taken_for_granted_before_everything_is_known() -> None:
    manager = MemoryRemoteLogMetadataManager()
    with pytest.raises(ReplicaNotAvailableError):
        await highest(manager, {0: 0}, 10)
    with pytest.raises(ReplicaNotAvailableError):
        await start(manager, {0: 0}, 10)
