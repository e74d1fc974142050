"""Clients of a simulated cluster: they ask any broker for metadata, and then the leader or coordinator it names.

Like the Java client they keep the newest leader epoch they have seen and believe no older metadata.
"""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.support.sim_client import RETRIABLE, SimClient, SimConnection
from tests.support.sim_network import SimHost

CONNECT_TIMEOUT_S: Final = 1.0
METADATA_TIMEOUT_S: Final = 1.0
PAUSE_S: Final = 0.2
NO_REPLICA: Final = -1

RETRIABLE_IN_A_CLUSTER: Final = RETRIABLE | {
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.offset_not_available,
    ErrorCode.unknown_topic_id,
    ErrorCode.invalid_replication_factor,  # a broker that is needed is not there
}


class Address(NamedTuple):
    host: str
    port: int


class NotNow(ConnectionError):
    """Nobody leads or coordinates, or nobody knows who."""


class RoutedClient(SimClient, ABC):
    """Finds its node again whenever it was refused; keeps the connection when that is the same node."""

    retriable = RETRIABLE_IN_A_CLUSTER
    is_forwarded = True

    def __init__(self, host: SimHost, bootstrap: Sequence[Address], chance: random.Random) -> None:
        first = bootstrap[0]
        super().__init__(host, first.host, first.port, chance)
        self._bootstrap = bootstrap
        self._address: Address | None = None
        self._is_stale = True
        self._any: SimConnection | None = None

    async def connection(self) -> SimConnection:
        while self._connection is None or not self._connection.is_open or self._is_stale:
            try:
                await self._route()
            except (OSError, TimeoutError):
                await self.pause()
        return self._connection

    async def pause(self) -> None:
        await asyncio.sleep(PAUSE_S * (0.5 + self.chance.random()))

    def on_refused(self) -> None:
        self._is_stale = True

    async def _route(self) -> None:
        address = await self._find()
        if address != self._address or self._connection is None or not self._connection.is_open:
            if self._connection is not None:
                self._connection.close()
            self._address = address
            self._connection = await self._dial(address)
        self._is_stale = False

    async def _dial(self, address: Address) -> SimConnection:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return SimConnection(await self._host.connect(*address))

    @abstractmethod
    async def _find(self) -> Address:
        """Who is to be asked.  ConnectionError or TimeoutError when that cannot be told now."""

    async def ask_any(self, api_key: ApiKey, version: int, entity: Any) -> Any:
        """Ask whichever broker; the next one next time when it does not answer."""
        if self._any is None or not self._any.is_open:
            self._any = await self._dial(self.chance.choice(self._bootstrap))
        try:
            async with asyncio.timeout(METADATA_TIMEOUT_S):
                return await self._any.submit(api_key, version, entity)
        except (OSError, TimeoutError):
            self._any.close()
            raise

    def close(self) -> None:
        super().close()
        if self._any is not None:
            self._any.close()


class AnyBroker(RoutedClient):
    """For requests that every broker answers."""

    async def _find(self) -> Address:
        return self.chance.choice(self._bootstrap)


class LeaderClient(RoutedClient):
    """Asks the leader of one partition, or the replica that it has named for reading, until that refuses.

    `leader_epoch` is that of the newest metadata.
    """

    def __init__(
        self, host: SimHost, bootstrap: Sequence[Address], chance: random.Random, partition: TopicPartition
    ) -> None:
        super().__init__(host, bootstrap, chance)
        self.partition = partition
        self.leader_epoch = -1
        self.read_replica = NO_REPLICA

    def prefer(self, replica: int) -> None:
        """Ask that one from now on (KIP-392)."""
        self.read_replica = replica
        self._is_stale = True

    def on_refused(self) -> None:
        super().on_refused()
        self.read_replica = NO_REPLICA

    async def _find(self) -> Address:
        schema = RequestSchema.of(ApiKey.METADATA, 9)
        request = schema.MetadataRequest(
            topics=(schema.MetadataRequestTopic(name=self.partition.topic),),
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        answer = await self.ask_any(ApiKey.METADATA, 9, request)
        for partition in answer.topics[0].partitions:
            if partition.partition_index == self.partition.partition:
                return self._believe(answer, partition)
        self._ask_another()
        raise NotNow(f"{self.partition} is not known")

    def _believe(self, answer: Any, partition: Any) -> Address:
        addresses = {int(broker.node_id): Address(broker.host, int(broker.port)) for broker in answer.brokers}
        leader = int(partition.leader_id)
        if partition.leader_epoch < self.leader_epoch or leader not in addresses:
            self._ask_another()
            raise NotNow(f"{self.partition} has no leader")
        self.leader_epoch = int(partition.leader_epoch)
        if self.read_replica not in addresses:
            self.read_replica = NO_REPLICA
        return addresses.get(self.read_replica, addresses[leader])

    def distrust(self) -> None:
        """Who was named as the leader refused; who named it may be cut off from the controller as well."""
        self.on_refused()
        self._ask_another()

    def _ask_another(self) -> None:
        """Its metadata is older than ours, or as useless: another may know more."""
        if self._any is not None:
            self._any.close()


class CoordinatorClient(RoutedClient):
    """Asks the coordinator of one group."""

    def __init__(self, host: SimHost, bootstrap: Sequence[Address], chance: random.Random, group: str) -> None:
        super().__init__(host, bootstrap, chance)
        self.group = group

    async def _find(self) -> Address:
        schema = RequestSchema.of(ApiKey.FIND_COORDINATOR, 3)
        request = schema.FindCoordinatorRequest(key=self.group, key_type=0)
        answer = await self.ask_any(ApiKey.FIND_COORDINATOR, 3, request)
        if answer.error_code != ErrorCode.none:
            assert self._any is not None
            self._any.close()
            raise NotNow(f"the coordinator of {self.group}: {answer.error_code}")
        return Address(answer.host, int(answer.port))
