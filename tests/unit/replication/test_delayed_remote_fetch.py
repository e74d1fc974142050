"""Reads, errors, what happens to the partition meanwhile, memory."""

from pathlib import Path

import pytest

from broker.common.byte_budget import ByteBudget
from broker.common.errors import (
    ErrorCode,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
)
from broker.log.transaction_index import AbortedTransaction
from broker.replication.delayed_remote_fetch import DelayedRemoteFetch
from broker.replication.fetch_params import FetchParams, FetchPartition, FetchPartitionResult
from broker.replication.remote_log import RemoteRecords
from broker.tiering.errors import RemoteStorageError
from tests.support.builders import batch, settle
from tests.support.sim_loop import SimLoop, simulate
from tests.support.tiered_partition import TieredWorld, tier

CONSUMER = FetchParams(version=12)
COMMITTED = FetchParams(version=12, isolation_level=1)
SIZE = 300


class Fetching:
    """One fetch of "remote-1" to "remote-<n>" at offset 0, which is remote there, and of "local"."""

    def __init__(self, directory: Path, remote: int = 1, params: FetchParams = CONSUMER) -> None:
        self.world = TieredWorld(directory)
        self.budget = ByteBudget(1 << 20)
        self.ready: list[DelayedRemoteFetch] = []
        self.answers = 0
        requests = []
        for number in range(1, remote + 1):
            tier(self.world.create_tiered_topic(f"remote-{number}", 1000, 2000, 3000).log, 1)
            requests.append(FetchPartition(f"remote-{number}", 0, 0, SIZE))
        self.world.create_tiered_topic("local", 1000, 2000)
        requests.append(FetchPartition("local", 0, 0, SIZE))
        self.results, reads = self.world.replicas._reader.locate(params, requests, is_first_read=True)
        assert reads is not None and len(reads.results) == remote
        self.operation = DelayedRemoteFetch(
            self.results, reads, self.world.remote, self.budget, on_ready=self.ready.append, answer=self._answer
        )

    def _answer(self) -> None:
        self.answers += 1

    def complete(self, *, expired: bool = False) -> list[FetchPartitionResult]:
        self.operation.is_completed = True
        self.operation.on_complete(expired)
        return self.results

    def find(self, place: int, records: bytes = b"abc", **rest: object) -> None:
        self.world.remote.fetches[place][1].set_result(RemoteRecords(records, rest.pop("aborted", None), **rest))  # type: ignore[arg-type]

    def fail(self, place: int, error: Exception) -> None:
        self.world.remote.fetches[place][1].set_exception(error)


def test_it_is_complete_with_the_last_read(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path, remote=2)
        assert not fetching.operation.try_complete()
        fetching.find(1, b"second")
        await settle()
        assert not fetching.operation.try_complete() and fetching.ready == []
        fetching.find(0, b"first")
        await settle()
        assert fetching.ready == [fetching.operation] and fetching.operation.try_complete()
        first, second, local = fetching.complete()
        assert [bytes(each.records) for each in (first, second)] == [b"first", b"second"]
        assert [each.size_bytes for each in (first, second)] == [5, 6]
        assert (first.high_watermark, first.last_stable_offset, first.log_start_offset) == (3, 3, 0)
        assert local.file_slice is not None and local.error is ErrorCode.none
        assert fetching.answers == 1

    simulate(story)


def test_offsets_are_those_of_the_request(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path)
        fetching.world.append(batch("later"), topic="remote-1")
        fetching.find(0)
        remote, _ = fetching.complete()
        assert (remote.high_watermark, remote.last_stable_offset, remote.log_start_offset) == (3, 3, 0)

    simulate(story)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RemoteStorageError("slow down"), ErrorCode.unknown_server_error),
        (OffsetOutOfRangeError("nowhere"), ErrorCode.offset_out_of_range),
        (ReplicaNotAvailableError("not yet"), ErrorCode.replica_not_available),
        (NotLeaderOrFollowerError("moved"), ErrorCode.not_leader_or_follower),
        (ZeroDivisionError("a bug"), ErrorCode.unknown_server_error),
    ],
)
def test_an_error_is_that_of_its_partition(tmp_path: Path, error: Exception, code: ErrorCode) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path, remote=2)
        fetching.fail(0, error)
        fetching.find(1)
        await settle()
        first, second, local = fetching.complete()
        assert (first.error, first.high_watermark, first.log_start_offset, first.records) == (code, -1, -1, b"")
        assert (second.error, bytes(second.records)) == (ErrorCode.none, b"abc")
        assert local.error is ErrorCode.none and local.file_slice is not None

    simulate(story)


