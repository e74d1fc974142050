"""Producers and readers of a simulated cluster that follow the leader."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_EPOCH, TopicPartition
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.response_schema import RequestSchema
from broker.records.memory_records_builder import MemoryRecordsBuilder
from broker.records.record_batch import RecordBatch, batches
from tests.support.sim_client import Violation, error_of_fetch, fetch_request, produce_request
from tests.support.sim_cluster_client import NO_REPLICA, AnyBroker, LeaderClient

NOTHING_DIVERGES: Final = -1
REASSIGNMENTS_PER_S: Final = 0.3
DELETIONS_PER_S: Final = 0.5
SWITCHES_PER_S: Final = 0.4
RESOURCE_TOPIC: Final = 2
SET: Final = 0
DELETE: Final = 1


class AcksOneProducer:
    """Writes numbered values, one batch at a time, and never again: acks=1 promises nothing when a leader is lost."""

    def __init__(self, client: LeaderClient, name: str) -> None:
        self.name = name
        self.sent = 0
        self.acknowledged = 0
        self.is_stopping = False
        self.seen: Counter[str] = Counter()
        self._client = client

    async def run(self) -> None:
        while not self.is_stopping:
            await self._send()
            await asyncio.sleep(self._client.chance.expovariate(4.0))

    async def _send(self) -> None:
        builder = MemoryRecordsBuilder()
        for _ in range(self._client.chance.randint(1, 3)):
            builder.append(1_700_000_000_000, None, b"%s:%d:" % (self.name.encode(), self.sent))
            self.sent += 1
        request = produce_request(7, self._client.partition, 1, bytes(builder.build()))
        try:
            answer = await self._client.ask_once(ApiKey.PRODUCE, 7, request)
        except (ConnectionError, TimeoutError):
            self._client.on_refused()
            return
        error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if error is ErrorCode.none:
            self.acknowledged += 1
        elif error in self._client.retriable:
            self.seen[f"acks=1 {error.name}"] += 1
            self._client.on_refused()
        else:
            raise Violation(f"{self.name} was answered {error.name}")


class Reassigner:
    """Moves the replicas of one partition: two or three of the brokers, in any order."""

    def __init__(self, client: AnyBroker, partition: TopicPartition, broker_ids: Sequence[int]) -> None:
        self.is_stopping = False
        self.seen: Counter[str] = Counter()
        self._client = client
        self._partition = partition
        self._broker_ids = broker_ids

    async def run(self) -> None:
        chance = self._client.chance
        while not self.is_stopping:
            await asyncio.sleep(chance.expovariate(REASSIGNMENTS_PER_S))
            await self._move(chance.sample(list(self._broker_ids), chance.choice((2, 3))))

    async def _move(self, replicas: Sequence[int]) -> None:
        schema = RequestSchema.of(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
        partition = schema.ReassignablePartition(partition_index=self._partition.partition, replicas=tuple(replicas))
        request = schema.AlterPartitionReassignmentsRequest(
            timeout=milliseconds(3_000),
            topics=(schema.ReassignableTopic(name=self._partition.topic, partitions=(partition,)),),
        )
        try:
            answer = await self._client.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, request)
        except (ConnectionError, TimeoutError):
            self._client.on_refused()
            return
        error = ErrorCode(answer.error_code) or ErrorCode(answer.responses[0].partitions[0].error_code)
        self.seen[f"reassignment answered {error.name}"] += 1
        if error in self._client.retriable:
            self._client.on_refused()
        elif error is not ErrorCode.none and error is not ErrorCode.invalid_replica_assignment:  # one is off
            raise Violation(f"a reassignment was answered {error.name}")


async def set_topic_config(client: AnyBroker, topic: str, name: str, value: str) -> bool:
    """Until it is so; False when there is no such topic."""
    return await set_topic_configs(client, topic, {name: value})


async def set_topic_configs(client: AnyBroker, topic: str, values: Mapping[str, str | None]) -> bool:
    """All at once, None for a config that is taken away; as `set_topic_config`."""
    schema = RequestSchema.of(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
    configs = tuple(
        schema.AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        for name, value in values.items()
    )
    resource = schema.AlterConfigsResource(resource_type=RESOURCE_TOPIC, resource_name=topic, configs=configs)
    request = schema.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    while True:
        try:
            answer = await client.ask_once(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
        except (ConnectionError, TimeoutError):
            client.on_refused()
            continue
        error = ErrorCode(answer.responses[0].error_code)
        if error in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):
            return error is ErrorCode.none
        if error not in client.retriable:
            message = answer.responses[0].error_message
            raise Violation(f"{dict(values)} for {topic} was answered {error.name}: {message}")
        client.on_refused()
        await client.pause()


class TopicSwitch:
    """Sets a boolean of a topic to false, to true, and so on."""

    def __init__(self, client: AnyBroker, topic: str, name: str) -> None:
        self.is_stopping = False
        self.seen: Counter[str] = Counter()
        self._client = client
        self._topic = topic
        self._name = name

    async def run(self) -> None:
        value = "false"
        while not self.is_stopping:
            await asyncio.sleep(self._client.chance.expovariate(SWITCHES_PER_S))
            self.seen[f"{self._name}={value}"] += await set_topic_config(self._client, self._topic, self._name, value)
            value = "true" if value == "false" else "false"


class RecordDeleter:
    """Deletes records of one partition that somebody has read, from the beginning on (DeleteRecords)."""

    def __init__(self, client: LeaderClient, read_count: Callable[[], int]) -> None:
        self.is_stopping = False
        self.gone_below = 0  # at most; an attempt nobody answered may be carried out, or not
        self.seen: Counter[str] = Counter()
        self._client = client
        self._read_count = read_count

    async def run(self) -> None:
        while not self.is_stopping:
            await asyncio.sleep(self._client.chance.expovariate(DELETIONS_PER_S))
            if self._read_count() > self.gone_below:
                await self._delete(self._client.chance.randint(self.gone_below + 1, self._read_count()))

    async def _delete(self, offset: int) -> None:
        schema = RequestSchema.of(ApiKey.DELETE_RECORDS, 1)
        partition = schema.DeleteRecordsPartition(partition_index=self._client.partition.partition, offset=offset)
        topic = schema.DeleteRecordsTopic(name=self._client.partition.topic, partitions=(partition,))
        request = schema.DeleteRecordsRequest(topics=(topic,), timeout=milliseconds(3_000))
        self.gone_below = offset
        try:
            answer = await self._client.ask_once(ApiKey.DELETE_RECORDS, 1, request)
        except (ConnectionError, TimeoutError):
            self._client.on_refused()
            return
        error = ErrorCode(answer.topics[0].partitions[0].error_code)
        self.seen[f"deletion answered {error.name}"] += 1
        if error in self._client.retriable:
            self._client.on_refused()
        elif error not in (ErrorCode.none, ErrorCode.offset_out_of_range):  # a new leader's high watermark may be lower
            raise Violation(f"a deletion of records was answered {error.name}")


class ClusterReader:
    """Reads one partition from the beginning, with leader epochs: what was read once stays, and offsets are dense."""

    only_committed = False

    def __init__(self, client: LeaderClient, rack: str = "", gone_below: Callable[[], int] = lambda: 0) -> None:
        """`rack`: where it is; a leader elsewhere may send it to a follower that is near.  `gone_below`: records below
        that offset may be deleted; None stands for those that were not read."""
        self.partition = client.partition
        self._rack = rack
        self._gone_below = gone_below
        self.values: list[bytes | None] = []
        self.high_watermark = -1
        self.seen: Counter[str] = Counter()
        self._client = client
        self._version = client.chance.choice((11, 12))
        self._last_epoch = NO_EPOCH

    async def run(self) -> None:
        while True:
            await self.read_once(max_wait_ms=300)
            await asyncio.sleep(self._client.chance.expovariate(3.0))

    async def read_everything(self) -> None:
        """Up to the high watermark of now."""
        self.high_watermark = -1
        while len(self.values) < self.high_watermark or self.high_watermark < 0:
            await self.read_once(max_wait_ms=0)

    async def read_once(self, max_wait_ms: int) -> None:
        offset = len(self.values)
        request = fetch_request(
            self._version,
            self.partition,
            offset,
            self._client.chance.choice((1, 2_000, 1 << 20)),
            max_wait_ms,
            leader_epoch=self._client.leader_epoch,
            last_fetched_epoch=self._last_epoch,
            rack=self._rack,
            only_committed=self.only_committed,
        )
        try:
            answer = await self._client.ask_once(ApiKey.FETCH, self._version, request)
        except (ConnectionError, TimeoutError):
            self._client.on_refused()
            return
        error = error_of_fetch(answer)
        is_from_follower = self._client.read_replica != NO_REPLICA
        if error is ErrorCode.none:
            self.seen["fetch from a follower"] += is_from_follower
            self._take(offset, answer.responses[0].partitions[0])
        elif error is ErrorCode.offset_out_of_range and offset < self._gone_below():
            await self.skip(offset)
        elif error in self._client.retriable or (is_from_follower and error is ErrorCode.offset_out_of_range):
            self.seen[f"fetch {error.name}"] += 1
            self._client.on_refused()
            await self._client.pause()
        else:
            raise Violation(f"a fetch of {self.partition} from {offset} was answered {error.name}")

    async def skip(self, offset: int) -> None:
        """What was deleted from `offset` on: a consumer that goes elsewhere does not know the epoch before it."""
        self.values.extend([None] * (self._gone_below() - offset))
        self._last_epoch = NO_EPOCH

    def _take(self, offset: int, data: Any) -> None:
        diverging = getattr(data, "diverging_epoch", None)
        if diverging is not None and diverging.epoch != NOTHING_DIVERGES:
            if self._client.read_replica != NO_REPLICA:  # it was away, or has lost its tail
                self._client.on_refused()
                return
            raise Violation(f"{self.partition}: epoch {self._last_epoch} before {offset} is not in the leader's log")
        preferred = int(data.preferred_read_replica)
        if preferred != NO_REPLICA:
            self._client.prefer(preferred)
        self.high_watermark = int(data.high_watermark)
        for batch in batches(data.records or b""):
            if not batch.is_crc_valid():
                raise Violation(f"{self.partition}: the batch at {batch.base_offset} has a wrong CRC")
            self._last_epoch = max(self._last_epoch, batch.partition_leader_epoch)
            is_hidden = self.hides(batch, data)
            for record in batch.records():
                if record.offset < offset:
                    continue  # a batch is served whole
                if record.offset != len(self.values):
                    raise Violation(f"{self.partition}: offset {record.offset} follows {len(self.values) - 1}")
                self.values.append(b"" if is_hidden else bytes(record.value or b""))

    def hides(self, batch: RecordBatch, data: Any) -> bool:
        """Whether an application is not shown the records of a batch of this answer."""
        return batch.is_control
