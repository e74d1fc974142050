"""GroupCoordinator: consumer groups and their offsets, for the partitions of `__consumer_offsets` this broker leads."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import structlog

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    KafkaError,
)
from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC, partition_for_key
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.coordinator.coordinator_context import CoordinatorContext
from broker.coordinator.coordinator_errors import coordinator_error, stable_fetch_error
from broker.coordinator.coordinator_runtime import CoordinatorRuntime, RuntimeMetrics
from broker.coordinator.group.group_coordinator_shard import GroupCoordinatorShard, ShardMetrics
from broker.coordinator.group.group_messages import (
    DescribedGroup,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResult,
    LeaveGroupResult,
    ListedGroup,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetDeleteResult,
    OffsetFetchRequest,
    OffsetFetchResult,
    SyncGroupRequest,
    SyncGroupResult,
    TopicPartitionError,
)
from broker.coordinator.group.group_state import GroupState
from broker.coordinator.partition_writer import PartitionWriter
from broker.coordinator.shard_state import ShardState
from broker.coordinator.snapshot_writer import LOG_BYTES_MAX
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.topics_image import TopicImage

log = structlog.get_logger(__name__)

T = TypeVar("T")


class GroupCoordinatorMetrics(ShardMetrics, RuntimeMetrics, Protocol):
    """What a group coordinator reports; what it can be asked is read at scrape."""


class GroupCoordinator:
    """Everything clients ask about groups (Kafka's GroupCoordinatorService).

    `startup` before the first request, `on_metadata` with every image after the replicas have seen it, `shutdown` at
    the end.  Answers leave once what they promise is committed.
    """

    def __init__(
        self,
        config: ConfigHolder[BrokerConfig],
        clock: Clock,
        chance: Chance,
        writer: PartitionWriter,
        metrics: GroupCoordinatorMetrics,
        *,
        log_bytes_max: int = LOG_BYTES_MAX,
    ) -> None:
        def create_shard(context: CoordinatorContext[GroupCoordinatorShard]) -> GroupCoordinatorShard:
            return GroupCoordinatorShard(context, clock, chance, config, metrics)

        self._config = config
        self._runtime: CoordinatorRuntime[GroupCoordinatorShard] = CoordinatorRuntime(
            CONSUMER_OFFSETS_TOPIC, writer, clock, config, create_shard, metrics, log_bytes_max=log_bytes_max
        )
        self._is_active = False
        self._partition_count: int | None = None  # once seen it stays: another count would place groups elsewhere
        self._offsets_topic: TopicImage | None = None

    @property
    def services(self) -> tuple[object, ...]:
        """What handlers may ask for."""
        return (self,)

    # -- life and leadership ------------------------------------------------------------------------------------------

    async def startup(self) -> None:
        self._is_active = True

    async def shutdown(self) -> None:
        """Parked clients are told NOT_COORDINATOR; later ones COORDINATOR_NOT_AVAILABLE."""
        self._is_active = False
        await self._runtime.shutdown()

    @property
    def partition_count(self) -> int:
        if self._partition_count is not None:
            return self._partition_count
        return self._config.current.offsets_topic_num_partitions

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` whose leader coordinates the group."""
        return partition_for_key(group_id, self.partition_count)

    def on_metadata(self, delta: MetadataDelta | None, image: MetadataImage) -> None:
        """Follow the leaders of `__consumer_offsets` and forget the offsets of deleted topics.

        `delta` None: the image came whole, and only leaders are looked at.
        """
        topic = image.topics.topic(CONSUMER_OFFSETS_TOPIC)
        if topic is not self._offsets_topic:
            self._follow_leaders(self._offsets_topic, topic)
            self._offsets_topic = topic
        if delta is not None:
            deleted = [name for name in delta.topics_delta.deleted_topics.values() if name != CONSUMER_OFFSETS_TOPIC]
            if deleted:
                self.on_topics_deleted(deleted)

    def _follow_leaders(self, before: TopicImage | None, after: TopicImage | None) -> None:
        if before is not None and (after is None or after.id != before.id):
            for partition in before.partitions:
                self.on_resignation(partition, None)
            self._partition_count = None
        if after is None:
            return
        if self._partition_count is None:
            self._partition_count = len(after.partitions)
        for partition, registration in after.partitions.items():
            if registration.leader == self._config.current.node_id:
                self.on_election(partition, registration.leader_epoch)
            else:
                self.on_resignation(partition, registration.leader_epoch)

    def on_election(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition: its groups are loaded."""
        self._runtime.on_election(partition, leader_epoch)

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        """This broker leads the partition no more; None: the partition is gone."""
        self._runtime.on_resignation(partition, leader_epoch)

    def on_topics_deleted(self, topics: Collection[str]) -> None:
        for shard in self._runtime.shards():
            shard.delete_topics(topics)

    # -- membership ---------------------------------------------------------------------------------------------------

    async def join_group(self, request: JoinGroupRequest) -> JoinGroupResult:
        try:
            shard = self._shard(request.group_id)
            config = self._config.current
            shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
            if not shortest <= request.session_timeout_ms <= longest:
                raise InvalidSessionTimeoutError(f"{request.session_timeout_ms} is not in [{shortest}, {longest}]")
        except KafkaError as error:
            return JoinGroupResult(error.code, request.member_id)
        return await _parked(lambda reply: shard.joining.join(request, reply))

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResult:
        try:
            shard = self._shard(request.group_id)
            if request.requires_protocol and (request.protocol_type is None or request.protocol_name is None):
                raise InconsistentGroupProtocolError("protocol type and name must be given")
        except CoordinatorLoadInProgressError:
            return SyncGroupResult(ErrorCode.rebalance_in_progress)  # Java clients take 14 here for a fatal error
        except KafkaError as error:
            return SyncGroupResult(error.code)
        return await _parked(lambda reply: shard.membership.sync(request, reply))

    async def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        try:
            shard = self._shard(request.group_id)
            shard.membership.heartbeat(request)
            await shard.log.wait_committed(shard.log.last_written_offset)
        except CoordinatorLoadInProgressError:
            return ErrorCode.none  # the member is fine, it is we who are not ready
        except KafkaError as error:
            return coordinator_error(error).code
        return ErrorCode.none

    async def leave_group(self, group_id: str, members: Sequence[MemberIdentity]) -> LeaveGroupResult:
        try:
            shard = self._shard(group_id)
            result = shard.membership.leave(group_id, members)
            await shard.log.wait_committed(shard.log.last_written_offset)
            return result
        except KafkaError as error:
            return LeaveGroupResult(coordinator_error(error).code)

    # -- offsets ------------------------------------------------------------------------------------------------------

    async def commit_offsets(self, request: OffsetCommitRequest) -> list[TopicPartitionError]:
        """The outcome per partition; what concerns the group is the same for each."""
        try:
            shard = self._shard(request.group_id, accepts_empty_id=True)
            results, end_offset = shard.commit_offsets(request)
            await shard.log.wait_committed(end_offset)
            return results
        except KafkaError as error:
            code = coordinator_error(error).code
            return [TopicPartitionError(offset.topic, offset.partition, code) for offset in request.offsets]

    async def fetch_offsets(self, request: OffsetFetchRequest) -> OffsetFetchResult:
        try:
            shard = self._shard(request.group_id, accepts_empty_id=True)
            # Our high watermark may still be behind that of the leader before us, and a commit which that one has
            # acknowledged must be seen: a consumer would read again what it had committed.  Kafka does not wait.
            await shard.log.wait_committed(shard.log.loaded_offset)
            result = shard.offsets.fetch(request)
            if request.require_stable:
                await shard.log.wait_committed(shard.log.last_written_offset)
            return result
        except KafkaError as error:
            return OffsetFetchResult(stable_fetch_error(error).code)

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> OffsetDeleteResult:
        try:
            shard = self._shard(group_id)
            result, end_offset = shard.delete_offsets(group_id, partitions)
            await shard.log.wait_committed(end_offset)
            return result
        except KafkaError as error:
            return OffsetDeleteResult(coordinator_error(error).code)

    # -- administration -----------------------------------------------------------------------------------------------

    def describe_groups(self, group_ids: Iterable[str], version: int) -> list[DescribedGroup]:
        """One row per name in the order asked; `version` is that of DescribeGroups."""
        return [self._describe(group_id, version) for group_id in group_ids]

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        try:
            return self._shard(group_id, accepts_empty_id=True).groups.describe(group_id, version)
        except KafkaError as error:
            return DescribedGroup(group_id, error.code)

    def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """Groups of all local shards; upper and lower case are alike in both filters, and empty ones let all through.

        CoordinatorLoadInProgressError while a shard loads: the list would not be complete.
        """
        self._ensure_active()
        if self._runtime.is_loading:
            raise CoordinatorLoadInProgressError("a shard is loading")
        wanted_states = {state.strip().lower(): None for state in states}
        wanted_types = {group_type.lower(): None for group_type in types}
        shards = self._runtime.active_shards()
        return [group for shard in shards for group in shard.groups.list(wanted_states, wanted_types)]

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
        """The outcome per name; each shard's part stands or falls on its own."""
        names = list(dict.fromkeys(group_ids))
        codes = await asyncio.gather(*(self._delete_group(group_id) for group_id in names))
        return dict(zip(names, codes, strict=True))

    async def _delete_group(self, group_id: str) -> ErrorCode:
        try:
            shard = self._shard(group_id, accepts_empty_id=True)
            await shard.log.wait_committed(shard.delete_group(group_id))
        except KafkaError as error:
            return coordinator_error(error).code
        return ErrorCode.none

    # -- what metrics read --------------------------------------------------------------------------------------------

    def group_counts_by_state(self) -> Mapping[str, int]:
        """By the state's name on the wire."""
        counts = dict.fromkeys((state.value for state in GroupState), 0)
        for shard in self._runtime.active_shards():
            for group in shard.groups.groups():
                counts[group.state.value] += 1
        return counts

    def offset_count(self) -> int:
        return sum(shard.offsets.store.count for shard in self._runtime.active_shards())

    def shard_counts_by_state(self) -> Mapping[str, int]:
        """Of the states an operator cares for."""
        states: Final = (ShardState.LOADING, ShardState.ACTIVE, ShardState.FAILED)
        return {state.value: self._runtime.count(state) for state in states}

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        """(group, topic, partition, offset) of everything that is committed."""
        for shard in self._runtime.active_shards():
            for key, offset in shard.offsets.store.all_committed():
                yield *key, offset.offset

    # -----------------------------------------------------------------------------------------------------------------

    def _ensure_active(self) -> None:
        if not self._is_active:
            raise CoordinatorNotAvailableError("the group coordinator is not running")

    def _shard(self, group_id: str, *, accepts_empty_id: bool = False) -> GroupCoordinatorShard:
        """Kafka takes the empty name for a group's where it did so before groups had members: commits and reads."""
        self._ensure_active()
        if not group_id and not accepts_empty_id:
            raise InvalidGroupIdError("the group id is empty")
        return self._runtime.shard(self.partition_for(group_id))


async def _parked(ask: Callable[[Callable[[T], None]], None]) -> T:
    """The answer of something that answers by a call, now or later."""
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def reply(result: T) -> None:
        if not answer.done():  # a client that has gone does not wait for its answer
            answer.set_result(result)

    ask(reply)
    return await answer
