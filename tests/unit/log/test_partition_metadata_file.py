"""PartitionMetadataFile: Kafka's two lines."""

from pathlib import Path
from uuid import UUID

import pytest

from broker.log.partition_metadata_file import PartitionMetadataFile, PartitionMetadataFormatError
from tests.support.sim_disk import SimFileSystem

DIRECTORY = Path("/data/t-0")


def make_file() -> tuple[SimFileSystem, PartitionMetadataFile]:
    disk = SimFileSystem()
    disk.make_directories(DIRECTORY)
    return disk, PartitionMetadataFile(disk, DIRECTORY)


def test_bytes_and_back() -> None:
    disk, file = make_file()
    assert file.read() is None
    topic_id = UUID(int=0x1234)
    file.write(topic_id)
    assert disk.read(file.path) == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAASNA"
    assert file.read() == topic_id


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version: 0\n",
        b"version: -1\ntopic_id: AAAAAAAAAAAAAAAAAAASNA",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"version: 0\ntopic_id: short",
        b"nonsense",
        b"\xff\xff",
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    disk, file = make_file()
    disk.open(file.path, create=True).write_at(0, [content])
    with pytest.raises(PartitionMetadataFormatError):
        file.read()


def test_kafkas_separator_may_have_no_blank() -> None:
    disk, file = make_file()
    disk.open(file.path, create=True).write_at(0, [b"version:1\ntopic_id:AAAAAAAAAAAAAAAAAAASNA\n"])
    assert file.read() == UUID(int=0x1234)
