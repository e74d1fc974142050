"""RemoteLeaderEpochs: the `LeaderEpochs` over one connection per leader (Kafka's RemoteLeaderEndPoint)."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from broker.common.identifiers import BrokerId, TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.log.leader_epoch_file_cache import EpochEndOffset
from broker.replication.leader_endpoint import LeaderUnavailableError
from broker.replication.replica_fetcher_manager import AddressOf, LeaderAddress
from broker.server.remote_leader_endpoint import LeaderConnection, ask_epoch_end_offset

# Whoever asks waits with slices in hand, so an answer that does not come soon is given up sooner than a fetch is.
DEADLINE_MS_MAX: Final = 5000

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
        answer = await ask_epoch_end_offset(
            connection,
            self._local_broker_id,
            topic_partition,
            epoch,
            current_leader_epoch=current_leader_epoch,
            timeout_ms=min(self._config.current.replica_socket_timeout_ms, DEADLINE_MS_MAX),
        )
        return EpochEndOffset(*answer)

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
