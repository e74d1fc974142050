from pathlib import Path

from broker.replication.action_queue import ActionQueue
from broker.replication.fetch_params import FetchParams, FetchPartition
from broker.replication.fetch_reader import FetchReader
from broker.replication.remote_fetches import RemoteFetches
from broker.replication.remote_log import RemoteRecords
from broker.tiering.errors import RemoteStorageError
from tests.support.builders import settle
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_partition import TieredWorld, tier

CONSUMER = FetchParams(version=12)


class Fetching:
    """`RemoteFetches` beside those of a broker, and what they answer."""

    def __init__(self, directory: Path) -> None:
        self.world = TieredWorld(directory, 1000, 2000)
        tier(self.world.partition().log, 1)
        self.reader: FetchReader = self.world.replicas._reader
        self.max_wait_ms = 500
        self.fetches = RemoteFetches(
            self.world.remote, self.reader, ActionQueue(), max_wait_ms=lambda: self.max_wait_ms
        )
        self.answers: list[bytes] = []

    def begin(self) -> object:
        results, reads = self.reader.locate(CONSUMER, [FetchPartition("t", 0, 0, 1000)], is_first_read=True)
        assert reads is not None
        return self.fetches.begin(results, reads, lambda told: self.answers.append(bytes(told[0].records)))


def test_what_is_read_in_time_is_answered(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path)
        assert fetching.begin() is not None
        fetching.world.remote.fetches[0][1].set_result(RemoteRecords(b"abc", None))
        await settle()
        assert fetching.answers == [b"abc"]
        assert (len(fetching.fetches.purgatory), fetching.fetches.purgatory.expired_count) == (0, 0)

    simulate(story)


def test_the_longest_wait_is_the_one_of_now(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path)
        fetching.begin()
        fetching.max_wait_ms = 2000
        fetching.begin()
        loop.advance(0.6)
        await settle()
        assert (fetching.answers, fetching.fetches.purgatory.expired_count) == ([b""], 1)
        loop.advance(1.5)
        await settle()
        assert (fetching.answers, fetching.fetches.purgatory.expired_count) == ([b"", b""], 2)

    simulate(story)


def test_what_cannot_even_begin_is_answered_at_once(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path)
        fetching.world.remote.refusal = RemoteStorageError("full")
        assert fetching.begin() is None
        assert fetching.answers == [b""]

    simulate(story)


def test_a_client_that_has_gone_takes_its_reads_along(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path)
        operation = fetching.begin()
        fetching.fetches.cancel(operation)  # type: ignore[arg-type]
        assert fetching.world.remote.fetches[0][1].cancelled()
        assert len(fetching.fetches.purgatory) == 0
        loop.advance(1)
        await settle()
        assert fetching.answers == []

    simulate(story)
