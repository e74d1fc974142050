"""ClusterObserver: what must hold in a simulated cluster at any moment, and a memory of what was true before.

`sample` is cheap and looks at what the living brokers think; `check_logs` reads their logs.  Neither changes anything.
"""

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Final, NamedTuple

from broker.common.identifiers import TopicIdPartition
from broker.log.unified_log import UnifiedLog
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.partition_registration import PartitionRegistration
from broker.replication.partition import Partition
from tests.support.sim_client import Violation
from tests.support.sim_cluster import SimCluster
from tests.support.sim_node import SimNode

BATCH_HEADER: Final = Struct(">qiibIhi")  # base offset, size, leader epoch, magic, crc, attributes, last offset delta
LOG_OVERHEAD: Final = 12
MAX_OFFSET: Final = 1 << 62


class Batch(NamedTuple):
    """What identifies a batch: two with the same contents are the same batch."""

    base_offset: int
    leader_epoch: int
    crc: int
    next_offset: int


def parse_batches(content: bytes) -> Iterator[Batch]:
    """The headers of all batches of a log file; Violation when they do not fill it."""
    position, end = 0, len(content)
    while position < end:
        if end - position < BATCH_HEADER.size:
            raise Violation(f"{end - position} bytes follow the last batch")
        base_offset, size, leader_epoch, _, crc, _, delta = BATCH_HEADER.unpack_from(content, position)
        yield Batch(base_offset, leader_epoch, crc, base_offset + delta + 1)
        position += LOG_OVERHEAD + size
    if position != end:
        raise Violation(f"the last batch is {position - end} bytes short")


def log_bytes(node: SimNode, log: UnifiedLog) -> bytes:
    """All segments of a log, one after the other, as the process sees them."""
    names = [name for name in node.file_system.list_directory(log.directory) if name.endswith(".log")]
    return b"".join(node.file_system.read(log.directory / name) for name in names)


def name_of(partition: Partition) -> TopicIdPartition:
    """Topics are deleted and made again under the same name."""
    return TopicIdPartition(partition.topic_id, *partition.topic_partition)


