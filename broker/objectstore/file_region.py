"""FileRegion: part of an open file, read piece by piece off the loop."""

from broker.common.buffers import Buffer
from broker.common.disk import DiskExecutor
from broker.common.errors import StorageFailure
from broker.common.file_system import File


class FileRegion:
    """`size_bytes` of `file` from `position` on.  Whoever made it keeps the file open until it is stored."""

    def __init__(self, file: File, position: int, size_bytes: int, disk: DiskExecutor) -> None:
        self._file = file
        self._position = position
        self._disk = disk
        self.size_bytes = size_bytes

    async def read(self, offset: int, size_bytes: int) -> Buffer:
        """Exactly these bytes of the region; `StorageFailure` when the file has become shorter."""
        data = await self._disk.run(self._file.read_at, self._position + offset, size_bytes)
        if len(data) != size_bytes:
            raise StorageFailure(
                f"{self._file.path}: {len(data)} bytes at {self._position + offset} where {size_bytes} were expected"
            )
        return data
