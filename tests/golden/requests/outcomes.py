"""What a broker makes of each recorded request: which error codes it answers with, or that it closes the connection.

The same world is set up before the first request and mended before each one, so that two brokers can be compared:
the topics the requests name exist, their coordinators are loaded, and no group has a member.
"""

import csv
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import decode_response
from broker.records.memory_records_builder import records_batch
from tests.support.patience import PATIENCE, until
from tests.support.requests_corpus import RecordedRequest, recorded_requests
from tests.support.wire_client import LENGTH, ConnectionClosed, WireClient

TABLE = Path(__file__).with_name("outcomes.tsv")
DIFFERENCES = Path(__file__).with_name("differences.tsv")

CLOSED = "closed"
SILENT = "no answer"
TOPICS = {"t1": 4, "t2": 4, "foo": 4, "tt": 2}
RECORDS = 10
GROUPS, TRANSACTIONAL_IDS = ("g1", "g2"), ("tx", "tx1")


class Outcome(NamedTuple):
    """One row of the table."""

    name: str
    outcome: str


class Difference(NamedTuple):
    """Where our outcome is another one on purpose: for requests whose name begins with `prefix`."""

    prefix: str
    outcome: str
    reason: str


def read_table() -> list[Outcome]:
    with TABLE.open(newline="") as file:
        return [Outcome(*row) for row in csv.reader(file, delimiter="\t") if not row[0].startswith("#")]


def read_differences() -> list[Difference]:
    with DIFFERENCES.open(newline="") as file:
        return [Difference(*row) for row in csv.reader(file, delimiter="\t") if not row[0].startswith("#")]


def outcomes(port: int) -> Iterator[Outcome]:
    """Send every recorded request to the broker of this port, each on a connection of its own."""
    with WireClient(port) as client:
        world = World(client)
        world.prepare()
        for request in recorded_requests():
            world.mend(request.api_key)
            outcome, answer = ask(port, request)
            while "coordinator_load_in_progress" in outcome:
                outcome, answer = ask(port, request)
            if request.api_key == ApiKey.JOIN_GROUP and answer is not None:
                world.leave("g1", answer.member_id)
            yield Outcome(request.name, outcome)


def ask(port: int, request: RecordedRequest) -> tuple[str, Any]:
    """The outcome of one request, and its answer if there is one."""
    api_key = ApiKey(request.api_key)
    with WireClient(port) as client:
        client.send_bytes(LENGTH.pack(len(request.frame)) + request.frame)
        try:
            frame = client.receive_frame()
        except ConnectionClosed:
            return CLOSED, None
        except TimeoutError:
            return SILENT, None
    correlation_id, answer = decode_response(api_key, request.version, frame)
    assert correlation_id == int.from_bytes(request.frame[4:8], "big")
    return " ".join(sorted(set(errors(answer)))) or "answered", answer


def errors(value: Any, path: str = "") -> Iterator[str]:
    """`path=name` of every error code in an answer; a path names fields, not positions."""
    if isinstance(value, ErrorCode):
        yield f"{path}={value.name}"
    elif is_dataclass(value):
        for field in fields(value):
            yield from errors(getattr(value, field.name), f"{path}.{field.name}" if path else field.name)
    elif isinstance(value, tuple):
        for each in value:
            yield from errors(each, path)


