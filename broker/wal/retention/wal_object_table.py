"""WalObjectTable: the objects this broker has announced and not yet deleted.

It is filled from the broker's own events on the metadata topic, whether this process or an earlier one of the same id
sent them, so nothing has to be kept on disk.
"""

import struct
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from typing import Final
from uuid import UUID

from broker.common.identifiers import TopicIdPartition
from broker.schemas.remote_wal_metadata import RemoteWalCombinedLogSegmentMetadataRecord
from broker.wal.objects.object_key import WalObjectKey

# A hundred objects a second, each of 50 slices, for the two hours of the metadata topic are 720,000 objects with 36
# million slices.  Objects take about 150 bytes, slices about 100: so what is old is kept by the minute, with one end
# offset per partition, and the whole stays below 200 MB.  What does not even fit so is forgotten, oldest first, and
# the sweep finds it in the bucket when its time has come.
OBJECTS_MAX: Final = 1_000_000
SLICES_MAX: Final = 500_000
_GROUP_MS: Final = 60_000

_PACKED_KEY: Final = struct.Struct(">qqi16s")  # broker epoch, sequence, hour, id

PackedKey = bytes


class ObjectGroup:
    """Objects that are kept and deleted together: one, or what is left of a minute.

    `end_offsets` are the highest, inclusive, of each partition; `uploaded_ms` is the time of the newest; `size_bytes`
    is of all objects.
    """

    __slots__ = ("bucket", "end_offsets", "keys", "size_bytes", "uploaded_ms")

    def __init__(self, bucket: str, uploaded_ms: int, size_bytes: int) -> None:
        self.bucket = bucket
        self.size_bytes = size_bytes
        self.uploaded_ms = uploaded_ms
        self.keys: list[PackedKey] = []
        self.end_offsets: dict[TopicIdPartition, int] = {}

    def take_ends(self, end_offsets: Iterable[tuple[TopicIdPartition, int]]) -> int:
        """How many partitions are new in it."""
        mine, before = self.end_offsets, len(self.end_offsets)
        for partition, end_offset in end_offsets:
            if mine.get(partition, -1) < end_offset:
                mine[partition] = end_offset
        return len(mine) - before


class WalObjectTable:
    """Objects of one broker id in one cluster; times are wall times."""

    def __init__(
        self, cluster_id: str, broker_id: int, *, objects_max: int = OBJECTS_MAX, slices_max: int = SLICES_MAX
    ) -> None:
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._objects_max = objects_max
        self._slices_max = slices_max
        self._group_of: dict[PackedKey, ObjectGroup] = {}
        self._single: OrderedDict[PackedKey, ObjectGroup] = OrderedDict()  # in the order they were announced
        self._by_minute: OrderedDict[tuple[int, str], ObjectGroup] = OrderedDict()
        self._slice_count = 0
        self._live_bytes = 0
        self.forgotten_until_ms = -1
        """Objects as old as this, or older, may be unknown here though they were announced."""

    def __len__(self) -> int:
        return len(self._group_of)

    @property
    def slice_count(self) -> int:
        """Rows kept: one per partition and object, or per partition and minute."""
        return self._slice_count

    @property
    def live_bytes(self) -> int:
        """The size of all objects; about, once some of a minute are deleted and others are not."""
        return self._live_bytes

    def add(self, record: RemoteWalCombinedLogSegmentMetadataRecord) -> bool:
        """An object was announced.  False, and nothing changes, when it is known or not this broker's own."""
        packed = self._pack(record.object_key)
        if packed is None or packed in self._group_of:
            return False
        group = ObjectGroup(record.bucket, record.event_timestamp_ms, record.object_size_in_bytes)
        self._live_bytes += group.size_bytes
        group.keys.append(packed)
        self._slice_count += group.take_ends(
            (row.remote_log_segment_id.topic_id_partition.topic_id_partition, row.end_offset) for row in record.slices
        )
        self._single[packed] = self._group_of[packed] = group
        self._keep_bounds()
        return True

    def holds(self, object_key: str) -> bool:
        """Whether the object of that key was announced, and not deleted since."""
        packed = self._pack(object_key)
        return packed is not None and packed in self._group_of

    def groups(self) -> Iterator[ObjectGroup]:
        """As of now, oldest first; the table may change while one goes through them."""
        yield from list(self._by_minute.values())
        yield from list(self._single.values())

    def object_key(self, packed: PackedKey) -> str:
        """The key of one of a group's objects."""
        epoch, sequence, hour, segment_id = _PACKED_KEY.unpack(packed)
        key = WalObjectKey(self._cluster_id, self._broker_id, epoch, f"{hour:010d}", sequence, UUID(bytes=segment_id))
        return str(key)

    def remove(self, keys: Collection[PackedKey]) -> None:
        """These are deleted."""
        touched: dict[int, ObjectGroup] = {}
        for packed in keys:
            group = self._group_of.pop(packed, None)
            if group is not None:
                self._single.pop(packed, None)
                touched[id(group)] = group
        for group in touched.values():
            left = [packed for packed in group.keys if packed in self._group_of]
            gone_bytes = group.size_bytes * (len(group.keys) - len(left)) // len(group.keys)
            group.size_bytes -= gone_bytes
            self._live_bytes -= gone_bytes
            group.keys = left
            if not group.keys:
                self._slice_count -= len(group.end_offsets)
                if self._by_minute.get(_minute_of(group)) is group:
                    del self._by_minute[_minute_of(group)]

    def _keep_bounds(self) -> None:
        while self._slice_count > self._slices_max and self._single:
            self._fold_oldest()
        while self._slice_count > self._slices_max or len(self._group_of) > self._objects_max:
            self._forget_oldest()

    def _fold_oldest(self) -> None:
        """The oldest object that still has rows of its own joins those of its minute."""
        _, single = self._single.popitem(last=False)
        minute = _minute_of(single)
        group = self._by_minute.get(minute)
        if group is None:
            self._by_minute[minute] = single
            return
        group.uploaded_ms = max(group.uploaded_ms, single.uploaded_ms)
        group.size_bytes += single.size_bytes
        group.keys.extend(single.keys)
        self._slice_count += group.take_ends(single.end_offsets.items()) - len(single.end_offsets)
        for packed in single.keys:
            self._group_of[packed] = group

    def _forget_oldest(self) -> None:
        if self._by_minute:
            _, group = self._by_minute.popitem(last=False)
        else:
            _, group = self._single.popitem(last=False)
        self.forgotten_until_ms = max(self.forgotten_until_ms, group.uploaded_ms)
        self._slice_count -= len(group.end_offsets)
        self._live_bytes -= group.size_bytes
        for packed in group.keys:
            self._group_of.pop(packed, None)

    def _pack(self, object_key: str) -> PackedKey | None:
        """None for a key that is not this broker's."""
        try:
            key = WalObjectKey.parse(object_key)
            if key.cluster_id != self._cluster_id or key.broker_id != self._broker_id:
                return None
            return _PACKED_KEY.pack(key.broker_epoch, key.sequence, int(key.hour), key.combined_segment_id.bytes)
        except (ValueError, struct.error):
            return None


def _minute_of(group: ObjectGroup) -> tuple[int, str]:
    return group.uploaded_ms // _GROUP_MS, group.bucket
