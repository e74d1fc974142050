import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.common.errors import ErrorCode, ReplicaNotAvailableError
from broker.common.identifiers import TopicPartition
from broker.log.log_segment import TimestampAndOffset
from broker.replication.delayed_remote_list_offsets import DelayedRemoteListOffsets
from broker.replication.offset_lookup import NOT_FOUND, ListedOffset, OffsetQuery, RemoteOffsetLookup, list_offset
from tests.support.builders import NOW_MS, settle
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_partition import TieredWorld, tier

FIRST = TimestampAndOffset(NOW_MS, 0, 0)


class Request:
    """A request about some topics of the world, and what becomes of it."""

    def __init__(self, world: TieredWorld, *topics: str, timestamp: int = NOW_MS, replica_id: int = -1) -> None:
        query = OffsetQuery(timestamp, version=10, replica_id=replica_id)
        outcomes = [list_offset(world.partition(topic), query) for topic in topics]
        assert all(isinstance(outcome, RemoteOffsetLookup) for outcome in outcomes)
        self.listed: list[ListedOffset] | None = None
        self.settled = 0
        self.expired: list[str] = []
        self.operation = DelayedRemoteListOffsets(
            [ListedOffset(-1, 77, 7), *outcomes],
            world.remote,
            lookup_error=world.replicas.lookup_error,
            on_settled=lambda _: setattr(self, "settled", self.settled + 1),
            on_expired=lambda partition: self.expired.append(partition.topic_partition.topic),
            on_listed=lambda results: setattr(self, "listed", results),
        )

    @property
    def results(self) -> list[ListedOffset]:
        """Without the first, which was known before."""
        assert self.operation.results[0] == ListedOffset(-1, 77, 7)
        return self.operation.results[1:]


def tell(directory: Path, story: Callable[[TieredWorld], Awaitable[None]]) -> None:
    """In a world whose topics t and u have offset 0 in remote storage, 1 and 2 in both tiers, 3 here."""

    async def run(loop: SimLoop) -> None:
        world = TieredWorld(directory, *range(NOW_MS, NOW_MS + 40, 10))
        world.create_tiered_topic("u", *range(NOW_MS, NOW_MS + 40, 10))
        for topic in "tu":
            tier(world.partition(topic).log, 1)
            world.partition(topic).log.update_highest_remote_offset(2)
        await story(world)

    simulate(run)


def test_the_last_answer_settles_it(tmp_path: Path) -> None:
    async def story(world: TieredWorld) -> None:
        request = Request(world, "t", "u")
        assert world.remote.asked() == [("t", NOW_MS, 0), ("u", NOW_MS, 0)]
        world.answer(FIRST)
        await settle()
        assert not request.operation.try_complete() and request.settled == 0
        assert request.results == [NOT_FOUND, ListedOffset(NOW_MS, 0, 0)]
        world.answer(None, question=0)
        await settle()
        assert request.operation.try_complete() and request.settled == 1
        assert request.results == [ListedOffset(NOW_MS + 10, 1, 0), ListedOffset(NOW_MS, 0, 0)]
        request.operation.on_complete(expired=False)
        assert request.listed == request.operation.results and request.expired == []
        assert not world.partition("t")._listeners and not world.partition("u")._listeners

    tell(tmp_path, story)


def test_what_has_left_the_disk_while_it_was_asked_is_asked_about_again(tmp_path: Path) -> None:
    async def story(world: TieredWorld) -> None:
        request = Request(world, "t", timestamp=NOW_MS + 10)
        tier(world.partition("t").log, 3)  # offset 1, which the timestamp is about, is only there now
        world.answer(None)
        await settle()
        assert request.settled == 0 and world.remote.asked()[1:] == [("t", NOW_MS + 10, 1)]
        world.answer(TimestampAndOffset(NOW_MS + 10, 1, 0))
        await settle()
        assert request.settled == 1 and request.results == [ListedOffset(NOW_MS + 10, 1, 0)]

    tell(tmp_path, story)


def test_an_answer_of_remote_storage_holds_though_more_has_left_the_disk(tmp_path: Path) -> None:
    async def story(world: TieredWorld) -> None:
        request = Request(world, "t")
        tier(world.partition("t").log, 3)
        world.answer(FIRST)
        await settle()
        assert request.results == [ListedOffset(NOW_MS, 0, 0)] and len(world.remote.questions) == 1

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ReplicaNotAvailableError("not yet"), ErrorCode.replica_not_available),
        (ValueError("a defect"), ErrorCode.unknown_server_error),
    ],
)
def test_an_error_is_the_partitions_own(tmp_path: Path, error: Exception, code: ErrorCode) -> None:
    async def story(world: TieredWorld) -> None:
        request = Request(world, "t", "u")
        world.remote.questions[0].answer.set_exception(error)
        world.answer(FIRST)
        await settle()
        assert request.settled == 1 and request.results == [ListedOffset(error=code), ListedOffset(NOW_MS, 0, 0)]

    tell(tmp_path, story)


