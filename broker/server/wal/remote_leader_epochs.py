"""RemoteLeaderEpochs: the `LeaderEpochs` over one connection per leader (Kafka's RemoteLeaderEndPoint)."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from broker.common.errors import ErrorCode
from broker.common.identifiers import BrokerId, TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.log.leader_epoch_file_cache import EpochEndOffset
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.replication.leader_endpoint import LeaderUnavailableError
from broker.replication.replica_fetcher_manager import AddressOf, LeaderAddress
from broker.server.remote_leader_endpoint import LeaderConnection, LeaderError

# Whoever asks waits with slices in hand, so an answer that does not come soon is given up sooner than a fetch is.
DEADLINE_MS_MAX: Final = 5000

_VERSION: Final = 4

ConnectForEpochs = Callable[[LeaderAddress], LeaderConnection]


class RemoteLeaderEpochs:
    """Connections are made when a leader is asked, and closed when it has moved or does not answer.

    A cluster has as many leaders as brokers, and no more connections are kept.
    """

    def __init__(
        self,
        local_broker_id: BrokerId,
        config: ConfigHolder[BrokerConfig],
        address_of: AddressOf,
        connect: ConnectForEpochs,
    ) -> None:
        """`address_of` knows where a broker is; None while it is not registered."""
        self._local_broker_id = local_broker_id
        self._config = config
        self._address_of = address_of
        self._connect = connect
        self._connections: dict[BrokerId, tuple[LeaderAddress, LeaderConnection]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator["RemoteLeaderEpochs"]:
        """Closes the connections at the end."""
        try:
            yield self
        finally:
            for leader_id in list(self._connections):
                await self._close(leader_id)

    async def end_offset(
        self, leader_id: BrokerId, topic_partition: TopicPartition, epoch: int, *, current_leader_epoch: int
    ) -> EpochEndOffset:
        connection = await self._connection(leader_id)
        schema = RequestSchema.of(ApiKey.OFFSET_FOR_LEADER_EPOCH, _VERSION)
        partition = schema.OffsetForLeaderPartition(
            partition=topic_partition.partition, current_leader_epoch=current_leader_epoch, leader_epoch=epoch
        )
        request = schema.OffsetForLeaderEpochRequest(
            replica_id=self._local_broker_id,
            topics=(schema.OffsetForLeaderTopic(topic=topic_partition.topic, partitions=(partition,)),),
        )
        timeout_ms = min(self._config.current.replica_socket_timeout_ms, DEADLINE_MS_MAX)
        try:
            response = await connection.send(int(ApiKey.OFFSET_FOR_LEADER_EPOCH), _VERSION, request, timeout_ms)
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

    async def _connection(self, leader_id: BrokerId) -> LeaderConnection:
        address = self._address_of(leader_id)
        known = self._connections.get(leader_id)
        if known is not None and known[0] == address:
            return known[1]
        if address is None:
            if known is not None:
                await self._close(leader_id)
            raise LeaderUnavailableError(f"broker {leader_id} is not registered")
        connection = self._connect(address)
        self._connections[leader_id] = address, connection
        if known is not None:
            await known[1].close()
        return connection

    async def _close(self, leader_id: BrokerId) -> None:
        _, connection = self._connections.pop(leader_id)
        await connection.close()
