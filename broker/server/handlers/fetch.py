"""Fetch: record batches of partitions, to consumers and to followers."""

import functools
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from broker.common.errors import ErrorCode
from broker.common.identifiers import ZERO_UUID, TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.fetch_codec import FetchRequest, decode, encode_response
from broker.protocol.frames import Frame
from broker.protocol.produce_codec import NodeEndpoint
from broker.replication.fetch_manager import FetchContext, FetchManager
from broker.replication.fetch_params import (
    CONSUMER_REPLICA_ID,
    FetchParams,
    FetchPartition,
    FetchPartitionResult,
    LeaderHint,
)
from broker.replication.fetch_session import PartitionKey
from broker.replication.replica_manager import ReplicaManager
from broker.server.api_registry import handles_frames
from broker.server.leader_endpoints import leader_endpoints
from broker.server.partition_errors import count_errors
from broker.server.request_charge import RequestCharge
from broker.server.request_context import RequestContext
from broker.server.response_slot import ResponseSlot

LAST_VERSION_WITHOUT_STORAGE_ERROR: Final = 5
FIRST_VERSION_WITH_ZSTD: Final = 10
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
FIRST_VERSION_WITH_LEADER_HINTS: Final = 16  # KIP-951

PARAMS_CACHED: Final = 1024

params_of = functools.lru_cache(maxsize=PARAMS_CACHED)(FetchParams)
"""A client fetches with the same parameters again and again."""

HINTED_ERRORS: Final = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})


@handles_frames(ApiKey.FETCH, versions=range(4, 19))
def fetch(
    frame: Frame,
    context: RequestContext,
    slot: ResponseSlot,
    replicas: ReplicaManager,
    sessions: FetchManager,
    cache: MetadataCache,
    config: ConfigHolder[BrokerConfig],
) -> None:
    """Fetch: record batches of partitions, to consumers and to followers.

    Behaviour: whole batches only; the first batch of the first partition that has one is sent even if it exceeds
      max_bytes and partition_max_bytes (KIP-74), everything else fits.  Waits until min_bytes are there, an error or
      a divergence has to be told, or max_wait_ms are over.  read_committed ends at the last stable offset and lists
      the aborted transactions; control batches are delivered.  Sessions (KIP-227) answer what is new only.
      With replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector a leader sends a consumer to
      the most caught-up in-sync replica of its rack (KIP-392): no records, at once, and that replica's id.  A follower
      serves consumers of version 11 and later up to its own high watermark.
      A follower of a partition that goes through a bucket (KIP-1176) gets offsets and no records.  One that has all
      waits for the next record, one that is behind for remote.wal.fetch.lag.wait.ms, both for a new high watermark.
      Without the leader epoch, or before version 12, it is answered FENCED_LEADER_EPOCH.
      A consumer over its quota gets no records, and is told for how long it is not read from; its session and its
      positions stay as they are.  It gets at most as much at once as its quota allows in ten seconds.
      While clients leave 256 MiB of answers unread, a fetch gets one batch at a time.
      Records that are in remote storage alone (KIP-405) are read there, by leaders and followers, for up to eight
      partitions of a fetch at once; the others are empty, and the next fetch is served them.  Such a fetch waits for
      them, and for remote.fetch.max.wait.ms at most, whatever min_bytes and max_wait_ms say: what is not there by then
      is empty.  A partition whose read finds no reader free, or fails, is UNKNOWN_SERVER_ERROR, while remote log
      metadata are being read REPLICA_NOT_AVAILABLE.  Over remote.log.manager.fetch.max.bytes.per.second it is empty.
      Followers are told OFFSET_MOVED_TO_TIERED_STORAGE.
    Versions:  4 isolation level · 5 log start offset · 7 sessions · 9 leader epochs · 10 zstd · 11 rack ·
      12 flexible, diverging epochs · 13 topic ids · 15 replica state · 16 leader hints · 17 directory id ·
      18 high watermark of a follower (accepted, not used).
    Left out:  down-conversion (KIP-896).
    """
    request = decode(frame.buffer, frame.body_position, frame.version)
    call = _FetchCall(frame.version, frame.correlation_id, context, slot, replicas, cache)
    bytes_max = config.current.fetch_max_bytes
    if slot.charge is not None and request.replica_id < 0:
        bytes_max = min(bytes_max, slot.charge.fetch_bytes_max())
    max_bytes = request.max_bytes if request.max_bytes < bytes_max else bytes_max
    min_bytes = request.min_bytes if request.min_bytes < max_bytes else max_bytes
    params = params_of(
        frame.version,
        request.replica_id,
        request.replica_epoch,
        request.max_wait_ms,
        min_bytes,
        max_bytes,
        request.isolation_level,
        request.rack_id,
        context.listener_name if request.rack_id else "",  # only the choice of a replica by rack looks at it
    )
    call.start(
        params,
        sessions.new_context(
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            replica_id=request.replica_id,
            uses_topic_ids=frame.version >= FIRST_VERSION_WITH_TOPIC_IDS,
            partitions=_requested(request, cache),
            forgotten=_forgotten(request),
        ),
    )


