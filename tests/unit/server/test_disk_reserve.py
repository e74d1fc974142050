from collections.abc import Sequence
from pathlib import Path

import structlog

from broker.common.buffers import Buffer
from broker.common.errors import StorageFailure
from broker.common.file_system import OsFile, OsFileSystem
from broker.server.disk_reserve import RESERVE_BYTES, RESERVE_FILE, DiskReserve


def test_it_is_given_up_and_taken_back_in_full(tmp_path: Path) -> None:
    reserve = DiskReserve(OsFileSystem(), tmp_path)
    reserve.release()  # nothing there yet
    reserve.restore()
    assert (tmp_path / RESERVE_FILE).stat().st_size == RESERVE_BYTES
    reserve.release()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_what_there_is(tmp_path: Path) -> None:
    class FullFile(OsFile):
        def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
            if position:
                raise StorageFailure("No space left on device")
            return super().write_at(position, buffers)

    class FullDisk(OsFileSystem):
        def open(self, path: Path, *, create: bool = False) -> OsFile:
            file = super().open(path, create=create)
            return FullFile(path, file._descriptor, file._read_buffers)

    with structlog.testing.capture_logs() as logged:
        DiskReserve(FullDisk(), tmp_path).restore()
    assert [event["event"] for event in logged] == ["disk_reserve_incomplete"]
    assert 0 < (tmp_path / RESERVE_FILE).stat().st_size < RESERVE_BYTES