def test_a_read_that_remote_storage_drops_is_an_error(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path)
        fetching.world.remote.fetches[0][1].cancel()
        await settle()
        assert fetching.ready == [fetching.operation]
        assert fetching.complete()[0].error is ErrorCode.unknown_server_error

    simulate(story)


def test_32_a_read_that_is_refused_is_an_error_at_once(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        world = TieredWorld(tmp_path)
        for name in ("one", "two"):
            tier(world.create_tiered_topic(name, 1000, 2000).log, 1)
        world.remote.refusal = RemoteStorageError("100 wait")
        requests = [FetchPartition(name, 0, 0, SIZE) for name in ("one", "two")]
        results, reads = world.replicas._reader.locate(CONSUMER, requests, is_first_read=True)
        assert reads is not None
        operation = DelayedRemoteFetch(
            results, reads, world.remote, ByteBudget(0), on_ready=lambda _: None, answer=lambda: None
        )
        assert not operation.try_complete()  # for the other one
        world.remote.fetches[0][1].set_result(RemoteRecords(b"abc", None))
        await settle()
        assert operation.try_complete()
        operation.on_complete(False)
        assert [each.error for each in results] == [ErrorCode.unknown_server_error, ErrorCode.none]
        assert [bytes(each.records) for each in results] == [b"", b"abc"]

    simulate(story)


def test_31_what_is_not_done_is_empty_and_taken_back(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path, remote=2)
        fetching.find(0)
        await settle()
        first, second, local = fetching.complete(expired=True)
        assert bytes(first.records) == b"abc"
        assert (second.error, second.records, second.high_watermark) == (ErrorCode.none, b"", 3)
        assert local.file_slice is not None
        assert fetching.world.remote.fetches[1][1].cancelled()
        await settle()
        assert fetching.answers == 1 and fetching.ready == []

    simulate(story)


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_partition_that_leaves_ends_the_wait(tmp_path: Path, is_deleted: bool) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path, remote=2)
        partition = fetching.world.partition("remote-2")
        partition.stop(ErrorCode.kafka_storage_error, is_deleted=is_deleted)
        assert fetching.ready == [fetching.operation] and fetching.operation.try_complete()
        results = fetching.complete()
        assert [each.error for each in results] == [ErrorCode.none] * 3
        assert [each.records for each in results[:2]] == [b"", b""]

    simulate(story)


def test_a_leader_that_becomes_a_follower_reads_on(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path)
        fetching.world.place("remote-1", replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1)
        assert fetching.ready == [] and not fetching.operation.try_complete()
        fetching.find(0)
        await settle()
        assert bytes(fetching.complete()[0].records) == b"abc"

    simulate(story)


def test_nobody_listens_any_more_when_it_is_over(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path)
        partition = fetching.world.partition("remote-1")
        assert len(partition._listeners) == 1
        fetching.complete(expired=True)
        assert len(partition._listeners) == 0
        fetching = Fetching(tmp_path / "other")
        partition = fetching.world.partition("remote-1")
        fetching.operation.abandon()
        assert len(partition._listeners) == 0
        assert fetching.world.remote.fetches[0][1].cancelled()
        assert (fetching.answers, fetching.budget.used_bytes) == (0, 0)

    simulate(story)


