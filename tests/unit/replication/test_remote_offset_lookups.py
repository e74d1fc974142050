from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from broker.log.log_segment import TimestampAndOffset
from broker.replication.offset_lookup import ListedOffset, OffsetQuery, RemoteOffsetLookup
from broker.replication.remote_offset_lookups import RemoteOffsetLookups
from tests.support.builders import NOW_MS, broker_config, settle
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_partition import TIERED_BROKER, TieredWorld, tier

TIMED_OUT = ListedOffset(error=ErrorCode.request_timed_out)
FIRST = TimestampAndOffset(NOW_MS, 0, 0)


def tell(directory: Path, story: Callable[[TieredWorld, SimLoop], Awaitable[None]]) -> None:
    async def run(loop: SimLoop) -> None:
        properties = {"remote.list.offsets.request.timeout.ms": "700"}
        world = TieredWorld(directory, NOW_MS, NOW_MS + 10, properties=properties)
        world.create_tiered_topic("u", NOW_MS, NOW_MS + 10)
        tier(world.partition("t").log, 1)
        tier(world.partition("u").log, 1)
        await story(world, loop)

    simulate(run)


class Client:
    """Asks for the first record of some topics."""

    def __init__(self, world: TieredWorld, *topics: str, timeout_ms: int = 0) -> None:
        self.listed: list[ListedOffset] | None = None
        query = OffsetQuery(NOW_MS, version=10)
        outcomes = [RemoteOffsetLookup(world.partition(topic), query) for topic in topics]
        lookups = world.replicas.remote_offset_lookups
        self.operation = lookups.wait(outcomes, timeout_ms, lambda listed: setattr(self, "listed", listed))


def test_all_answers_at_once(tmp_path: Path) -> None:
    async def story(world: TieredWorld, loop: SimLoop) -> None:
        client = Client(world, "t", "u")
        lookups = world.replicas.remote_offset_lookups
        assert len(lookups.purgatory) == 1 and lookups.purgatory.name == "RemoteListOffsets"
        assert lookups.purgatory in world.replicas.purgatories
        world.answer(FIRST, question=0)
        await settle()
        assert client.listed is None
        world.answer(FIRST)
        await settle()
        assert client.listed == [ListedOffset(NOW_MS, 0, 0)] * 2
        assert len(lookups.purgatory) == 0 and lookups.expired_partitions == 0

    tell(tmp_path, story)


def test_without_a_question_nothing_is_parked(tmp_path: Path) -> None:
    async def story(world: TieredWorld, loop: SimLoop) -> None:
        client = Client(world)
        assert client.listed == [] and len(world.replicas.remote_offset_lookups.purgatory) == 0

    tell(tmp_path, story)


@pytest.mark.parametrize(("timeout_ms", "seconds"), [(0, 0.7), (-1, 0.7), (250, 0.25), (5000, 5.0)])
def test_the_requests_timeout_or_the_brokers(tmp_path: Path, timeout_ms: int, seconds: float) -> None:
    async def story(world: TieredWorld, loop: SimLoop) -> None:
        client = Client(world, "t", timeout_ms=timeout_ms)
        loop.advance(seconds - 0.001)
        await settle()
        assert client.listed is None
        loop.advance(0.001)
        await settle()
        assert client.listed == [TIMED_OUT]

    tell(tmp_path, story)


def test_the_brokers_timeout_is_that_of_now(tmp_path: Path) -> None:
    async def story(world: TieredWorld, loop: SimLoop) -> None:
        world.config.update(broker_config({**TIERED_BROKER, "remote.list.offsets.request.timeout.ms": "50"}))
        client = Client(world, "t")
        loop.advance(0.05)
        await settle()
        assert client.listed == [TIMED_OUT]

    tell(tmp_path, story)


def test_expired_partitions_are_counted(tmp_path: Path) -> None:
    async def story(world: TieredWorld, loop: SimLoop) -> None:
        lookups = world.replicas.remote_offset_lookups
        clients = [Client(world, "t", "u", timeout_ms=100), Client(world, "t", timeout_ms=100)]
        world.answer(FIRST, question=1)
        await settle()
        loop.advance(0.1)
        await settle()
        assert [client.listed for client in clients] == [[TIMED_OUT, ListedOffset(NOW_MS, 0, 0)], [TIMED_OUT]]
        assert lookups.expired_partitions == 2
        assert [world.partition(topic).expired_remote_list_offsets for topic in "tu"] == [2, 0]

    tell(tmp_path, story)


def test_a_client_that_has_gone(tmp_path: Path) -> None:
    async def story(world: TieredWorld, loop: SimLoop) -> None:
        lookups = world.replicas.remote_offset_lookups
        client = Client(world, "t", timeout_ms=100)
        lookups.cancel(client.operation)
        assert len(lookups.purgatory) == 0 and world.remote.questions[0].answer.cancelled()
        loop.advance(1)
        await settle()
        assert client.listed is None and lookups.expired_partitions == 0

    tell(tmp_path, story)


def test_who_tiers_logs_has_remote_storage(tmp_path: Path) -> None:
    async def story(world: TieredWorld, loop: SimLoop) -> None:
        lookups = RemoteOffsetLookups(None, lookup_error=world.replicas.lookup_error, timeout_ms=lambda: 1)
        query = OffsetQuery(NOW_MS, version=10)
        with pytest.raises(AssertionError, match="nothing knows of remote storage"):
            lookups.wait([RemoteOffsetLookup(world.partition(), query)], 0, lambda listed: None)

    tell(tmp_path, story)
