from uuid import UUID

from broker.common.chance import Chance
from broker.common.errors import ErrorCode
from broker.common.identifiers import ZERO_UUID
from broker.replication.fetch_manager import FetchContext, FetchManager
from broker.replication.fetch_params import FetchPartition, FetchPartitionResult
from broker.replication.fetch_session_cache import FetchSessionCache

TOPIC_ID = UUID(int=900)


class Manager:
    """A fetch manager, its clock and the names it knows."""

    def __init__(self, slots: int = 1000) -> None:
        self.names: dict[UUID, str] = {}
        self.now_ms = 0
        self.cache = FetchSessionCache(slots, Chance(1))
        self.manager = FetchManager(
            self.cache, monotonic_ms=lambda: self.now_ms, topic_name=lambda topic_id: self.names.get(topic_id)
        )

    def context(
        self,
        session_id: int,
        epoch: int,
        *partitions: FetchPartition,
        forgotten: tuple[tuple[str, int], ...] = (),
        uses_topic_ids: bool = False,
    ) -> FetchContext:
        return self.manager.new_context(
            session_id=session_id,
            session_epoch=epoch,
            replica_id=-1,
            uses_topic_ids=uses_topic_ids,
            partitions=partitions,
            forgotten=forgotten,
        )

    def open(self, *partitions: FetchPartition, uses_topic_ids: bool = False) -> int:
        context = self.context(0, 0, *partitions, uses_topic_ids=uses_topic_ids)
        answer = context.answer(results_of(context))
        assert answer.error is ErrorCode.none
        return answer.session_id


def asked(partition: int = 0, topic_id: UUID = ZERO_UUID, topic: str | None = "t") -> FetchPartition:
    return FetchPartition(topic, partition, 0, 100, topic_id=topic_id)


def results_of(context: FetchContext, high_watermark: int = 5) -> list[FetchPartitionResult]:
    assert context.source is not None
    return [
        FetchPartitionResult(request, ErrorCode.none, high_watermark, high_watermark, 0)
        for request in context.source.partitions_to_read()
    ]


def test_epoch_minus_one_is_sessionless_and_closes_the_session() -> None:
    manager = Manager()
    session_id = manager.open(asked())
    context = manager.context(session_id, -1, asked(1))
    answer = context.answer(results_of(context))
    assert (answer.error, answer.session_id) == (ErrorCode.none, 0)
    assert [result.partition for result in answer.results] == [1]
    assert manager.cache.get(session_id) is None


def test_epoch_zero_opens_a_session_in_place_of_the_old_one() -> None:
    manager = Manager()
    first = manager.open(asked())
    context = manager.context(first, 0, asked(0), asked(1))
    assert manager.cache.get(first) is None
    answer = context.answer(results_of(context))
    assert answer.session_id not in (0, first)
    assert len(answer.results) == 2
    session = manager.cache.get(answer.session_id)
    assert session is not None
    assert (len(session), session.epoch) == (2, 1)


def test_a_full_cache_answers_session_id_zero() -> None:
    manager = Manager(slots=0)
    context = manager.context(0, 0, asked())
    answer = context.answer(results_of(context))
    assert (answer.error, answer.session_id, len(answer.results)) == (ErrorCode.none, 0, 1)


def test_epochs_must_follow_each_other() -> None:
    manager = Manager()
    session_id = manager.open(asked())
    wrong = manager.context(session_id, 2)
    assert wrong.source is None
    assert (wrong.answer([]).error, wrong.answer([]).session_id) == (ErrorCode.invalid_fetch_session_epoch, 0)
    right = manager.context(session_id, 1)
    assert right.answer(results_of(right)).session_id == session_id
    session = manager.cache.get(session_id)
    assert session is not None
    assert session.epoch == 2


def test_unknown_sessions_and_the_boundary_of_topic_ids() -> None:
    manager = Manager()
    assert manager.context(12345, 1).answer([]).error is ErrorCode.fetch_session_id_not_found
    session_id = manager.open(asked())
    crossed = manager.context(session_id, 1, uses_topic_ids=True)
    assert crossed.answer([]).error is ErrorCode.fetch_session_topic_id_error


def test_a_request_overtaken_by_another_is_told() -> None:
    manager = Manager()
    session_id = manager.open(asked())
    parked = manager.context(session_id, 1)
    second = manager.context(session_id, 2)
    answer = parked.answer(results_of(second))
    assert (answer.error, answer.session_id, list(answer.results)) == (
        ErrorCode.invalid_fetch_session_epoch,
        session_id,
        [],
    )


def test_forgetting_the_last_partition_closes_the_session() -> None:
    manager = Manager()
    session_id = manager.open(asked(0), asked(1))
    context = manager.context(session_id, 1, asked(2), forgotten=(("t", 0), ("t", 1)))
    assert context.answer(results_of(context)).session_id == session_id
    closing = manager.context(session_id, 2, forgotten=(("t", 2),))
    answer = closing.answer(results_of(closing))
    assert (answer.error, answer.session_id, list(answer.results)) == (ErrorCode.none, 0, [])
    assert manager.cache.get(session_id) is None


def test_only_news_is_told_in_an_incremental_answer() -> None:
    manager = Manager()
    session_id = manager.open(asked(0), asked(1))
    context = manager.context(session_id, 1)
    results = results_of(context)
    results[1].high_watermark = 6
    assert [result.partition for result in context.answer(results).results] == [1]


def test_names_of_unknown_ids_are_looked_up_again() -> None:
    manager = Manager()
    session_id = manager.open(asked(0, TOPIC_ID, None), uses_topic_ids=True)
    session = manager.cache.get(session_id)
    assert session is not None
    manager.context(session_id, 1, uses_topic_ids=True)
    assert [each.topic for each in session] == [None]
    manager.names[TOPIC_ID] = "late"
    manager.context(session_id, 2, uses_topic_ids=True)
    assert [each.topic for each in session] == ["late"]


def test_a_throttled_answer_tells_nothing_and_counts_as_nothing_told() -> None:
    world = Manager()
    session_id = world.open(asked())
    incremental = world.context(session_id, 1)
    (partition,) = world.cache.get(session_id) or ()
    told = FetchPartitionResult(partition, ErrorCode.none, 9, 9, 0)
    untold = FetchPartitionResult(partition, ErrorCode.none, 5, 5, 0)
    refused = FetchPartitionResult(partition, ErrorCode.offset_out_of_range, 5, 5, 0)
    assert list(incremental.told([told, untold, refused])) == [told, refused]
    throttled = incremental.throttled()
    assert (throttled.error, throttled.session_id, throttled.results) == (ErrorCode.none, session_id, ())
    assert partition.last_high_watermark == 5
    again = world.context(session_id, 2)
    assert list(again.answer([told]).results) == [told]
    assert list(world.context(session_id, 3).told([told])) == []
    assert incremental.throttled().error is ErrorCode.invalid_fetch_session_epoch


def test_throttled_answers_without_a_session() -> None:
    world = Manager()
    for epoch in (-1, 0):
        context = world.context(0, epoch, asked())
        results = results_of(context)
        assert context.told(results) == results
        throttled = context.throttled()
        assert (throttled.error, throttled.session_id, throttled.results) == (ErrorCode.none, 0, ())
    assert len(world.cache) == 0
    unknown = world.context(4711, 1)
    assert unknown.told(()) == ()
    assert (unknown.throttled().error, unknown.throttled().session_id) == (ErrorCode.fetch_session_id_not_found, 0)
