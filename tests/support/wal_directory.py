"""A directory as brokers fill it that replicate through it, made by their own builders."""

import time
from pathlib import Path
from uuid import UUID, uuid4

from broker.common.identifiers import TopicIdPartition
from broker.schemas.remote_wal_metadata import encode, slice_records
from broker.wal.objects.combined_segment import CombinedSegment, ObjectIdentity, build_combined_segment
from broker.wal.objects.object_key import WalObjectKey
from broker.wal.objects.wal_slice import ReservationToken, WalSlice, build_slice

CLUSTER_ID = "Nk018hRAQFytWskYqtQduw"


def wal_slice(partition: TopicIdPartition, number: int, records: bytes, *, leader_epoch: int = 0) -> WalSlice:
    """All of these batches; `number` makes its id."""
    token = ReservationToken(leader_epoch, 0, number)
    start = int.from_bytes(records[:8], "big")
    built = build_slice(
        partition,
        UUID(int=number << 64),
        token,
        records,
        start_offset=start,
        upper_offset=1 << 62,
        size_max=1 << 30,
        room=None,
    )
    assert built is not None
    return built


class WalDirectory:
    """The objects of one broker below `path`, and the values it would have put on the metadata topic."""

    def __init__(self, path: Path, cluster_id: str = CLUSTER_ID, *, broker_id: int = 1, broker_epoch: int = 7) -> None:
        self.path = path
        self.path.mkdir(parents=True, exist_ok=True)
        self.cluster_id, self.broker_id, self.broker_epoch = cluster_id, broker_id, broker_epoch
        self.url = path.as_uri()
        self._sequence = 0

    def build(self, *slices: WalSlice, made_ms: int | None = None) -> CombinedSegment:
        now_ms = int(time.time() * 1000) if made_ms is None else made_ms
        self._sequence += 1
        combined_id = uuid4()
        key = WalObjectKey.at(
            now_ms,
            cluster_id=self.cluster_id,
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch,
            sequence=self._sequence,
            combined_id=combined_id,
        )
        identity = ObjectIdentity(combined_id, self.broker_id, self.broker_epoch, now_ms, self.url, str(key), now_ms)
        return build_combined_segment(identity, slices, lambda partition: ())

    def store(self, *slices: WalSlice, made_ms: int | None = None) -> CombinedSegment:
        combined = self.build(*slices, made_ms=made_ms)
        path = self.file(combined)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(combined.buffers))
        return combined

    def file(self, combined: CombinedSegment) -> Path:
        return self.path / combined.metadata.object_key


def events(combined: CombinedSegment) -> list[bytes]:
    """The combined event and its slice events."""
    return [combined.event, *(encode(record) for record in slice_records(combined.metadata))]
