"""The same reads, asked of our broker and of Apache Kafka one after the other: sessions, offsets, epochs."""

import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.records.memory_records_builder import records_batch
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_peer import KafkaPeer
from tests.support.patience import PATIENCE, until
from tests.support.wire_client import WireClient

pytestmark = [pytest.mark.interop, pytest.mark.java]

NOW = 1_700_000_000_000
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
MISSING_TOPIC_ID = uuid.UUID(int=777)


class Asked(NamedTuple):
    """A partition of a fetch."""

    partition: int
    offset: int = 0
    epoch: int = -1
    last_epoch: int = -1
    max_bytes: int = 1 << 20
    topic: str = "t"


class Reader:
    """One connection; answers come as tuples that two brokers can agree on."""

    def __init__(self, port: int) -> None:
        self.client = WireClient(port)
        self.session_id = 0
        self.topic_ids = {"missing": MISSING_TOPIC_ID}

    def create_topic(self, name: str, partitions: int) -> None:
        schema = self.client.request(ApiKey.CREATE_TOPICS, 7)
        new = schema.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
        )
        asked = schema.CreateTopicsRequest(topics=(new,), timeout=PATIENCE, validate_only=False)
        (created,) = self.client.ask(ApiKey.CREATE_TOPICS, 7, asked).topics
        assert created.error_code is ErrorCode.none
        self.topic_ids[name] = created.topic_id
        for partition in range(partitions):
            self._until_led(name, partition)

    def _until_led(self, topic: str, partition: int) -> None:
        until(
            lambda: self.list_offsets(7, (topic, partition, LATEST, -1))[0][2] == "none",
            f"{topic}-{partition} has a leader",
        )

    def produce(self, topic: str, partition: int, *values: bytes, timestamp: int = NOW) -> None:
        """One batch, its records a millisecond apart."""
        schema = self.client.request(ApiKey.PRODUCE, 9)
        records = bytes(records_batch(*((timestamp + index, b"k", value) for index, value in enumerate(values))))
        row = schema.PartitionProduceData(index=partition, records=records)
        data = schema.TopicProduceData(name=topic, topic_id=None, partition_data=(row,))
        asked = schema.ProduceRequest(transactional_id=None, acks=-1, timeout=PATIENCE, topic_data=(data,))
        (answer,) = self.client.ask(ApiKey.PRODUCE, 9, asked).responses[0].partition_responses
        assert answer.error_code is ErrorCode.none

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        schema = self.client.request(ApiKey.DELETE_RECORDS, 2)
        row = schema.DeleteRecordsPartition(partition_index=partition, offset=offset)
        asked = schema.DeleteRecordsRequest(
            topics=(schema.DeleteRecordsTopic(name=topic, partitions=(row,)),), timeout=PATIENCE
        )
        self.client.ask(ApiKey.DELETE_RECORDS, 2, asked)

    def fetch(
        self,
        version: int,
        *asked: Asked,
        session: tuple[int, int] = (0, -1),
        forget: Sequence[int] = (),
        max_bytes: int = 1 << 20,
        replica_id: int = -1,
    ) -> tuple[Any, ...]:
        schema = self.client.request(ApiKey.FETCH, version)
        topics = tuple(
            schema.FetchTopic(
                topic=name,
                topic_id=self.topic_ids[name],
                partitions=tuple(
                    schema.FetchPartition(
                        partition=each.partition,
                        fetch_offset=each.offset,
                        partition_max_bytes=each.max_bytes,
                        current_leader_epoch=each.epoch,
                        last_fetched_epoch=each.last_epoch,
                    )
                    for each in asked
                    if each.topic == name
                ),
            )
            for name in dict.fromkeys(each.topic for each in asked)
        )
        forgotten = schema.ForgottenTopic(topic="t", topic_id=self.topic_ids["t"], partitions=tuple(forget))
        who = {"replica_state": schema.ReplicaState(replica_id=replica_id)} if version >= 15 else {}
        request = schema.FetchRequest(
            **({"replica_id": replica_id} if version < 15 else who),
            max_wait=timedelta(0),
            min_bytes=0,
            max_bytes=max_bytes,
            isolation_level=0,
            session_id=session[0],
            session_epoch=session[1],
            topics=topics,
            forgotten_topics_data=(forgotten,) if forget else (),
        )
        answer = self.client.ask(ApiKey.FETCH, version, request)
        kind = "none" if answer.session_id == 0 else "same" if answer.session_id == self.session_id else "new"
        if kind == "new":
            self.session_id = answer.session_id
        return answer.error_code.name, kind, *(_told(each) for topic in answer.responses for each in topic.partitions)

    def list_offsets(
        self, version: int, *asked: tuple[str, int, int, int], replica_id: int = -1
    ) -> list[tuple[Any, ...]]:
        """For (topic, partition, timestamp, current epoch)."""
        schema = self.client.request(ApiKey.LIST_OFFSETS, version)
        topics = tuple(
            schema.ListOffsetsTopic(
                name=topic,
                partitions=(
                    schema.ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch),
                ),
            )
            for topic, index, timestamp, epoch in asked
        )
        request = schema.ListOffsetsRequest(replica_id=replica_id, isolation_level=0, topics=topics, timeout=PATIENCE)
        answer = self.client.ask(ApiKey.LIST_OFFSETS, version, request)
        return [
            (topic.name, each.partition_index, each.error_code.name, each.timestamp, each.offset)
            + ((each.leader_epoch,) if version >= 4 else ())
            for topic in answer.topics
            for each in topic.partitions
        ]

    def end_offset(self, version: int, partition: int, epoch: int, current: int = -1, replica_id: int = -1) -> Any:
        schema = self.client.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, version)
        row = schema.OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
        request = schema.OffsetForLeaderEpochRequest(
            replica_id=replica_id, topics=(schema.OffsetForLeaderTopic(topic="t", partitions=(row,)),)
        )
        (topic,) = self.client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request).topics
        (answer,) = topic.partitions
        return answer.error_code.name, answer.leader_epoch, answer.end_offset


