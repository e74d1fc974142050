"""What the tests of `wherry wal` share: a bucket in memory with two objects, and what is announced of them."""

from uuid import UUID

from broker.cli.wal_bucket import WalBucket
from broker.cli.wal_pointers import WalPointers
from broker.cli.wal_topic import ClusterView
from broker.common.identifiers import TopicIdPartition
from broker.common.metadata_topic import MetadataRecord
from broker.wal.objects.combined_segment import CombinedSegment, ObjectIdentity, build_combined_segment
from broker.wal.objects.object_key import WalObjectKey
from broker.wal.objects.wal_slice import WalSlice
from tests.support.memory_object_store import MemoryObjectStore
from tests.support.wal_directory import CLUSTER_ID, wal_slice
from tests.unit.wal.wal_world import log_bytes

URL = "file:///zone-a"
PREFIX = "mine/"
NOW_MS = 1_800_000_000_000
FOO = TopicIdPartition(UUID(int=0xF00), "foo", 0)
BAR = TopicIdPartition(UUID(int=0xBA), "bar", 3)


class LookWorld:
    """`first` holds foo 0-4 (epochs 0 and 1) and bar 0-1, `second` foo 5-6; both are announced."""

    def __init__(self) -> None:
        self.store = MemoryObjectStore(URL)
        self.bucket = WalBucket(self.store, URL, PREFIX)
        self.pointers = WalPointers()
        self.cluster = ClusterView(CLUSTER_ID, frozenset({FOO.topic_id, BAR.topic_id}))
        self.foo_log = log_bytes((0, 3), (1, 2), (1, 2))
        self.first = self.put(
            wal_slice(FOO, 1, log_bytes((0, 3), (1, 2)), leader_epoch=1),
            wal_slice(BAR, 2, log_bytes((1, 2)), leader_epoch=1),
        )
        self.second = self.put(wal_slice(FOO, 3, log_bytes((1, 2), start=5), leader_epoch=1))
        for combined in (self.first, self.second):
            self.announce(combined.event)

    def build(self, *slices: WalSlice, sequence: int | None = None, cluster_id: str = CLUSTER_ID) -> CombinedSegment:
        number = len(self.store.objects) + 1 if sequence is None else sequence
        combined_id = UUID(int=number)
        key = WalObjectKey.at(
            NOW_MS, cluster_id=cluster_id, broker_id=1, broker_epoch=7, sequence=number, combined_id=combined_id
        )
        identity = ObjectIdentity(combined_id, 1, 7, NOW_MS - 5000, URL, str(key), NOW_MS - 6000)
        return build_combined_segment(identity, slices, lambda partition: ())

    def put(self, *slices: WalSlice, age_ms: int = 4000, cluster_id: str = CLUSTER_ID) -> CombinedSegment:
        combined = self.build(*slices, cluster_id=cluster_id)
        self.put_bytes(combined.metadata.object_key, b"".join(bytes(each) for each in combined.buffers), age_ms)
        return combined

    def put_bytes(self, key: str, data: bytes, age_ms: int = 4000) -> None:
        self.store.objects[PREFIX + key] = data
        self.store.modified_ms[PREFIX + key] = NOW_MS - age_ms

    def announce(self, *values: bytes) -> None:
        self.pointers.add(0, [MetadataRecord(0, NOW_MS, value) for value in values])

    def flip(self, combined: CombinedSegment, position: int) -> None:
        key = PREFIX + combined.metadata.object_key
        data = bytearray(self.store.objects[key])
        data[position] ^= 1
        self.store.objects[key] = bytes(data)
