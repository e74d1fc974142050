"""Which broker of which cluster this process is: fixed from start to stop."""

from dataclasses import dataclass
from uuid import UUID

from broker.common.identifiers import BrokerId


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What `meta.properties` and the start of the process settle.

    `incarnation_id` is new in every process; `directory_id` belongs to the log directory and moves with it.
    """

    cluster_id: str
    node_id: BrokerId
    incarnation_id: UUID
    directory_id: UUID
    rack: str | None = None
