from datetime import timedelta
from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC
from broker.protocol.api_keys import ApiKey
from broker.server.handlers.delete_records import delete_records
from tests.support.builders import batch
from tests.support.replica_requests import RequestWorld, schema
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_partition import TieredWorld, tier


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_below_an_offset_are_dropped(tmp_path: Path, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        world = RequestWorld(tmp_path)
        world.create_topic("t")
        world.create_topic(CONSUMER_OFFSETS_TOPIC)
        world.create_topic("compacted", configs={"cleanup.policy": "compact"})
        world.append(batch("a", "b", "c"))
        classes = schema(ApiKey.DELETE_RECORDS, version)
        asked = (("t", 0, 2), ("t", 3, 1), (CONSUMER_OFFSETS_TOPIC, 0, 0), ("compacted", 0, 0))
        entity = classes.DeleteRecordsRequest(
            timeout=timedelta(seconds=1),
            topics=tuple(
                classes.DeleteRecordsTopic(
                    name=topic,
                    partitions=(classes.DeleteRecordsPartition(partition_index=partition, offset=offset),),
                )
                for topic, partition, offset in asked
            ),
        )
        response = await world.call(delete_records, ApiKey.DELETE_RECORDS, version, entity)
        answers = {
            (topic.name, each.partition_index): (each.error_code, each.low_watermark)
            for topic in response.topics
            for each in topic.partitions
        }
        assert answers == {
            ("t", 0): (ErrorCode.none, 2),
            ("t", 3): (ErrorCode.unknown_topic_or_partition, -1),
            (CONSUMER_OFFSETS_TOPIC, 0): (ErrorCode.invalid_topic_exception, -1),
            ("compacted", 0): (ErrorCode.policy_violation, -1),
        }
        assert world.partition().log.log_start_offset == 2

    simulate(story)


def test_records_in_remote_storage_are_dropped(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = TieredWorld(tmp_path, *range(6))
        log = world.partition().log
        tier(log, 4)
        classes = schema(ApiKey.DELETE_RECORDS, 2)
        told = []
        for offset in (3, 1, 5, 7, -1):
            asked = classes.DeleteRecordsPartition(partition_index=0, offset=offset)
            topic = classes.DeleteRecordsTopic(name="t", partitions=(asked,))
            entity = classes.DeleteRecordsRequest(timeout=timedelta(seconds=1), topics=(topic,))
            response = await world.call(delete_records, ApiKey.DELETE_RECORDS, 2, entity)
            (answer,) = response.topics[0].partitions
            starts = (log.log_start_offset, log.local_log_start_offset)
            told.append((answer.error_code, answer.low_watermark, starts))
        assert told == [
            (ErrorCode.none, 3, (3, 4)),
            (ErrorCode.none, 3, (3, 4)),
            (ErrorCode.none, 5, (5, 5)),
            (ErrorCode.offset_out_of_range, -1, (5, 5)),
            (ErrorCode.none, 6, (6, 6)),
        ]

    simulate(story)
