from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from broker.cli import wal_topic
from broker.cli.wal_topic import ClusterView, WalTopicReader
from broker.common.errors import ErrorCode
from broker.common.metadata_topic import MetadataRecord, MetadataTopicError
from broker.config.value_types import HostPort
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import ResponseSchema
from broker.records.memory_records_builder import records_batch

ZERO = timedelta()
TOPIC = "__remote_wal_log_metadata"
ONE, TWO = HostPort("one", 9092), HostPort("two", 9092)
TOPIC_IDS = {"t": UUID(int=0x7), TOPIC: UUID(int=0x11)}


class FakeCluster:
    """Two brokers; partition 0 of the topic is led by 1, partition 1 by 2.  `refusals` are answered first."""

    def __init__(self) -> None:
        self.logs = {0: b"", 1: b""}
        self.starts = {0: 0, 1: 0}
        self.ends = {0: 0, 1: 0}
        self.leaders = {0: 1, 1: 2}
        self.refusals: list[ErrorCode] = []
        self.dead: set[HostPort] = set()
        self.asked: list[tuple[str, str]] = []
        self.closed: list[str] = []

    def fill(self, partition: int, *values: bytes | None, start: int = 0) -> None:
        """One batch for each value."""
        self.starts[partition] = start
        for index, value in enumerate(values):
            batch = records_batch((1000 + index, None, value), base_offset=start + index, partition_leader_epoch=0)
            self.logs[partition] += bytes(batch)
        self.ends[partition] = start + len(values)

    def connect(self, address: HostPort) -> "FakeConnection":
        return FakeConnection(self, address)

    def answer(self, api_key: int, version: int, request: Any) -> Any:
        schema = ResponseSchema.of(ApiKey(api_key), version)
        match api_key:
            case ApiKey.METADATA:
                assert not request.allow_auto_topic_creation
                return self._metadata(schema)
            case ApiKey.LIST_OFFSETS:
                row = request.topics[0].partitions[0]
                offset = (self.starts if row.timestamp == -2 else self.ends)[row.partition_index]
                partition = schema.ListOffsetsPartitionResponse(
                    partition_index=row.partition_index, error_code=self._refusal(), offset=offset
                )
                topic = schema.ListOffsetsTopicResponse(name=TOPIC, partitions=(partition,))
                return schema.ListOffsetsResponse(throttle_time=ZERO, topics=(topic,))
            case ApiKey.FETCH:
                return self._fetch(schema, request.topics[0].partitions[0])
        raise AssertionError(api_key)

    def _metadata(self, schema: Any) -> Any:
        brokers = tuple(
            schema.MetadataResponseBroker(node_id=number, host=host, port=9092)
            for number, host in ((1, "one"), (2, "two"))
        )
        rows = {
            "t": (),
            TOPIC: tuple(
                schema.MetadataResponsePartition(
                    error_code=ErrorCode.none,
                    partition_index=index,
                    leader_id=leader,
                    replica_nodes=(),
                    isr_nodes=(),
                    offline_replicas=(),
                )
                for index, leader in self.leaders.items()
            ),
        }
        topics = tuple(
            schema.MetadataResponseTopic(
                error_code=ErrorCode.none, name=name, topic_id=TOPIC_IDS[name], partitions=partitions
            )
            for name, partitions in rows.items()
        )
        return schema.MetadataResponse(throttle_time=ZERO, brokers=brokers, cluster_id="cluster", topics=topics)

    def _fetch(self, schema: Any, asked: Any) -> Any:
        error = self._refusal()
        if not error and asked.fetch_offset < self.starts[asked.partition]:
            error = ErrorCode.offset_out_of_range
        skipped, log = 0, self.logs[asked.partition]
        for _ in range(asked.fetch_offset - self.starts[asked.partition]):
            skipped += 12 + int.from_bytes(log[skipped + 8 : skipped + 12], "big")
        row = schema.PartitionData(
            partition_index=asked.partition,
            error_code=error,
            high_watermark=self.ends[asked.partition],
            aborted_transactions=None,
            records=log[skipped : skipped + 100],  # one batch and a part of the next
        )
        topic = schema.FetchableTopicResponse(topic=TOPIC, partitions=(row,))
        return schema.FetchResponse(throttle_time=ZERO, error_code=ErrorCode.none, responses=(topic,))

    def _refusal(self) -> ErrorCode:
        return self.refusals.pop(0) if self.refusals else ErrorCode.none


