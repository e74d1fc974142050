from pathlib import Path

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.describe_producers import describe_producers
from tests.support.builders import NOW_MS, batch
from tests.support.replica_requests import RequestWorld, schema
from tests.support.sim_loop import SimLoop, simulate


def test_producers_of_a_partition(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = RequestWorld(tmp_path)
        world.create_topic("t")
        world.append(
            batch("a", "b", producer_id=7, producer_epoch=1, base_sequence=3),
            batch("c", producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True),
        )
        classes = schema(ApiKey.DESCRIBE_PRODUCERS, 0)
        entity = classes.DescribeProducersRequest(
            topics=(
                classes.TopicRequest(name="t", partition_indexes=(0, 4)),
                classes.TopicRequest(name="no/topic", partition_indexes=(0,)),
            )
        )
        response = await world.call(describe_producers, ApiKey.DESCRIBE_PRODUCERS, 0, entity)
        known, bad = response.topics
        first, missing = known.partitions
        assert [
            (
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp,
                each.current_txn_start_offset,
            )
            for each in first.active_producers
        ] == [(7, 1, 4, NOW_MS, -1), (8, 0, 0, NOW_MS, 2)]
        assert (missing.error_code, missing.active_producers) == (ErrorCode.unknown_topic_or_partition, ())
        assert bad.partitions[0].error_code is ErrorCode.invalid_topic_exception

    simulate(story)
