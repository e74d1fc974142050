from pathlib import Path
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.write_txn_markers import write_txn_markers
from tests.support.builders import batch
from tests.support.replica_requests import RequestWorld, schema
from tests.support.sim_loop import SimLoop, simulate


async def end(
    world: RequestWorld, version: int, *markers: tuple[int, int, bool, int]
) -> dict[int, dict[Any, ErrorCode]]:
    """(producer id, producer epoch, committed, coordinator epoch) each, in t-0 and x-0; errors by producer."""
    classes = schema(ApiKey.WRITE_TXN_MARKERS, version)
    entity = classes.WriteTxnMarkersRequest(
        markers=tuple(
            classes.WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=committed,
                coordinator_epoch=coordinator_epoch,
                topics=(
                    classes.WritableTxnMarkerTopic(name="t", partition_indexes=(0,)),
                    classes.WritableTxnMarkerTopic(name="x", partition_indexes=(0,)),
                ),
            )
            for producer_id, producer_epoch, committed, coordinator_epoch in markers
        )
    )
    response = await world.call(write_txn_markers, ApiKey.WRITE_TXN_MARKERS, version, entity)
    return {
        marker.producer_id: {
            (topic.name, each.partition_index): each.error_code for topic in marker.topics for each in topic.partitions
        }
        for marker in response.markers
    }


@pytest.mark.parametrize("version", [1, 2])
def test_transactions_end(tmp_path: Path, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        world = RequestWorld(tmp_path)
        world.create_topic("t")
        for producer_id in (7, 8):
            world.append(batch("a", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True))
        log = world.partition().log
        assert (log.last_stable_offset, log.high_watermark) == (0, 2)
        unknown = {("x", 0): ErrorCode.unknown_topic_or_partition}
        assert await end(world, version, (7, 0, False, 3), (8, 0, True, 3)) == {
            7: {("t", 0): ErrorCode.none, **unknown},
            8: {("t", 0): ErrorCode.none, **unknown},
        }
        assert (log.last_stable_offset, log.high_watermark) == (4, 4)
        assert await end(world, version, (7, 0, True, 2)) == {
            7: {("t", 0): ErrorCode.transaction_coordinator_fenced, **unknown}
        }

    simulate(story)