class FakeConnection:
    def __init__(self, cluster: FakeCluster, address: HostPort) -> None:
        self._cluster, self._address = cluster, address

    async def send(self, api_key: int, version: int, entity: Any, timeout_ms: int) -> Any:
        self._cluster.asked.append((self._address.host, ApiKey(api_key).name))
        if self._address in self._cluster.dead:
            raise ConnectionRefusedError("nobody listens")
        return self._cluster.answer(api_key, version, entity)

    async def exchange(self, write: Callable[..., Any], read: Callable[..., Any], timeout_ms: int) -> Any:
        raise AssertionError("not used")

    async def close(self) -> None:
        self._cluster.closed.append(self._address.host)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_topic, "RETRY_SECONDS", 0)


async def read(cluster: FakeCluster) -> dict[int, list[MetadataRecord]]:
    found: dict[int, list[MetadataRecord]] = {}

    def on_records(partition: int, records: Sequence[MetadataRecord]) -> None:
        found.setdefault(partition, []).extend(records)

    async with WalTopicReader([ONE], cluster.connect).running() as reader:
        await reader.read_all(on_records)
    return found


async def test_what_a_cluster_is() -> None:
    cluster = FakeCluster()
    cluster.dead.add(ONE)
    async with WalTopicReader([ONE, TWO], cluster.connect).running() as reader:
        view = await reader.cluster()
    assert view == ClusterView("cluster", frozenset(TOPIC_IDS.values()), {1: ONE, 2: TWO}, {0: 1, 1: 2})
    assert cluster.asked == [("one", "METADATA"), ("two", "METADATA")]
    assert cluster.closed == ["one", "two"]


async def test_nobody_answers() -> None:
    cluster = FakeCluster()
    cluster.dead |= {ONE, TWO}
    with pytest.raises(MetadataTopicError, match=r"^two:9092: nobody listens$"):
        await WalTopicReader([ONE, TWO], cluster.connect).cluster()


async def test_all_records_are_read_from_their_leaders() -> None:
    cluster = FakeCluster()
    cluster.fill(0, b"a", b"b", None, b"c")
    cluster.fill(1, b"d", start=7)
    assert await read(cluster) == {
        0: [MetadataRecord(0, 1000, b"a"), MetadataRecord(1, 1001, b"b"), MetadataRecord(3, 1003, b"c")],
        1: [MetadataRecord(7, 1000, b"d")],
    }
    assert [asked for asked in cluster.asked if asked[1] == "FETCH"] == [("one", "FETCH")] * 4 + [("two", "FETCH")]


async def test_an_empty_topic_and_none_at_all() -> None:
    cluster = FakeCluster()
    assert await read(cluster) == {}
    cluster.leaders = {}
    assert await read(cluster) == {}


async def test_a_leader_that_has_moved_is_looked_up_again() -> None:
    cluster = FakeCluster()
    cluster.fill(0, b"a")
    cluster.refusals = [
        ErrorCode.not_leader_or_follower,
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.leader_not_available,
    ]
    assert await read(cluster) == {0: [MetadataRecord(0, 1000, b"a")]}
    assert len([asked for asked in cluster.asked if asked[1] == "METADATA"]) == 4


async def test_after_some_attempts_it_is_given_up() -> None:
    cluster = FakeCluster()
    cluster.refusals = [ErrorCode.not_leader_or_follower] * 30
    with pytest.raises(MetadataTopicError, match=r"^__remote_wal_log_metadata-0: not_leader_or_follower$"):
        await read(cluster)
    cluster = FakeCluster()
    cluster.leaders = {0: -1}
    with pytest.raises(MetadataTopicError, match=r"^__remote_wal_log_metadata-0 has no leader$"):
        await read(cluster)


async def test_retention_may_move_the_start_while_we_read() -> None:
    cluster = FakeCluster()
    cluster.fill(0, b"b", b"c", start=5)
    real = cluster.starts

    class Late(dict[int, int]):
        first = True

        def __getitem__(self, partition: int) -> int:
            was_first, self.first = self.first, False
            return 0 if was_first else real[partition]

    cluster.starts = Late()
    assert await read(cluster) == {0: [MetadataRecord(5, 1000, b"b"), MetadataRecord(6, 1001, b"c")]}
