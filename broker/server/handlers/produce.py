"""Produce: append record batches to partitions this broker leads."""

from collections.abc import Sequence
from struct import Struct
from typing import Final
from uuid import UUID

from broker.common.buffers import MutableBuffer
from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import TopicPartition
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.frames import Frame
from broker.protocol.produce_codec import NULL_RECORDS, NodeEndpoint, ProduceRequest, decode, encode_response
from broker.records.log_validator import parse_produced_batch
from broker.replication.fetch_params import LeaderHint
from broker.replication.produce_result import PartitionProduceResult
from broker.replication.replica_manager import ReplicaManager
from broker.server.api_registry import handles_frames
from broker.server.leader_endpoints import leader_endpoints
from broker.server.partition_errors import count_errors
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot

FIRST_VERSION_WITH_ZSTD: Final = 7
FIRST_VERSION_WITH_LEADER_HINTS: Final = 10  # KIP-951
INTERNAL_CLIENT_ID: Final = b"__admin_client"  # AdminUtils.ADMIN_CLIENT_ID: may write internal topics
ACKS_NONE: Final = 0

_LENGTH_TO_ATTRIBUTES: Final = Struct(">iibIh")  # of a batch, from its length on
_LENGTH_POSITION: Final = 8
_BATCH_OVERHEAD: Final = 12  # base offset and length
_BATCH_SIZE_MIN: Final = 61
_MAGIC: Final = 2
_CODEC_MASK: Final = 0x07
_ZSTD: Final = 4
_TRANSACTIONAL: Final = 0x10


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
    Left out:  verification of transactions (transaction.partition.verification.enable): transactional batches are
      accepted as they come while there is no transaction coordinator.  Quotas.
    """
    request = decode(frame.buffer, frame.body_position, frame.version)
    call = _ProduceCall(frame, context, slot, replicas, cache, request.acks)
    call.append(request)


class _ProduceCall:
    """One request between its append and its answer."""

    __slots__ = (
        "_acks",
        "_cache",
        "_context",
        "_correlation_id",
        "_frame",
        "_places",
        "_replicas",
        "_slot",
        "_topics",
        "_version",
    )

    def __init__(
        self,
        frame: Frame,
        context: RequestContext,
        slot: ResponseSlot,
        replicas: ReplicaManager,
        cache: MetadataCache,
        acks: int,
    ) -> None:
        self._frame: Frame | None = frame  # let go once the batches are taken from it
        self._version = frame.version
        self._correlation_id = frame.correlation_id
        self._context = context
        self._slot = slot
        self._replicas = replicas
        self._cache = cache
        self._acks = acks
        self._topics: list[tuple[str | UUID, list[PartitionProduceResult]]] = []
        self._places: list[tuple[list[PartitionProduceResult], int]] = []

    def append(self, request: ProduceRequest) -> None:
        frame = self._frame
        assert frame is not None
        entries: list[tuple[TopicPartition, MutableBuffer]] = []
        for name, topic_id, partitions in request.topics:
            if name is None:
                assert topic_id is not None
                name = self._cache.topic_name(topic_id)
                results: list[PartitionProduceResult] = []
                self._topics.append((topic_id, results))
                if name is None:
                    results += [_refused("", index, ErrorCode.unknown_topic_id) for index, _, _ in partitions]
                    continue
            else:
                results = []
                self._topics.append((name, results))
            for index, start, end in partitions:
                topic_partition = TopicPartition(name, index)
                checked = self._check(frame, topic_partition, start, end)
                if isinstance(checked, PartitionProduceResult):
                    results.append(checked)
                    continue
                size, attributes = checked
                if attributes & _TRANSACTIONAL and request.transactional_id is None:
                    self._refuse_all(request, ErrorCode.transactional_id_authorization_failed)
                    return
                batch = frame.buffer[start : start + size]
                entries.append((topic_partition, batch if frame.is_owned else bytearray(batch)))
                self._places.append((results, len(results)))
                results.append(PLACEHOLDER)
        is_admin = frame.client_id_bytes == INTERNAL_CLIENT_ID
        self._frame = None
        self._replicas.append_records(
            timeout_ms=request.timeout_ms,
            required_acks=request.acks,
            entries=entries,
            on_complete=self.on_complete,
            allow_internal_topics=is_admin,
        )

    def _check(
        self, frame: Frame, topic_partition: TopicPartition, start: int, end: int
    ) -> tuple[int, int] | PartitionProduceResult:
        """Size and attributes of the one batch that must be there, or why it is refused."""
        if end - start >= _BATCH_SIZE_MIN:
            length, _, magic, _, attributes = _LENGTH_TO_ATTRIBUTES.unpack_from(frame.buffer, start + _LENGTH_POSITION)
            if (
                length + _BATCH_OVERHEAD == end - start
                and magic == _MAGIC
                and (attributes & _CODEC_MASK != _ZSTD or frame.version >= FIRST_VERSION_WITH_ZSTD)
            ):
                return end - start, attributes
        if self._replicas.lookup_error(topic_partition) is ErrorCode.unknown_topic_or_partition:
            return _refused(topic_partition.topic, topic_partition.partition, ErrorCode.unknown_topic_or_partition)
        try:
            records = None if start == NULL_RECORDS else frame.buffer[start:end]
            batch = parse_produced_batch(records, frame.version)
            return batch.size_bytes, batch.attributes
        except KafkaError as error:
            return _refused(topic_partition.topic, topic_partition.partition, error.code, error.message)

    def _refuse_all(self, request: ProduceRequest, error: ErrorCode) -> None:
        self._topics = [
            (
                name if name is not None else topic_id or UUID(int=0),
                [_refused(name or "", index, error) for index, _, _ in partitions],
            )
            for name, topic_id, partitions in request.topics
        ]
        self._places = []
        self.on_complete([])

    def on_complete(self, appended: Sequence[PartitionProduceResult]) -> None:
        """Every partition has its result: answer."""
        for (results, place), result in zip(self._places, appended, strict=True):
            results[place] = result
        errors = [result for _, results in self._topics for result in results if result.error is not ErrorCode.none]
        if errors:
            count_errors(self._slot, (result.error for result in errors))
        if self._acks == ACKS_NONE:
            self._end_without_answer(errors)
            return
        endpoints: Sequence[NodeEndpoint] = ()
        if errors and self._version >= FIRST_VERSION_WITH_LEADER_HINTS:
            endpoints = self._add_leader_hints(errors)
        self._slot.send(encode_response(self._version, self._correlation_id, self._topics, node_endpoints=endpoints))

    def _end_without_answer(self, errors: Sequence[PartitionProduceResult]) -> None:
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


def _refused(topic: str, partition: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResult:
    return PartitionProduceResult(TopicPartition(topic, partition), error, error_message=message)


PLACEHOLDER: Final = _refused("", -1, ErrorCode.unknown_server_error)  # until the append has spoken
