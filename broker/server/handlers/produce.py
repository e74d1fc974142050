"""Produce: append record batches to partitions this broker leads."""

import functools
import itertools
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import INTERNAL_TOPICS, ZERO_UUID, TopicPartition
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.frames import Frame
from broker.protocol.produce_codec import NodeEndpoint, ProduceRequest, decode, encode_response
from broker.records.log_validator import parse_produced_batch
from broker.records.record_batch import TRANSACTIONAL_FLAG, RecordBatch
from broker.replication.append_request import AppendRequest
from broker.replication.fetch_params import LeaderHint
from broker.replication.produce_result import PartitionProduceResult
from broker.replication.replica_manager import ReplicaManager
from broker.server.api_registry import handles_frames
from broker.server.leader_endpoints import leader_endpoints
from broker.server.partition_errors import count_errors
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot

FIRST_VERSION_WITH_LEADER_HINTS: Final = 10  # KIP-951
INTERNAL_CLIENT_ID: Final = b"__admin_client"  # AdminUtils.ADMIN_CLIENT_ID: may write internal topics
ACKS_NONE: Final = 0

PARTITIONS_CACHED: Final = 16_384

topic_partition_of = functools.lru_cache(maxsize=PARTITIONS_CACHED)(TopicPartition)
"""The same object each time for the same partition: making one costs more than finding it."""


@handles_frames(ApiKey.PRODUCE, versions=range(3, 14), advertised_from=0)
def produce(
    frame: Frame, context: RequestContext, slot: ResponseSlot, replicas: ReplicaManager, cache: MetadataCache
) -> None:
    """Produce: append record batches to partitions this broker leads.

    Behaviour: partitions are independent of each other: some may be refused while others are appended and stay so.
      acks=1 answers after the write, acks=all once every in-sync replica has the records (or after timeout_ms with
      REQUEST_TIMED_OUT, the records staying in the log), acks=0 never: an error then closes the connection.
      Further requests of a connection are read while earlier ones wait for their replicas.  Internal topics are
      refused, except to the client id `__admin_client`.  Bad records are listed with their positions.
    Versions:  3 record batches only · 5 log start offset · 7 zstd allowed · 8 record errors and a message ·
      9 flexible · 10 leader hints · 13 topic ids.  Versions 0 to 2 are advertised but close the connection
      (KIP-896; librdkafka before 2.11.1 wants to see them).
    Left out:  looking into records that no rule of the topic asks for: what a batch says of its records (their number,
      their codec) is believed, and consumers that decode it find out.  Transactions: while there is no coordinator
      that could have begun one, a transactional batch is refused with INVALID_PRODUCER_ID_MAPPING, which is what
      verification (KIP-890) ends with.
    """
    request = decode(frame.buffer, frame.body_position, frame.version)
    call = _ProduceCall(request, frame, context, slot, replicas, cache)
    entries = call.take_batches(frame, request)
    if entries is not None:
        replicas.append_records(call, entries)


