import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.protocol.api_keys import ApiKey
from broker.records.append_origin import AppendOrigin
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.server.handlers.fetch import fetch
from tests.support.builders import batch, parsed, settle, topic_uuid, values_of
from tests.support.recording_leader_wal import RecordingLeaderWal
from tests.support.replica_requests import RequestWorld, schema
from tests.support.sim_loop import SimLoop, simulate

VERSIONS = range(4, 19)


@pytest.fixture
def world(tmp_path: Path) -> RequestWorld:
    world = RequestWorld(tmp_path)
    world.create_topic("t", partitions=3)
    return world


def request(version: int, *partitions: tuple[str, int, int], **options: Any) -> Any:
    """Partitions as (topic, partition, offset)."""
    classes = schema(ApiKey.FETCH, version)
    replica_id, replica_epoch = options.get("replica", (-1, -1))
    topics: dict[str, list[Any]] = {}
    for topic, partition, offset in partitions:
        topics.setdefault(topic, []).append(
            classes.FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=options.get("partition_max_bytes", 1 << 20),
                current_leader_epoch=options.get("epoch", -1),
                last_fetched_epoch=options.get("last_epoch", -1),
                log_start_offset=-1,
            )
        )
    fields: dict[str, Any] = {}
    if version >= 15:
        fields["replica_state"] = classes.ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch)
    else:
        fields["replica_id"] = replica_id
    return classes.FetchRequest(
        max_wait=timedelta(milliseconds=options.get("max_wait_ms", 0)),
        min_bytes=options.get("min_bytes", 1),
        max_bytes=options.get("max_bytes", 1 << 30),
        isolation_level=options.get("isolation_level", 0),
        session_id=options.get("session_id", 0),
        session_epoch=options.get("session_epoch", -1),
        topics=tuple(
            classes.FetchTopic(topic=name, topic_id=topic_uuid(name), partitions=tuple(asked))
            for name, asked in topics.items()
        ),
        forgotten_topics_data=tuple(
            classes.ForgottenTopic(topic=name, topic_id=topic_uuid(name), partitions=(index,))
            for name, index in options.get("forgotten", ())
        ),
        rack_id="",
        **fields,
    )


async def fetch_from(world: RequestWorld, version: int, *partitions: tuple[str, int, int], **options: Any) -> Any:
    return await world.call_frames(fetch, ApiKey.FETCH, version, request(version, *partitions, **options))