class World:
    """The topics and groups the recorded requests speak of."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def prepare(self) -> None:
        for topic in TOPICS:
            self._create(topic)
        for kind, keys in ((0, GROUPS), (1, TRANSACTIONAL_IDS)):
            for key in keys:
                self._find_coordinator(key, kind)

    def mend(self, api_key: int) -> None:
        """Undo what earlier requests did to the topics."""
        if api_key == ApiKey.CREATE_TOPICS:
            self._delete("tt")
        elif api_key in (ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_RECORDS):
            for topic in ("tt", "t1"):
                self._delete(topic)
                self._create(topic)
        else:
            for topic in TOPICS:
                self._create(topic)

    def keep_only(self, others: set[str]) -> None:
        """Delete every topic but those of the world, the given ones and internal ones."""
        schema = self._client.request(ApiKey.METADATA, 12)
        request = schema.MetadataRequest(
            topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        rows = self._client.ask(ApiKey.METADATA, 12, request).topics
        for row in rows:
            if row.name not in TOPICS and row.name not in others and not row.is_internal:
                self._delete(row.name)
        for topic in TOPICS:
            self._create(topic)

    def leave(self, group: str, member_id: str) -> None:
        schema = self._client.request(ApiKey.LEAVE_GROUP, 3)
        members = tuple(
            schema.MemberIdentity(member_id=member, group_instance_id=instance)
            for member, instance in ((member_id, None), ("", "i1"))
            if member or instance
        )
        for member in members:
            self._client.ask(ApiKey.LEAVE_GROUP, 3, schema.LeaveGroupRequest(group_id=group, members=(member,)))

    def _create(self, name: str) -> None:
        if self._partition_errors(name) == {ErrorCode.none}:
            return
        schema = self._client.request(ApiKey.CREATE_TOPICS, 7)
        topic = schema.CreatableTopic(
            name=name, num_partitions=TOPICS[name], replication_factor=1, assignments=(), configs=()
        )
        request = schema.CreateTopicsRequest(topics=(topic,), timeout=PATIENCE, validate_only=False)
        (row,) = self._client.ask(ApiKey.CREATE_TOPICS, 7, request).topics
        assert row.error_code is ErrorCode.none, row
        until(lambda: self._partition_errors(name) == {ErrorCode.none}, f"{name} is there")
        for partition in range(TOPICS[name]):
            self._fill(name, partition)

    def _delete(self, name: str) -> None:
        schema = self._client.request(ApiKey.DELETE_TOPICS, 5)
        request = schema.DeleteTopicsRequest(topic_names=(name,), timeout=PATIENCE)
        self._client.ask(ApiKey.DELETE_TOPICS, 5, request)
        until(lambda: self._partition_errors(name) == {ErrorCode.unknown_topic_or_partition}, f"{name} is gone")

    def _partition_errors(self, name: str) -> set[ErrorCode]:
        schema = self._client.request(ApiKey.METADATA, 12)
        topic = schema.MetadataRequestTopic(name=name, topic_id=None)
        request = schema.MetadataRequest(
            topics=(topic,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        (row,) = self._client.ask(ApiKey.METADATA, 12, request).topics
        return {row.error_code, *(partition.error_code for partition in row.partitions)}

    def _fill(self, name: str, partition: int) -> None:
        until(lambda: self._produce(name, partition) is ErrorCode.none, f"{name}-{partition} has a leader")

    def _produce(self, name: str, partition: int) -> ErrorCode:
        schema = self._client.request(ApiKey.PRODUCE, 12)
        records = bytes(records_batch(*((time.time_ns() // 1_000_000, None, b"value") for _ in range(RECORDS))))
        data = schema.TopicProduceData(
            name=name, partition_data=(schema.PartitionProduceData(index=partition, records=records),)
        )
        request = schema.ProduceRequest(transactional_id=None, acks=-1, timeout=PATIENCE, topic_data=(data,))
        error: ErrorCode = self._client.ask(ApiKey.PRODUCE, 12, request).responses[0].partition_responses[0].error_code
        assert error in (ErrorCode.none, ErrorCode.not_leader_or_follower), error
        return error

    def _find_coordinator(self, key: str, kind: int) -> None:
        schema = self._client.request(ApiKey.FIND_COORDINATOR, 3)
        request = schema.FindCoordinatorRequest(key=key, key_type=kind)
        refusals = (ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress)
        until(
            lambda: self._client.ask(ApiKey.FIND_COORDINATOR, 3, request).error_code not in refusals,
            f"{key} has a coordinator",
        )
