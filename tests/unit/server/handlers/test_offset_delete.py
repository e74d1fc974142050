from typing import Any

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.support.group_world import GROUP, TOPIC
from tests.unit.server.handlers.group_support import GroupHandlers, answer_recorded, run_handlers


async def delete(handlers: GroupHandlers, topics: dict[str, tuple[int, ...]]) -> Any:
    schema = RequestSchema.of(ApiKey.OFFSET_DELETE, 0)
    return await handlers.ask(
        ApiKey.OFFSET_DELETE,
        0,
        "OffsetDeleteRequest",
        group_id=GROUP,
        topics=tuple(
            schema.OffsetDeleteRequestTopic(
                name=name,
                partitions=tuple(schema.OffsetDeleteRequestPartition(partition_index=each) for each in partitions),
            )
            for name, partitions in topics.items()
        ),
    )


def test_41_offsets_are_deleted_and_unknown_partitions_are_told() -> None:
    async def story(handlers: GroupHandlers) -> None:
        await handlers.world.commit(42)
        answer = await delete(handlers, {"unknown": (0,), TOPIC: (0, 9)})
        assert answer.error_code is ErrorCode.none
        assert [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in answer.topics] == [
            [(0, ErrorCode.unknown_topic_or_partition)],
            [(0, ErrorCode.none), (9, ErrorCode.unknown_topic_or_partition)],
        ]
        assert await handlers.world.fetch_offset() == -1

    run_handlers(story)


def test_41_the_group_is_asked_even_when_no_topic_exists() -> None:
    async def story(handlers: GroupHandlers) -> None:
        answer = await delete(handlers, {"unknown": (0,)})
        assert (answer.error_code, answer.topics) == (ErrorCode.group_id_not_found, ())
        await handlers.world.stable_group(1, protocol_type="connect")
        assert (await delete(handlers, {"unknown": (0,)})).error_code is ErrorCode.non_empty_group

    run_handlers(story)


def test_real_clients_are_answered() -> None:
    answers = answer_recorded(ApiKey.OFFSET_DELETE)
    assert {answer.error_code for _, answer in answers} <= {ErrorCode.group_id_not_found}
