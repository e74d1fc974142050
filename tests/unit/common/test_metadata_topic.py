"""The port, by its implementation in memory: whoever relies on one relies on this."""

from collections.abc import Sequence

import pytest

from broker.common.metadata_topic import MetadataRecord, MetadataTopic, MetadataTopicError
from tests.support.memory_metadata_topic import MemoryMetadataTopic


async def test_what_is_appended_is_read_in_order_from_where_one_was() -> None:
    told: list[tuple[int, Sequence[MetadataRecord]]] = []
    memory = MemoryMetadataTopic(on_metadata=lambda partition, records: told.append((partition, records)))
    topic: MetadataTopic = memory
    assert await topic.append(2, [b"a", b"b"]) == 1
    topic.assign([2, 3])
    memory.deliver()
    await topic.append(2, [b"c"])
    await topic.append(1, [b"of nobody's interest"])
    assert topic.lag == 1
    memory.deliver()

    assert told == [
        (2, [MetadataRecord(0, 1_000, b"a"), MetadataRecord(1, 1_000, b"b")]),
        (2, [MetadataRecord(2, 1_000, b"c")]),
    ]
    assert (topic.position(2), topic.position(3), topic.position(1)) == (3, 0, None)
    assert (await topic.end_offset(2), topic.lag) == (3, 0)


async def test_a_lost_answer_is_an_append_all_the_same() -> None:
    topic = MemoryMetadataTopic()
    topic.fail_appends = 1
    with pytest.raises(MetadataTopicError):
        await topic.append(0, [b"refused"])
    topic.lose_answers = 1
    with pytest.raises(MetadataTopicError):
        await topic.append(0, [b"there"])

    assert [record.value for record in topic.logs[0]] == [b"there"]


async def test_a_topic_that_is_not_known_takes_nothing() -> None:
    with pytest.raises(MetadataTopicError):
        await MemoryMetadataTopic(partition_count=None).append(0, [b"a"])
