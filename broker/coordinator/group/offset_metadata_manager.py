"""OffsetMetadataManager: commits, reads, deletes and expires the offsets of a shard's groups."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.common.clock import Clock
from broker.common.errors import (
    CoordinatorNotAvailableError,
    ErrorCode,
    GroupIdNotFoundError,
    IllegalGenerationError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from broker.common.identifiers import NO_PRODUCER_ID, NO_TIMESTAMP
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.coordinator.coordinator_shard import ShardLog
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.classic_group_member import ClassicGroupMember
from broker.coordinator.group.committed_offset import CommittedOffset
from broker.coordinator.group.group_messages import (
    NO_RETENTION_TIME,
    UNKNOWN_MEMBER_ID,
    FetchedOffset,
    OffsetCommitRequest,
    OffsetDeleteResult,
    OffsetFetchRequest,
    OffsetFetchResult,
    OffsetToCommit,
    TopicPartitionError,
)
from broker.coordinator.group.group_metadata_manager import GroupMetadataManager
from broker.coordinator.group.group_records import committed_offset, offset_record, offset_tombstone
from broker.coordinator.group.group_state import GroupState
from broker.coordinator.group.offset_expiry import OffsetExpiry
from broker.coordinator.group.offset_store import OffsetKey, OffsetStore
from broker.coordinator.group.pending_offsets import PendingOffsets
from broker.schemas.group_metadata import GroupRecord, OffsetCommitKey, OffsetCommitValue

MINUTE_MS: Final = 60_000


class OffsetMetadataManager:
    """Offsets change only by `replay`, after their records are in the log."""

    def __init__(
        self,
        groups: GroupMetadataManager,
        shard_log: ShardLog[GroupRecord],
        clock: Clock,
        config: ConfigHolder[BrokerConfig],
        restart_session: Callable[[ClassicGroup, ClassicGroupMember], None],
    ) -> None:
        self._groups = groups
        self._log = shard_log
        self._clock = clock
        self._config = config
        self._restart_session = restart_session
        self.store = OffsetStore()
        self.pending = PendingOffsets()

    # -- commit -------------------------------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest) -> tuple[list[TopicPartitionError], int]:
        """The outcome per partition, and the offset that must be committed before it may be told."""
        self._validate_commit(request)
        now_ms = self._clock.now_ms()
        length_max = self._config.current.offset_metadata_max_bytes
        results: list[TopicPartitionError] = []
        records: list[GroupRecord] = []
        for wanted in request.offsets:
            is_too_long = _java_length(wanted.metadata or "") > length_max
            error = ErrorCode.offset_metadata_too_large if is_too_long else ErrorCode.none
            results.append(TopicPartitionError(wanted.topic, wanted.partition, error))
            if not is_too_long:
                offset = _offset_to_store(wanted, request.retention_time_ms, now_ms)
                records.append(offset_record(request.group_id, wanted.topic, wanted.partition, offset))
        if not records:
            return results, self._log.last_written_offset
        return results, self._log.append(records)

    def _validate_commit(self, request: OffsetCommitRequest) -> None:
        group = self._groups.find(request.group_id)
        if group is None:
            self._validate_commit_without_group(request)
            return
        if group.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"group {request.group_id} is being unloaded")
        if request.generation < 0 and group.state is GroupState.EMPTY:
            return
        is_member = (
            request.generation >= 0 or request.member_id != UNKNOWN_MEMBER_ID or request.group_instance_id is not None
        )
        if not is_member:
            raise UnknownMemberIdError(f"group {request.group_id} has members: its offsets are theirs to commit")
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation != group.generation:
            raise IllegalGenerationError(f"group {group.group_id} is in generation {group.generation}")
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgressError(f"group {group.group_id} is being assigned")
        self._restart_session(group, member)

    @staticmethod
    def _validate_commit_without_group(request: OffsetCommitRequest) -> None:
        """Who does not claim to be a member may use a group for nothing but offsets."""
        if request.generation < 0:
            return
        if request.knows_group_id_not_found:
            raise GroupIdNotFoundError(f"group {request.group_id} does not exist")
        raise IllegalGenerationError(f"group {request.group_id} does not exist")

    # -- fetch --------------------------------------------------------------------------------------------------------

    def fetch(self, request: OffsetFetchRequest) -> OffsetFetchResult:
        """As of the high watermark, or, when stability is asked for, once everything is committed."""
        if request.topics is None:
            return OffsetFetchResult(topics=self._fetch_all(request))
        topics = {
            topic: tuple(
                self._fetched((request.group_id, topic, partition), request.require_stable) for partition in partitions
            )
            for topic, partitions in request.topics.items()
        }
        return OffsetFetchResult(topics=topics)

    def _fetch_all(self, request: OffsetFetchRequest) -> dict[str, tuple[FetchedOffset, ...]]:
        view = self.store.of_group if request.require_stable else self.store.committed_of_group
        topics: dict[str, list[FetchedOffset]] = {}
        for topic, partition, _ in view(request.group_id):
            key = (request.group_id, topic, partition)
            topics.setdefault(topic, []).append(self._fetched(key, request.require_stable))
        return {topic: tuple(offsets) for topic, offsets in topics.items()}

    def _fetched(self, key: OffsetKey, require_stable: bool) -> FetchedOffset:
        partition = key[2]
        if require_stable and self.pending.has_partition(key):
            return FetchedOffset(partition, error=ErrorCode.unstable_offset_commit)
        offset = self.store.latest(key) if require_stable else self.store.committed(key)
        if offset is None:
            return FetchedOffset(partition)
        return FetchedOffset(partition, offset.offset, offset.leader_epoch, offset.metadata)

    # -- delete -------------------------------------------------------------------------------------------------------

    def delete(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> tuple[OffsetDeleteResult, int]:
        """OffsetDelete; a partition that has no offset is deleted without a record."""
        group = self._groups.find(group_id)
        if group is None or group.state is GroupState.DEAD:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        if group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
            raise NonEmptyGroupError(f"group {group_id} is {group.state.value}")
        results: list[TopicPartitionError] = []
        records: list[GroupRecord] = []
        for topic, partition in partitions:
            is_subscribed = group.is_subscribed_to(topic)
            error = ErrorCode.group_subscribed_to_topic if is_subscribed else ErrorCode.none
            results.append(TopicPartitionError(topic, partition, error))
            if not is_subscribed and self._is_known((group_id, topic, partition)):
                records.append(offset_tombstone(group_id, topic, partition))
        end_offset = self._log.append(records) if records else self._log.last_written_offset
        return OffsetDeleteResult(partitions=tuple(results)), end_offset

    def tombstones_of_group(self, group_id: str) -> list[GroupRecord]:
        """What deletes all offsets of a group, pending ones too."""
        keys = {(group_id, topic, partition): None for topic, partition, _ in self.store.of_group(group_id)}
        keys |= dict.fromkeys(self.pending.of_group(group_id))
        return [offset_tombstone(*key) for key in keys]

    def tombstones_of_topics(self, topics: Iterable[str]) -> list[GroupRecord]:
        """What deletes all groups' offsets of topics that are gone."""
        keys: dict[OffsetKey, None] = {}
        for topic in topics:
            keys |= {(group_id, topic, partition): None for group_id, partition in self.store.of_topic(topic)}
            keys |= dict.fromkeys(self.pending.of_topic(topic))
        return [offset_tombstone(*key) for key in keys]

    def expired(self, group: ClassicGroup) -> tuple[list[GroupRecord], bool]:
        """Tombstones of what has expired in a group, and whether the group has nothing left then."""
        expiry = OffsetExpiry.of(group, self._config.current.offsets_retention_minutes * MINUTE_MS)
        now_ms = self._clock.now_ms()
        tombstones: list[GroupRecord] = []
        is_empty = not self.pending.has_group(group.group_id)
        for topic, partition, offset in self.store.of_group(group.group_id):
            key = (group.group_id, topic, partition)
            if expiry is None or not expiry.is_expired(topic, offset, now_ms) or self.pending.has_partition(key):
                is_empty = False
            else:
                tombstones.append(offset_tombstone(*key))
        return tombstones, is_empty

    def _is_known(self, key: OffsetKey) -> bool:
        return self.store.latest(key) is not None or self.pending.has_partition(key)

    # -- replay -------------------------------------------------------------------------------------------------------

    def replay(self, offset: int, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        store_key = (key.group, key.topic, key.partition)
        if value is None:
            self.store.put(offset, store_key, None)
            self.pending.delete(store_key)
            return
        self._groups.ensure_simple_group(key.group)
        if producer_id == NO_PRODUCER_ID:
            self.store.put(offset, store_key, committed_offset(value, offset))
        else:
            self.pending.put(producer_id, store_key, committed_offset(value, offset))

    def replay_end_transaction_marker(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """A commit outside of the transaction that came after the transaction's own one stays."""
        for key, pending in self.pending.end(producer_id).items():
            stored = self.store.latest(key)
            if is_commit and (stored is None or pending.record_offset > stored.record_offset):
                self.store.put(offset, key, pending)


def _offset_to_store(wanted: OffsetToCommit, retention_time_ms: int, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        wanted.offset,
        wanted.leader_epoch,
        wanted.metadata or "",
        now_ms if wanted.commit_timestamp_ms is None else wanted.commit_timestamp_ms,
        NO_TIMESTAMP if retention_time_ms == NO_RETENTION_TIME else now_ms + retention_time_ms,
    )


def _java_length(text: str) -> int:
    """String.length(): UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
