"""RemoteLeaderEndPoint: the `LeaderEndPoint` over a connection of its own (Kafka's RemoteLeaderEndPoint)."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol
from uuid import UUID

from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_version import MetadataVersion
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.response_schema import RequestSchema
from broker.replication.fetch_params import EpochEndOffset
from broker.replication.leader_endpoint import (
    FetchedPartition,
    FetchSessionError,
    FollowerFetch,
    LeaderUnavailableError,
)
from broker.replication.offset_lookup import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from broker.server.fetch_session_handler import FetchSessionHandler, SessionRequest

# By the level of metadata.version from which every broker knows the version (MetadataVersion.fetchRequestVersion).
_FETCH_VERSIONS: Final = (
    (MetadataVersion.IBP_4_1_IV1, 18),
    (MetadataVersion.IBP_3_9_IV0, 17),
    (MetadataVersion.IBP_3_7_IV4, 16),
    (MetadataVersion.IBP_3_5_IV1, 15),
    (MetadataVersion.IBP_3_5_IV0, 14),
)
_OLDEST_FETCH: Final = 13
_LIST_OFFSETS_VERSIONS: Final = (
    (MetadataVersion.IBP_4_0_IV3, 10),
    (MetadataVersion.IBP_3_9_IV0, 9),
    (MetadataVersion.IBP_3_5_IV0, 8),
)
_OLDEST_LIST_OFFSETS: Final = 7
FIRST_WITH_REPLICA_STATE: Final = 15  # KIP-903


class LeaderConnection(Protocol):
    """A connection that is made on demand, and again after a failure."""

    async def send(self, api_key: int, version: int, entity: Any, timeout_ms: int) -> Any:
        """The answer's entity; OSError or TimeoutError when there is none."""

    async def close(self) -> None: ...


class LeaderError(KafkaError):
    """The leader's own code for one partition."""

    def __init__(self, code: ErrorCode, topic_partition: TopicPartition) -> None:
        super().__init__(f"the leader of {topic_partition} answers {code.name}")
        self.code = code  # type: ignore[misc]  # of this one answer, where other errors have one for their class


def fetch_version(metadata_version: int) -> int:
    """The version brokers fetch with among themselves at a finalized level of metadata.version."""
    return _version_at(metadata_version, _FETCH_VERSIONS, _OLDEST_FETCH)


def list_offsets_version(metadata_version: int) -> int:
    return _version_at(metadata_version, _LIST_OFFSETS_VERSIONS, _OLDEST_LIST_OFFSETS)


def _version_at(metadata_version: int, versions: Iterable[tuple[MetadataVersion, int]], oldest: int) -> int:
    return next((version for level, version in versions if metadata_version >= level), oldest)


