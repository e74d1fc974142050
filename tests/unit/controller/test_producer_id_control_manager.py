from broker.controller.producer_id_control_manager import PRODUCER_ID_BLOCK_SIZE, ProducerIdsBlock
from broker.schemas.cluster_metadata import ProducerIdsRecord
from tests.unit.controller.controller_support import ControlWorld


def test_40_blocks_never_overlap() -> None:
    world = ControlWorld()
    blocks = [world.apply(world.producer_ids.allocate_block(broker_id, 5)) for broker_id in (1, 2, 1)]
    assert blocks == [ProducerIdsBlock(0), ProducerIdsBlock(1000), ProducerIdsBlock(2000)]
    assert PRODUCER_ID_BLOCK_SIZE == 1000
    assert world.records == [ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=3000)]
