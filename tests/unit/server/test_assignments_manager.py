import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.response_schema import ResponseSchema
from broker.schemas import cluster_metadata as records
from broker.server.assignments_manager import AssignmentsManager
from broker.server.node_to_controller_channel import NodeToControllerChannel
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.link_support import (
    DIRECTORIES,
    IDENTITY,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    FakeController,
    finder_with_leader,
    partition_record,
    response_of,
)

ELSEWHERE = UUID(int=4711)
Play = Callable[[SimLoop], Coroutine[Any, Any, None]]


def placed(index: int, directory: UUID = ELSEWHERE, topic_id: UUID = TOPIC_ID, **fields: Any) -> Any:
    """A replica here, in `directory`, and one on broker 2."""
    return partition_record(topic_id, index, (1, 2), directories=(directory, DIRECTORIES[2]), **fields)


class Setup:
    """Broker 1 of the cluster, whose controller takes note of everything but what it is told to refuse."""

    def __init__(self, level: int = 17, **keywords: Any) -> None:
        self.top_level_errors: list[ErrorCode] = []
        self.partition_errors: dict[int, list[ErrorCode]] = {}
        self.controller = FakeController()
        self.controller.answers[ApiKey.ASSIGN_REPLICAS_TO_DIRS] = self._assign
        self.cache = MetadataCache()
        self.channel = NodeToControllerChannel(
            "assignments", finder_with_leader(), self.controller.connect, request_timeout_ms=60_000
        )
        self.manager = AssignmentsManager(self.channel, IDENTITY, lambda: 42, self.cache, **keywords)
        self.replay(
            records.FeatureLevelRecord(name="metadata.version", feature_level=level),
            records.TopicRecord(name="t", topic_id=TOPIC_ID),
            records.TopicRecord(name="u", topic_id=OTHER_TOPIC_ID),
        )

    def replay(self, *given: Any) -> None:
        delta = MetadataDelta(self.cache.image)
        for record in given:
            delta.replay(record)
        image = delta.apply(self.cache.image.offset + 1, 1)
        self.cache.set_image(image)
        self.manager.on_metadata(delta, image)

    def _assign(self, request: Any) -> Any:
        error = self.top_level_errors.pop(0) if self.top_level_errors else ErrorCode.none
        schema = ResponseSchema.of(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0)

        def answer(index: int) -> Any:
            errors = self.partition_errors.get(index)
            return schema.PartitionData(partition_index=index, error_code=errors.pop(0) if errors else ErrorCode.none)

        return response_of(
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            0,
            throttle_time=NO_THROTTLE,
            error_code=error,
            directories=tuple(
                schema.DirectoryData(
                    id_=directory.id_,
                    topics=tuple(
                        schema.TopicData(
                            topic_id=topic.topic_id,
                            partitions=tuple(answer(each.partition_index) for each in topic.partitions),
                        )
                        for topic in directory.topics
                    ),
                )
                for directory in request.directories
            )
            if error is ErrorCode.none
            else (),
        )

    @property
    def told(self) -> list[list[tuple[UUID, int]]]:
        """The replicas of each request."""
        return [
            [(topic.topic_id, each.partition_index) for topic in directory.topics for each in topic.partitions]
            for request in self.controller.requests(ApiKey.ASSIGN_REPLICAS_TO_DIRS)
            for directory in request.directories
        ]

    def run(self, play: Play) -> None:
        async def story(loop: SimLoop) -> None:
            async with self.channel.running(), self.manager.running():
                await play(loop)

        simulate(story)


def test_replicas_in_another_directory_are_told_with_ours() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        setup.replay(
            placed(0),
            placed(1, DIRECTORIES[1]),  # right
            placed(2, leader=2),
            partition_record(TOPIC_ID, 3, (2, 3)),  # not here
            placed(0, UUID(int=1), OTHER_TOPIC_ID),  # UNASSIGNED
        )
        assert len(setup.manager) == 3
        await asyncio.sleep(1)
        (request,) = setup.controller.requests(ApiKey.ASSIGN_REPLICAS_TO_DIRS)
        (directory,) = request.directories
        assert (request.broker_id, request.broker_epoch, directory.id_) == (1, 42, DIRECTORIES[1])
        assert setup.told == [[(TOPIC_ID, 0), (TOPIC_ID, 2), (OTHER_TOPIC_ID, 0)]]
        assert len(setup.manager) == 0

    setup.run(play)


