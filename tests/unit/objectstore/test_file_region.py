"""FileRegion: exact pieces, or StorageFailure."""

from pathlib import Path

import pytest

from broker.common.disk import InlineDiskExecutor
from broker.common.errors import StorageFailure
from broker.common.file_system import OsFileSystem
from broker.objectstore.file_region import FileRegion


async def test_pieces_are_counted_from_the_beginning_of_the_region(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    region = FileRegion(OsFileSystem().open(tmp_path / "f"), 3, 7, InlineDiskExecutor())
    assert region.size_bytes == 7
    assert await region.read(0, 2) == b"34"
    assert await region.read(5, 2) == b"89"
    with pytest.raises(StorageFailure, match="1 bytes at 9 where 2 were expected"):
        await region.read(6, 2)
