import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicIdPartition
from broker.metadata.partition_registration import LeaderRecoveryState
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.response_schema import ResponseSchema
from broker.replication.alter_partition_manager import AlterPartitionAnswer, IsrMember, LeaderAndIsr, ProposedIsr
from broker.server.alter_partition_manager import ControllerAlterPartitionManager
from broker.server.node_to_controller_channel import NodeToControllerChannel
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.server.link_support import (
    CONTROLLER,
    OTHER_TOPIC_ID,
    TOPIC_ID,
    FakeController,
    finder_with_leader,
    response_of,
)

T0 = TopicIdPartition(TOPIC_ID, "t", 0)
T1 = TopicIdPartition(TOPIC_ID, "t", 1)
U0 = TopicIdPartition(OTHER_TOPIC_ID, "u", 0)
PROPOSAL = ProposedIsr(4, 7, (IsrMember(1, 42), IsrMember(2, 52)), LeaderRecoveryState.RECOVERED)
AGREED = LeaderAndIsr(1, 4, (1, 2), LeaderRecoveryState.RECOVERED, 8)

Play = Callable[[SimLoop], Coroutine[Any, Any, None]]


class Setup:
    """A controller that agrees to everything after `delay` seconds, but for the errors it is given."""

    def __init__(self, **keywords: Any) -> None:
        self.epoch = 42
        self.delay = 0.0
        self.version = 3
        self.top_level_errors: list[ErrorCode] = []
        self.partition_errors: list[ErrorCode] = []
        self.left_out: list[int] = []  # partitions that the next answer does not mention
        self.answers: list[tuple[TopicIdPartition, AlterPartitionAnswer]] = []
        self.controller = FakeController()
        self.controller.answers[ApiKey.ALTER_PARTITION] = self._alter
        channel = NodeToControllerChannel(
            "alter-partition", finder_with_leader(), self.controller.connect, request_timeout_ms=60_000
        )
        self.channel = channel
        self.manager = ControllerAlterPartitionManager(
            channel,
            1,
            lambda: self.epoch,
            controller_versions=lambda: {int(ApiKey.ALTER_PARTITION): (2, self.version)},
            **keywords,
        )

    async def _alter(self, request: Any) -> Any:
        await asyncio.sleep(self.delay)
        if self.top_level_errors:
            error = self.top_level_errors.pop(0)
            return response_of(
                ApiKey.ALTER_PARTITION, self.version, throttle_time=NO_THROTTLE, error_code=error, topics=()
            )
        left_out, self.left_out = self.left_out, []
        schema = ResponseSchema.of(ApiKey.ALTER_PARTITION, self.version)
        return response_of(
            ApiKey.ALTER_PARTITION,
            self.version,
            throttle_time=NO_THROTTLE,
            topics=tuple(
                schema.TopicData(
                    topic_id=topic.topic_id,
                    partitions=tuple(
                        self._decide(schema, each) for each in topic.partitions if each.partition_index not in left_out
                    ),
                )
                for topic in request.topics
            ),
        )

    def _decide(self, schema: Any, asked: Any) -> Any:
        error = self.partition_errors.pop(0) if self.partition_errors else ErrorCode.none
        members = asked.new_isr_with_epochs if self.version >= 3 else asked.new_isr
        isr = tuple(member.broker_id for member in members) if self.version >= 3 else tuple(members)
        return schema.PartitionData(
            partition_index=asked.partition_index,
            error_code=error,
            leader_id=1,
            leader_epoch=asked.leader_epoch,
            isr=isr,
            leader_recovery_state=asked.leader_recovery_state,
            partition_epoch=asked.partition_epoch + 1,
        )

    def submit(self, partition: TopicIdPartition, proposal: ProposedIsr = PROPOSAL) -> None:
        self.manager.submit(partition, proposal, lambda answer: self.answers.append((partition, answer)))

    @property
    def requests(self) -> list[Any]:
        return self.controller.requests(ApiKey.ALTER_PARTITION)

    def run(self, play: Play) -> None:
        async def story(loop: SimLoop) -> None:
            async with self.channel.running(), self.manager.running():
                await play(loop)

        simulate(story)


