"""TopicPositions: how far a metadata topic had been read, kept for the next start in a small file.

What was read shortly before the end may not have been acted on: so the
file says how far one was a while ago, and what came since is read again.
"""

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from broker.common.disk import DiskExecutor
from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem, read_file, write_file_atomically
from broker.common.identifiers import uuid_from_text, uuid_to_text

log = structlog.get_logger(__name__)

VERSION: Final = 1
READ_AGAIN_SECONDS: Final = 10.0  # a follower that is further behind than this learns of it and reads from the past


class MetadataPosition(NamedTuple):
    """The next offset to read, and the leader epoch of what is before it (-1: not known)."""

    offset: int
    epoch: int


class TopicPositions:
    """The file holds the topic's id, for another topic of the name has other offsets; a damaged file, or one of
    another version, is as good as none."""

    def __init__(
        self,
        file_system: FileSystem,
        disk: DiskExecutor,
        path: Path,
        *,
        read_again_seconds: float = READ_AGAIN_SECONDS,
    ) -> None:
        self._file_system = file_system
        self._disk = disk
        self._path = path
        self._read_again_seconds = read_again_seconds
        self._remembered: dict[int, MetadataPosition] = {}
        self._topic_id: UUID | None = None
        self._history: deque[tuple[float, dict[int, MetadataPosition]]] = deque()

    async def load(self) -> None:
        """What an earlier run has left."""
        try:
            content = await self._disk.run(read_file, self._file_system, self._path)
            self._topic_id, self._remembered = _decode(content)
        except FileNotFoundError:
            return
        except (StorageFailure, ValueError, IndexError) as error:
            log.warning("metadata_topic_positions_unreadable", path=str(self._path), error=str(error))

    def take(self, topic_id: UUID, partition: int) -> MetadataPosition | None:
        """Where to begin a partition; only once, for whoever begins it again has a reason to."""
        return self._remembered.pop(partition, None) if topic_id == self._topic_id else None

    def forget(self, partition: int) -> None:
        self._remembered.pop(partition, None)

    async def save(self, topic_id: UUID, current: Mapping[int, MetadataPosition], now: float) -> None:
        """Note where reading is now, and write down where it was a while ago, by loop time; seldom, and at the end."""
        history = self._history
        history.append((now, dict(current)))
        while len(history) > 1 and history[1][0] <= now - self._read_again_seconds:
            history.popleft()
        then, old = history[0]
        if then > now - self._read_again_seconds:
            return  # the file of an earlier run is still the better one
        positions = {
            partition: min(old[partition], position) for partition, position in current.items() if partition in old
        }
        try:
            await self._disk.run(write_file_atomically, self._file_system, self._path, _encode(topic_id, positions))
        except (StorageFailure, FileNotFoundError) as error:
            log.warning("metadata_topic_positions_not_written", path=str(self._path), error=str(error))


def _encode(topic_id: UUID, positions: Mapping[int, MetadataPosition]) -> bytes:
    lines = [f"{partition} {offset} {epoch}" for partition, (offset, epoch) in sorted(positions.items())]
    return "\n".join([str(VERSION), uuid_to_text(topic_id), str(len(lines)), *lines, ""]).encode()


def _decode(content: bytes) -> tuple[UUID, dict[int, MetadataPosition]]:
    version, topic_id, count, *lines = content.decode().splitlines()
    if int(version) != VERSION:
        raise ValueError(f"version {version} instead of {VERSION}")
    positions = {}
    for line in lines:
        partition, offset, epoch = map(int, line.split())
        positions[partition] = MetadataPosition(offset, epoch)
    if len(lines) != int(count):
        raise ValueError(f"{count} positions are announced, {len(lines)} are there")
    return uuid_from_text(topic_id), positions
