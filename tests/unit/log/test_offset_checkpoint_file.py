"""OffsetCheckpointFile: Kafka's text, and refusal of anything else."""

from pathlib import Path

import pytest

from broker.common.identifiers import TopicPartition
from broker.log.offset_checkpoint_file import (
    CheckpointFormatError,
    OffsetCheckpointFile,
    decode_checkpoint,
    encode_checkpoint,
)
from tests.support.sim_disk import SimFileSystem

PATH = Path("/data/recovery-point-offset-checkpoint")


def test_bytes_and_back() -> None:
    disk = SimFileSystem()
    disk.make_directories(PATH.parent)
    file = OffsetCheckpointFile(disk, PATH)
    assert file.read() == {}
    offsets = {TopicPartition("a", 0): 10, TopicPartition("b.c-d", 12): 0}
    file.write(offsets)
    assert disk.read(PATH) == b"0\n2\na 0 10\nb.c-d 12 0\n"
    assert file.read() == offsets
    assert not disk.exists(PATH.with_name(PATH.name + ".tmp"))


def test_epoch_example_and_empty() -> None:
    assert encode_checkpoint(["0 0", "3 150"]) == b"0\n2\n0 0\n3 150\n"
    assert decode_checkpoint(PATH, b"0\n2\n0   0\n3\t150\n", 2) == [["0", "0"], ["3", "150"]]
    assert decode_checkpoint(PATH, b"", 2) == []
    assert decode_checkpoint(PATH, b"0\n0\n", 2) == []


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"x\n0\n", b"0\n", b"0\n2\na 0 1\n", b"0\n1\na 0 1\nb 0 1\n", b"0\n1\na 0\n", b"\xff\xfe"]
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(CheckpointFormatError):
        decode_checkpoint(PATH, content, 3)


def test_numbers_must_be_numbers() -> None:
    disk = SimFileSystem()
    disk.make_directories(PATH.parent)
    disk.open(PATH, create=True).write_at(0, [b"0\n1\na b 1\n"])
    with pytest.raises(CheckpointFormatError):
        OffsetCheckpointFile(disk, PATH).read()