class ClusterObserver:
    """Remembers leaders by epoch, high watermarks, and every batch that was ever committed or written."""

    def __init__(self, cluster: SimCluster) -> None:
        self.lossy: frozenset[str] = frozenset()  # topics that may lose what is committed (unclean elections)
        self._cluster = cluster
        self._leaders: dict[tuple[TopicIdPartition, int], int] = {}
        self._high_watermarks: dict[tuple[TopicIdPartition, int, int], int] = {}
        self._highest: dict[TopicIdPartition, int] = {}  # high watermark that any leader ever had
        self._committed: dict[TopicIdPartition, dict[int, Batch]] = {}  # by base offset
        self._image: MetadataImage | None = None
        self._watched: list[tuple[UnifiedLog, list[UnifiedLog]]] = []  # leaders' logs, and those of their members
        self._crcs: dict[tuple[TopicIdPartition, int, int], int] = {}

    @property
    def leader_epochs_seen(self) -> int:
        return len(self._leaders)

    # At any moment

    def on_quiet(self) -> None:
        """Between any two moments: whether a member of an ISR lacks what its leader calls committed.

        A state of a millisecond is one in which the leader may die.
        """
        if self._cluster.image is not self._image:
            self.sample()
        for leader, members in self._watched:
            high_watermark = leader.high_watermark
            for member in members:
                if member.log_end_offset < high_watermark:
                    self.sample()
                    return

    def sample(self) -> None:
        self._image = self._cluster.image
        self._watched.clear()
        for node_id, node in self._cluster.living():
            for partition in self._cluster.partitions_of(node):
                if partition.local_log is not None and partition.is_leader:
                    self._check_leader(node_id, partition, partition.local_log)

    def _check_leader(self, node_id: int, partition: Partition, log: UnifiedLog) -> None:
        name, epoch = name_of(partition), partition.leader_epoch
        leader = self._leaders.setdefault((name, epoch), node_id)
        if leader != node_id:
            raise Violation(f"{name.topic_partition}: brokers {leader} and {node_id} both led epoch {epoch}")
        high_watermark = log.high_watermark
        before = self._high_watermarks.get((name, epoch, node_id), -1)
        if high_watermark < before:
            raise Violation(
                f"{name.topic_partition}: high watermark of epoch {epoch} went from {before} to {high_watermark}"
            )
        self._high_watermarks[name, epoch, node_id] = high_watermark
        if high_watermark > log.log_end_offset:
            raise Violation(
                f"{name.topic_partition}: high watermark {high_watermark} is beyond the end {log.log_end_offset}"
            )
        if not set(partition.maximal_isr) <= set(partition.replicas):
            raise Violation(
                f"{name.topic_partition}: ISR {partition.maximal_isr} is not within the replicas {partition.replicas}"
            )
        registration = self._cluster.registration(name)
        if registration is not None and registration.leader_epoch == epoch and name.topic not in self.lossy:
            self._check_members(partition, registration, high_watermark)

    def _check_members(self, partition: Partition, registration: PartitionRegistration, high_watermark: int) -> None:
        """Who the controller believes in sync may be elected next: it has all that ever was committed.

        The leader may know less: it begins with the high watermark it heard of last, or has on its disk.
        """
        name = name_of(partition)
        committed = self._highest[name] = max(high_watermark, self._highest.get(name, 0))
        if not set(registration.isr) <= set(registration.replicas):
            raise Violation(
                f"{name.topic_partition}: ISR {registration.isr} is not within the replicas {registration.replicas}"
            )
        members = []
        for member in registration.isr:
            log = self._cluster.log_of(member, name.topic_partition)
            if log is not None and self._cluster.is_registered(member) and log.log_end_offset < committed:
                raise Violation(
                    f"{name.topic_partition}: broker {member} is in the ISR {registration.isr} of epoch "
                    f"{registration.leader_epoch} and ends at {log.log_end_offset}, {committed} are committed"
                )
            if log is not None and log is not partition.local_log:
                members.append(log)
        self._watched.append((partition.log, members))

    # Now and then

    def check_logs(self) -> None:
        for node_id, node in self._cluster.living():
            for partition in self._cluster.partitions_of(node):
                if partition.local_log is not None:
                    self._check_log(node_id, node, name_of(partition), partition.local_log)
                    if not partition.is_leader:
                        self._check_follower_epochs(node_id, partition, partition.local_log)

    def _check_log(self, node_id: int, node: SimNode, name: TopicIdPartition, log: UnifiedLog) -> None:
        batches = list(parse_batches(log_bytes(node, log)))
        where = f"{name.topic_partition} on broker {node_id}"
        expected, epoch = log.local_log_start_offset, -1
        if batches and batches[0].base_offset < expected:
            expected = batches[0].base_offset  # records are deleted one by one, files when all in them are
        for batch in batches:
            if batch.base_offset != expected:
                raise Violation(f"{where}: the batch at {batch.base_offset} follows offset {expected}")
            if batch.leader_epoch < epoch:
                raise Violation(f"{where}: epoch {batch.leader_epoch} at {expected} follows epoch {epoch}")
            expected, epoch = batch.next_offset, batch.leader_epoch
            crc = self._crcs.setdefault((name, batch.leader_epoch, batch.base_offset), batch.crc)
            if crc != batch.crc:
                raise Violation(f"{where}: another batch was at {batch.base_offset} in epoch {batch.leader_epoch}")
        if expected != log.log_end_offset:
            raise Violation(f"{where}: the file ends at {expected}, the log at {log.log_end_offset}")
        self._check_committed(where, name, [batch for batch in batches if batch.next_offset <= log.high_watermark])
        self._check_epochs(where, log, batches)

    def _check_committed(self, where: str, name: TopicIdPartition, batches: list[Batch]) -> None:
        committed = self._committed.setdefault(name, {})
        for found in () if name.topic in self.lossy else batches:
            known = committed.setdefault(found.base_offset, found)
            if known != found:
                raise Violation(f"{where}: {found} is below the high watermark, {known} was committed")

    def _check_epochs(self, where: str, log: UnifiedLog, batches: list[Batch]) -> None:
        """Each batch belongs to the epoch that the cache names for its offset (H2 of the model: no false entry)."""
        entries = log.leader_epochs.entries
        index = -1
        for batch in batches:
            if batch.next_offset <= log.local_log_start_offset:
                continue
            first_offset = max(batch.base_offset, log.local_log_start_offset)
            while index + 1 < len(entries) and entries[index + 1].start_offset <= first_offset:
                index += 1
            if index < 0 or entries[index].epoch != batch.leader_epoch:
                raise Violation(
                    f"{where}: offset {batch.base_offset} is of epoch {batch.leader_epoch}, the cache says {entries}"
                )

    def _check_follower_epochs(self, node_id: int, partition: Partition, log: UnifiedLog) -> None:
        """An epoch this broker led and wrote nothing in must be gone: it would hide that the log has diverged (H2).

        When all records are deleted, the last one's epoch stays and begins where the log does.
        """
        entries = log.leader_epochs.entries
        is_all_deleted = log.log_start_offset == log.log_end_offset and len(entries) == 1
        if entries and entries[-1].start_offset >= log.log_end_offset and not is_all_deleted:
            raise Violation(
                f"{partition.topic_partition} on broker {node_id}: a follower's log ends at {log.log_end_offset}, its "
                f"epochs are {entries}"
            )

    @property
    def committed(self) -> Mapping[TopicIdPartition, Mapping[int, Batch]]:
        """What `check_logs` has seen below a high watermark, by base offset."""
        return self._committed

    # In the end

    def misplaced(self) -> str | None:
        """A replica that a broker hosts though the metadata places it elsewhere, or has deleted it."""
        for node_id, node in self._cluster.living():
            for partition in self._cluster.partitions_of(node):
                registration = self._cluster.registration(name_of(partition))
                if registration is None or node_id not in registration.replicas:
                    return f"broker {node_id} still hosts {partition.topic_partition}"
        return None

    def check_equality(self) -> None:
        """After a calm: every replica of a partition has the same bytes, and nothing that was committed is missing."""
        for name, committed in self._committed.items():
            registration = self._cluster.registration(name)
            if registration is None:
                continue  # deleted
            contents = {}
            for node_id in registration.replicas:
                log = self._cluster.log_of(node_id, name.topic_partition)
                if log is None:
                    raise Violation(f"{name.topic_partition}: broker {node_id} has no log")
                contents[node_id] = log_bytes(self._cluster.nodes[node_id], log)
                found = set(parse_batches(contents[node_id]))
                start_offset = log.local_log_start_offset
                if any(batch.next_offset > start_offset and batch not in found for batch in committed.values()):
                    raise Violation(f"{name.topic_partition} on broker {node_id}: committed batches are missing")
            if len(set(_from_a_common_start(list(contents.values())))) != 1:
                sizes = {node_id: len(content) for node_id, content in contents.items()}
                raise Violation(f"{name.topic_partition}: the replicas differ; bytes by broker: {sizes}")


def _from_a_common_start(contents: list[bytes]) -> list[bytes]:
    """Without what some have deleted and others not yet."""
    starts = [next(parse_batches(content)).base_offset if content else MAX_OFFSET for content in contents]
    return [content[_position_of(content, max(starts)) :] for content in contents]


def _position_of(content: bytes, offset: int) -> int:
    """Where the first batch with records from `offset` on begins."""
    position = 0
    for batch in parse_batches(content):
        if batch.next_offset > offset:
            break
        position += LOG_OVERHEAD + BATCH_HEADER.unpack_from(content, position)[1]
    return position