def test_who_is_refused_at_once_is_not_waited_for(tmp_path: Path) -> None:
    async def story(world: TieredWorld) -> None:
        world.remote.refusal = ReplicaNotAvailableError("not yet")
        request = Request(world, "t")
        assert request.operation.try_complete() and request.settled == 0
        assert request.results == [ListedOffset(error=ErrorCode.replica_not_available)]
        assert not world.partition("t")._listeners

    tell(tmp_path, story)


def test_a_question_that_remote_storage_drops(tmp_path: Path) -> None:
    async def story(world: TieredWorld) -> None:
        request = Request(world, "t")
        world.remote.questions[0].answer.cancel()
        await settle()
        assert request.settled == 1 and request.results == [ListedOffset(error=ErrorCode.unknown_server_error)]

    tell(tmp_path, story)


def test_what_is_not_answered_in_time(tmp_path: Path) -> None:
    async def story(world: TieredWorld) -> None:
        request = Request(world, "t", "u")
        world.answer(FIRST)
        await settle()
        request.operation.on_complete(expired=True)
        assert request.listed is not None
        assert request.listed[1:] == [ListedOffset(error=ErrorCode.request_timed_out), ListedOffset(NOW_MS, 0, 0)]
        assert request.expired == ["t"] and world.remote.questions[0].answer.cancelled()
        await settle()
        assert request.settled == 0 and not world.partition("t")._listeners

    tell(tmp_path, story)


def test_an_error_that_comes_with_the_deadline_is_nobodys(tmp_path: Path) -> None:
    async def story(world: TieredWorld) -> None:
        request = Request(world, "t")
        world.remote.questions[0].answer.set_exception(ReplicaNotAvailableError("not yet"))
        request.operation.on_complete(expired=True)
        await settle()
        assert request.settled == 0 and request.results == [ListedOffset(error=ErrorCode.request_timed_out)]

    tell(tmp_path, story)


def test_a_cancelled_request_takes_its_questions_back(tmp_path: Path) -> None:
    async def story(world: TieredWorld) -> None:
        request = Request(world, "t", "u")
        request.operation.cancel()
        await settle()
        assert all(question.answer.cancelled() for question in world.remote.questions)
        assert request.settled == 0 and request.listed is None
        assert not world.partition("t")._listeners and not world.partition("u")._listeners

    tell(tmp_path, story)


def lose_the_lead(world: TieredWorld) -> None:
    world.place("t", leader=2, leader_epoch=1, replicas=(1, 2), isr=(1, 2))


def fail_the_disk(world: TieredWorld) -> None:
    world.partition("t").stop(ErrorCode.kafka_storage_error, is_deleted=False)


def leave(world: TieredWorld) -> None:
    world.place("t", leader=2, leader_epoch=1, replicas=(2,), isr=(2,))


@pytest.mark.parametrize(
    ("lose", "code"),
    [
        (lose_the_lead, ErrorCode.not_leader_or_follower),
        (fail_the_disk, ErrorCode.kafka_storage_error),
        (leave, ErrorCode.not_leader_or_follower),
        (lambda world: world.delete_topic("t"), ErrorCode.unknown_topic_or_partition),
    ],
)
def test_a_partition_that_is_lost_is_not_waited_for(
    tmp_path: Path, lose: Callable[[TieredWorld], None], code: ErrorCode
) -> None:
    async def story(world: TieredWorld) -> None:
        request = Request(world, "t", "u")
        world.answer(FIRST)
        await settle()
        lose(world)
        assert request.settled == 1
        assert request.results == [ListedOffset(error=code), ListedOffset(NOW_MS, 0, 0)]
        assert world.remote.questions[0].answer.cancelled()

    tell(tmp_path, story)


def test_one_lost_partition_does_not_end_the_wait_for_the_others(tmp_path: Path) -> None:
    async def story(world: TieredWorld) -> None:
        request = Request(world, "t", "u")
        lose_the_lead(world)
        await settle()
        assert request.settled == 0 and not world.remote.questions[1].answer.cancelled()
        world.answer(FIRST)
        await settle()
        assert request.settled == 1
        assert request.results == [
            ListedOffset(error=ErrorCode.not_leader_or_follower),
            ListedOffset(NOW_MS, 0, 0),
        ]

    tell(tmp_path, story)


def test_who_may_ask_a_follower_waits_on(tmp_path: Path) -> None:
    async def story(world: TieredWorld) -> None:
        request = Request(world, "t", replica_id=-2)
        lose_the_lead(world)
        assert request.settled == 0
        world.answer(FIRST)
        await settle()
        assert request.settled == 1 and request.results == [ListedOffset(NOW_MS, 0, 0)]

    tell(tmp_path, story)


def test_more_committed_records_end_no_wait(tmp_path: Path) -> None:
    async def story(world: TieredWorld) -> None:
        request = Request(world, "t")
        request.operation.on_high_watermark_updated(TopicPartition("t", 0), 4)
        request.operation.on_becoming_follower(TopicPartition("x", 0))
        await asyncio.sleep(1)
        assert request.settled == 0 and not request.operation.try_complete()

    tell(tmp_path, story)
