"""RemoteLeaderEndPoint: the `LeaderEndPoint` over a connection of its own (Kafka's RemoteLeaderEndPoint)."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from broker.common.errors import ErrorCode, KafkaError
from broker.common.identifiers import TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.metadata.metadata_version import MetadataVersion
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.follower_fetch_codec import (
    AskedPartition,
    FetchedAnswer,
    FetchedAnswers,
    FollowerFetchHead,
    decode_response,
    encode_request,
)
from broker.protocol.response_schema import RequestSchema
from broker.replication.fetch_params import EpochEndOffset
from broker.replication.leader_endpoint import (
    FetchedPartition,
    FetchSessionError,
    FollowerFetch,
    LeaderUnavailableError,
)
from broker.replication.leader_local_start import LeaderLocalStart
from broker.replication.offset_lookup import EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from broker.server.fetch_session_handler import FetchSessionHandler, SessionRequest

T = TypeVar("T")

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
_OFFSET_FOR_LEADER_EPOCH_VERSION: Final = 4


class LeaderConnection(Protocol):
    """A connection that is made on demand, and again after a failure."""

    async def send(self, api_key: int, version: int, entity: Any, timeout_ms: int) -> Any:
        """The answer's entity; OSError or TimeoutError when there is none."""

    async def exchange(self, write: Callable[[int, str], bytes], read: Callable[[bytes], T], timeout_ms: int) -> T:
        """The same with a codec of one's own (`BrokerClient.exchange`)."""

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
        self, requests: dict[TopicPartition, FollowerFetch], *, max_wait_ms: int
    ) -> Mapping[TopicPartition, FetchedPartition]:
        session = self._session.build(requests)
        try:
            response = await self._exchange(session, max_wait_ms)
        except asyncio.CancelledError:  # the answer would block the connection for what is asked next
            await self.close()
            raise
        except (OSError, TimeoutError) as error:
            raise await self._lost(error) from error
        if response.error_code:
            refusal = _error(response.error_code)
            self._session.refused(refusal)
            raise FetchSessionError(refusal)
        names = self._session.names()
        answers: dict[TopicPartition, FetchedPartition] = {}
        answered: list[TopicPartition | None] = []
        for topic_id, partitions in response.topics:
            name = names.get(topic_id)
            if name is None:
                answered.append(None)
                continue
            for partition in partitions:
                answers[TopicPartition(name, partition.partition)] = _fetched(partition)
        answered.extend(answers)
        if not self._session.accepts(response.session_id, answered):
            raise FetchSessionError(ErrorCode.invalid_fetch_session_epoch)
        return answers

    def begin_anew(self) -> None:
        self._session.lost()

    async def latest_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        return int((await self._list_offset(topic_partition, leader_epoch, LATEST_TIMESTAMP)).offset)

    async def earliest_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        return int((await self._list_offset(topic_partition, leader_epoch, EARLIEST_TIMESTAMP)).offset)

    async def earliest_local_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> LeaderLocalStart:
        found = await self._list_offset(topic_partition, leader_epoch, EARLIEST_LOCAL_TIMESTAMP)
        return LeaderLocalStart(int(found.leader_epoch), int(found.offset))

    async def epoch_end_offset(self, topic_partition: TopicPartition, epoch: int, leader_epoch: int) -> EpochEndOffset:
        try:
            return await ask_epoch_end_offset(
                self._connection,
                self._local_broker_id,
                topic_partition,
                epoch,
                current_leader_epoch=leader_epoch,
                timeout_ms=self._config.current.replica_socket_timeout_ms,
            )
        except LeaderUnavailableError:
            await self.close()
            raise

    async def close(self) -> None:
        self._session.lost()
        await self._connection.close()

    async def _lost(self, error: Exception) -> LeaderUnavailableError:
        await self.close()
        return LeaderUnavailableError(str(error) or type(error).__name__)

    async def _exchange(self, session: SessionRequest, max_wait_ms: int) -> FetchedAnswers:
        version, config = fetch_version(self._metadata_version()), self._config.current
        head = FollowerFetchHead(
            self._local_broker_id,
            self._broker_epoch(),
            max_wait_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            session.session_id,
            session.session_epoch,
        )
        asked: dict[UUID, list[AskedPartition]] = {}
        for (_, partition), (topic_id, offset, start_offset, epoch, last_epoch, max_bytes) in session.asked.items():
            asked.setdefault(topic_id, []).append((partition, epoch, offset, last_epoch, start_offset, max_bytes))
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, partition in session.forgotten:
            forgotten.setdefault(topic_id, []).append(partition)

        def write(correlation_id: int, client_id: str) -> bytes:
            return encode_request(version, correlation_id, client_id, head, asked, forgotten)

        return await self._connection.exchange(write, decode_response, config.replica_socket_timeout_ms)

    async def _list_offset(self, topic_partition: TopicPartition, leader_epoch: int, timestamp: int) -> Any:
        version = list_offsets_version(self._metadata_version())
        schema = RequestSchema.of(ApiKey.LIST_OFFSETS, version)
        partition = schema.ListOffsetsPartition(
            partition_index=topic_partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        timeout_ms = self._config.current.replica_socket_timeout_ms
        request = schema.ListOffsetsRequest(
            replica_id=self._local_broker_id,
            isolation_level=0,
            topics=(schema.ListOffsetsTopic(name=topic_partition.topic, partitions=(partition,)),),
            timeout=milliseconds(timeout_ms),
        )
        try:
            response = await self._connection.send(int(ApiKey.LIST_OFFSETS), version, request, timeout_ms)
        except (OSError, TimeoutError) as error:
            raise await self._lost(error) from error
        answer = response.topics[0].partitions[0]
        if answer.error_code != ErrorCode.none:
            raise LeaderError(answer.error_code, topic_partition)
        return answer


async def ask_epoch_end_offset(
    connection: LeaderConnection,
    local_broker_id: int,
    topic_partition: TopicPartition,
    epoch: int,
    *,
    current_leader_epoch: int,
    timeout_ms: int,
) -> EpochEndOffset:
    """OffsetForLeaderEpoch: the newest epoch at or below `epoch` that the leader of `current_leader_epoch` knows, and
    its end; (-1, -1): none.  LeaderUnavailableError, LeaderError."""
    version = _OFFSET_FOR_LEADER_EPOCH_VERSION
    schema = RequestSchema.of(ApiKey.OFFSET_FOR_LEADER_EPOCH, version)
    partition = schema.OffsetForLeaderPartition(
        partition=topic_partition.partition, current_leader_epoch=current_leader_epoch, leader_epoch=epoch
    )
    request = schema.OffsetForLeaderEpochRequest(
        replica_id=local_broker_id,
        topics=(schema.OffsetForLeaderTopic(topic=topic_partition.topic, partitions=(partition,)),),
    )
    try:
        response = await connection.send(int(ApiKey.OFFSET_FOR_LEADER_EPOCH), version, request, timeout_ms)
    except (OSError, TimeoutError) as error:
        raise LeaderUnavailableError(str(error) or type(error).__name__) from error
    answer = next(
        (
            each
            for topic in response.topics
            if topic.topic == topic_partition.topic
            for each in topic.partitions
            if each.partition == topic_partition.partition
        ),
        None,
    )
    if answer is None:
        raise LeaderUnavailableError(f"the leader says nothing of {topic_partition}")
    if answer.error_code != ErrorCode.none:
        raise LeaderError(answer.error_code, topic_partition)
    return EpochEndOffset(int(answer.leader_epoch), int(answer.end_offset))


def _fetched(answer: FetchedAnswer) -> FetchedPartition:
    diverging = answer.diverging_epoch
    return FetchedPartition(
        _error(answer.error_code),
        answer.high_watermark,
        answer.log_start_offset,
        answer.records,
        None if diverging is None else EpochEndOffset(*diverging),
    )


def _error(code: int) -> ErrorCode:
    """A code of a newer leader that we do not know is an error like any other."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.unknown_server_error
