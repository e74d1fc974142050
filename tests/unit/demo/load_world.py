"""Leaders for the load and the reader of a demonstration, behind kio's codec: they take batches and give them back."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from broker.common.errors import ErrorCode
from broker.demo.topic_routes import TopicRoute
from broker.network.broker_client import BrokerClientError
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request, decode_request, encode_response
from broker.records.record_batch import RecordBatch

TOPIC_ID: Final = UUID(int=9)
LENGTH: Final = 4


class FakeLeaders:
    """Partitions of one topic, each with one leader; `errors` are those of the next answers."""

    def __init__(self, leaders: Mapping[int, int]) -> None:
        self.leaders = dict(leaders)
        self.logs: dict[int, list[RecordBatch]] = {partition: [] for partition in leaders}
        self.errors: list[ErrorCode] = []
        self.down: set[int] = set()
        self.finds = 0
        self.takes_seconds = 0.0

    def client_of(self, node_id: int) -> "FakeLeader | None":
        return FakeLeader(self, node_id) if node_id in (1, 2, 3) else None

    async def find(self, names: Sequence[str]) -> Mapping[str, TopicRoute]:
        self.finds += 1
        if self.down >= {1, 2, 3}:
            raise BrokerClientError("down")
        return {name: TopicRoute(TOPIC_ID, dict(self.leaders), True) for name in names}

    async def ends(self, node_id: int, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        return {each: self.end_of(each) for each in partitions}

    def end_of(self, partition: int) -> int:
        return sum(batch.record_count for batch in self.logs[partition])

    def append(self, partition: int, records: bytes) -> None:
        batch = RecordBatch.parse(bytearray(records))
        batch.ensure_valid()
        batch.set_base_offset_and_epoch(self.end_of(partition), 0)
        self.logs[partition].append(batch)


class FakeLeader:
    def __init__(self, leaders: FakeLeaders, node_id: int) -> None:
        self._leaders = leaders
        self._node_id = node_id

    async def exchange(self, write: Callable[[int, str], bytes], read: Callable[[bytes], Any], timeout_ms: int) -> Any:
        await asyncio.sleep(self._leaders.takes_seconds)
        if self._node_id in self._leaders.down:
            raise BrokerClientError("down")
        request = decode_request(write(1, "test")[LENGTH:])
        answer = await (self._produce if request.api_key is ApiKey.PRODUCE else self._fetch)(request)
        return read(b"".join(encode_response(request.api_key, request.version, 1, answer))[LENGTH:])

    def _error_of(self, partition: int) -> ErrorCode:
        if self._leaders.errors:
            return self._leaders.errors.pop(0)
        return ErrorCode.none if self._leaders.leaders[partition] == self._node_id else ErrorCode.not_leader_or_follower

    async def _produce(self, request: Request) -> Any:
        assert request.body.acks == 1
        schema, answers = request.schema, []
        for each in request.body.topic_data[0].partition_data:
            error = self._error_of(each.index)
            if error is ErrorCode.none:
                self._leaders.append(each.index, each.records)
            answers.append(
                schema.PartitionProduceResponse(
                    index=each.index,
                    error_code=error,
                    base_offset=0,
                    log_append_time=None,
                    error_message=None,
                    record_errors=(),
                    log_start_offset=0,
                )
            )
        topic = schema.TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=tuple(answers))
        return schema.ProduceResponse(responses=(topic,), throttle_time=NO_THROTTLE)

    async def _fetch(self, request: Request) -> Any:
        """Waits for half a second when there is nothing."""
        asked = request.body.topics[0].partitions if request.body.topics else ()
        if not any(self._leaders.end_of(each.partition) > each.fetch_offset for each in asked):
            await asyncio.sleep(0.5)
        schema, answers = request.schema, []
        for each in asked:
            error = self._error_of(each.partition)
            found = [batch for batch in self._leaders.logs[each.partition] if batch.base_offset >= each.fetch_offset]
            records = b"".join(bytes(batch.buffer) for batch in found) if error is ErrorCode.none else None
            answers.append(
                schema.PartitionData(
                    partition_index=each.partition,
                    error_code=error,
                    high_watermark=self._leaders.end_of(each.partition),
                    last_stable_offset=0,
                    log_start_offset=0,
                    aborted_transactions=None,
                    preferred_read_replica=-1,
                    records=records,
                )
            )
        topic = schema.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=tuple(answers))
        return schema.FetchResponse(
            throttle_time=NO_THROTTLE, error_code=ErrorCode.none, session_id=0, responses=(topic,)
        )