def partitions_of(request: Any) -> list[tuple[Any, int]]:
    return [(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions]


def test_a_request_carries_the_proposal_and_the_answer_comes_back() -> None:
    setup = Setup()

    async def play(loop: SimLoop) -> None:
        setup.submit(T1, ProposedIsr(4, 7, (IsrMember(1, 42), IsrMember(2, -1)), LeaderRecoveryState.RECOVERING))
        await asyncio.sleep(1)
        (request,) = setup.requests
        assert (request.__version__, request.broker_id, request.broker_epoch) == (3, 1, 42)
        (topic,) = request.topics
        (partition,) = topic.partitions
        assert (topic.topic_id, partition.partition_index) == (TOPIC_ID, 1)
        assert (partition.leader_epoch, partition.partition_epoch, partition.leader_recovery_state) == (4, 7, 1)
        assert [(each.broker_id, each.broker_epoch) for each in partition.new_isr_with_epochs] == [(1, 42), (2, -1)]
        assert setup.answers == [(T1, LeaderAndIsr(1, 4, (1, 2), LeaderRecoveryState.RECOVERING, 8))]
        assert len(setup.manager) == 0

    setup.run(play)


def test_what_arrives_while_a_request_is_in_flight_goes_together_in_the_next_at_once() -> None:
    setup = Setup()
    setup.delay = 2

    async def play(loop: SimLoop) -> None:
        setup.submit(T0)
        await asyncio.sleep(1)
        setup.submit(T1)
        setup.submit(U0)
        await asyncio.sleep(3.5)  # 2 seconds each, nothing between them
        assert [partitions_of(request) for request in setup.requests] == [
            [(TOPIC_ID, 0)],
            [(TOPIC_ID, 1), (OTHER_TOPIC_ID, 0)],
        ]
        assert setup.answers == [(T0, AGREED), (T1, AGREED), (U0, AGREED)]

    setup.run(play)


def test_a_second_proposal_for_a_partition_is_not_attempted() -> None:
    setup = Setup()
    setup.delay = 1

    async def play(loop: SimLoop) -> None:
        setup.submit(T0)
        setup.submit(T0)
        assert setup.answers == [(T0, ErrorCode.operation_not_attempted)]
        await asyncio.sleep(0.5)
        setup.submit(T0)  # in flight now
        assert setup.answers == [(T0, ErrorCode.operation_not_attempted)] * 2
        await asyncio.sleep(1)
        assert setup.answers[2:] == [(T0, AGREED)]
        setup.submit(T0)
        await asyncio.sleep(2)
        assert setup.answers[3:] == [(T0, AGREED)]

    setup.run(play)


def test_a_request_is_bounded() -> None:
    setup = Setup(proposals_per_request=2)

    async def play(loop: SimLoop) -> None:
        for partition in (T0, T1, U0):
            setup.submit(partition)
        await asyncio.sleep(1)
        assert [len(partitions_of(request)) for request in setup.requests] == [2, 1]

    setup.run(play)


@pytest.mark.parametrize("error", [ErrorCode.stale_broker_epoch, ErrorCode.cluster_authorization_failed])
def test_a_refused_request_is_sent_again_after_a_pause_with_the_epoch_of_then(error: ErrorCode) -> None:
    setup = Setup()
    setup.top_level_errors = [error]

    async def play(loop: SimLoop) -> None:
        setup.submit(T0)
        await asyncio.sleep(0.049)
        assert (len(setup.requests), setup.answers, len(setup.manager)) == (1, [], 1)
        setup.epoch = 43
        setup.submit(U0)
        await asyncio.sleep(0.002)
        assert [request.broker_epoch for request in setup.requests] == [42, 43]
        assert setup.answers == [(T0, AGREED), (U0, AGREED)]

    setup.run(play)


def test_a_controller_that_lost_its_office_is_left_for_the_next() -> None:
    setup = Setup()
    setup.top_level_errors = [ErrorCode.not_controller]

    async def play(loop: SimLoop) -> None:
        setup.submit(T0)
        await asyncio.sleep(1)
        assert setup.controller.connections == 2
        assert setup.answers == [(T0, AGREED)]

    setup.run(play)


def test_an_unreachable_controller_is_waited_for_without_end() -> None:
    setup = Setup()
    setup.controller.unreachable.add(CONTROLLER)

    async def play(loop: SimLoop) -> None:
        setup.submit(T0)
        await asyncio.sleep(3_600)
        assert setup.answers == []
        setup.controller.unreachable.clear()
        await asyncio.sleep(1)
        assert setup.answers == [(T0, AGREED)]

    setup.run(play)


def test_a_lost_answer_is_asked_for_again() -> None:
    """The controller has agreed, and nobody heard: it says of the repetition what it says of any older epoch."""
    setup = Setup()
    asked = 0

    async def loses_the_first(request: Any) -> Any:
        nonlocal asked
        asked += 1
        answer = await setup._alter(request)
        return ConnectionResetError("lost") if asked == 1 else answer

    setup.controller.answers[ApiKey.ALTER_PARTITION] = loses_the_first
    setup.partition_errors = [ErrorCode.none, ErrorCode.invalid_update_version]

    async def play(loop: SimLoop) -> None:
        setup.submit(T0)
        await asyncio.sleep(1)
        first, second = setup.requests
        assert first == second
        assert setup.answers == [(T0, ErrorCode.invalid_update_version)]
        assert len(setup.manager) == 0

    setup.run(play)


def test_errors_of_partitions_are_theirs_alone() -> None:
    setup = Setup()
    setup.partition_errors = [ErrorCode.ineligible_replica]

    async def play(loop: SimLoop) -> None:
        setup.submit(T0)
        setup.submit(T1)
        await asyncio.sleep(1)
        assert setup.answers == [(T0, ErrorCode.ineligible_replica), (T1, AGREED)]
        assert len(setup.requests) == 1

    setup.run(play)


def test_a_proposal_made_again_by_its_answer_does_not_spin() -> None:
    setup = Setup()
    setup.partition_errors = [ErrorCode.not_controller] * 20

    def again(answer: AlterPartitionAnswer) -> None:
        setup.answers.append((T0, answer))
        if isinstance(answer, ErrorCode):
            setup.manager.submit(T0, PROPOSAL, again)

    async def play(loop: SimLoop) -> None:
        setup.manager.submit(T0, PROPOSAL, again)
        await asyncio.sleep(0.12)
        assert len(setup.requests) == 3
        await asyncio.sleep(2)
        assert len(setup.requests) == 21
        assert setup.answers[-1] == (T0, AGREED)

    setup.run(play)


def test_a_partition_that_is_left_out_of_the_answer_is_asked_for_again() -> None:
    setup = Setup()
    setup.left_out = [1]

    async def play(loop: SimLoop) -> None:
        setup.submit(T0)
        setup.submit(T1)
        await asyncio.sleep(1)
        assert [partitions_of(request) for request in setup.requests] == [
            [(TOPIC_ID, 0), (TOPIC_ID, 1)],
            [(TOPIC_ID, 1)],
        ]
        assert setup.answers == [(T0, AGREED), (T1, AGREED)]

    setup.run(play)


def test_an_older_controller_is_asked_in_its_version() -> None:
    setup = Setup()
    setup.version = 2

    async def play(loop: SimLoop) -> None:
        setup.submit(T0)
        await asyncio.sleep(1)
        (request,) = setup.requests
        assert request.__version__ == 2
        assert request.topics[0].partitions[0].new_isr == (1, 2)
        assert setup.answers == [(T0, AGREED)]

    setup.run(play)