def _told(partition: Any) -> tuple[Any, ...]:
    """Not the aborted transactions: an empty list and none at all mean the same to a consumer of either kind."""
    return (
        partition.partition_index,
        partition.error_code.name,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log_start_offset,
        len(partition.records),
        partition.preferred_read_replica,
        (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset),
        (partition.current_leader.leader_id, partition.current_leader.leader_epoch),
    )


def sessions(reader: Reader) -> list[Any]:
    """KIP-227, by name and by topic id."""
    reader.create_topic("t", 3)
    answers: list[Any] = []
    for round_, version in enumerate((12, 17)):

        def step(
            epoch: int, *asked: Asked, session_id: int | None = None, version: int = version, **keywords: Any
        ) -> None:
            session = (reader.session_id if session_id is None else session_id, epoch)
            answers.append(reader.fetch(version, *asked, session=session, **keywords))

        step(0, Asked(0), Asked(1, round_), Asked(2), session_id=0)
        step(1)
        reader.produce("t", 1, b"a")
        step(2)
        step(3)  # not taken yet: told again
        step(4, Asked(1, round_ + 1))
        step(4)  # an epoch that was
        step(1, session_id=123_456)
        step(5, version=17 if version == 12 else 12)  # topics by the other kind of name
        step(5, Asked(0, 100))
        step(6)
        step(7, Asked(0))
        step(8)
        step(9, Asked(0, epoch=0), Asked(2, epoch=7))
        step(10, Asked(2, epoch=0))
        step(11, Asked(0, 5, last_epoch=0), Asked(2, last_epoch=3))
        step(12, Asked(0), Asked(2))
        step(13, forget=(0, 2))
        step(14, forget=(1,))
        step(15)
        step(0, Asked(0), session_id=0)
        step(-1, Asked(0))
        step(1)
        step(-1, Asked(0), Asked(1), Asked(7), session_id=0)
        step(0, session_id=0)
        step(0, Asked(0), Asked(0, topic="missing"), session_id=0)
        step(1)
        step(-5)
        step(0, Asked(1))
    return answers