def test_requests_are_bounded() -> None:
    setup = Setup(assignments_per_request=2)

    async def play(loop: SimLoop) -> None:
        setup.replay(*(placed(index) for index in range(5)))
        await asyncio.sleep(1)
        assert [len(replicas) for replicas in setup.told] == [2, 2, 1]
        assert loop.time() == 1

    setup.run(play)


@pytest.mark.parametrize("error", [ErrorCode.stale_broker_epoch, ErrorCode.cluster_authorization_failed])
def test_a_refused_request_is_sent_again_less_and_less_often(error: ErrorCode) -> None:
    setup = Setup()
    setup.top_level_errors = [error] * 9

    async def play(loop: SimLoop) -> None:
        setup.replay(placed(0))
        await asyncio.sleep(0.65)
        assert len(setup.controller.requests(ApiKey.ASSIGN_REPLICAS_TO_DIRS)) == 3  # after 100 and 200 ms
        await asyncio.sleep(60)
        assert len(setup.controller.requests(ApiKey.ASSIGN_REPLICAS_TO_DIRS)) == 10
        assert len(setup.manager) == 0

    setup.run(play)


def test_what_one_replica_is_refused_does_not_hold_the_others() -> None:
    setup = Setup()
    setup.partition_errors = {0: [ErrorCode.unknown_server_error]}

    async def play(loop: SimLoop) -> None:
        setup.replay(placed(0), placed(1))
        await asyncio.sleep(0.05)
        assert len(setup.manager) == 1
        await asyncio.sleep(1)
        assert setup.told == [[(TOPIC_ID, 0), (TOPIC_ID, 1)], [(TOPIC_ID, 0)]]

    setup.run(play)


def test_a_replica_that_has_left_or_is_right_by_now_is_not_told() -> None:
    setup = Setup()
    setup.top_level_errors = [ErrorCode.stale_broker_epoch]

    async def play(loop: SimLoop) -> None:
        setup.replay(placed(0), placed(0, topic_id=OTHER_TOPIC_ID), placed(1))
        await asyncio.sleep(0.05)
        setup.replay(
            records.RemoveTopicRecord(topic_id=OTHER_TOPIC_ID),
            placed(1, DIRECTORIES[1], partition_epoch=6),
        )
        await asyncio.sleep(1)
        assert setup.told[-1] == [(TOPIC_ID, 0)]

    setup.run(play)


def test_a_cluster_that_does_not_know_directories_is_told_once_it_does() -> None:
    setup = Setup(level=16)

    async def play(loop: SimLoop) -> None:
        setup.replay(placed(0, UUID(int=0)), placed(1, UUID(int=0)))
        await asyncio.sleep(1)
        assert setup.told == []
        setup.replay(records.FeatureLevelRecord(name="metadata.version", feature_level=17))
        await asyncio.sleep(1)
        assert setup.told == [[(TOPIC_ID, 0), (TOPIC_ID, 1)]]

    setup.run(play)


def test_a_start_waits_until_the_controller_has_noted_every_replica() -> None:
    setup = Setup(assignments_per_request=1)
    setup.top_level_errors = [ErrorCode.stale_broker_epoch]

    async def play(loop: SimLoop) -> None:
        await setup.manager.wait_until_told(1_000)
        assert loop.time() == 0
        setup.replay(placed(0), placed(1))
        await setup.manager.wait_until_told(1_000)
        assert loop.time() == 0.1
        assert len(setup.manager) == 0
        setup.top_level_errors = [ErrorCode.stale_broker_epoch] * 100
        setup.replay(placed(2))
        await setup.manager.wait_until_told(1_000)
        assert loop.time() == 1.1
        assert len(setup.manager) == 1

    setup.run(play)
