from pathlib import Path

from broker.controller.disk_reserve import RESERVE_BYTES, DiskReserve
from tests.support.sim_disk import SimFileSystem

DIRECTORY = Path("/data")
PATH = DIRECTORY / "reserve"


def empty_disk() -> SimFileSystem:
    disk = SimFileSystem()
    disk.make_directories(DIRECTORY)
    return disk


def test_room_is_taken_once_and_given_back_once() -> None:
    disk = empty_disk()
    reserve = DiskReserve(disk, PATH)
    assert reserve.ensure()
    writes = disk.operations["write"]
    assert reserve.ensure()
    assert (disk.size(PATH), disk.operations["write"]) == (RESERVE_BYTES, writes)
    assert reserve.release()
    assert not disk.exists(PATH)
    assert not reserve.release()


def test_a_disk_without_room_is_not_filled_up() -> None:
    disk = empty_disk()
    disk.budget_bytes = RESERVE_BYTES - 1
    assert not DiskReserve(disk, PATH).ensure()
    assert disk.used_bytes() == 0


def test_what_a_crash_left_half_is_completed() -> None:
    disk = empty_disk()
    disk.open(PATH, create=True).write_at(0, [bytes(100)])
    assert DiskReserve(disk, PATH).ensure()
    assert disk.size(PATH) == RESERVE_BYTES