def limits_and_starts(reader: Reader) -> list[Any]:
    """KIP-74, who may read, and a log start that moves."""
    reader.create_topic("t", 3)
    for _ in range(3):
        reader.produce("t", 0, b"x" * 500)
        reader.produce("t", 2, b"y" * 500)
    both = (Asked(0), Asked(2))
    answers: list[Any] = [reader.fetch(12, *both, session=(0, 0), max_bytes=1)]
    answers += [reader.fetch(12, session=(reader.session_id, epoch), max_bytes=1) for epoch in (1, 2)]
    answers.append(reader.fetch(12, Asked(0, max_bytes=1), Asked(2, max_bytes=1)))
    answers.append(reader.fetch(12, Asked(0, max_bytes=0), Asked(2, max_bytes=0), max_bytes=0))
    answers += [reader.fetch(12, Asked(0), replica_id=replica_id) for replica_id in (-2, -3, 5, 1)]
    answers.append(reader.fetch(12, Asked(0, epoch=0), replica_id=5))
    answers += [reader.fetch(12, Asked(0, offset)) for offset in (-1, -5, 3, 4)]
    answers += [reader.fetch(version, Asked(0, epoch=9)) for version in (15, 16)]
    reader.fetch(12, Asked(0, 3), session=(0, 0))
    reader.delete_records("t", 0, 2)
    answers += [reader.fetch(12, session=(reader.session_id, epoch)) for epoch in (1, 2)]
    answers += [reader.fetch(12, Asked(0, 1, last_epoch=epoch)) for epoch in (-1, 0)]
    answers.append(reader.fetch(12, Asked(0, 2, last_epoch=0)))
    answers += [
        reader.list_offsets(9, ("t", 0, timestamp, -1))
        for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, NOW)
    ]
    return answers


def offsets_and_epochs(reader: Reader) -> list[Any]:
    reader.create_topic("t", 2)
    reader.produce("t", 0, b"a", b"b")
    reader.produce("t", 0, b"c", timestamp=NOW + 500)
    reader.produce("t", 0, b"d", timestamp=NOW + 100)
    timestamps = (*range(-7, 1), NOW, NOW + 1, NOW + 2, NOW + 500, NOW + 501)
    answers: list[Any] = [
        reader.list_offsets(version, ("t", 0, timestamp, -1)) for version in range(1, 11) for timestamp in timestamps
    ]
    answers += [reader.list_offsets(9, ("t", 1, timestamp, -1)) for timestamp in (*range(-5, 0), NOW)]
    answers += [reader.list_offsets(7, ("t", 9, LATEST, -1)), reader.list_offsets(7, ("missing", 0, LATEST, -1))]
    answers += [reader.list_offsets(7, ("t", 0, LATEST, epoch)) for epoch in (0, 9)]
    answers += [
        reader.list_offsets(7, ("t", 0, timestamp, -1), replica_id=replica_id)
        for replica_id in (-2, 1, 7, -3)
        for timestamp in (LATEST, MAX_TIMESTAMP)
    ]
    answers += [
        reader.end_offset(version, partition, epoch, current, replica_id)
        for version in (2, 3, 4)
        for partition, epoch, current in ((0, 0, -1), (1, 0, -1), (0, 5, -1), (0, -1, -1), (0, 0, 9), (7, 0, -1))
        for replica_id in (-1, -2, 1)
    ]
    return answers


@pytest.mark.parametrize("story", [sessions, limits_and_starts, offsets_and_epochs])
def test_reads_are_answered_as_apache_kafka_does(tmp_path: Path, story: Callable[[Reader], list[Any]]) -> None:
    with BrokerProcess(tmp_path / "ours") as ours:
        our_answers = story(Reader(ours.port))
    with KafkaPeer(tmp_path / "kafka") as kafka:
        their_answers = story(Reader(kafka.port))
    assert len(our_answers) == len(their_answers)
    differences = [
        (step, mine, theirs)
        for step, (mine, theirs) in enumerate(zip(our_answers, their_answers, strict=True))
        if mine != theirs
    ]
    assert differences == []
