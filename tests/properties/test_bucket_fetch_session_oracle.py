"""As test_fetch_session_oracle, for a follower through a bucket (KIP-1176): no bytes make a session look again.

Everything it is told is told by offsets alone, so a partition that is wrongly left alone would stay so.
"""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.common.disk import InlineDiskExecutor
from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.replication.fetch_params import FetchParams, FetchPartition, FetchPartitionResult
from broker.replication.fetch_reader import FetchReader
from broker.replication.fetch_session import FetchSession
from broker.replication.partition import Partition
from tests.support.builders import ReplicaWorld, batch
from tests.support.recording_leader_wal import RecordingLeaderWal

PARTITIONS = 2
FOLLOWER = FetchParams(17, replica_id=2, replica_epoch=12)
OTHER = FetchParams(17, replica_id=3, replica_epoch=13)

Told = tuple[int, ErrorCode, int, int, bool]

partition_numbers = st.integers(0, PARTITIONS - 1)
names = [
    "append",
    "append",
    "other fetches",
    "delete records",
    "next epoch",
    "next epoch, heard of",
    "next epoch, heard of",
    "follow",
    "lead",
    "take",
    "take",
    "take one",
    "hear of the epoch",
    "forget",
    "fetch",
    "fetch",
    "fetch",
]
steps = st.tuples(st.sampled_from(names), partition_numbers)


class Twins:
    """One topic per partition, a session, and a memory of what was told that always looks at everything."""

    def __init__(self, directory: Path) -> None:
        self.world = ReplicaWorld(directory)
        self.world.register_brokers(1, 2, 3)
        self.reader = FetchReader(self.world.replicas._hosted, InlineDiskExecutor())
        self.session = FetchSession(1, replica_id=2, uses_topic_ids=False, created_ms=0)
        self.asked: dict[int, tuple[int, int]] = {}  # offset and leader epoch
        self.last_told: dict[int, tuple[int, int]] = {}
        for number in range(PARTITIONS):
            self.world.create_topic(f"t{number}", replicas=(1, 2, 3))
            self.hosted(number).leader_wal = RecordingLeaderWal()
            self.ask(number, 0, 0)
        for _ in range(2):  # from here on nothing is dirty
            self.fetch()
        assert self.session.dirty_count == 0

    def hosted(self, number: int) -> Partition:
        found = self.world.replicas.hosted_partition(TopicPartition(f"t{number}", 0))
        assert found is not None
        return found

    def request(self, number: int) -> FetchPartition:
        offset, epoch = self.asked[number]
        return FetchPartition(f"t{number}", 0, offset, 1 << 20, current_leader_epoch=epoch, log_start_offset=0)

    def ask(self, number: int, offset: int, epoch: int) -> None:
        if number not in self.asked or self.asked[number][1] != epoch:
            self.last_told[number] = (-1, -1)  # the answer to this is told, whatever it is
        self.asked[number] = (offset, epoch)
        self.session.add(self.request(number))

    def step(self, name: str, number: int) -> None:
        hosted = self.hosted(number)
        offset, epoch = self.asked.get(number, (0, hosted.leader_epoch))
        if name == "append" and hosted.is_leader:
            self.world.append(batch("a", "b"), topic=f"t{number}")
        elif name == "other fetches" and hosted.is_leader:
            end = hosted.log.log_end_offset
            other = FetchPartition(f"t{number}", 0, end, 1 << 20, current_leader_epoch=hosted.leader_epoch)
            self.reader.locate(OTHER, [other], is_first_read=True)
        elif name == "delete records" and hosted.is_leader:
            hosted.delete_records_on_leader(-1)
        elif name.startswith("next epoch") and hosted.is_leader:
            self.world.place(f"t{number}", leader_epoch=hosted.leader_epoch + 1)
            if name.endswith("heard of"):
                self.ask(number, offset, hosted.leader_epoch)
        elif name == "follow" and hosted.is_leader:
            self.world.place(f"t{number}", leader=2, leader_epoch=hosted.leader_epoch + 1)
        elif name == "lead" and not hosted.is_leader:
            self.world.place(f"t{number}", leader=1, leader_epoch=hosted.leader_epoch + 1)
            hosted.leader_wal = RecordingLeaderWal()
        elif name == "take":
            self.ask(number, hosted.log.log_end_offset, epoch)
        elif name == "take one":
            self.ask(number, min(offset + 1, hosted.log.log_end_offset), epoch)
        elif name == "hear of the epoch":
            self.ask(number, offset, hosted.leader_epoch)
        elif name == "forget":
            self.session.forget([(f"t{number}", 0)])
            self.asked.pop(number, None)
        elif name == "fetch":
            self.fetch()

    def fetch(self) -> None:
        assert sorted(self.told_by_session()) == sorted(self.told_by_looking_at_all())
        for number, (offset, epoch) in self.asked.items():
            hosted = self.hosted(number)
            log = hosted.log
            is_valid = hosted.is_leader and epoch == hosted.leader_epoch
            if is_valid and log.log_start_offset <= offset <= log.log_end_offset:
                assert hosted.remote_replicas[2].log_end_offset == offset

    def told_by_session(self) -> list[Told]:
        results = self.reader.locate(FOLLOWER, self.session.partitions_to_read(), is_first_read=True)[0]
        return [summary(result) for result in self.session.select_told(results)]

    def told_by_looking_at_all(self) -> list[Told]:
        told = []
        for number in self.asked:
            (result,) = self.reader.locate(FOLLOWER, [self.request(number)], is_first_read=True)[0]
            is_error = result.error is not ErrorCode.none
            now = (result.high_watermark, result.log_start_offset)
            if result.size_bytes or is_error or now != self.last_told[number]:
                told.append(summary(result))
            self.last_told[number] = (-1, -1) if is_error else now
        return told


def summary(result: FetchPartitionResult) -> Told:
    number = int((result.request.topic or "t0")[1:])
    return (number, result.error, result.high_watermark, result.log_start_offset, result.size_bytes > 0)


@settings(max_examples=60)
@given(st.lists(steps, min_size=5, max_size=50))
def test_the_dirty_set_is_invisible_to_a_follower_through_a_bucket(story: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        twins = Twins(Path(directory))
        for name, number in story:
            twins.step(name, number)
        twins.fetch()
        twins.fetch()
