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

Rows = list[tuple[int, int, str | None, ErrorCode]]


async def fetch(
    handlers: GroupHandlers, version: int, *, everything: bool = False, groups: tuple[str, ...] = ()
) -> Any:
    schema = RequestSchema.of(ApiKey.OFFSET_FETCH, version)
    build = schema.OffsetFetchRequestTopics if version >= 8 else schema.OffsetFetchRequestTopic

    def topic(name: str, topic_id: object, *partitions: int) -> Any:
        return build(name=name, **({"topic_id": topic_id} if version >= 10 else {}), partition_indexes=partitions)

    topics = None if everything else (topic("unknown", UNKNOWN_ID, 0), topic(TOPIC, TOPIC_ID, 1, 0))
    if version < 8:
        (group_id,) = groups or (GROUP,)
        return await handlers.ask(
            ApiKey.OFFSET_FETCH, version, "OffsetFetchRequest", group_id=group_id, topics=topics, require_stable=False
        )
    asked = tuple(
        schema.OffsetFetchRequestGroup(group_id=each, member_id=None, member_epoch=-1, topics=topics)
        for each in groups or (GROUP,)
    )
    return await handlers.ask(
        ApiKey.OFFSET_FETCH, version, "OffsetFetchRequest", groups=asked, require_stable=version >= 9
    )


def rows(topics: Any) -> list[Rows]:
    return [
        [(each.partition_index, each.committed_offset, each.metadata, each.error_code) for each in topic.partitions]
        for topic in topics
    ]


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_fetches_what_it_names(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        await handlers.world.commit(42, leader_epoch=6, metadata="m")
        answer = await fetch(handlers, version)
        if version >= 8:
            (group,) = answer.groups
            assert (group.group_id, group.error_code) == (GROUP, ErrorCode.none)
            topics = group.topics
        else:
            topics = answer.topics
        no_topic = ErrorCode.unknown_topic_id if version >= 10 else ErrorCode.none
        assert rows(topics) == [
            [(0, -1, "", no_topic)],
            [(1, -1, "", ErrorCode.none), (0, 42, "m", ErrorCode.none)],
        ]
        if version >= 5:
            assert [each.committed_leader_epoch for each in topics[1].partitions] == [-1, 6]
        if version >= 10:
            assert [each.topic_id for each in topics] == [UNKNOWN_ID, TOPIC_ID]
        else:
            assert [each.name for each in topics] == ["unknown", TOPIC]
        if 2 <= version < 8:
            assert answer.error_code is ErrorCode.none

    run_handlers(story)


@pytest.mark.parametrize("version", range(2, 11))
def test_39_all_topics(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        await handlers.world.commit(42)
        await handlers.world.commit(7, topic="deleted")
        answer = await fetch(handlers, version, everything=True)
        topics = answer.groups[0].topics if version >= 8 else answer.topics
        expected = [[(0, 42, "", ErrorCode.none)], [(0, 7, "", ErrorCode.none)]]
        assert rows(topics) == (expected[:1] if version >= 10 else expected)

    run_handlers(story)


@pytest.mark.parametrize("version", range(8, 11))
def test_39_several_groups(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        await handlers.world.commit(42)
        answer = await fetch(handlers, version, everything=True, groups=(GROUP, "unknown"))
        assert [(each.group_id, each.error_code, len(each.topics)) for each in answer.groups] == [
            (GROUP, ErrorCode.none, 1),
            ("unknown", ErrorCode.none, 0),
        ]

    run_handlers(story)


@pytest.mark.parametrize("version", range(1, 11))
def test_an_error_of_the_group(version: int) -> None:
    async def story(handlers: GroupHandlers) -> None:
        await handlers.world.groups.shutdown()
        answer = await fetch(handlers, version)
        code = ErrorCode.coordinator_not_available
        if version >= 8:
            assert [(each.error_code, each.topics) for each in answer.groups] == [(code, ())]
        elif version >= 2:
            assert (answer.error_code, answer.topics) == (code, ())
        else:
            assert rows(answer.topics) == [[(0, -1, "", code)], [(1, -1, "", code), (0, -1, "", code)]]

    run_handlers(story)


def test_real_clients_are_answered() -> None:
    answers = answer_recorded(ApiKey.OFFSET_FETCH)
    assert answers
    for version, answer in answers:
        groups = answer.groups if version >= 8 else [answer]
        for group in groups:
            for topic in rows(group.topics):
                assert {offset for _, offset, _, _ in topic} == {-1}
