"""What Fetch tells of offsets whose records are in remote storage, which a test scripts (KIP-405)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.common.byte_budget import ByteBudget
from broker.common.errors import ErrorCode, OffsetOutOfRangeError, ReplicaNotAvailableError
from broker.common.identifiers import TopicPartition
from broker.log.transaction_index import AbortedTransaction
from broker.protocol.api_keys import ApiKey
from broker.replication.remote_log import RemoteRecords
from broker.server.handlers.fetch import fetch
from broker.tiering.errors import RemoteStorageError
from tests.support.builders import batch, settle, values_of
from tests.support.replica_requests import Answer
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_partition import TIERED_TOPIC, TieredWorld, tier
from tests.unit.server.handlers.test_fetch import partitions_of, request

VERSION = 12
NONE = ErrorCode.none


class World(TieredWorld):
    """Topics of three records and segments, of which the first two are in remote storage alone: "a" and "b"; and
    "local", of which nothing is."""

    def __init__(self, directory: Path, **properties: str) -> None:
        super().__init__(directory, properties={key.replace("_", "."): value for key, value in properties.items()})
        for name in ("a", "b"):
            self.tiered(name)
        self.create_tiered_topic("local", 1000, 2000)

    def tiered(self, name: str) -> None:
        tier(self.create_tiered_topic(name, 1000, 2000, 3000).log, 2)

    def ask(self, *partitions: tuple[str, int], version: int = VERSION, **options: Any) -> Answer:
        """Topics and offsets, of partition 0."""
        asked = [(topic, 0, offset) for topic, offset in partitions]
        return self.start(fetch, ApiKey.FETCH, version, request(version, *asked, **options))

    def told(self, answer: Answer, version: int = VERSION) -> Any:
        return self.decode(ApiKey.FETCH, version, answer)

    def partitions(self, answer: Answer, version: int = VERSION) -> list[Any]:
        return partitions_of(self.told(answer, version))

    def find(self, place: int, *values: str, aborted: Sequence[AbortedTransaction] | None = None) -> None:
        """The read of that number brings a batch of these values."""
        records = bytes(batch(*values)) if values else b""
        self.remote.fetches[place][1].set_result(RemoteRecords(records, None if aborted is None else tuple(aborted)))

    @property
    def asked(self) -> list[tuple[str, int, int, bool]]:
        """Topic, offset, size and whether it may be exceeded, of each read."""
        return [
            (each.partition.topic_partition.topic, each.offset, each.size_max, each.min_one_message)
            for each, _ in self.remote.fetches
        ]

    @property
    def expired(self) -> int:
        return self.replicas.remote_fetches.purgatory.expired_count


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def records_of(partitions: Sequence[Any]) -> list[list[bytes | None]]:
    return [values_of(each.records) for each in partitions]


def test_a_consumer_is_answered_when_remote_storage_has_answered(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.ask(("a", 1), max_wait_ms=0, min_bytes=1 << 20)  # neither is asked
        await settle()
        assert not answer.is_filled
        world.find(0, "one", "two")
        await settle()
        (told,) = world.partitions(answer)
        assert (told.error_code, values_of(told.records)) == (NONE, [b"one", b"two"])
        assert (told.high_watermark, told.last_stable_offset, told.log_start_offset) == (3, 3, 0)
        assert world.asked == [("a", 1, 1 << 20, True)]
        assert world.partition("a").topic_stats.bytes_out == len(batch("one", "two"))
        assert world.expired == 0

    simulate(story)


def test_29_two_remote_partitions_are_read_in_parallel(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.ask(("a", 0), ("b", 1))
        await settle()
        assert [each[:2] for each in world.asked] == [("a", 0), ("b", 1)]
        world.find(1, "second")
        await settle()
        assert not answer.is_filled
        world.find(0, "first")
        await settle()
        assert records_of(world.partitions(answer)) == [[b"first"], [b"second"]]

    simulate(story)


def test_29_beyond_the_limit_a_partition_is_empty_and_the_next_fetch_serves_it(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        names = [f"t{number}" for number in range(10)]
        for name in names:
            world.tiered(name)
        answer = world.ask(*((name, 0) for name in names), session_epoch=0)
        await settle()
        assert [each[0] for each in world.asked] == names[:8]
        for place in range(8):
            world.find(place, f"{place}")
        await settle()
        opened = world.told(answer)
        assert [each.error_code for each in partitions_of(opened)] == [NONE] * 10
        assert records_of(partitions_of(opened)) == [[f"{place}".encode()] for place in range(8)] + [[], []]
        moved_on = [(name, 2) for name in names[:8]]  # whose records are on the disk
        answer = world.ask(*moved_on, session_id=opened.session_id, session_epoch=1)
        await settle()
        assert [each[0] for each in world.asked[8:]] == ["t8", "t9"]
        world.find(8, "8")
        world.find(9, "9")
        await settle()
        found = {each.topic: each.partitions[0] for each in world.told(answer).responses}
        assert [values_of(found[name].records) for name in ("t8", "t9", "t0")] == [[b"8"], [b"9"], [b"2"]]

    simulate(story)


def test_30_local_and_remote_partitions_are_answered_together(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.ask(("local", 0), ("a", 0), ("b", 9))
        await settle()
        assert not answer.is_filled
        world.find(0, "remote")
        await settle()
        told = world.partitions(answer)
        assert [each.error_code for each in told] == [NONE, NONE, ErrorCode.offset_out_of_range]
        assert records_of(told) == [[b"0"], [b"remote"], []]

    simulate(story)


def test_31_a_remote_fetch_that_is_too_slow_is_empty(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = World(tmp_path, remote_fetch_max_wait_ms="300")
        answer = world.ask(("local", 0), ("a", 0), ("b", 0), max_wait_ms=30_000)
        world.find(1, "in time")
        await asyncio.sleep(0.299)
        assert not answer.is_filled
        await asyncio.sleep(0.002)
        told = world.partitions(answer)
        assert [each.error_code for each in told] == [NONE] * 3
        assert records_of(told) == [[b"0"], [], [b"in time"]]
        assert told[1].high_watermark == 3
        assert (world.expired, world.remote.fetches[0][1].cancelled()) == (1, True)

    simulate(story)


def test_32_a_read_that_finds_no_room_is_an_error_of_its_partition_alone(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        world.remote.refusal = RemoteStorageError("100 reads wait already")
        answer = world.ask(("local", 0), ("a", 0))
        assert answer.is_filled  # at once
        told = world.partitions(answer)
        assert [each.error_code for each in told] == [NONE, ErrorCode.unknown_server_error]
        assert records_of(told) == [[b"0"], []]
        assert told[1].high_watermark == -1

    simulate(story)


def test_33_while_the_quota_is_exceeded_local_partitions_are_served(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        world.remote.is_fetch_quota_exceeded = True
        answer = world.ask(("a", 0), ("local", 0), max_wait_ms=500)
        assert answer.is_filled
        told = world.partitions(answer)
        assert [each.error_code for each in told] == [NONE, NONE]
        assert records_of(told) == [[], [b"0"]]
        assert world.asked == []

    simulate(story)


def test_33_and_who_wants_nothing_else_waits_as_for_news(world: World) -> None:
    """Or it would ask again and again, for nothing."""

    async def story(loop: SimLoop) -> None:
        world.remote.is_fetch_quota_exceeded = True
        answer = world.ask(("a", 0), max_wait_ms=500)
        world.append(batch("news"), topic="a")
        await asyncio.sleep(0.499)
        assert not answer.is_filled
        world.remote.is_fetch_quota_exceeded = False
        await asyncio.sleep(0.002)
        (told,) = world.partitions(answer)
        assert (told.error_code, values_of(told.records)) == (NONE, [])
        assert world.asked == []
        answer = world.ask(("a", 0), max_wait_ms=500)
        world.find(0, "now")
        await settle()
        assert records_of(world.partitions(answer)) == [[b"now"]]

    simulate(story)


@pytest.mark.parametrize("code", [ErrorCode.offset_out_of_range, ErrorCode.replica_not_available])
def test_an_error_of_remote_storage_is_that_of_its_partition(world: World, code: ErrorCode) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.ask(("a", 0), ("b", 0))
        kind = OffsetOutOfRangeError if code is ErrorCode.offset_out_of_range else ReplicaNotAvailableError
        world.remote.fetches[0][1].set_exception(kind("so"))
        world.find(1, "fine")
        await settle()
        told = world.partitions(answer)
        assert [each.error_code for each in told] == [code, NONE]
        assert records_of(told) == [[], [b"fine"]]

    simulate(story)


def test_36_aborted_transactions_are_told_to_who_reads_committed(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.ask(("a", 0), isolation_level=1)
        assert world.remote.fetches[0][0].only_committed
        world.find(0, "maybe", aborted=[AbortedTransaction(7, 0, 2, 3)])
        await settle()
        (told,) = world.partitions(answer)
        assert [(each.producer_id, each.first_offset) for each in told.aborted_transactions] == [(7, 0)]
        answer = world.ask(("a", 0))
        world.find(1, "maybe")
        await settle()
        assert world.partitions(answer)[0].aborted_transactions is None

    simulate(story)


@pytest.mark.parametrize("offset", [-1, 0, 4])
def test_37_what_is_nowhere_is_out_of_range(world: World, offset: int) -> None:
    async def story(loop: SimLoop) -> None:
        world.partition("a").log.maybe_increment_log_start_offset(1, "test")
        answer = world.ask(("a", offset))
        assert world.partitions(answer)[0].error_code is ErrorCode.offset_out_of_range
        assert world.asked == []

    simulate(story)


def test_37_and_so_is_what_is_deleted_while_it_is_read(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.ask(("a", 0), ("b", 0))
        world.partition("a").delete_records_on_leader(1)
        world.find(0, "late")
        world.find(1, "fine")
        await settle()
        told = world.partitions(answer)
        assert [each.error_code for each in told] == [ErrorCode.offset_out_of_range, NONE]
        assert records_of(told) == [[], [b"fine"]]

    simulate(story)


def test_38_a_follower_is_told_that_the_offset_has_moved(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        world.create_topic("r", replicas=(1, 2), configs=TIERED_TOPIC)
        world.append(batch("a"), batch("b"), topic="r")
        world.partition("r").log.update_high_watermark(2)
        tier(world.partition("r").log, 1)
        answer = world.ask(("r", 0), version=17, replica=(2, 12), max_wait_ms=500)
        (told,) = world.partitions(answer, 17)
        assert told.error_code is ErrorCode.offset_moved_to_tiered_storage
        assert (told.high_watermark, told.last_stable_offset, told.log_start_offset) == (2, 2, 0)
        assert world.asked == []

    simulate(story)


def test_55_a_follower_reads_for_its_consumers(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        world.place("a", replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1)
        answer = world.ask(("a", 1))
        world.find(0, "followed")
        await settle()
        (told,) = world.partitions(answer)
        assert (told.error_code, values_of(told.records), told.high_watermark) == (NONE, [b"followed"], 3)

    simulate(story)


def test_an_offset_that_leaves_the_disk_while_its_consumer_waits_is_remote_at_the_next_fetch(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.ask(("a", 2), min_bytes=1 << 20, max_wait_ms=60_000)
        await settle()
        assert not answer.is_filled
        world.append(batch("news", timestamp=3000), topic="a")
        tier(world.partition("a").log, 3)
        world.append(batch("more", timestamp=3000), topic="a")
        await settle()
        assert records_of(world.partitions(answer)) == [[]]
        answer = world.ask(("a", 2))
        world.find(0, "from the bucket")
        await settle()
        assert records_of(world.partitions(answer)) == [[b"from the bucket"]]

    simulate(story)


def test_a_session_is_told_what_remote_storage_brought(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.ask(("a", 0), ("local", 2), session_epoch=0)
        world.find(0, "zero")
        await settle()
        opened = world.told(answer)
        assert records_of(partitions_of(opened)) == [[b"zero"], []]
        session = {"session_id": opened.session_id}
        answer = world.ask(("a", 1), **session, session_epoch=1)
        world.find(1, "one")
        await settle()
        assert [each.topic for each in world.told(answer).responses] == ["a"]
        answer = world.ask(("a", 1), **session, session_epoch=2)  # once more; too slow, and so nothing new
        await asyncio.sleep(1)
        told = world.told(answer)
        assert (told.error_code, told.responses) == (NONE, ())
        answer = world.ask(**session, session_epoch=3)  # it is not forgotten
        world.find(3, "one")
        await settle()
        assert records_of(world.partitions(answer)) == [[b"one"]]

    simulate(story)


def test_what_happens_while_a_session_waits_for_remote_storage_is_told_next(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.ask(("a", 0), ("local", 2), session_epoch=0)
        world.find(0, "zero")
        await settle()
        session = {"session_id": world.told(answer).session_id}
        answer = world.ask(**session, session_epoch=1)
        world.append(batch("news"), topic="local")
        world.find(1, "zero")
        await settle()
        assert [each.topic for each in world.told(answer).responses] == ["a"]
        answer = world.ask(("a", 3), **session, session_epoch=2)
        assert [each.topic for each in world.told(answer).responses] == ["local"]

    simulate(story)


def test_a_client_that_goes_takes_its_reads_along(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.ask(("a", 0), ("b", 0))
        assert world.last_slot.on_closed is not None
        world.last_slot.on_closed()
        assert [read.cancelled() for _, read in world.remote.fetches] == [True, True]
        assert len(world.replicas.remote_fetches.purgatory) == 0
        await asyncio.sleep(1)
        assert not answer.is_filled and world.expired == 0

    simulate(story)


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_partition_that_leaves_is_not_waited_for(world: World, is_deleted: bool) -> None:
    async def story(loop: SimLoop) -> None:
        answer = world.ask(("a", 0), ("local", 0))
        if is_deleted:
            world.delete_topic("a")
        else:
            world.partition("a").stop(ErrorCode.kafka_storage_error, is_deleted=False)
        await settle()
        told = world.partitions(answer)
        assert [each.error_code for each in told] == [NONE, NONE]
        assert records_of(told) == [[], [b"0"]]
        assert world.remote.fetches[0][1].cancelled()
        answer = world.ask(("a", 0))
        assert world.partitions(answer)[0].error_code in (
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.kafka_storage_error,
        )

    simulate(story)


def test_reads_under_way_count_as_memory(world: World) -> None:
    """Clients that ask for much and take little make everybody's answers smaller, down to one batch."""

    async def story(loop: SimLoop) -> None:
        budget = world.replicas._reader.answer_budget = ByteBudget(1500)
        for _ in range(5):
            world.append(batch("x" * 100, timestamp=2000), topic="local")
        world.ask(("a", 0), ("b", 0), partition_max_bytes=1000)
        assert [each[2] for each in world.asked] == [1000, 500]
        assert budget.used_bytes == 1500
        answer = world.ask(("local", 1))
        assert len(records_of(world.partitions(answer))[0]) == 1
        await asyncio.sleep(1)
        assert budget.used_bytes == 0
        answer = world.ask(("local", 1))
        assert len(records_of(world.partitions(answer))[0]) == 6

    simulate(story)


def test_listeners_of_partitions_do_not_pile_up(world: World) -> None:
    async def story(loop: SimLoop) -> None:
        for place in range(3):
            world.ask(("a", 0))
            world.find(place, "x")
            await settle()
        found = world.replicas.hosted_partition(TopicPartition("a", 0))
        assert found is not None and len(found._listeners) == 0

    simulate(story)
