from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC
from broker.protocol.api_keys import ApiKey
from broker.records.record_batch import CompressionType
from broker.server.handlers.produce import produce
from tests.support.builders import NOW_MS, batch, settle, topic_uuid, values_of
from tests.support.replica_requests import RequestWorld, schema
from tests.support.sim_loop import SimLoop, simulate

VERSIONS = range(3, 14)


@pytest.fixture
def world(tmp_path: Path) -> RequestWorld:
    world = RequestWorld(tmp_path)
    world.create_topic("t", partitions=2)
    return world


def request(
    version: int,
    *partitions: tuple[str, int, bytes | None],
    acks: int = 1,
    transactional_id: str | None = None,
    timeout_ms: int = 30_000,
    topic_ids: dict[str, UUID] | None = None,
) -> Any:
    classes = schema(ApiKey.PRODUCE, version)
    return classes.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=tuple(
            classes.TopicProduceData(
                name=topic,
                topic_id=(topic_ids or {}).get(topic, topic_uuid(topic)),
                partition_data=(
                    classes.PartitionProduceData(index=index, records=None if data is None else bytes(data)),
                ),
            )
            for topic, index, data in partitions
        ),
    )


async def produce_to(world: RequestWorld, version: int, *partitions: Any, **options: Any) -> list[Any]:
    """The partitions' answers in order."""
    client_id = options.pop("client_id", "test")
    is_owned = options.pop("is_owned", False)
    response = await world.call_frames(
        produce,
        ApiKey.PRODUCE,
        version,
        request(version, *partitions, **options),
        client_id=client_id,
        is_owned=is_owned,
    )
    return [partition for topic in response.responses for partition in topic.partition_responses]


def errors(answers: list[Any]) -> list[ErrorCode]:
    return [answer.error_code for answer in answers]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_owned", [False, True])
def test_records_are_appended_in_every_version(world: RequestWorld, version: int, is_owned: bool) -> None:
    async def story(loop: SimLoop) -> None:
        world.append(batch("before"))
        first, second = await produce_to(
            world, version, ("t", 0, batch("a", "b")), ("t", 1, batch("c")), is_owned=is_owned
        )
        assert (first.error_code, first.base_offset, first.index) == (ErrorCode.none, 1, 0)
        assert (second.error_code, second.base_offset, second.index) == (ErrorCode.none, 0, 1)
        assert first.log_append_time is None
        if version >= 5:
            assert first.log_start_offset == 0
        log = world.partition().log
        records = log.read(0, 10_000, 3, min_one_batch=True).file_slice
        assert records is not None
        assert values_of(records.file.read_at(0, records.size)) == [b"before", b"a", b"b"]

    simulate(story)


