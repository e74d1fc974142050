"""GroupCoordinatorShard: groups and offsets of one partition of `__consumer_offsets`."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Protocol

import structlog

from broker.common.chance import Chance
from broker.common.clock import Clock
from broker.common.errors import KafkaError
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.coordinator.coordinator_shard import ShardLog, SnapshotChunk
from broker.coordinator.group.classic_group import ClassicGroup
from broker.coordinator.group.group_messages import OffsetCommitRequest, OffsetDeleteResult, TopicPartitionError
from broker.coordinator.group.group_metadata_manager import GroupMetadataManager
from broker.coordinator.group.group_records import group_tombstone, offset_record
from broker.coordinator.group.group_state import GroupState
from broker.coordinator.group.join_group import JoinGroup
from broker.coordinator.group.membership import Membership
from broker.coordinator.group.offset_metadata_manager import OffsetMetadataManager
from broker.coordinator.group.rebalance import Rebalance
from broker.schemas.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    decode,
    encode_group_metadata,
    encode_offset_commit,
)

log = structlog.get_logger(__name__)

EXPIRY_KEY: Final = "expire-group-metadata"
SNAPSHOT_CHUNK_RECORDS: Final = 500  # some milliseconds of work between two turns of the loop


class ShardMetrics(Protocol):
    """What a shard reports."""

    def offsets_committed(self, count: int) -> None: ...

    def offsets_expired(self, count: int) -> None: ...

    def offsets_deleted(self, count: int) -> None: ...

    def rebalance_completed(self) -> None: ...


class GroupCoordinatorShard:
    """The state machine behind `GroupCoordinator`; every method is one breath.

    Methods that write return, or wait for through `log`, the offset that must be committed before their answer leaves.
    """

    def __init__(
        self,
        shard_log: ShardLog[GroupRecord],
        clock: Clock,
        chance: Chance,
        config: ConfigHolder[BrokerConfig],
        metrics: ShardMetrics,
    ) -> None:
        self.log = shard_log
        self._config = config
        self._metrics = metrics
        self.groups = GroupMetadataManager(shard_log, clock)
        self._rebalance = Rebalance(self.groups, shard_log.timer, clock, config, metrics)
        self.joining = JoinGroup(self.groups, self._rebalance, shard_log, chance, config)
        self.membership = Membership(self.groups, self._rebalance, shard_log)
        self.offsets = OffsetMetadataManager(self.groups, shard_log, clock, config, self._rebalance.restart_session)
        self._topics_deleted_meanwhile: dict[str, None] = {}
        self._is_loaded = False

    # -- requests beyond the membership -------------------------------------------------------------------------------

    def commit_offsets(self, request: OffsetCommitRequest) -> tuple[list[TopicPartitionError], int]:
        results, end_offset = self.offsets.commit(request)
        self._metrics.offsets_committed(len(results))
        return results, end_offset

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> tuple[OffsetDeleteResult, int]:
        result, end_offset = self.offsets.delete(group_id, partitions)
        self._metrics.offsets_deleted(len(result.partitions))
        return result, end_offset

    def delete_group(self, group_id: str) -> int:
        """The group's record goes last, so that a group is never gone while its offsets are there."""
        self.groups.validate_delete(group_id)
        tombstones = self.offsets.tombstones_of_group(group_id)
        self._metrics.offsets_deleted(len(tombstones))
        return self._delete(group_id, tombstones)

    def delete_topics(self, topics: Collection[str]) -> None:
        """The topics are gone, and so is what groups have committed for them."""
        if not self._is_loaded:
            self._topics_deleted_meanwhile |= dict.fromkeys(topics)
            return
        tombstones = self.offsets.tombstones_of_topics(topics)
        if not tombstones:
            return
        self._metrics.offsets_deleted(len(tombstones))
        try:
            self.log.append_split(tombstones)
        except KafkaError as error:  # what stays behind expires with its group
            log.warning("offsets_of_deleted_topics_kept", topics=list(topics), error=str(error))

    # -- expiry -------------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """One pass over all groups: old offsets go, and empty groups without any."""
        for group in self.groups.groups():
            tombstones, is_empty = self.offsets.expired(group)
            is_gone = is_empty and group.state is GroupState.EMPTY and not group.pending_join_members
            try:
                if is_gone:
                    self._delete(group.group_id, tombstones)
                elif tombstones:
                    self.log.append_split(tombstones)
            except KafkaError as error:  # the next pass tries again
                log.warning("offsets_not_expired", group=group.group_id, error=str(error))
                break
            self._metrics.offsets_expired(len(tombstones))
        self._schedule_expiry()

    def _schedule_expiry(self) -> None:
        self.log.timer.schedule(EXPIRY_KEY, self._config.current.offsets_retention_check_interval_ms, self.expire)

    def _delete(self, group_id: str, tombstones: list[GroupRecord]) -> int:
        group = self.groups.find(group_id)
        end_offset = self.log.append_split([*tombstones, group_tombstone(group_id)])
        if group is not None:
            self._rebalance.forget_timers(group)
        return end_offset

    # -- CoordinatorShard ---------------------------------------------------------------------------------------------

    def encode(self, record: GroupRecord) -> tuple[bytes, bytes | None]:
        key, value = record
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue), f"{value} is not an offset"
            return encode_offset_commit(key, value)
        assert value is None or isinstance(value, GroupMetadataValue), f"{value} is not a group"
        return encode_group_metadata(key, value)

    def decode(self, key: bytes, value: bytes | None) -> GroupRecord | None:
        return decode(key, value)

    def replay(self, offset: int, producer_id: int, record: GroupRecord) -> None:
        key, value = record
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue), f"{value} is not an offset"
            self.offsets.replay(offset, producer_id, key, value)
        else:
            assert value is None or isinstance(value, GroupMetadataValue), f"{value} is not a group"
            self.groups.replay(key, value)

    def replay_end_transaction_marker(self, offset: int, producer_id: int, is_commit: bool) -> None:
        self.offsets.replay_end_transaction_marker(offset, producer_id, is_commit)

    def on_committed(self, offset: int) -> None:
        self.offsets.store.on_committed(offset)

    def on_loaded(self) -> None:
        self._is_loaded = True
        self.groups.on_loaded(self._rebalance.restart_session)
        for group in self.groups.groups():
            if len(group.members) > self._config.current.group_max_size:
                self._rebalance.maybe_prepare(group)
        if self._topics_deleted_meanwhile:
            self.delete_topics(self._topics_deleted_meanwhile)
        self._schedule_expiry()

    def on_unloaded(self) -> None:
        self.groups.on_unloaded()

    def snapshot(self, keep: Callable[[int], None]) -> Iterator[SnapshotChunk[GroupRecord]]:
        """Every group and its offsets, group by group.

        A partition with a transaction open is left as it is in the log: written anew, its committed offset would look
        younger than the pending one, and the transaction's commit would be taken for outdated.
        """
        first_pending = self.offsets.pending.first_record_offset()
        if first_pending is not None:
            keep(first_pending)
        for group in self.groups.groups():
            if self.groups.find(group.group_id) is not group:
                continue  # deleted, or made anew, since the snapshot began: then its records are in the log already
            yield from self._snapshot_of(group, keep)

    def _snapshot_of(self, group: ClassicGroup, keep: Callable[[int], None]) -> Iterator[SnapshotChunk[GroupRecord]]:
        if group.stored is not None:
            yield SnapshotChunk([(GroupMetadataKey(group=group.group_id), group.stored)], False)
        records: list[GroupRecord] = []
        for topic, partition, _ in self.offsets.store.of_group(group.group_id):
            key = (group.group_id, topic, partition)
            offset = self.offsets.store.latest(key)
            if offset is None:
                continue
            if self.offsets.pending.has_partition(key):
                keep(offset.record_offset)
                continue
            records.append(offset_record(*key, offset))
            if len(records) == SNAPSHOT_CHUNK_RECORDS:
                yield SnapshotChunk(records, True)
                records = []
        if records:
            yield SnapshotChunk(records, True)
