"""TrackedFile: a file whose buffers are counted for as long as anybody holds them."""

import weakref
from pathlib import Path

from broker.common.file_system import File


class _Piece(bytearray):
    """A buffer that can be watched."""


class TrackedFile:
    """Reads `file`; `live_bytes_max` is the most that were read and not let go at one time."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.live_bytes = 0
        self.live_bytes_max = 0
        self.read_sizes: list[int] = []

    @property
    def path(self) -> Path:
        return self._file.path

    def read_at(self, position: int, size: int) -> bytearray:
        piece = _Piece(self._file.read_at(position, size))
        self.read_sizes.append(len(piece))
        self.live_bytes += len(piece)
        self.live_bytes_max = max(self.live_bytes_max, self.live_bytes)
        weakref.finalize(piece, self._released, len(piece))
        return piece

    def _released(self, size: int) -> None:
        self.live_bytes -= size
