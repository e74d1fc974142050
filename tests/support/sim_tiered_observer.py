"""TieredObserver: what must hold of partitions that are tiered, on local disks and in the bucket together."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from broker.broker_server import BrokerServer
from broker.common.identifiers import TopicIdPartition, TopicPartition
from broker.log.unified_log import UnifiedLog
from broker.replication.partition import Partition
from broker.schemas.remote_log_metadata import RemoteLogSegmentState
from broker.tiering.object_names import ObjectKind
from tests.support.sim_client import Violation
from tests.support.sim_cluster import SimCluster
from tests.support.sim_observer import Batch, log_bytes, name_of
from tests.support.sim_remote_storage import RemoteObject, StoredBatch, TieredBucket, stored_batches

Committed = Mapping[TopicIdPartition, Mapping[int, Batch]]

ALWAYS_THERE = frozenset(ObjectKind) - {ObjectKind.TRANSACTION_INDEX}


def _has_failed_flush(log: UnifiedLog) -> bool:
    return log.recovery_point < log.segments.active.base_offset


class TieredObserver:
    """`sample` now and then; `check` when there is time to read logs.  Neither changes anything."""

    def __init__(self, cluster: SimCluster, bucket: TieredBucket, partitions: Sequence[TopicPartition]) -> None:
        self.seen: Counter[str] = Counter()
        self._cluster, self._bucket, self._partitions = cluster, bucket, partitions
        self._log_starts: dict[TopicPartition, int] = {}  # the highest that any broker ever had
        self._local_starts: dict[TopicPartition, int] = {}
        self._of_logs: dict[int, tuple[UnifiedLog, int]] = {}  # log starts, by the log's identity

    # At any moment

    def sample(self) -> None:
        for partition, _, hosted, log in self._replicas():
            self._note(partition, hosted, log)
        for found, batches in self._bucket.look():
            self._check_copied(found, batches)

    def _check_copied(self, found: RemoteObject, batches: Sequence[StoredBatch]) -> None:
        """What is copied is committed, and belongs to no transaction that is open; as the leader knows that copied it,
        which is one that still leads in the epoch of the last record."""
        last = batches[-1].batch
        for partition, _, hosted, log in self._replicas():
            registration = self._cluster.registration(name_of(hosted))
            if registration is None or (hosted.topic_id, partition.partition) != (found.topic_id, found.partition):
                continue
            if hosted.is_leader and hosted.leader_epoch == last.leader_epoch == registration.leader_epoch:
                self.seen["copy compared with its leader"] += 1
                if last.next_offset > log.last_stable_offset:
                    raise Violation(f"{partition}: {last} is in the bucket, only {log.last_stable_offset} is stable")

    def _note(self, partition: TopicPartition, hosted: Partition, log: UnifiedLog) -> None:
        start, local_start = log.log_start_offset, log.local_log_start_offset
        self._log_starts[partition] = max(start, self._log_starts.get(partition, 0))
        self._local_starts[partition] = max(local_start, self._local_starts.get(partition, 0))
        if not start <= local_start <= log.log_end_offset:
            raise Violation(
                f"{partition}: the log starts at {start}, on the disk at {local_start}, and ends at "
                f"{log.log_end_offset}"
            )
        _, before = self._of_logs.get(id(log), (log, 0))
        if start < before and hosted.is_leader:
            raise Violation(f"{partition}: the log start went back from {before} to {start}")
        self._of_logs[id(log)] = (log, start)
        self.seen["sample of a log that is partly remote alone"] += local_start > start

    def highest_log_start(self, partition: TopicPartition) -> int:
        self.sample()
        return self._log_starts.get(partition, 0)

    # Now and then

    def check(self, committed: Committed, limits: Mapping[TopicPartition, int]) -> None:
        self.sample()
        for partition in self._partitions:
            self._check_partition(partition, committed, limits)

    def _check_partition(
        self, partition: TopicPartition, committed: Committed, limits: Mapping[TopicPartition, int]
    ) -> None:
        replicas = [(node_id, hosted, log) for each, node_id, hosted, log in self._replicas() if each == partition]
        if not replicas:
            return
        name = name_of(replicas[0][1])
        start = self._log_starts[partition]
        remote = {stored.batch for batches in self._bucket.logs(name.topic_id, name.partition) for stored in batches}
        known = committed.get(name, {})
        for batch in remote:
            if known.get(batch.base_offset, batch) != batch:
                raise Violation(f"{partition}: {batch} is in the bucket, {known[batch.base_offset]} was committed")
        kept = remote | self._left_to_leaders(known, [log for _, each, log in replicas if self._leads(each)])
        for node_id, _, log in replicas:
            where = f"{partition} on broker {node_id}"
            self._check_no_gap(where, start, log, known, kept)
            self._check_epochs(where, start, log, known)
        self._check_start(partition, name.topic_id, start, limits, [(node_id, log) for node_id, _, log in replicas])

    def _leads(self, hosted: Partition) -> bool:
        registration = self._cluster.registration(name_of(hosted))
        return hosted.is_leader and registration is not None and hosted.leader_epoch == registration.leader_epoch

    def _left_to_leaders(self, known: Mapping[int, Batch], led: Sequence[UnifiedLog]) -> set[Batch]:
        """Of a topic that was tiered no more, that is left which its leader has on its disk: others may have less."""
        starts = [log.local_log_start_offset for log in led if self.may_be_disabled]
        return {batch for batch in known.values() if any(start <= batch.base_offset for start in starts)}

    def _check_no_gap(
        self, where: str, start: int, log: UnifiedLog, known: Mapping[int, Batch], kept: set[Batch]
    ) -> None:
        """What is committed and not on the disk is kept elsewhere: nothing leaves it before it is in the bucket."""
        for batch in known.values():
            if start < batch.next_offset <= log.local_log_start_offset and batch not in kept:
                raise Violation(
                    f"{where}: {batch} is neither in the bucket nor on the disk, where the log begins at "
                    f"{log.local_log_start_offset} (log start {start})"
                )

    def _check_epochs(self, where: str, start: int, log: UnifiedLog, known: Mapping[int, Batch]) -> None:
        """The epoch cache is right about what only the bucket has."""
        for batch in known.values():
            if not max(start, log.log_start_offset) <= batch.base_offset < log.local_log_start_offset:
                continue  # the rest is compared with what the log itself has
            epoch = log.leader_epochs.epoch_for_offset(batch.base_offset)
            if epoch != batch.leader_epoch:
                raise Violation(
                    f"{where}: offset {batch.base_offset} is of epoch {batch.leader_epoch}, the cache says {epoch}: "
                    f"{log.leader_epochs.entries}"
                )

    def _check_start(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        start: int,
        limits: Mapping[TopicPartition, int],
        logs: Sequence[tuple[int, UnifiedLog]],
    ) -> None:
        """The log start is no further than clients asked for, or retention allows."""
        if start <= limits.get(partition, 0):
            return
        config = logs[0][1].config
        retained = self._retained(topic_id, partition.partition, start, logs)
        may_be_disabled = start <= self._local_starts[partition] and self.may_be_disabled
        if may_be_disabled:
            return
        self.seen["log start moved by retention"] += 1
        size_bytes = sum(each.size_bytes for each in retained.values() if each.batch.base_offset >= start)
        if config.retention_bytes >= 0 and size_bytes >= config.retention_bytes:
            return
        newest_gone_ms = max(
            (each.max_timestamp for each in retained.values() if each.batch.base_offset < start), default=0
        )
        now_ms = max(node.clock.now_ms() for node in self._cluster.nodes.values())
        if 0 <= config.retention_ms <= now_ms - newest_gone_ms:
            return
        raise Violation(
            f"{partition}: the log starts at {start}, with {size_bytes} bytes and {now_ms - newest_gone_ms} ms after "
            f"the last record before; retention.bytes={config.retention_bytes} retention.ms={config.retention_ms}"
        )

    may_be_disabled = False

    def _retained(
        self, topic_id: UUID, partition: int, start: int, logs: Iterable[tuple[int, UnifiedLog]]
    ) -> dict[int, StoredBatch]:
        """All batches there ever were, by base offset."""
        found: dict[int, StoredBatch] = {}
        for batches in self._bucket.logs(topic_id, partition, ever=True):
            found.update({each.batch.base_offset: each for each in batches})
        for node_id, log in logs:
            content = log_bytes(self._cluster.nodes[node_id], log)
            found.update({each.batch.base_offset: each for each in stored_batches(content)})
        return found

    # In the end

    def not_drained(self, local_retention: Mapping[str, str], slack_bytes: int) -> str | None:
        """A disk that keeps more than local retention wants, now that all can be copied."""
        bytes_max = int(local_retention.get("local.retention.bytes", 0)) + slack_bytes
        replicas = list(self._replicas())
        # Nothing leaves the disk of such a log before the next start: no retention closes its active segment either,
        # and what a leader does not close is not copied, so that followers must keep it.
        in_doubt = {(partition, node_id) for partition, node_id, _, log in replicas if _has_failed_flush(log)}
        held = {
            partition for partition, node_id, each, _ in replicas if each.is_leader and (partition, node_id) in in_doubt
        }
        self.seen["log of which a flush has failed"] += len(in_doubt)
        for partition, node_id, hosted, log in replicas:
            if partition in held or (partition, node_id) in in_doubt:
                continue
            size_bytes = sum(segment.size_bytes for segment in log.segments)
            limit = 0 if "local.retention.ms" in local_retention else bytes_max
            if size_bytes > limit:
                return (
                    f"{partition} on broker {node_id} has {size_bytes} bytes on its disk, {limit} are enough: from "
                    f"{log.local_log_start_offset} to {log.log_end_offset}, committed {log.high_watermark}, stable "
                    f"{log.last_stable_offset}, remote up to {log.highest_remote_offset}, "
                    f"{'leader' if hosted.is_leader else 'follower'}"
                )
        return None

    def not_known(self, brokers: Iterable[BrokerServer]) -> str | None:
        """A broker that does not know what is in the bucket of what it hosts."""
        for broker in brokers:
            assert broker.tiered_reading is not None
            for hosted in broker.replicas.partitions():
                local = hosted.local_log
                if (
                    local is not None
                    and local.is_tiered
                    and not broker.tiered_reading.metadata.is_ready(name_of(hosted))
                ):
                    return f"{hosted.topic_partition}: broker {broker.identity.node_id} does not know what is remote"
        return None

    def check_finished(self, brokers: Iterable[BrokerServer]) -> None:
        """All objects of each segment that readers may be sent to are there, whoever sends them."""
        there: dict[UUID, set[ObjectKind]] = {}
        for _, found in self._bucket.objects():
            there.setdefault(found.segment_id, set()).add(found.kind)
        for broker in brokers:
            assert broker.tiered_reading is not None
            for hosted in broker.replicas.partitions():
                if hosted.topic_partition not in self._partitions or not hosted.log.is_tiered:
                    continue
                for segment in broker.tiered_reading.metadata._store.list_remote_log_segments(name_of(hosted), None):
                    missing = ALWAYS_THERE - there.get(segment.segment_id, set())
                    if segment.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED and missing:
                        raise Violation(f"{segment} is finished and lacks {sorted(missing)}")

    def _replicas(self) -> Iterator[tuple[TopicPartition, int, Partition, UnifiedLog]]:
        for node_id, node in self._cluster.living():
            for hosted in self._cluster.partitions_of(node):
                if hosted.topic_partition in self._partitions and hosted.local_log is not None:
                    yield hosted.topic_partition, node_id, hosted, hosted.local_log