def _requested(request: FetchRequest, cache: MetadataCache) -> list[FetchPartition]:
    partitions = []
    for name, topic_id, asked in request.topics:
        if topic_id is None:
            topic_id = ZERO_UUID
        elif name is None:
            name = cache.topic_name(topic_id)
        for index, leader_epoch, offset, last_epoch, start_offset, max_bytes, _ in asked:
            partitions.append(
                FetchPartition(name, index, offset, max_bytes, topic_id, leader_epoch, last_epoch, start_offset)
            )
    return partitions


def _forgotten(request: FetchRequest) -> list[PartitionKey]:
    return [
        (topic.topic_id if topic.topic_id is not None else topic.name or "", partition)
        for topic in request.forgotten_topics
        for partition in topic.partitions
    ]


class _FetchCall:
    """One request between its read and its answer."""

    __slots__ = (
        "_cache",
        "_context",
        "_correlation_id",
        "_fetch_context",
        "_replica_id",
        "_replicas",
        "_slot",
        "_version",
    )

    def __init__(
        self,
        version: int,
        correlation_id: int,
        context: RequestContext,
        slot: ResponseSlot,
        replicas: ReplicaManager,
        cache: MetadataCache,
    ) -> None:
        self._version = version
        self._correlation_id = correlation_id
        self._context = context
        self._slot = slot
        self._replicas = replicas
        self._cache = cache
        self._replica_id = CONSUMER_REPLICA_ID

    def start(self, params: FetchParams, fetch_context: FetchContext) -> None:
        self._fetch_context: FetchContext = fetch_context
        self._replica_id = params.replica_id
        source = fetch_context.source
        if source is None:
            self.on_complete(())
            return
        parked = self._replicas.fetch(params, source, self.on_complete)
        if parked is not None:
            self._slot.on_closed = lambda: self._replicas.cancel_fetch(parked)

    def on_complete(self, results: Sequence[FetchPartitionResult]) -> None:
        """Everything is read: answer."""
        endpoints: Sequence[NodeEndpoint] = ()
        for result in results:
            if result.error:
                endpoints = self._refine_errors(results)
                break
        if self._version < FIRST_VERSION_WITH_ZSTD:
            _refuse_zstd(results)
        if self._slot.charge is not None and self._is_throttled(self._slot.charge, results):
            return
        answer = self._fetch_context.answer(results)
        if answer.error:
            count_errors(self._slot, (answer.error,))
        self._replicas.count_bytes_out(answer.results, self._replica_id)
        self._slot.send(
            encode_response(
                self._version,
                self._correlation_id,
                answer.error,
                answer.session_id,
                _by_topic(answer.results, self._version >= FIRST_VERSION_WITH_TOPIC_IDS),
                node_endpoints=endpoints,
            )
        )

    def _is_throttled(self, charge: RequestCharge, results: Sequence[FetchPartitionResult]) -> bool:
        """Count the answer as the client's; answer without records when that is more than it may have."""
        if self._replica_id >= 0:
            charge.exempt()
            return False
        topics = _by_topic(self._fetch_context.told(results), self._version >= FIRST_VERSION_WITH_TOPIC_IDS)
        answer_bytes = sum(map(len, encode_response(self._version, self._correlation_id, 0, 0, topics)))
        throttle_ms = charge.for_fetch(answer_bytes)
        if throttle_ms:
            answer = self._fetch_context.throttled()
            if answer.error is not ErrorCode.none:
                count_errors(self._slot, (answer.error,))
            self._slot.send(
                encode_response(self._version, self._correlation_id, answer.error, answer.session_id, (), throttle_ms)
            )
        return throttle_ms > 0

    def _refine_errors(self, results: Sequence[FetchPartitionResult]) -> Sequence[NodeEndpoint]:
        """What only some versions can say: who leads instead, and that a disk has failed."""
        count_errors(self._slot, (result.error for result in results if result.error is not ErrorCode.none))
        hints: list[LeaderHint] = []
        for result in results:
            if self._version >= FIRST_VERSION_WITH_LEADER_HINTS and result.error in HINTED_ERRORS:
                assert result.request.topic is not None
                result.current_leader = self._replicas.leader_hint(
                    TopicPartition(result.request.topic, result.partition)
                )
                hints.append(result.current_leader)
            if self._version <= LAST_VERSION_WITHOUT_STORAGE_ERROR and result.error is ErrorCode.kafka_storage_error:
                result.error = ErrorCode.not_leader_or_follower
        return leader_endpoints(hints, self._cache, self._context.listener_name) if hints else ()


def _refuse_zstd(results: Sequence[FetchPartitionResult]) -> None:
    """Clients that cannot know zstd must not get batches of a topic that is set to it (KIP-110)."""
    for result in results:
        partition = result.request.hosted
        local = None if partition is None else partition.local_log
        if result.size_bytes and local is not None and local.config.compression == "zstd":
            result.refuse(ErrorCode.unsupported_compression_type)


def _by_topic(
    results: Sequence[FetchPartitionResult], uses_topic_ids: bool
) -> list[tuple[str | UUID, list[FetchPartitionResult]]]:
    """Results grouped by topic while it stays the same: their order is the order of service."""
    topics: list[tuple[str | UUID, list[FetchPartitionResult]]] = []
    last: str | UUID | None = None
    for result in results:
        key: str | UUID = result.request.topic_id if uses_topic_ids else result.request.topic or ""
        if key is not last and key != last:  # mostly the same object, and ids are slow to compare
            partitions: list[FetchPartitionResult] = []
            topics.append((key, partitions))
            last = key
        partitions.append(result)
    return topics
