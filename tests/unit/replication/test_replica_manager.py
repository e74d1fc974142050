import asyncio
from pathlib import Path

import pytest

from broker.common.byte_budget import ByteBudget
from broker.common.errors import (
    ErrorCode,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    StorageFailure,
    UnknownTopicOrPartitionError,
)
from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC, TopicPartition
from broker.replication.fetch_params import FetchParams, FetchPartition
from broker.replication.replica_manager import monotonic_ms
from tests.support.builders import ReplicaWorld, ToldAppend, batch, settle, values_of
from tests.support.sim_loop import SimLoop, simulate

T = TopicPartition("t", 0)


@pytest.fixture
def world(tmp_path: Path) -> ReplicaWorld:
    world = ReplicaWorld(tmp_path)
    world.register_brokers(1, 2)
    return world


# Produce


def test_partitions_of_a_request_are_independent(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t")
        world.create_topic("elsewhere", replicas=(2,), leader=2)
        results = await world.produce(
            [
                (TopicPartition("missing", 0), batch("a")),
                (T, batch("b")),
                (TopicPartition("elsewhere", 0), batch("c")),
                (TopicPartition(CONSUMER_OFFSETS_TOPIC, 0), batch("d")),
            ],
            acks=-1,
        )
        assert [result.error for result in results] == [
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.none,
            ErrorCode.not_leader_or_follower,
            ErrorCode.invalid_topic_exception,
        ]
        assert [result.base_offset for result in results] == [-1, 0, -1, -1]
        assert world.replicas.topic_stats.unknown.total_produce_requests == 2

    simulate(story)


def test_a_fenced_broker_sends_clients_away_and_serves_followers(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t", replicas=(1, 2))
        await world.produce([(T, batch("a"))], acks=1)
        world.is_fenced = True
        results = await world.produce([(T, batch("b"))], acks=1)
        assert [result.error for result in results] == [ErrorCode.not_leader_or_follower]
        answers: list[list[ErrorCode]] = []
        for params in (
            FetchParams(version=12, max_wait_ms=500),
            FetchParams(version=12, replica_id=2, replica_epoch=12),
        ):
            world.replicas.fetch(
                params,
                [FetchPartition("t", 0, 0, 1000)],
                lambda results: answers.append([result.error for result in results]),
            )
        assert answers == [[ErrorCode.not_leader_or_follower], [ErrorCode.none]]
        world.is_fenced = False
        results = await world.produce([(T, batch("b"))], acks=1)
        assert [(result.error, result.base_offset) for result in results] == [(ErrorCode.none, 1)]

    simulate(story)


def test_a_partition_the_disk_refused_comes_back_when_there_is_space(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.logs.failure = StorageFailure("No space left on device")
        world.create_topic("t")
        async with world.replicas.running():
            await asyncio.sleep(2.5)
            assert world.partition("t").is_offline
            results = await world.produce([(T, batch("a"))], acks=1)
            assert [result.error for result in results] == [ErrorCode.kafka_storage_error]
            world.logs.failure = None
            await asyncio.sleep(1)
            results = await world.produce([(T, batch("a"))], acks=1)
            assert [(result.error, result.base_offset) for result in results] == [(ErrorCode.none, 0)]
            assert not world.partition("t").is_offline

    simulate(story)


def test_acks_that_do_not_exist_are_refused_for_all(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t")
        results = await world.produce([(T, batch("a")), (TopicPartition("missing", 0), batch("b"))], acks=2)
        assert [result.error for result in results] == [ErrorCode.invalid_required_acks] * 2
        assert world.partition().log.log_end_offset == 0
        assert await world.produce([], acks=-1) == []

    simulate(story)


def test_internal_topics_are_for_those_who_may(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        internal = world.create_topic(CONSUMER_OFFSETS_TOPIC)
        (refused,) = await world.produce([(internal, batch("a"))])
        (taken,) = await world.produce([(internal, batch("a"))], allows_internal_topics=True)
        assert (refused.error, taken.error) == (ErrorCode.invalid_topic_exception, ErrorCode.none)

    simulate(story)


def test_acks_all_waits_for_the_replicas_of_each_partition(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t", replicas=(1, 2))
        world.create_topic("alone")
        produced = loop.create_task(world.produce([(T, batch("a")), (TopicPartition("alone", 0), batch("b"))], acks=-1))
        await settle()
        assert not produced.done()
        assert len(world.replicas.produce_purgatory) == 1
        follower = FetchParams(version=17, replica_id=2, replica_epoch=12)
        await world.fetch(follower, FetchPartition("t", 0, 1, 1000, log_start_offset=0))
        results = await produced
        assert [(result.error, result.base_offset) for result in results] == [(ErrorCode.none, 0)] * 2
        assert len(world.replicas.produce_purgatory) == 0

    simulate(story)


def test_pipelined_requests_complete_in_the_order_of_their_offsets(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t", replicas=(1, 2))
        completed: list[int] = []
        for _ in range(5):
            request = ToldAppend(lambda results: completed.append(results[0].base_offset), -1)
            world.replicas.append_records(request, request.parsed([(T, batch("a"))]))
            await settle()
        follower = FetchParams(version=17, replica_id=2, replica_epoch=12)
        await world.fetch(follower, FetchPartition("t", 0, 3, 1000, log_start_offset=0))
        await settle()
        assert completed == [0, 1, 2]
        await asyncio.sleep(2)
        assert sorted(completed) == [0, 1, 2, 3, 4]
        assert world.replicas.produce_purgatory.expired_count == 2

    simulate(story)


def test_a_partition_lost_before_its_request_is_whole(world: ReplicaWorld) -> None:
    """The large batch is written at once, the small one at the end of the turn; in between the leadership goes."""

    async def story(loop: SimLoop) -> None:
        world.create_topic("t", replicas=(1, 2))
        world.create_topic("u")
        produced = loop.create_task(
            world.produce([(T, batch(b"x" * 100_000)), (TopicPartition("u", 0), batch("b"))], acks=-1)
        )
        loop.call_soon(lambda: world.place("t", leader=2, leader_epoch=1))
        results = await produced
        assert [result.error for result in results] == [ErrorCode.not_leader_or_follower, ErrorCode.none]
        assert results[0].base_offset == 0

    simulate(story)


def test_append_now_keeps_the_order_and_says_what_is_wrong(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t", replicas=(1, 2), configs={"min.insync.replicas": "2"})
        staged = loop.create_task(world.produce([(T, batch("first"))]))
        await asyncio.sleep(0)
        result = world.replicas.append_now(T, batch("second"))
        assert (result.error, result.base_offset) == (None, 1)
        assert (await staged)[0].base_offset == 0
        world.place(isr=(1,))
        with pytest.raises(NotEnoughReplicasError):
            world.replicas.append_now(T, batch("third"))
        assert world.replicas.append_now(T, batch("third"), required_acks=1).base_offset == 2
        world.place(leader=2, leader_epoch=1)
        with pytest.raises(NotLeaderOrFollowerError):
            world.replicas.append_now(T, batch("fourth"))
        with pytest.raises(UnknownTopicOrPartitionError):
            world.replicas.append_now(TopicPartition("missing", 0), batch("a"))

    simulate(story)


# Fetch


def test_a_parked_fetch_costs_nothing_once_cancelled(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t")
        told: list[object] = []
        params = FetchParams(version=12, max_wait_ms=500)
        operation = world.replicas.fetch(params, [FetchPartition("t", 0, 0, 100)], told.append)
        assert operation is not None
        world.replicas.cancel_fetch(operation)
        await world.produce([(T, batch("a"))])
        await asyncio.sleep(1)
        assert (len(world.replicas.fetch_purgatory), told) == (0, [])
        assert world.replicas.expired_fetches == {"consumer": 0, "follower": 0}

    simulate(story)


def test_an_expired_fetch_answers_with_what_is_there(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t")
        await world.produce([(T, batch("a"))])
        started = loop.time()
        (result,) = await world.fetch(
            FetchParams(version=12, max_wait_ms=500, min_bytes=1000), FetchPartition("t", 0, 0, 100)
        )
        assert values_of(result.records) == [b"a"]
        assert loop.time() - started == 0.5
        assert world.replicas.expired_fetches == {"consumer": 1, "follower": 0}

    simulate(story)


def test_a_fetch_that_may_not_have_min_bytes_does_not_wait_for_them(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t")
        params = FetchParams(version=12, max_wait_ms=500, min_bytes=1000)
        budget = world.replicas._reader.answer_budget = ByteBudget(1000)
        budget.acquire(1000)
        assert await world.fetch(params, FetchPartition("t", 0, 0, 100))
        assert loop.time() == 0.5, "nothing is there"
        await world.produce([(T, batch("a"))])
        (result,) = await world.fetch(params, FetchPartition("t", 0, 0, 100))
        assert values_of(result.records) == [b"a"]
        assert loop.time() == 0.5

    simulate(story)


@pytest.mark.parametrize("wait_ms", [0, 500])
def test_unknown_partitions_do_not_hasten_the_answer_of_others(world: ReplicaWorld, wait_ms: int) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t")
        params = FetchParams(version=12, max_wait_ms=wait_ms)
        only_unknown = await world.fetch(params, FetchPartition("x", 0, 0, 100))
        assert (only_unknown[0].error, loop.time()) == (ErrorCode.unknown_topic_or_partition, 0)
        mixed = await world.fetch(params, FetchPartition("x", 0, 0, 100), FetchPartition("t", 0, 0, 100))
        assert [result.error for result in mixed] == [ErrorCode.unknown_topic_or_partition, ErrorCode.none]
        assert loop.time() == wait_ms / 1000
        assert await world.fetch(params) == []

    simulate(story)


def test_bytes_out_are_counted_for_consumers_and_followers_apart(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t", replicas=(1, 2))
        await world.produce([(T, batch("a"))])
        size = len(batch("a"))
        follower = FetchParams(version=17, replica_id=2, replica_epoch=12)
        copied = await world.fetch(follower, FetchPartition("t", 0, 0, 1000, log_start_offset=0))
        world.replicas.count_bytes_out(copied, 2)
        await world.fetch(follower, FetchPartition("t", 0, 1, 1000, log_start_offset=0))
        read = await world.fetch(FetchParams(version=12), FetchPartition("t", 0, 0, 1000))
        world.replicas.count_bytes_out(read, -1)
        stats = world.partition().topic_stats
        assert (stats.replication_bytes_out, stats.bytes_out) == (size, size)

    simulate(story)


# The rest


def test_logs_are_described_with_size_and_lag(world: ReplicaWorld) -> None:
    world.create_topic("t", replicas=(1, 2))
    world.append(batch("a"), batch("b"))
    (described,) = world.replicas.describe_logs()
    assert described == (T, 2 * len(batch("a")), 2)


def test_active_producers_are_those_of_the_leader(world: ReplicaWorld) -> None:
    world.create_topic("t", replicas=(1, 2))
    world.append(batch("a", producer_id=7, producer_epoch=2, base_sequence=0))
    (producer,) = world.replicas.active_producers(T)
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 0)
    world.place(leader=2, leader_epoch=1)
    with pytest.raises(NotLeaderOrFollowerError):
        world.replicas.active_producers(T)


def test_the_volume_has_a_size(world: ReplicaWorld, tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        total, free = await world.replicas.volume_bytes()
        assert total > 0
        assert 0 <= free <= total
        assert world.replicas.log_directory == tmp_path

    simulate(story)


def test_isrs_are_looked_at_every_half_of_the_lag_time(world: ReplicaWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("t", replicas=(1, 2))
        world.append(batch("a"))
        async with world.replicas.running():
            world.now_ms += 29_000
            await asyncio.sleep(15.1)
            assert world.alter_partition.proposed_isr is None
            world.now_ms += 2_000
            await asyncio.sleep(15)
            assert world.alter_partition.proposed_isr == (1,)

    simulate(story)


def test_a_thousand_idle_partitions_cost_nothing_in_a_session(world: ReplicaWorld) -> None:
    """The work of an idle incremental fetch does not grow with the session: nothing is located at all."""

    async def story(loop: SimLoop) -> None:
        world.create_topic("t", partitions=300)
        sessions, params = world.sessions, FetchParams(version=12, max_wait_ms=100)

        async def fetch(session_id: int, epoch: int, partitions: list[FetchPartition]) -> tuple[int, list[int]]:
            context = sessions.new_context(
                session_id=session_id,
                session_epoch=epoch,
                replica_id=-1,
                uses_topic_ids=False,
                partitions=partitions,
                forgotten=[],
            )
            assert context.source is not None
            answer = context.answer(await world.start_fetch(params, context.source))
            return answer.session_id, [result.partition for result in answer.results]

        session_id, told = await fetch(0, 0, [FetchPartition("t", index, 0, 1000) for index in range(300)])
        assert told == list(range(300))
        assert (await fetch(session_id, 1, []))[1] == []
        counted = world.partition().topic_stats.total_fetch_requests
        waiting = loop.create_task(fetch(session_id, 2, []))
        await settle()
        assert world.partition().topic_stats.total_fetch_requests == counted
        await world.produce([(TopicPartition("t", 123), batch("a"))])
        assert (await waiting)[1] == [123]
        assert world.partition().topic_stats.total_fetch_requests == counted + 1

    simulate(story)


def test_the_lag_time_is_a_setting(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = ReplicaWorld(tmp_path, {"replica.lag.time.max.ms": "1000"})
        world.register_brokers(1, 2)
        world.create_topic("t", replicas=(1, 2))
        world.append(batch("a"))
        async with world.replicas.running():
            world.now_ms += 900
            await asyncio.sleep(0.6)
            assert world.alter_partition.proposed_isr is None
            world.now_ms += 200
            await asyncio.sleep(0.5)
            assert world.alter_partition.proposed_isr == (1,)

    simulate(story)


class _LoopTimeWorld(ReplicaWorld):
    """Replica lag in the loop's own time: timers, followers and requests share one clock."""

    @property
    def now_ms(self) -> int:
        return monotonic_ms()

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        """It moves by itself."""


def test_a_stopped_follower_delays_acks_all_once_and_for_one_and_a_half_lag_times_at_most(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = _LoopTimeWorld(tmp_path, {"replica.lag.time.max.ms": "6000"})
        world.register_brokers(1, 2, 3)
        world.create_topic(replicas=(1, 2, 3), configs={"min.insync.replicas": "2"})
        alive = {2, 3}
        latencies: list[float] = []

        async def follow(broker_id: int) -> None:
            while broker_id in alive:
                offset = world.partition().log.log_end_offset
                params = FetchParams(17, broker_id, 10 + broker_id, max_wait_ms=500)
                await world.fetch(params, FetchPartition("t", 0, offset, 1 << 20, log_start_offset=0))

        async def agree() -> None:
            while True:
                await asyncio.sleep(0.01)
                if world.alter_partition.proposals:
                    world.alter_partition.agree()

        async def produce_for(seconds: float) -> None:
            end = loop.time() + seconds
            while loop.time() < end:
                started = loop.time()
                (result,) = await world.produce([(T, batch("a"))], acks=-1, timeout_ms=60_000)
                assert result.error is ErrorCode.none
                latencies.append(loop.time() - started)
                await asyncio.sleep(0.1)

        async with world.replicas.running():
            tasks = [loop.create_task(follow(2)), loop.create_task(follow(3)), loop.create_task(agree())]
            await produce_for(10)
            assert max(latencies) < 0.01
            latencies.clear()
            alive.remove(3)
            await produce_for(30)
            for task in tasks:
                task.cancel()
        slow = [latency for latency in latencies if latency > 0.02]
        assert len(slow) == 1
        assert 5.5 < slow[0] <= 9.1
        assert world.partition().isr == (1, 2)

    simulate(story)
