"""Checkpoint files: small text files of numbers, replaced atomically (Kafka: CheckpointFile, OffsetCheckpointFile)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem, read_file, write_file_atomically
from broker.common.identifiers import TopicPartition

VERSION: Final = 0

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"


class CheckpointFormatError(StorageFailure):
    """A checkpoint file that is no checkpoint file."""


def encode_checkpoint(lines: list[str]) -> bytes:
    """Version, number of entries, one entry a line."""
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


def decode_checkpoint(path: Path, content: bytes, fields: int) -> list[list[str]]:
    """The entries, split at blanks, each of `fields` fields.  An empty file has none.  CheckpointFormatError."""
    if not content:
        return []
    try:
        lines = content.decode().splitlines()
        version, count = int(lines[0]), int(lines[1])
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise CheckpointFormatError(f"{path}: not a checkpoint file: {error}") from error
    if version != VERSION:
        raise CheckpointFormatError(f"{path}: version {version} is unknown, {VERSION} is known")
    entries = [line.split() for line in lines[2:] if line]
    if len(entries) != count:
        raise CheckpointFormatError(f"{path}: {count} entries are announced, {len(entries)} are there")
    for entry in entries:
        if len(entry) != fields:
            raise CheckpointFormatError(f"{path}: malformed line {' '.join(entry)!r}")
    return entries


class OffsetCheckpointFile:
    """An offset per partition, such as every recovery point of a log directory."""

    def __init__(self, file_system: FileSystem, path: Path) -> None:
        self._file_system = file_system
        self.path = path

    def encode(self, offsets: Mapping[TopicPartition, int]) -> bytes:
        return encode_checkpoint([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file durably.  Waits for the device."""
        self.write_content(self.encode(offsets))

    def write_content(self, content: bytes) -> None:
        """`write` in two steps: encode in the loop, wait in a thread."""
        write_file_atomically(self._file_system, self.path, content)

    def read(self) -> dict[TopicPartition, int]:
        """CheckpointFormatError when the file is damaged; a missing file is empty."""
        try:
            content = read_file(self._file_system, self.path)
        except FileNotFoundError:
            return {}
        offsets: dict[TopicPartition, int] = {}
        for topic, partition, offset in decode_checkpoint(self.path, content, 3):
            try:
                offsets[TopicPartition(topic, int(partition))] = int(offset)
            except ValueError as error:
                raise CheckpointFormatError(f"{self.path}: {error}") from error
        return offsets
