"""A session that looks only at dirty partitions answers exactly as one that reads them all, as Kafka does."""

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
from tests.support.builders import ReplicaWorld, batch

PARTITIONS = 4
CONSUMER = FetchParams(version=12)

Told = tuple[int, ErrorCode, int, int, int]

partition_numbers = st.integers(0, PARTITIONS - 1)
steps = st.one_of(
    st.tuples(st.just("append"), partition_numbers),
    st.tuples(st.just("delete records"), partition_numbers),
    st.tuples(st.just("follow"), partition_numbers),
    st.tuples(st.just("lead"), partition_numbers),
    st.tuples(st.just("delete topic"), partition_numbers),
    st.tuples(st.just("create topic"), partition_numbers),
    st.tuples(st.just("take"), partition_numbers),
    st.tuples(st.just("forget"), partition_numbers),
    st.tuples(st.just("fetch"), partition_numbers),
    st.tuples(st.just("fetch"), partition_numbers),
)


class Twins:
    """One topic per partition, a session, and a memory of what was told that always looks at everything."""

    def __init__(self, directory: Path) -> None:
        self.world = ReplicaWorld(directory)
        self.world.register_brokers(1, 2)
        self.reader = FetchReader(self.world.replicas._hosted, InlineDiskExecutor())
        self.session = FetchSession(1, replica_id=-1, uses_topic_ids=False, created_ms=0)
        self.offsets: dict[int, int] = {}
        self.last_told: dict[int, tuple[int, int]] = {}
        self.incarnation = 0
        for number in range(PARTITIONS):
            self.world.create_topic(f"t{number}", replicas=(1, 2), isr=(1,))
            self.ask(number, 0)
        for _ in range(2):  # from here on nothing is dirty
            self.step("fetch", 0)
        assert self.session.dirty_count == 0

    def ask(self, number: int, offset: int) -> None:
        self.offsets[number] = offset
        self.last_told.setdefault(number, (-1, -1))
        self.session.add(FetchPartition(f"t{number}", 0, offset, 1 << 20))

    def forget(self, number: int) -> None:
        self.session.forget([(f"t{number}", 0)])
        self.offsets.pop(number, None)
        self.last_told.pop(number, None)

    def step(self, name: str, number: int) -> None:
        topic = f"t{number}"
        hosted = self.world.replicas.hosted_partition(TopicPartition(topic, 0))
        if name == "create topic" and hosted is None:
            self.incarnation += 1
            self.world.create_topic(topic, replicas=(1, 2), isr=(1,), incarnation=self.incarnation)
        elif name == "delete topic" and hosted is not None:
            self.world.delete_topic(topic)
        elif name == "follow" and hosted is not None and hosted.is_leader:
            self.world.place(topic, leader=2, leader_epoch=hosted.leader_epoch + 1)
        elif name == "lead" and hosted is not None and not hosted.is_leader:
            self.world.place(topic, leader=1, isr=(1,), leader_epoch=hosted.leader_epoch + 1)
        elif name == "append" and hosted is not None and hosted.is_leader:
            self.world.append(batch("a", "b"), topic=topic)
        elif name == "delete records" and hosted is not None and hosted.is_leader:
            hosted.delete_records_on_leader(-1)
        elif name == "take":
            end = 0 if hosted is None else hosted.log.log_end_offset
            self.ask(number, end)
        elif name == "forget":
            self.forget(number)
        elif name == "fetch":
            assert sorted(self.told_by_session()) == sorted(self.told_by_looking_at_all())

    def told_by_session(self) -> list[Told]:
        results = self.reader.locate(CONSUMER, self.session.partitions_to_read(), is_first_read=True)[0]
        return [summary(result) for result in self.session.select_told(results)]

    def told_by_looking_at_all(self) -> list[Told]:
        requests = [FetchPartition(f"t{number}", 0, offset, 1 << 20) for number, offset in self.offsets.items()]
        told = []
        for result in self.reader.locate(CONSUMER, requests, is_first_read=True)[0]:
            number = int((result.request.topic or "t0")[1:])
            now = (result.high_watermark, result.log_start_offset)
            is_error = result.error is not ErrorCode.none
            if result.size_bytes or is_error or now != self.last_told[number]:
                told.append(summary(result))
            self.last_told[number] = (-1, result.log_start_offset) if is_error else now
        return told


def summary(result: FetchPartitionResult) -> Told:
    number = int((result.request.topic or "t0")[1:])
    return (number, result.error, result.high_watermark, result.log_start_offset, result.size_bytes)


@settings(max_examples=60)
@given(st.lists(steps, min_size=5, max_size=40))
def test_the_dirty_set_is_invisible(story: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        twins = Twins(Path(directory))
        for name, number in story:
            twins.step(name, number)
        twins.step("fetch", 0)
        twins.step("fetch", 0)