class _ProduceCall(AppendRequest):
    """One request between its append and its answer."""

    __slots__ = (
        "_cache",
        "_context",
        "_correlation_id",
        "_refused",
        "_replicas",
        "_slot",
        "_topics",
        "_version",
    )

    def __init__(
        self,
        request: ProduceRequest,
        frame: Frame,
        context: RequestContext,
        slot: ResponseSlot,
        replicas: ReplicaManager,
        cache: MetadataCache,
    ) -> None:
        super().__init__(request.acks, request.timeout_ms)
        self._version = frame.version
        self._correlation_id = frame.correlation_id
        self._context = context
        self._slot = slot
        self._replicas = replicas
        self._cache = cache
        self._topics: list[tuple[str | UUID, int]] = []  # as the client names them, and the number of partitions
        self._refused: list[tuple[int, PartitionProduceResult]] = []  # by position among all partitions, ascending

    def take_batches(self, frame: Frame, request: ProduceRequest) -> list[tuple[TopicPartition, RecordBatch]] | None:
        """The batches to append, out of the frame; None when the whole request is refused, and answered."""
        entries: list[tuple[TopicPartition, RecordBatch]] = []
        for name, topic_id, partitions in request.topics:
            if name is None:
                assert topic_id is not None
                self._topics.append((topic_id, len(partitions)))
                name = self._cache.topic_name(topic_id)
                if name is None:
                    for index, _, _ in partitions:
                        self._refuse(entries, _refused("", index, ErrorCode.unknown_topic_id))
                    continue
            else:
                self._topics.append((name, len(partitions)))
            if name in INTERNAL_TOPICS:
                self.allows_internal_topics = frame.client_id_bytes == INTERNAL_CLIENT_ID
            for index, start, end in partitions:
                topic_partition = topic_partition_of(name, index)
                records = frame.buffer[start:end]  # empty for null
                try:
                    batch = parse_produced_batch(records if frame.is_owned else bytearray(records), frame.version)
                except KafkaError as error:
                    self._refuse(entries, self._not_a_batch(topic_partition, error))
                    continue
                if batch.attributes & TRANSACTIONAL_FLAG:
                    if request.transactional_id is None:
                        self._refuse_all(request, ErrorCode.transactional_id_authorization_failed)
                        return None
                    self._refuse(entries, self._unverified(topic_partition))
                    continue
                entries.append((topic_partition, batch))
        return entries

    def _not_a_batch(self, topic_partition: TopicPartition, error: KafkaError) -> PartitionProduceResult:
        if self._replicas.lookup_error(topic_partition) is ErrorCode.unknown_topic_or_partition:
            return PartitionProduceResult(topic_partition, ErrorCode.unknown_topic_or_partition)
        return PartitionProduceResult(topic_partition, error.code, error_message=error.message)

    def _unverified(self, topic_partition: TopicPartition) -> PartitionProduceResult:
        """No coordinator knows the transaction (KIP-890): begun here, it would hold the last stable offset for ever."""
        error = self._replicas.lookup_error(topic_partition) or ErrorCode.invalid_producer_id_mapping
        return PartitionProduceResult(topic_partition, error)

    def _refuse(self, entries: Sequence[object], refused: PartitionProduceResult) -> None:
        self._refused.append((len(entries) + len(self._refused), refused))

    def _refuse_all(self, request: ProduceRequest, error: ErrorCode) -> None:
        self._topics = [
            (name if name is not None else topic_id or ZERO_UUID, len(partitions))
            for name, topic_id, partitions in request.topics
        ]
        self._refused = []
        self.on_complete(
            [_refused(name or "", index, error) for name, _, partitions in request.topics for index, _, _ in partitions]
        )

    def on_complete(self, results: list[PartitionProduceResult]) -> None:
        """Every partition that was appended to has its result: answer."""
        for position, refused in self._refused:
            results.insert(position, refused)
        endpoints: Sequence[NodeEndpoint] = ()
        for result in results:
            if result.error:
                endpoints = self._note_errors(results)
                break
        charge = self._slot.charge
        throttle_ms = 0 if charge is None else charge.for_produce(has_answer=self.required_acks != ACKS_NONE)
        if self.required_acks == ACKS_NONE:
            self._end_without_answer(results)
            return
        self._slot.send(
            encode_response(self._version, self._correlation_id, self._by_topic(results), throttle_ms, endpoints)
        )

    def _note_errors(self, results: Sequence[PartitionProduceResult]) -> Sequence[NodeEndpoint]:
        """Count them, and say who leads instead to clients that can read it."""
        errors = [result for result in results if result.error]
        count_errors(self._slot, (result.error for result in errors))
        if self._version < FIRST_VERSION_WITH_LEADER_HINTS or self.required_acks == ACKS_NONE:
            return ()
        return self._add_leader_hints(errors)

    def _by_topic(self, results: list[PartitionProduceResult]) -> list[tuple[str | UUID, list[PartitionProduceResult]]]:
        topics = self._topics
        if len(topics) == 1:
            return [(topics[0][0], results)]
        rest = iter(results)
        return [(topic, list(itertools.islice(rest, count))) for topic, count in topics]

    def _end_without_answer(self, results: Sequence[PartitionProduceResult]) -> None:
        errors = [result for result in results if result.error]
        if errors:
            told = ", ".join(f"{result.topic_partition}: {result.error.name}" for result in errors)
            self._slot.close_connection(f"produce with acks=0 failed: {told}")
        else:
            self._slot.send_nothing()

    def _add_leader_hints(self, errors: Sequence[PartitionProduceResult]) -> Sequence[NodeEndpoint]:
        hints: list[LeaderHint] = []
        for result in errors:
            if result.error is ErrorCode.not_leader_or_follower:
                result.current_leader = self._replicas.leader_hint(result.topic_partition)
                hints.append(result.current_leader)
        return leader_endpoints(hints, self._cache, self._context.listener_name) if hints else ()


def _refused(topic: str, partition: int, error: ErrorCode) -> PartitionProduceResult:
    return PartitionProduceResult(TopicPartition(topic, partition), error)