def test_37_a_log_start_that_has_moved_meanwhile_is_out_of_range(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        for number, end in enumerate(("found", "lost")):
            fetching = Fetching(tmp_path / str(number))
            fetching.world.partition("remote-1").delete_records_on_leader(1)
            if end == "found":
                fetching.find(0)
            else:
                fetching.fail(0, RemoteStorageError("the object is not there any more"))
            remote, local = fetching.complete()
            assert (remote.error, remote.records, remote.size_bytes) == (ErrorCode.offset_out_of_range, b"", 0)
            assert local.error is ErrorCode.none

    simulate(story)


def test_a_range_of_a_log_that_was_cut_meanwhile_is_not_read(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path)
        fetching.world.partition("local").log.truncate_to(0)
        fetching.find(0)
        remote, local = fetching.complete()
        assert (local.error, local.file_slice, local.size_bytes) == (ErrorCode.kafka_storage_error, None, 0)
        assert bytes(remote.records) == b"abc"

    simulate(story)


@pytest.mark.parametrize("rest", [{}, {"next_offset": 1}])
def test_what_was_read_of_a_log_that_was_cut_meanwhile_is_not_told(tmp_path: Path, rest: dict[str, int]) -> None:
    """An unclean election: what was read may go on above the cut, where the log has other records now."""

    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path, remote=2, params=COMMITTED)
        fetching.find(0, aborted=(AbortedTransaction(7, 0, 2, 3),), **rest)
        fetching.find(1)
        fetching.world.partition("remote-1").log.truncate_to(2)
        first, second, _ = fetching.complete()
        assert (first.error, first.records, first.file_slice, first.size_bytes) == (ErrorCode.none, b"", None, 0)
        assert first.aborted_transactions == ()
        assert bytes(second.records) == b"abc"

    simulate(story)


def test_nor_what_went_wrong(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path)
        fetching.fail(0, OffsetOutOfRangeError("of the log as it was"))
        fetching.world.partition("remote-1").log.truncate_to(2)
        remote, _ = fetching.complete()
        assert (remote.error, remote.records) == (ErrorCode.none, b"")

    simulate(story)


def test_37_a_log_that_was_cut_below_the_offset_is_out_of_range(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path)
        fetching.world.partition("remote-1").log.truncate_fully_and_start_at(2)
        fetching.find(0)
        remote, _ = fetching.complete()
        assert (remote.error, remote.records) == (ErrorCode.offset_out_of_range, b"")

    simulate(story)


def test_where_remote_storage_ends_the_local_log_goes_on(tmp_path: Path) -> None:
    """Batches at the end of the last remote segment were compacted away before the topic was tiered."""

    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path, params=COMMITTED)
        fetching.find(0, b"", next_offset=1, aborted=())
        remote, _ = fetching.complete()
        log = fetching.world.partition("remote-1").log
        expected = log.read(1, SIZE, 3, min_one_batch=True).file_slice
        assert remote.file_slice is not None and expected is not None
        assert (remote.file_slice.file.path, remote.file_slice.size) == (expected.file.path, expected.size)
        assert (remote.size_bytes, remote.aborted_transactions) == (expected.size, ())

    simulate(story)


def test_unless_it_begins_later_by_now(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path)
        tier(fetching.world.partition("remote-1").log, 2)
        fetching.find(0, b"", next_offset=1)
        remote, _ = fetching.complete()
        assert (remote.error, remote.file_slice, remote.size_bytes) == (ErrorCode.none, None, 0)

    simulate(story)


def test_36_aborted_transactions_come_with_the_records(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        aborted = (AbortedTransaction(7, 0, 2, 3),)
        for number, end in enumerate(("found", "expired")):
            fetching = Fetching(tmp_path / str(number), params=COMMITTED)
            if end == "found":
                fetching.find(0, aborted=aborted)
            remote, _ = fetching.complete(expired=end == "expired")
            assert remote.aborted_transactions == (aborted if end == "found" else ())

    simulate(story)


def test_what_may_come_and_what_has_come_counts_as_memory(tmp_path: Path) -> None:
    async def story(loop: SimLoop) -> None:
        fetching = Fetching(tmp_path, remote=2)
        assert fetching.budget.used_bytes == 2 * SIZE
        fetching.find(0, b"x" * 1000)  # a first batch may be larger than it should
        await settle()
        assert fetching.budget.used_bytes == 1000 + SIZE
        fetching.fail(1, RemoteStorageError("gone"))
        await settle()
        assert fetching.budget.used_bytes == 1000
        fetching.complete()
        assert fetching.budget.used_bytes == 0
        fetching = Fetching(tmp_path / "other", remote=2)
        fetching.complete(expired=True)
        await settle()
        assert fetching.budget.used_bytes == 0

    simulate(story)