def test_topics_are_answered_by_name_or_id(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        unknown = UUID(int=4711)
        by_id = await world.call_frames(
            produce,
            ApiKey.PRODUCE,
            13,
            request(13, ("t", 0, batch("a")), ("x", 1, batch("b")), topic_ids={"x": unknown}),
        )
        assert [topic.topic_id for topic in by_id.responses] == [topic_uuid("t"), unknown]
        answers = [topic.partition_responses[0] for topic in by_id.responses]
        assert errors(answers) == [ErrorCode.none, ErrorCode.unknown_topic_id]
        assert answers[1].index == 1
        by_name = await world.call_frames(produce, ApiKey.PRODUCE, 9, request(9, ("t", 0, batch("a"))))
        assert by_name.responses[0].name == "t"

    simulate(story)


@pytest.mark.parametrize("version", [3, 8, 13])
def test_records_that_are_not_one_batch_of_format_two(world: RequestWorld, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        good = batch("a")
        old = bytearray(good)
        old[16] = 1
        cases = [None, b"", b"short", bytes(good[:-1]), bytes(good + good), bytes(old)]
        for data in cases:
            (answer,) = await produce_to(world, version, ("t", 0, data))
            assert answer.error_code is ErrorCode.invalid_record, data
            assert answer.base_offset == -1
            if version >= 8:
                assert answer.error_message
        assert world.partition().log.log_end_offset == 0
        (trailing,) = await produce_to(world, version, ("t", 0, bytes(good) + b"rest"))
        assert (trailing.error_code, trailing.base_offset) == (ErrorCode.none, 0)

    simulate(story)


def test_unknown_partitions_come_before_bad_records(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        answers = await produce_to(world, 9, ("x", 0, b"bad"), ("t", 7, b"bad"), ("t", 7, batch("a")))
        assert errors(answers) == [ErrorCode.unknown_topic_or_partition] * 3

    simulate(story)


@pytest.mark.parametrize(("version", "error"), [(6, ErrorCode.unsupported_compression_type), (7, ErrorCode.none)])
def test_zstd_needs_version_seven(world: RequestWorld, version: int, error: ErrorCode) -> None:
    async def story(loop: SimLoop) -> None:
        data = batch("a" * 100, compression=CompressionType.ZSTD)
        assert errors(await produce_to(world, version, ("t", 0, data))) == [error]

    simulate(story)


def test_broken_crc_size_and_sequence(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        broken = batch("a")
        broken[-1] ^= 1
        large = batch(b"x" * 2_000_000)
        producer = {"producer_id": 5, "producer_epoch": 0}
        answers = []
        for data in (
            broken,
            large,
            batch("a", base_sequence=0, **producer),
            batch("a", base_sequence=0, **producer),
            batch("b", base_sequence=7, **producer),
        ):
            answers += await produce_to(world, 9, ("t", 0, data))
        assert errors(answers) == [
            ErrorCode.corrupt_message,
            ErrorCode.message_too_large,
            ErrorCode.none,
            ErrorCode.none,  # a duplicate is answered as the original
            ErrorCode.out_of_order_sequence_number,
        ]
        assert [answer.base_offset for answer in answers] == [-1, -1, 0, 0, -1]
        assert [answer.log_start_offset for answer in answers] == [-1, -1, 0, 0, 0]
        assert world.partition().topic_stats.bytes_rejected == len(large)

    simulate(story)


@pytest.mark.parametrize("version", [7, 8, 11])
def test_records_without_keys_on_a_compacted_topic_are_listed(world: RequestWorld, version: int) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("compacted", configs={"cleanup.policy": "compact"})
        data = batch("a", "b", "c", keys=[None, b"k", None])
        (answer,) = await produce_to(world, version, ("compacted", 0, data))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.invalid_record, -1)
        if version >= 8:
            assert [error.batch_index for error in answer.record_errors] == [0, 2]
            assert all(error.batch_index_error_message for error in answer.record_errors)
            assert answer.error_message

    simulate(story)


def test_log_append_time_is_told(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("timed", configs={"message.timestamp.type": "LogAppendTime"})
        (answer,) = await produce_to(world, 9, ("timed", 0, batch("a")))
        assert answer.log_append_time.timestamp() * 1000 == NOW_MS

    simulate(story)


def test_invalid_acks_are_refused_for_every_partition(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        answers = await produce_to(world, 9, ("t", 0, batch("a")), ("x", 0, batch("b")), acks=2)
        assert errors(answers) == [ErrorCode.invalid_required_acks] * 2
        assert world.partition().log.log_end_offset == 0

    simulate(story)


def test_acks_zero_is_silent_and_an_error_closes_the_connection(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        silent = world.start(produce, ApiKey.PRODUCE, 9, request(9, ("t", 0, batch("a")), acks=0))
        await settle()
        assert (silent.frame, silent.closed) == (b"", None)
        failing = world.start(produce, ApiKey.PRODUCE, 9, request(9, ("x", 0, batch("a")), acks=0))
        await settle()
        assert not failing.is_filled
        assert failing.closed == "produce with acks=0 failed: x-0: unknown_topic_or_partition"

    simulate(story)


def test_internal_topics_are_for_the_admin_client(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic(CONSUMER_OFFSETS_TOPIC)
        target = (CONSUMER_OFFSETS_TOPIC, 0, batch("a"))
        assert errors(await produce_to(world, 9, target)) == [ErrorCode.invalid_topic_exception]
        assert errors(await produce_to(world, 9, target, client_id="__admin_client")) == [ErrorCode.none]

    simulate(story)


def test_transactional_batches_need_a_transactional_id(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        data = batch("a", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
        refused = await produce_to(world, 9, ("t", 1, batch("b")), ("t", 0, data))
        assert errors(refused) == [ErrorCode.transactional_id_authorization_failed] * 2
        assert world.partition("t", 1).log.log_end_offset == 0

    simulate(story)


def test_a_transaction_no_coordinator_knows_is_not_begun(world: RequestWorld) -> None:
    """It could never end, and would hold the last stable offset for ever."""

    async def story(loop: SimLoop) -> None:
        data = batch("a", producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
        targets = ("t", 0, data), ("t", 1, batch("b")), ("missing", 0, data)
        answer = await produce_to(world, 9, *targets, transactional_id="tx")
        assert errors(answer) == [
            ErrorCode.invalid_producer_id_mapping,
            ErrorCode.none,
            ErrorCode.unknown_topic_or_partition,
        ]
        assert world.partition().log.log_end_offset == 0
        assert world.partition("t", 1).log.last_stable_offset == 1

    simulate(story)


@pytest.mark.parametrize(("version", "hinted"), [(9, False), (10, True), (13, True)])
def test_a_wrong_broker_is_told_who_leads(world: RequestWorld, version: int, hinted: bool) -> None:
    """KIP-951: with NOT_LEADER_OR_FOLLOWER only."""

    async def story(loop: SimLoop) -> None:
        world.create_topic("other", replicas=(2,), leader=2, leader_epoch=4)
        response = await world.call_frames(
            produce, ApiKey.PRODUCE, version, request(version, ("other", 0, batch("a")), ("t", 9, batch("b")))
        )
        (wrong,), (missing,) = (topic.partition_responses for topic in response.responses)
        assert errors([wrong, missing]) == [ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition]
        if hinted:
            assert (wrong.current_leader.leader_id, wrong.current_leader.leader_epoch) == (2, 4)
            assert (missing.current_leader.leader_id, missing.current_leader.leader_epoch) == (-1, -1)
            (node,) = response.node_endpoints
            assert (node.node_id, node.host, node.port) == (2, "10.0.0.2", 9092)

    simulate(story)


def test_acks_all_answers_when_committed_or_timed_out(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("r", replicas=(1, 2))
        answer = world.start(produce, ApiKey.PRODUCE, 9, request(9, ("r", 0, batch("a")), acks=-1, timeout_ms=1000))
        await settle()
        assert not answer.is_filled
        world.partition("r").update_follower_fetch_state(
            2, fetch_offset=1, log_start_offset=0, leader_log_end_offset=1, replica_epoch=12
        )
        await settle()
        response = world.decode(ApiKey.PRODUCE, 9, answer)
        assert response.responses[0].partition_responses[0].error_code is ErrorCode.none

    simulate(story)


def test_an_empty_request_is_answered(world: RequestWorld) -> None:
    async def story(loop: SimLoop) -> None:
        assert await produce_to(world, 9) == []

    simulate(story)
