"""PartitionReassignment: the way from one set of replicas to another (Kafka's PartitionReassignmentReplicas)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class CompletedReassignment(NamedTuple):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """While it goes on, `replicas` are the target's and then those that will leave."""

    replicas: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]

    def replaced_by(self, target: Sequence[int], isr: Sequence[int]) -> "PartitionReassignment":
        """The way to a target, from where the partition stands, which may be on the way to an older one (KIP-455).

        What the older one was adding leaves again: at once where it has not caught up, else like any other, when the
        new replicas are in sync.  So a new target never takes the ISR below what it is.
        """
        original = self.original_replicas
        leaving = set(self.replicas) - set(target)
        removing = tuple(sorted(replica for replica in leaving if replica in original or replica in isr))
        adding = tuple(sorted(set(target) - set(original)))
        return PartitionReassignment((*target, *removing), removing, adding)

    @property
    def is_in_progress(self) -> bool:
        return bool(self.removing or self.adding)

    @property
    def original_replicas(self) -> tuple[int, ...]:
        """What cancelling goes back to."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    def maybe_complete(self, target_isr: Sequence[int]) -> CompletedReassignment | None:
        """The final replicas and ISR once the new replicas are in sync, else None.

        A replica that stays and is out of sync holds nothing up; but where more leave than come, all that stay have
        to be in sync, for the move itself must not take the ISR below the new size (maybeCompleteReassignment).
        """
        if not self.is_in_progress:
            return None
        isr = tuple(replica for replica in target_isr if replica not in self.removing)
        replicas = tuple(replica for replica in self.replicas if replica not in self.removing)
        if not isr or not replicas or not set(self.adding) <= set(isr):
            return None
        if len(self.adding) < len(self.removing) and not set(replicas) <= set(isr):
            return None
        return CompletedReassignment(replicas, isr)
