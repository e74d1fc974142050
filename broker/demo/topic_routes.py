"""TopicRoutes: the demonstration as a client of the cluster: its topics made, and where their partitions are led."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from broker.common.errors import ErrorCode
from broker.demo.layout import HOST, PARTITIONS, DemoError, DemoNode, DemoTopic
from broker.network.broker_client import BrokerClient
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.errors import ProtocolError
from broker.protocol.response_schema import RequestSchema

CLIENT_ID: Final = "wherry-demo"
REQUEST_TIMEOUT_MS: Final = 5_000
CREATE_TIMEOUT_MS: Final = 30_000
CREATE_TOPICS_VERSION: Final = 7
METADATA_VERSION: Final = 12  # the first with topic ids that may be asked for all
LIST_OFFSETS_VERSION: Final = 7  # what every broker knows
HEALTHY_SECONDS_MAX: Final = 30.0
LOOK_AGAIN_SECONDS: Final = 0.05
_LATEST: Final = -1


@dataclass(frozen=True)
class TopicRoute:
    """`leaders` by partition, -1 for none; `is_whole` when all replicas of all partitions are in sync."""

    topic_id: UUID
    leaders: Mapping[int, int]
    is_whole: bool


class RoutedConnection(Protocol):
    """`BrokerClient`."""

    async def send(self, api_key: int, version: int, entity: Any, timeout_ms: int) -> Any: ...
    async def exchange(
        self, write: Callable[[int, str], bytes], read: Callable[[bytes], Any], timeout_ms: int
    ) -> Any: ...
    async def close(self) -> None: ...


def real_connection(node: DemoNode) -> BrokerClient:
    return BrokerClient(HOST, node.port, CLIENT_ID)


class TopicRoutes:
    """Asks whichever broker answers; `client_of` gives the connection to one."""

    def __init__(
        self, nodes: Sequence[DemoNode], connect: Callable[[DemoNode], RoutedConnection] = real_connection
    ) -> None:
        self._clients = {node.node_id: connect(node) for node in nodes}

    def client_of(self, node_id: int) -> RoutedConnection | None:
        return self._clients.get(node_id)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    async def create(self, topics: Sequence[DemoTopic], replication_factor: int) -> list[str]:
        """The names of those that were not there; DemoError when one cannot be made."""
        schema = RequestSchema.of(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION)
        request = schema.CreateTopicsRequest(
            topics=tuple(_creatable(schema, topic, replication_factor) for topic in topics),
            timeout=milliseconds(CREATE_TIMEOUT_MS),
            validate_only=False,
        )
        response = await self._ask(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, request, CREATE_TIMEOUT_MS)
        created = []
        for result in response.topics:
            if result.error_code is ErrorCode.none:
                created.append(str(result.name))
            elif result.error_code is not ErrorCode.topic_already_exists:
                raise DemoError(f"topic {result.name}: {result.error_code.name} {result.error_message or ''}")
        return created

    async def find(self, names: Sequence[str]) -> dict[str, TopicRoute]:
        """Where they are, those that are there; OSError or ProtocolError when no broker says it."""
        schema = RequestSchema.of(ApiKey.METADATA, METADATA_VERSION)
        request = schema.MetadataRequest(
            topics=tuple(schema.MetadataRequestTopic(topic_id=None, name=name) for name in names),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        response = await self._ask(ApiKey.METADATA, METADATA_VERSION, request, REQUEST_TIMEOUT_MS)
        return {
            str(topic.name): TopicRoute(
                topic.topic_id,
                {each.partition_index: int(each.leader_id) for each in topic.partitions},
                all(set(each.isr_nodes) == set(each.replica_nodes) for each in topic.partitions),
            )
            for topic in response.topics
            if topic.error_code is ErrorCode.none
        }

    async def ends(self, node_id: int, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Where the partitions led by a broker end, those that it tells; OSError or ProtocolError."""
        schema = RequestSchema.of(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION)
        asked = tuple(
            schema.ListOffsetsPartition(partition_index=each, current_leader_epoch=-1, timestamp=_LATEST)
            for each in partitions
        )
        request = schema.ListOffsetsRequest(
            replica_id=-1, isolation_level=0, topics=(schema.ListOffsetsTopic(name=topic, partitions=asked),)
        )
        response = await self._clients[node_id].send(
            ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request, REQUEST_TIMEOUT_MS
        )
        return {
            each.partition_index: each.offset
            for found in response.topics
            for each in found.partitions
            if each.error_code is ErrorCode.none
        }

    async def wait_until_whole(self, names: Sequence[str]) -> None:
        """Until they have leaders and all replicas in sync; DemoError when that takes too long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HEALTHY_SECONDS_MAX
        routes: dict[str, TopicRoute] = {}
        while set(routes) != set(names) or not all(
            route.is_whole and min(route.leaders.values(), default=-1) >= 0 for route in routes.values()
        ):
            if loop.time() >= deadline:
                raise DemoError(f"{', '.join(names)} are not replicated after {HEALTHY_SECONDS_MAX:.0f} s")
            await asyncio.sleep(LOOK_AGAIN_SECONDS if routes else 0)
            routes = await self.find(names)

    async def _ask(self, api_key: ApiKey, version: int, request: Any, timeout_ms: int) -> Any:
        """The first answer of any broker; one that is down is passed over at once."""
        failure: Exception | None = None
        for client in self._clients.values():
            try:
                return await client.send(api_key, version, request, timeout_ms)
            except (OSError, ProtocolError) as error:
                failure = error
        assert failure is not None
        raise failure


def _creatable(schema: RequestSchema, topic: DemoTopic, replication_factor: int) -> Any:
    return schema.CreatableTopic(
        name=topic.name,
        num_partitions=PARTITIONS,
        replication_factor=replication_factor,
        assignments=(),
        configs=tuple(schema.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()),
    )
