"""How large a world is, what may go wrong in it how often, and which rules it lacks."""

from dataclasses import dataclass
from typing import Final

BUDGETS: Final = (
    "appends",
    "elections",
    "crashes",
    "duplicates",
    "failed_puts",
    "timeouts",
    "isr_changes",
    "dead_zones",
    "deletions",
    "unclean",
    "backfills",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The first eleven numbers say how often at most a thing happens in one run."""

    appends: int = 14
    elections: int = 6
    crashes: int = 2
    duplicates: int = 2
    failed_puts: int = 2
    timeouts: int = 2
    isr_changes: int = 4
    dead_zones: int = 0
    deletions: int = 0
    unclean: int = 0
    backfills: int = 2
    replicas: int = 3
    widest_batch: int = 1
    """A batch covers 1 to this many offsets."""
    slices_in_flight: int = 3
    fallback: bool = True
    """The leader may answer a follower with records."""
    tail_loss: bool = False
    """A crashed broker outside of the in-sync replicas may come back without its last batches."""
    deep: bool = True
    """Log matching and epoch caches are compared at every step (I8, I9)."""
    without: frozenset[str] = frozenset()
    """Rules (of rules.py) this world does not keep."""

    def budget(self) -> list[int]:
        """What may still happen, in the order of `BUDGETS`."""
        return [getattr(self, name) for name in BUDGETS]


APPENDS: Final = 0
ELECTIONS: Final = 1
CRASHES: Final = 2
DUPLICATES: Final = 3
FAILED_PUTS: Final = 4
TIMEOUTS: Final = 5
ISR_CHANGES: Final = 6
DEAD_ZONES: Final = 7
DELETIONS: Final = 8
UNCLEAN: Final = 9
BACKFILLS: Final = 10