def partitions_of(response: Any) -> list[Any]:
    return [partition for topic in response.responses for partition in topic.partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_read_in_every_version(world: RequestWorld, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        world.append(batch("a", "b"))
        world.append(batch("c"), partition=2)
        response = await fetch_from(world, version, ("t", 0, 0), ("t", 1, 0), ("t", 2, 0))
        (topic,) = response.responses
        if version >= 13:
            assert topic.topic_id == topic_uuid("t")
        else:
            assert topic.topic == "t"
        answers = topic.partitions
        assert [values_of(each.records) for each in answers] == [[b"a", b"b"], [], [b"c"]]
        assert [each.records is None for each in answers] == [False] * 3
        assert [each.high_watermark for each in answers] == [2, 0, 1]
        assert [each.last_stable_offset for each in answers] == [2, 0, 1]
        if version >= 5:
            assert [each.log_start_offset for each in answers] == [0, 0, 0]
        assert [each.aborted_transactions for each in answers] == [None] * 3

    simulate(story)


@pytest.mark.parametrize("version", VERSIONS)
def test_errors_have_empty_records(world: RequestWorld, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        answers = partitions_of(await fetch_from(world, version, ("t", 0, 5), ("t", 7, 0), ("x", 0, 0)))
        unknown_topic = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
        assert [each.error_code for each in answers] == [
            ErrorCode.offset_out_of_range,
            ErrorCode.unknown_topic_or_partition,
            unknown_topic,
        ]
        assert [each.records for each in answers] == [b"", b"", b""]
        assert [each.high_watermark for each in answers] == [-1, -1, -1]

    simulate(story)


def test_fetch_max_bytes_of_the_broker_bounds_the_answer(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = RequestWorld(tmp_path, {"fetch.max.bytes": "1024"})
        world.create_topic("t", partitions=2)
        world.append(*(batch(b"x" * 300) for _ in range(5)))
        (answer,) = partitions_of(await fetch_from(world, 12, ("t", 0, 0)))
        assert len(values_of(answer.records)) == 2

    simulate(story)


def test_a_fetch_waits_for_min_bytes_and_is_woken_by_a_producer(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.start(
            fetch, ApiKey.FETCH, 12, request(12, ("t", 0, 0), ("t", 1, 0), max_wait_ms=500, min_bytes=1)
        )
        await settle()
        assert not answer.is_filled
        await world.produce([(TopicPartition("t", 1), batch("a"))])
        await settle()
        response = world.decode(ApiKey.FETCH, 12, answer)
        assert [values_of(each.records) for each in partitions_of(response)] == [[], [b"a"]]
        assert loop.time() == 0

    simulate(story)


def test_max_wait_ends_a_wait_in_vain(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.start(fetch, ApiKey.FETCH, 12, request(12, ("t", 0, 0), max_wait_ms=500))
        await asyncio.sleep(0.499)
        assert not answer.is_filled
        await asyncio.sleep(0.002)
        assert [each.error_code for each in partitions_of(world.decode(ApiKey.FETCH, 12, answer))] == [ErrorCode.none]

    simulate(story)


def test_a_closed_connection_forgets_its_fetch(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.start(fetch, ApiKey.FETCH, 12, request(12, ("t", 0, 0), max_wait_ms=500))
        assert world.last_slot.on_closed is not None
        world.last_slot.on_closed()
        assert len(world.replicas.fetch_purgatory) == 0
        await world.produce([(TopicPartition("t", 0), batch("a"))])
        await asyncio.sleep(1)
        assert not answer.is_filled

    simulate(story)


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_read_committed(world: RequestWorld, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        transactional = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        world.append(batch("a", producer_id=7, **transactional), batch("b", producer_id=8, **transactional))
        world.partition().append_records_to_leader(
            parsed(
                end_transaction_marker_batch(
                    EndTransactionMarker(ControlRecordType.ABORT, 0), producer_id=7, producer_epoch=0, timestamp=1
                )
            ),
            AppendOrigin.COORDINATOR,
        )
        (answer,) = partitions_of(await fetch_from(world, version, ("t", 0, 0), isolation_level=1))
        assert (values_of(answer.records), answer.last_stable_offset, answer.high_watermark) == ([b"a"], 1, 3)
        assert [(each.producer_id, each.first_offset) for each in answer.aborted_transactions] == [(7, 0)]
        (empty,) = partitions_of(await fetch_from(world, version, ("t", 1, 0), isolation_level=1))
        assert empty.aborted_transactions == ()

    simulate(story)


@pytest.mark.parametrize("version", [7, 12, 13, 17])
def test_a_session_tells_what_is_new(world: RequestWorld, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        opened = await fetch_from(world, version, ("t", 0, 0), ("t", 1, 0), ("t", 2, 0), session_epoch=0)
        assert (opened.error_code, len(partitions_of(opened))) == (ErrorCode.none, 3)
        session_id = opened.session_id
        assert session_id > 0
        idle = await fetch_from(world, version, session_id=session_id, session_epoch=1)
        assert (idle.session_id, idle.responses) == (session_id, ())
        world.append(batch("a"), partition=1)
        news = await fetch_from(world, version, session_id=session_id, session_epoch=2, forgotten=[("t", 2)])
        assert [(each.partition_index, values_of(each.records)) for each in partitions_of(news)] == [(1, [b"a"])]
        world.append(batch("b"), partition=2)
        moved_on = await fetch_from(world, version, ("t", 1, 1), session_id=session_id, session_epoch=3)
        assert partitions_of(moved_on) == []
        repeated = await fetch_from(world, version, session_id=session_id, session_epoch=3)
        assert (repeated.error_code, repeated.session_id, repeated.responses) == (
            ErrorCode.invalid_fetch_session_epoch,
            0,
            (),
        )
        closed = await fetch_from(world, version, ("t", 0, 0), session_id=session_id, session_epoch=-1)
        assert (closed.session_id, len(partitions_of(closed))) == (0, 1)
        gone = await fetch_from(world, version, session_id=session_id, session_epoch=4)
        assert gone.error_code is ErrorCode.fetch_session_id_not_found

    simulate(story)


def test_a_parked_session_is_woken_and_an_overtaken_request_is_told(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        opened = await fetch_from(world, 12, ("t", 0, 0), ("t", 1, 0), session_epoch=0)
        session = {"session_id": opened.session_id, "max_wait_ms": 500}
        first = world.start(fetch, ApiKey.FETCH, 12, request(12, **session, session_epoch=1))
        await settle()
        assert not first.is_filled
        second = world.start(fetch, ApiKey.FETCH, 12, request(12, **session, session_epoch=2))
        await world.produce([(TopicPartition("t", 1), batch("a"))])
        await settle()
        response = world.decode(ApiKey.FETCH, 12, second)
        assert [each.partition_index for each in partitions_of(response)] == [1]
        await asyncio.sleep(1)
        overtaken = world.decode(ApiKey.FETCH, 12, first)
        assert (overtaken.error_code, overtaken.session_id) == (
            ErrorCode.invalid_fetch_session_epoch,
            opened.session_id,
        )

    simulate(story)


def test_the_first_partition_does_not_starve_the_second_in_a_session(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        for partition in (0, 1):
            world.append(*(batch(b"x" * 500) for _ in range(4)), partition=partition)
        opened = await fetch_from(world, 12, ("t", 0, 0), ("t", 1, 0), session_epoch=0, max_bytes=600)
        session = {"session_id": opened.session_id, "max_bytes": 600}
        assert [len(values_of(each.records)) for each in partitions_of(opened)] == [1, 0]
        first = await fetch_from(world, 12, ("t", 0, 1), **session, session_epoch=1)
        second = await fetch_from(world, 12, ("t", 0, 2), **session, session_epoch=2)
        assert [[each.partition_index for each in partitions_of(answer)] for answer in (first, second)] == [[0], [1]]

    simulate(story)


def test_an_unknown_id_in_a_session_is_told_until_it_is_known(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        opened = await fetch_from(world, 13, ("late", 0, 0), session_epoch=0)
        assert [each.error_code for each in partitions_of(opened)] == [ErrorCode.unknown_topic_id]
        session = {"session_id": opened.session_id}
        again = await fetch_from(world, 13, **session, session_epoch=1)
        assert [each.error_code for each in partitions_of(again)] == [ErrorCode.unknown_topic_id]
        world.create_topic("late")
        found = await fetch_from(world, 13, **session, session_epoch=2)
        assert [each.error_code for each in partitions_of(found)] == [ErrorCode.none]

    simulate(story)


@pytest.mark.parametrize(("version", "hinted"), [(12, False), (15, False), (16, True), (18, True)])
def test_a_wrong_broker_is_told_who_leads(world: RequestWorld, version: int, hinted: bool) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("other", replicas=(2,), leader=2, leader_epoch=4)
        world.create_topic("newer", leader_epoch=6)
        response = await fetch_from(world, version, ("other", 0, 0), ("newer", 0, 0), epoch=4)
        wrong, fenced = partitions_of(response)
        assert [wrong.error_code, fenced.error_code] == [
            ErrorCode.not_leader_or_follower,
            ErrorCode.fenced_leader_epoch,
        ]
        leaders = [(each.current_leader.leader_id, each.current_leader.leader_epoch) for each in (wrong, fenced)]
        assert leaders == ([(2, 4), (1, 6)] if hinted else [(-1, -1), (-1, -1)])
        if hinted:
            assert [(node.node_id, node.host) for node in response.node_endpoints] == [
                (2, "10.0.0.2"),
                (1, "10.0.0.1"),
            ]

    simulate(story)


@pytest.mark.parametrize(
    ("version", "error"), [(5, ErrorCode.not_leader_or_follower), (6, ErrorCode.kafka_storage_error)]
)
def test_old_versions_do_not_know_storage_errors(world: RequestWorld, version: int, error: ErrorCode) -> None:
    async def story(loop: SimLoop) -> None:
        world.partition().stop(ErrorCode.kafka_storage_error, is_deleted=False)
        (answer,) = partitions_of(await fetch_from(world, version, ("t", 0, 0)))
        assert answer.error_code is error

    simulate(story)


@pytest.mark.parametrize(("version", "error"), [(9, ErrorCode.unsupported_compression_type), (10, ErrorCode.none)])
def test_zstd_topics_need_version_ten(world: RequestWorld, version: int, error: ErrorCode) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("z", configs={"compression.type": "zstd"})
        world.append(batch("a"), topic="z")
        (answer,) = partitions_of(await fetch_from(world, version, ("z", 0, 0)))
        assert answer.error_code is error
        assert (len(answer.records) > 0) == (error is ErrorCode.none)

    simulate(story)


def test_divergence_is_told_from_version_twelve(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.append(batch("a"))
        world.place(leader=1, leader_epoch=3)
        world.append(batch("b"))
        (answer,) = partitions_of(await fetch_from(world, 12, ("t", 0, 2), last_epoch=2))
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
        assert (answer.error_code, answer.records) == (ErrorCode.none, b"")

    simulate(story)


@pytest.mark.parametrize("version", [14, 17])
def test_a_followers_fetch_moves_the_high_watermark(world: RequestWorld, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("r", replicas=(1, 2))
        world.append(batch("a"), topic="r")
        (answer,) = partitions_of(await fetch_from(world, version, ("r", 0, 0), replica=(2, 12)))
        assert values_of(answer.records) == [b"a"]
        await fetch_from(world, version, ("r", 0, 1), replica=(2, 12))
        assert world.partition("r").log.high_watermark == 1
        stats = world.partition("r").topic_stats
        assert (stats.replication_bytes_out, stats.bytes_out) == (len(batch("a")), 0)

    simulate(story)


def test_a_follower_through_a_bucket_is_answered_with_records_of_no_length(world: RequestWorld) -> None:
    """KIP-1176: empty, not null, and the offsets are there."""

    async def story(loop: SimLoop) -> None:
        world.create_topic("r", replicas=(1, 2))
        world.append(batch("a"), topic="r")
        world.partition("r").leader_wal = wal = RecordingLeaderWal()
        (answer,) = partitions_of(await fetch_from(world, 17, ("r", 0, 0), replica=(2, 12), epoch=0))
        assert (answer.error_code, answer.records) == (ErrorCode.none, b"")
        assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (0, 0, 0)
        stats = world.partition("r").topic_stats
        assert (stats.replication_bytes_out, stats.sent_bytes, wal.asked) == (0, {}, [(2, 0)])

    simulate(story)


def test_the_zero_topic_id_is_nobodys(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        entity = request(13, ("t", 0, 0), session_epoch=0)
        zero = schema(ApiKey.FETCH, 13).FetchTopic(topic_id=UUID(int=0), partitions=entity.topics[0].partitions)
        entity = schema(ApiKey.FETCH, 13).FetchRequest(
            max_wait=timedelta(0),
            min_bytes=1,
            max_bytes=1000,
            session_epoch=0,
            topics=(zero,),
            forgotten_topics_data=(),
            replica_id=-1,
        )
        response = await world.call_frames(fetch, ApiKey.FETCH, 13, entity)
        assert [each.error_code for each in partitions_of(response)] == [ErrorCode.unknown_topic_id]

    simulate(story)
