"""LogEnvironment: what every log of a broker is given of the outside world."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.file_system import FileSystem
from broker.log.segment_cache import SegmentCache
from broker.metrics.log_metrics import LogMetrics

if TYPE_CHECKING:
    from broker.log.unified_log import UnifiedLog


class LogHousekeeping(Protocol):
    """What a log asks of its owner: work that waits for the disk and so cannot be done in the loop."""

    def flush_later(self, log: "UnifiedLog") -> None:
        """A segment was rolled: flush what is before the active segment soon."""

    def delete_later(self, paths: Sequence[Path], delay_ms: int) -> None:
        """Remove files that no longer belong to a log, once readers had time to finish with them."""

    def checkpoint_later(self) -> None:
        """A recovery point went back: the checkpoint on disk must not stay ahead of it."""


class NoHousekeeping:
    """For tools that read a directory: what would be done later is left undone."""

    def flush_later(self, log: "UnifiedLog") -> None: ...
    def delete_later(self, paths: Sequence[Path], delay_ms: int) -> None: ...
    def checkpoint_later(self) -> None: ...


@dataclass(slots=True)
class LogEnvironment:
    """Shared by all logs of one broker."""

    file_system: FileSystem
    clock: Clock
    chance: Chance
    metrics: LogMetrics
    housekeeping: LogHousekeeping = field(default_factory=NoHousekeeping)
    segment_cache: SegmentCache = field(default_factory=SegmentCache)
    producer_id_expiration_ms: int = 86_400_000
    is_remote_storage_enabled: bool = False  # remote.log.storage.system.enable
