"""ControllerResult: what a command does to the log, and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker.schemas.cluster_metadata import MetadataRecord

Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[Response]):
    """The records of one command and its answer.

    Atomic records stand in one batch, so all of them happen or none.  Others may be split over several batches.
    """

    records: Sequence[MetadataRecord]
    response: Response
    is_atomic: bool = True
