"""LocalDirectoryStore: failures of the disk, as errors of the port.  What it promises is in tests/contract."""

import errno
from pathlib import Path
from typing import Any

import pytest

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.objectstore.errors import AccessDenied, BucketNotFound, NotFound, Unavailable
from broker.objectstore.local_directory_store import LocalDirectoryStore


def make(directory: Path) -> LocalDirectoryStore:
    return LocalDirectoryStore(directory, InlineDiskExecutor(), Chance(1))


class Failing(InlineDiskExecutor):
    def __init__(self, error: OSError) -> None:
        self.error = error

    async def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), Unavailable),
        (OSError(errno.EIO, "Input/output error"), Unavailable),
        (PermissionError(errno.EACCES, "Permission denied"), AccessDenied),
    ],
)
async def test_a_failing_disk(tmp_path: Path, error: OSError, expected: type[Exception]) -> None:
    store = LocalDirectoryStore(tmp_path, Failing(error), Chance(1))
    with pytest.raises(expected, match=error.strerror) as caught:
        await store.put("a", b"x")
    assert type(caught.value) is expected


async def test_its_name_is_its_url(tmp_path: Path) -> None:
    assert make(tmp_path).name == f"file://{tmp_path}"


async def test_a_directory_that_is_missing_is_not_made(tmp_path: Path) -> None:
    """An unmounted bucket must not become an empty one on the root disk."""
    with pytest.raises(BucketNotFound):
        await make(tmp_path / "missing").put("a", b"x")
    assert list(tmp_path.iterdir()) == []


async def test_links_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "a").symlink_to(tmp_path / "secret")
    with pytest.raises((NotFound, Unavailable)):
        await make(tmp_path / "bucket").get_range("a", 0, 1)
