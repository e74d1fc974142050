"""Leaders' proposals of another ISR, carried to the controller (Kafka's DefaultAlterPartitionManager)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import structlog

from broker.common.errors import ErrorCode
from broker.common.identifiers import BrokerId, TopicIdPartition
from broker.common.tasks import BackgroundTasks
from broker.metadata.partition_registration import LeaderRecoveryState
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.replication.alter_partition_manager import AlterPartitionAnswer, LeaderAndIsr, ProposedIsr
from broker.server.node_to_controller_channel import NodeToControllerChannel

log = structlog.get_logger(__name__)

RETRY_BACKOFF_MS: Final = 50  # DefaultAlterPartitionManager's pause after a refused request
# A controller writes what one request changes as one batch, and a batch of Kafka holds 10,000 records at most.
PROPOSALS_PER_REQUEST: Final = 1_000
NEWEST_VERSION: Final = 3
OLDEST_VERSION: Final = 2  # KIP-841: topics by id

ControllerVersions = Callable[[], Mapping[int, tuple[int, int]] | None]
PartitionKey: TypeAlias = tuple[UUID, int]  # a topic of the same name that was made again is another one


class _Proposal(NamedTuple):
    partition: TopicIdPartition
    proposed: ProposedIsr
    on_complete: Callable[[AlterPartitionAnswer], None]


class ControllerAlterPartitionManager:
    """One proposal per partition waits or is in flight, and one request is: it carries all that wait.

    A request has no time limit, for what a controller did not hear of it cannot have refused: it goes to the next
    controller until one answers, and one that was lost may be heard twice.  Proposals stay queued until answered, so
    there are never more of them than partitions.
    """

    def __init__(
        self,
        channel: NodeToControllerChannel,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        *,
        controller_versions: ControllerVersions = lambda: None,
        proposals_per_request: int = PROPOSALS_PER_REQUEST,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller_versions = controller_versions
        self._proposals_per_request = proposals_per_request
        self._retry_backoff_ms = retry_backoff_ms
        self._queued: dict[PartitionKey, _Proposal] = {}
        self._arrived = asyncio.Event()
        self._tasks = BackgroundTasks("alter-partition")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ControllerAlterPartitionManager"]:
        """Send what is queued; on leaving, proposals without an answer are dropped unanswered."""
        async with self._tasks:
            self._tasks.start("sender", self._send_forever())
            yield self

    def __len__(self) -> int:
        """Proposals that wait for their turn or their answer."""
        return len(self._queued)

    def submit(
        self, partition: TopicIdPartition, proposal: ProposedIsr, on_complete: Callable[[AlterPartitionAnswer], None]
    ) -> None:
        key = (partition.topic_id, partition.partition)
        if key in self._queued:
            on_complete(ErrorCode.operation_not_attempted)
            return
        self._queued[key] = _Proposal(partition, proposal, on_complete)
        self._arrived.set()

    async def _send_forever(self) -> None:
        while True:
            while not self._queued:
                self._arrived.clear()
                await self._arrived.wait()
            sent = dict(islice(self._queued.items(), self._proposals_per_request))
            response = await self._channel.send(self._request(sent.values()))
            if not self._take_answers(sent, response):
                await asyncio.sleep(self._retry_backoff_ms / 1000)

    def _take_answers(self, sent: Mapping[PartitionKey, _Proposal], response: Any) -> bool:
        """Tell each partition what the controller says of it; returns whether to go on at once."""
        if response.error_code != ErrorCode.none:
            log.warning("alter_partition_refused", error=response.error_code.name, proposals=len(sent))
            return False
        answers = _answers(response)
        for key, proposal in sent.items():
            answer = answers.get(key)
            if answer is not None:
                # Off the queue first: who is told to ask again does it in this very call.
                del self._queued[key]
                proposal.on_complete(answer)
        # What is here again was left out, or told to ask again, perhaps by a controller that is behind: not in a spin.
        return not any(key in self._queued for key in sent)

    @property
    def _version(self) -> int:
        offered = self._controller_versions() or {}
        oldest, newest = offered.get(int(ApiKey.ALTER_PARTITION), (OLDEST_VERSION, NEWEST_VERSION))
        return max(min(newest, NEWEST_VERSION), OLDEST_VERSION, oldest)

    def _request(self, proposals: Iterable[_Proposal]) -> Any:
        schema = RequestSchema.of(ApiKey.ALTER_PARTITION, self._version)
        topics: dict[UUID, list[Any]] = {}
        for partition, proposed, _ in proposals:
            topics.setdefault(partition.topic_id, []).append(
                schema.PartitionData(
                    partition_index=partition.partition,
                    leader_epoch=proposed.leader_epoch,
                    new_isr=tuple(member.broker_id for member in proposed.isr),
                    new_isr_with_epochs=tuple(
                        schema.BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
                        for member in proposed.isr
                    ),
                    leader_recovery_state=int(proposed.leader_recovery_state),
                    partition_epoch=proposed.partition_epoch,
                )
            )
        return schema.AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=tuple(
                schema.TopicData(topic_id=topic_id, partitions=tuple(partitions))
                for topic_id, partitions in topics.items()
            ),
        )


def _answers(response: Any) -> dict[PartitionKey, AlterPartitionAnswer]:
    return {
        (topic.topic_id, partition.partition_index): _answer(partition)
        for topic in response.topics
        for partition in topic.partitions
    }


def _answer(partition: Any) -> AlterPartitionAnswer:
    if partition.error_code != ErrorCode.none:
        return ErrorCode(partition.error_code)
    return LeaderAndIsr(
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        isr=tuple(partition.isr),
        leader_recovery_state=LeaderRecoveryState(partition.leader_recovery_state),
        partition_epoch=partition.partition_epoch,
    )