class RemoteLeaderEndPoint:
    """One fetcher's view of one leader: its connection and its fetch session."""

    def __init__(
        self,
        connection: LeaderConnection,
        *,
        local_broker_id: int,
        broker_epoch: Callable[[], int],
        metadata_version: Callable[[], int],
        config: ConfigHolder[BrokerConfig],
    ) -> None:
        self._connection = connection
        self._local_broker_id = local_broker_id
        self._broker_epoch = broker_epoch
        self._metadata_version = metadata_version
        self._config = config
        self._session = FetchSessionHandler()

    async def fetch(
        self, requests: Mapping[TopicPartition, FollowerFetch], *, max_wait_ms: int
    ) -> Mapping[TopicPartition, FetchedPartition]:
        version = fetch_version(self._metadata_version())
        entity = self._fetch_request(version, self._session.build(requests), max_wait_ms)
        try:
            response = await self._send(ApiKey.FETCH, version, entity)
        except asyncio.CancelledError:  # the answer would block the connection for what is asked next
            await self.close()
            raise
        if response.error_code != ErrorCode.none:
            self._session.refused(response.error_code)
            raise FetchSessionError(response.error_code)
        names = self._session.names()
        answers: dict[TopicPartition, FetchedPartition] = {}
        unknown = 0
        for topic in response.responses:
            name = names.get(topic.topic_id)
            if name is None:
                unknown += 1
                continue
            for partition in topic.partitions:
                answers[TopicPartition(name, partition.partition_index)] = _fetched(partition)
        answered: list[TopicPartition | None] = [*answers, *([None] if unknown else [])]
        if not self._session.accepts(response.session_id, answered):
            raise FetchSessionError(ErrorCode.invalid_fetch_session_epoch)
        return answers

    def begin_anew(self) -> None:
        self._session.lost()

    async def latest_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        return await self._list_offset(topic_partition, leader_epoch, LATEST_TIMESTAMP)

    async def earliest_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        return await self._list_offset(topic_partition, leader_epoch, EARLIEST_TIMESTAMP)

    async def close(self) -> None:
        self._session.lost()
        await self._connection.close()

    async def _send(self, api_key: ApiKey, version: int, entity: Any) -> Any:
        try:
            return await self._connection.send(
                int(api_key), version, entity, self._config.current.replica_socket_timeout_ms
            )
        except (OSError, TimeoutError) as error:
            await self.close()
            raise LeaderUnavailableError(str(error) or type(error).__name__) from error

    def _fetch_request(self, version: int, session: SessionRequest, max_wait_ms: int) -> Any:
        schema = RequestSchema.of(ApiKey.FETCH, version)
        config = self._config.current
        asked: dict[UUID, list[Any]] = {}
        for topic_partition, request in session.asked.items():
            asked.setdefault(request.topic_id, []).append(
                schema.FetchPartition(
                    partition=topic_partition.partition,
                    current_leader_epoch=request.leader_epoch,
                    fetch_offset=request.fetch_offset,
                    last_fetched_epoch=request.last_fetched_epoch,
                    log_start_offset=request.log_start_offset,
                    partition_max_bytes=request.max_bytes,
                )
            )
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, partition in session.forgotten:
            forgotten.setdefault(topic_id, []).append(partition)
        return schema.FetchRequest(
            **self._replica(schema),
            max_wait=milliseconds(max_wait_ms),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            isolation_level=0,
            session_id=session.session_id,
            session_epoch=session.session_epoch,
            topics=tuple(
                schema.FetchTopic(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in asked.items()
            ),
            forgotten_topics_data=tuple(
                schema.ForgottenTopic(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in forgotten.items()
            ),
            rack_id="",
        )

    def _replica(self, schema: RequestSchema) -> dict[str, Any]:
        """Who asks, in the field this version has for it."""
        if schema.version < FIRST_WITH_REPLICA_STATE:
            return {"replica_id": self._local_broker_id}
        state = schema.ReplicaState(replica_id=self._local_broker_id, replica_epoch=self._broker_epoch())
        return {"replica_state": state}

    async def _list_offset(self, topic_partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        version = list_offsets_version(self._metadata_version())
        schema = RequestSchema.of(ApiKey.LIST_OFFSETS, version)
        partition = schema.ListOffsetsPartition(
            partition_index=topic_partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        response = await self._send(
            ApiKey.LIST_OFFSETS,
            version,
            schema.ListOffsetsRequest(
                replica_id=self._local_broker_id,
                isolation_level=0,
                topics=(schema.ListOffsetsTopic(name=topic_partition.topic, partitions=(partition,)),),
                timeout=milliseconds(self._config.current.replica_socket_timeout_ms),
            ),
        )
        answer = response.topics[0].partitions[0]
        if answer.error_code != ErrorCode.none:
            raise LeaderError(answer.error_code, topic_partition)
        return int(answer.offset)


def _fetched(partition: Any) -> FetchedPartition:
    diverging = partition.diverging_epoch
    return FetchedPartition(
        error=partition.error_code,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        records=partition.records or b"",
        diverging_epoch=None if diverging.epoch < 0 else EpochEndOffset(diverging.epoch, diverging.end_offset),
    )
