"""TopicEndPoint: one leader of metadata partitions, as a consumer sees it."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import milliseconds
from broker.protocol.response_schema import RequestSchema
from broker.replication.fetch_params import CONSUMER_REPLICA_ID
from broker.replication.leader_endpoint import FetchedPartition, FollowerFetch, LeaderUnavailableError
from broker.server.remote_leader_endpoint import LeaderConnection, RemoteLeaderEndPoint

LIST_OFFSETS_VERSION: Final = 7  # what every broker knows
LIST_OFFSETS_TIMEOUT_MS: Final = 5_000
_NO_BROKER_EPOCH: Final = -1


class FoundOffset(NamedTuple):
    """Offset -1: no record has that timestamp, or a later one."""

    error: ErrorCode
    offset: int


class TopicEndPoint:
    """Reads up to the high watermark, over a connection of its own; calls never overlap."""

    def __init__(
        self,
        topic: str,
        connection: LeaderConnection,
        *,
        config: ConfigHolder[BrokerConfig],
        metadata_version: Callable[[], int],
    ) -> None:
        self._topic = topic
        self._connection = connection
        self._leader = RemoteLeaderEndPoint(
            connection,
            local_broker_id=CONSUMER_REPLICA_ID,
            broker_epoch=lambda: _NO_BROKER_EPOCH,
            metadata_version=metadata_version,
            config=config,
        )

    async def fetch(
        self, requests: dict[TopicPartition, FollowerFetch], *, max_wait_ms: int
    ) -> Mapping[TopicPartition, FetchedPartition]:
        """See `LeaderEndPoint.fetch`."""
        return await self._leader.fetch(requests, max_wait_ms=max_wait_ms)

    def begin_anew(self) -> None:
        self._leader.begin_anew()

    async def list_offsets(self, epochs: Mapping[int, int], timestamp: int) -> dict[int, FoundOffset]:
        """By partition, the first offset of that timestamp or a later one; or what a special timestamp means.

        `epochs` are the leader epochs of the partitions asked for.  LeaderUnavailableError.
        """
        schema = RequestSchema.of(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION)
        topic = schema.ListOffsetsTopic(
            name=self._topic,
            partitions=tuple(
                schema.ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
                for index, epoch in epochs.items()
            ),
        )
        request = schema.ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=0,
            topics=(topic,),
            timeout=milliseconds(LIST_OFFSETS_TIMEOUT_MS),
        )
        try:
            response = await self._connection.send(
                int(ApiKey.LIST_OFFSETS), LIST_OFFSETS_VERSION, request, LIST_OFFSETS_TIMEOUT_MS
            )
        except (OSError, TimeoutError) as error:
            await self.close()
            raise LeaderUnavailableError(str(error) or type(error).__name__) from error
        return {
            each.partition_index: FoundOffset(each.error_code, each.offset)
            for answered in response.topics
            for each in answered.partitions
        }

    async def close(self) -> None:
        await self._leader.close()
