"""PartitionMetadataFile: the topic id of a partition directory (Kafka's `partition.metadata`, KIP-516)."""

import re
from pathlib import Path
from typing import Final
from uuid import UUID

from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem, read_file
from broker.common.identifiers import ZERO_UUID, uuid_from_text, uuid_to_text

PARTITION_METADATA: Final = "partition.metadata"


class PartitionMetadataFormatError(StorageFailure):
    """A partition.metadata file that does not say which topic it belongs to."""


class PartitionMetadataFile:
    """Version and topic id, two lines."""

    def __init__(self, file_system: FileSystem, directory: Path) -> None:
        self._file_system = file_system
        self.path = directory / PARTITION_METADATA

    def write(self, topic_id: UUID) -> None:
        """Replace the file, without waiting for the device: the first flush of the log flushes it too."""
        temporary = self.path.with_name(self.path.name + ".tmp")
        file = self._file_system.open(temporary, create=True)
        try:
            content = f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()
            file.write_at(0, [content])
            if file.size() > len(content):
                file.truncate(len(content))
        finally:
            file.close()
        self._file_system.rename(temporary, self.path)

    def read(self) -> UUID | None:
        """The topic id; None when there is no file.  PartitionMetadataFormatError."""
        try:
            content = read_file(self._file_system, self.path)
        except FileNotFoundError:
            return None
        try:
            fields = dict(re.split(r":\s*", line, maxsplit=1) for line in content.decode().splitlines())
            version, topic_id = int(fields["version"]), uuid_from_text(fields["topic_id"].strip())
        except (UnicodeDecodeError, ValueError, KeyError) as error:
            raise PartitionMetadataFormatError(f"{self.path}: {error}") from error
        if version < 0 or topic_id == ZERO_UUID:
            raise PartitionMetadataFormatError(f"{self.path}: version {version}, topic id {uuid_to_text(topic_id)}")
        return topic_id
