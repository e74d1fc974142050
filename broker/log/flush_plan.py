"""FlushPlan: what must reach the device before a recovery point may move; decided in the loop, done in a thread."""

from collections.abc import Sequence
from pathlib import Path

from broker.common.errors import StorageFailure
from broker.common.file_system import FileSystem
from broker.log.file_records import OpenFile
from broker.log.leader_epoch_file_cache import LeaderEpochFileCache
from broker.log.log_segment import LogSegment


class FlushPlan:
    """Made by `UnifiedLog.plan_flush`, run anywhere, then handed to `UnifiedLog.complete_flush`.

    It holds open files and paths, never state that the loop changes.
    """

    __slots__ = (
        "_epoch_cache",
        "_file_system",
        "base_offset",
        "directories",
        "epoch_write",
        "files",
        "offset",
        "paths",
        "sealed",
        "snapshots",
        "truncation_count",
    )

    def __init__(
        self, file_system: FileSystem, epoch_cache: LeaderEpochFileCache, offset: int, truncation_count: int
    ) -> None:
        self._file_system = file_system
        self._epoch_cache = epoch_cache
        self.base_offset = offset  # of the first segment to be flushed
        self.offset = offset  # the recovery point when it is done
        self.truncation_count = truncation_count
        self.files: list[OpenFile] = []
        self.paths: list[Path] = []
        self.sealed: list[LogSegment] = []  # for complete_flush only
        self.snapshots: list[int] = []
        self.directories: list[Path] = []
        self.epoch_write: tuple[int, bytes] | None = None

    def run(self) -> None:
        """Flush everything, records first.  Waits for the device.  StorageFailure: the plan is void, plan again."""
        run_together((self,))

    def sync_files(self) -> None:
        for file in self.files:
            file.sync()
        for path in self.paths:
            self._sync_path(path)
        if self.epoch_write is not None:
            self._epoch_cache.write_content(*self.epoch_write)

    def sync_directory(self, directory: Path) -> None:
        self._file_system.sync_directory(directory)

    def _sync_path(self, path: Path) -> None:
        try:
            file = self._file_system.open(path)
        except FileNotFoundError:
            return  # its segment was deleted meanwhile, or it never got an entry
        try:
            file.sync()
        finally:
            file.close()


def run_together(plans: Sequence[FlushPlan]) -> None:
    """`run` of several logs; the directory they have in common is flushed once.  StorageFailure: all are void."""
    try:
        for plan in plans:
            plan.sync_files()
        directories = {directory: plan for plan in plans for directory in plan.directories}
        for directory, plan in directories.items():
            plan.sync_directory(directory)
    except FileNotFoundError as error:
        raise StorageFailure(f"the log was deleted while it was flushed: {error}") from error
