"""Ids of log directories with a meaning of their own (KIP-858, Kafka's DirectoryId)."""

from collections.abc import Collection
from typing import Final
from uuid import UUID

from broker.common.identifiers import RESERVED_UUID_COUNT, ZERO_UUID

MIGRATING: Final = ZERO_UUID  # the cluster did not know directories when the replica was placed
UNASSIGNED: Final = UUID(int=1)  # the broker has several and will say which
LOST: Final = UUID(int=2)  # on a directory that failed


def is_reserved(directory: UUID) -> bool:
    return directory.int < RESERVED_UUID_COUNT


def is_online(directory: UUID, registered: Collection[UUID]) -> bool:
    """Whether a replica in `directory` can lead, given the directories its broker registered."""
    if directory in (UNASSIGNED, MIGRATING):
        return True
    if directory == LOST:
        return False
    return not registered or directory in registered
