"""Asks the controllers of a quorum on the wire, whoever wrote them, and reads the metadata log as brokers do."""

import contextlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from broker.common.errors import ErrorCode
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.metadata_loader import MetadataLoader
from broker.metadata.partition_registration import PartitionRegistration
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.records.record_batch import batches
from broker.schemas.cluster_metadata import MetadataRecord, decode
from tests.support.patience import until
from tests.support.wire_client import ConnectionClosed, WireClient

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = UUID(int=1)
LOOK_S: Final = 5  # a controller that stands still is passed over, and asked again
ANSWER_S: Final = 30  # then the leader is sought again
OBSERVER_ID: Final = -1  # reads without a place in the quorum's list of observers


def leader_by(port: int) -> tuple[int, int]:
    """(node id, epoch) when the controller at this port leads by its own word, else (-1, -1)."""
    with contextlib.suppress(OSError, ConnectionClosed), WireClient(port, timeout_s=LOOK_S) as client:
        schema = client.request(ApiKey.DESCRIBE_QUORUM, 0)
        topic = schema.TopicData(topic_name=METADATA_TOPIC, partitions=(schema.PartitionData(partition_index=0),))
        answer = client.ask(ApiKey.DESCRIBE_QUORUM, 0, schema.DescribeQuorumRequest(topics=(topic,)))
        if answer.error_code == ErrorCode.none and answer.topics:
            quorum = answer.topics[0].partitions[0]
            if quorum.error_code == ErrorCode.none:
                return int(quorum.leader_id), int(quorum.leader_epoch)
    return -1, -1


def snapshot_records(content: bytes) -> list[MetadataRecord]:
    """What a snapshot says, without its control records."""
    data = [batch for batch in batches(content) if not batch.is_control]
    return [decode(record.value or b"") for batch in data for record in batch.records()]


class QuorumClient:
    """Sends to whoever leads the controllers at `ports`, and keeps an image of the metadata log."""

    def __init__(self, ports: Iterable[int], cluster_id: str) -> None:
        self.ports, self.cluster_id = tuple(ports), cluster_id
        self.leader_epoch = 0
        self.batches: list[tuple[int, int, list[MetadataRecord]]] = []
        """What was read of the log: (first offset, last offset, records), without control batches."""
        self.end_offset = 0
        self._last_epoch = 0
        self._loader = MetadataLoader()
        self._client: WireClient | None = None

    def ask(self, api_key: ApiKey, version: int, entity: Any) -> Any:
        """The leader's answer; the leader is sought again when it is gone, or is none any more."""

        def answer() -> Any:
            try:
                answer = self._connected().ask(api_key, version, entity)
            except (OSError, ConnectionClosed):
                answer = None
            if answer is not None and getattr(answer, "error_code", None) != ErrorCode.not_controller:
                return answer
            self.close()
            return None

        return until(answer, f"a controller answers {api_key.title}")

    def send(self, api_key: ApiKey, version: int, name: str, **fields: Any) -> Any:
        """`ask` with the request class of this name and its fields."""
        return self.ask(api_key, version, getattr(RequestSchema.of(api_key, version), name)(**fields))

    def fetch(self, **changes: Any) -> Any:
        """One fetch of the metadata log from where we are, with `changes` in its partition; the whole answer."""
        schema = RequestSchema.of(ApiKey.FETCH, 17)
        cluster_id = changes.pop("cluster_id", self.cluster_id)
        row = {
            "partition": 0,
            "current_leader_epoch": self.leader_epoch,
            "fetch_offset": self.end_offset,
            "last_fetched_epoch": self._last_epoch,
            "log_start_offset": 0,
            "partition_max_bytes": 1 << 23,
            **changes,
        }
        topic = schema.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(schema.FetchPartition(**row),))
        request = schema.FetchRequest(
            cluster_id=cluster_id,
            replica_state=schema.ReplicaState(replica_id=OBSERVER_ID, replica_epoch=-1),
            max_wait=timedelta(0),
            min_bytes=0,
            max_bytes=1 << 23,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=(topic,),
            forgotten_topics_data=(),
            rack_id="",
        )
        return self.ask(ApiKey.FETCH, 17, request)

    def fetch_snapshot(self, end_offset: int, epoch: int, position: int, max_bytes: int) -> Any:
        """One piece of a snapshot: the partition of the answer."""
        schema = RequestSchema.of(ApiKey.FETCH_SNAPSHOT, 1)
        row = schema.PartitionSnapshot(
            partition=0,
            current_leader_epoch=self.leader_epoch,
            snapshot_id=schema.SnapshotId(end_offset=end_offset, epoch=epoch),
            position=position,
        )
        request = schema.FetchSnapshotRequest(
            cluster_id=self.cluster_id,
            replica_id=OBSERVER_ID,
            max_bytes=max_bytes,
            topics=(schema.TopicSnapshot(name=METADATA_TOPIC, partitions=(row,)),),
        )
        answer = self.ask(ApiKey.FETCH_SNAPSHOT, 1, request)
        assert answer.topics, answer
        return answer.topics[0].partitions[0]

    def image(self) -> MetadataImage:
        """The cluster as it is now: everything committed is read."""
        while True:
            partition = self.fetch().responses[0].partitions[0]
            self.leader_epoch = max(self.leader_epoch, int(partition.current_leader.leader_epoch))
            if partition.error_code != ErrorCode.none:
                self.close()
                continue
            assert partition.diverging_epoch.epoch < 0, "committed records were taken back"
            if partition.snapshot_id.end_offset >= 0:
                self._load_snapshot(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
                continue
            for batch in batches(partition.records or b""):
                if batch.base_offset < self.end_offset or batch.next_offset > partition.high_watermark:
                    continue
                records = [] if batch.is_control else [decode(each.value or b"") for each in batch.records()]
                self._loader.load_batch(records, batch.last_offset, batch.partition_leader_epoch)
                self.end_offset, self._last_epoch = batch.next_offset, batch.partition_leader_epoch
                if records:
                    self.batches.append((batch.base_offset, batch.last_offset, records))
            if self.end_offset >= partition.high_watermark >= 0:
                return self._loader.image

    def _load_snapshot(self, end_offset: int, epoch: int) -> None:
        content = b""
        while True:
            piece = self.fetch_snapshot(end_offset, epoch, len(content), 1 << 20)
            content += bytes(piece.unaligned_records or b"")
            if len(content) >= piece.size:
                break
        records = [
            decode(each.value or b"") for batch in batches(content) if not batch.is_control for each in batch.records()
        ]
        self._loader.load_snapshot(records, end_offset - 1, epoch)
        self.end_offset, self._last_epoch = end_offset, epoch

    def partition(self, topic: str, number: int = 0) -> PartitionRegistration:
        """A partition as it is now."""
        found = self.image().topics.by_name[topic]
        return found.partitions[number]

    def topic_id(self, topic: str) -> UUID:
        return self.image().topics.by_name[topic].id

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> WireClient:
        """To the controller that leads; ConnectionClosed when none does."""
        if self._client is None:
            best = max((*leader_by(port)[::-1], port) for port in self.ports)
            if best[0] < 0:
                raise ConnectionClosed
            self._client = WireClient(best[2], timeout_s=ANSWER_S)
        return self._client
