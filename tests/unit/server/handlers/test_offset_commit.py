from datetime import timedelta
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.support.group_world import GROUP, TOPIC
from tests.unit.server.handlers.group_support import (
    TOPIC_ID,
    UNKNOWN_ID,
    GroupHandlers,
    answer_recorded,
    run_handlers,
)

NO_RETENTION = timedelta(milliseconds=-1)


async def commit(handlers: GroupHandlers, version: int, **fields: Any) -> Any:
    schema = RequestSchema.of(ApiKey.OFFSET_COMMIT, version)

    def topic(name: str, topic_id: object, *partitions: int) -> Any:
        return schema.OffsetCommitRequestTopic(
            name=name,
            **({"topic_id": topic_id} if version >= 10 else {}),
            partitions=tuple(
                schema.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=100 + partition,
                    committed_leader_epoch=4,
                    committed_metadata="m",
                )
                for partition in partitions
            ),
        )

    given = {
        "group_id": GROUP,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": NO_RETENTION,
        "topics": (topic("unknown", UNKNOWN_ID, 0), topic(TOPIC, TOPIC_ID, 1, 2, 0)),
    }
    return await handlers.ask(ApiKey.OFFSET_COMMIT, version, "OffsetCommitRequest", **{**given, **fields})


def codes(answer: Any) -> list[list[tuple[int, ErrorCode]]]:
    return [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in answer.topics]


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_commits_what_exists(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        answer = await commit(handlers, version)
        unknown = ErrorCode.unknown_topic_or_partition
        no_topic = ErrorCode.unknown_topic_id if version >= 10 else unknown
        assert codes(answer) == [[(0, no_topic)], [(1, ErrorCode.none), (2, unknown), (0, ErrorCode.none)]]
        if version >= 10:
            assert [each.topic_id for each in answer.topics] == [UNKNOWN_ID, TOPIC_ID]
        else:
            assert [each.name for each in answer.topics] == ["unknown", TOPIC]
        stored = (await handlers.world.fetch(None)).topics
        assert {topic: [tuple(each)[:4] for each in found] for topic, found in stored.items()} == {
            TOPIC: [(1, 101, 4 if version >= 6 else -1, "m"), (0, 100, 4 if version >= 6 else -1, "m")]
        }

    run_handlers(story)


@pytest.mark.parametrize("version", range(2, 11))
def test_35_an_unknown_group_with_a_generation(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        answer = await commit(handlers, version, generation_id_or_member_epoch=1, member_id="m")
        expected = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
        assert codes(answer)[1] == [(1, expected), (2, ErrorCode.unknown_topic_or_partition), (0, expected)]

    run_handlers(story)


@pytest.mark.parametrize("version", range(2, 5))
def test_40_a_retention_of_its_own(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        await commit(handlers, version, retention_time=timedelta(milliseconds=5000))
        offset = handlers.world.shard.offsets.store.latest((GROUP, TOPIC, 0))
        assert offset is not None
        assert offset.expire_timestamp_ms - offset.commit_timestamp_ms == 5000

    run_handlers(story)


def test_the_group_is_not_asked_when_nothing_is_left() -> None:
    async def story(handlers: GroupHandlers) -> None:
        await handlers.world.groups.shutdown()
        schema = RequestSchema.of(ApiKey.OFFSET_COMMIT, 8)
        partition = schema.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=None)
        topics = (schema.OffsetCommitRequestTopic(name="unknown", partitions=(partition,)),)
        assert codes(await commit(handlers, 8, topics=topics)) == [[(0, ErrorCode.unknown_topic_or_partition)]]
        assert codes(await commit(handlers, 8))[1][0] == (1, ErrorCode.coordinator_not_available)

    run_handlers(story)


def test_real_clients_are_answered() -> None:
    for version, answer in answer_recorded(ApiKey.OFFSET_COMMIT):
        expected = ErrorCode.unknown_topic_id if version >= 10 else ErrorCode.unknown_topic_or_partition
        assert {code for topic in codes(answer) for _, code in topic} == {expected}
