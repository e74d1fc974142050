"""ProducerIdControlManager: blocks of producer ids, no id ever twice (KIP-730)."""

from typing import Final, NamedTuple

from broker.controller.controller_result import ControllerResult
from broker.controller.controller_state import ControllerState
from broker.schemas.cluster_metadata import ProducerIdsRecord

PRODUCER_ID_BLOCK_SIZE: Final = 1_000


class ProducerIdsBlock(NamedTuple):
    first_id: int
    size: int = PRODUCER_ID_BLOCK_SIZE


class ProducerIdControlManager:
    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def allocate_block(self, broker_id: int, broker_epoch: int) -> ControllerResult[ProducerIdsBlock]:
        """The next thousand ids, for a broker whose epoch has been checked."""
        first = max(self._state.image.producer_ids.next_producer_id, 0)
        record = ProducerIdsRecord(
            broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK_SIZE
        )
        return ControllerResult([record], ProducerIdsBlock(first))
