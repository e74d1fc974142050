"""WriteTxnMarkers: end transactions in partitions this broker leads."""

import asyncio
from typing import Any

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.records.append_origin import AppendOrigin
from broker.records.control_record import ControlRecordType, EndTransactionMarker, end_transaction_marker_batch
from broker.records.record_batch import RecordBatch
from broker.replication.append_request import AppendRequest
from broker.replication.produce_result import PartitionProduceResult
from broker.replication.replica_manager import ReplicaManager
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext

TIMEOUT_MS = 30_000  # request.timeout.ms between brokers
ACKS_ALL = -1


@handles(ApiKey.WRITE_TXN_MARKERS, versions=range(1, 3))
async def write_txn_markers(request: Request, context: RequestContext, replicas: ReplicaManager) -> Any:
    """WriteTxnMarkers: end transactions in partitions this broker leads.

    Behaviour: appends one marker to each partition and answers when all are committed.  A marker of an older
      coordinator epoch or producer epoch is refused per partition.
    Versions:  2 transaction version (accepted, markers are the same).
    Left out:  —
    """
    schema = request.schema
    pending = [_append(marker, replicas) for marker in request.body.markers]
    answers = [await answered for answered in pending]
    return schema.WriteTxnMarkersResponse(
        markers=tuple(
            schema.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=_topics(schema, results))
            for marker, results in zip(request.body.markers, answers, strict=True)
        )
    )


def _append(marker: Any, replicas: ReplicaManager) -> "asyncio.Future[list[PartitionProduceResult]]":
    request = _MarkersAppend()
    kind = ControlRecordType.COMMIT if marker.transaction_result else ControlRecordType.ABORT
    entries = [
        (
            TopicPartition(topic.name, partition),
            RecordBatch.parse(
                end_transaction_marker_batch(
                    EndTransactionMarker(kind, marker.coordinator_epoch),
                    producer_id=marker.producer_id,
                    producer_epoch=marker.producer_epoch,
                    timestamp=replicas.clock.now_ms(),
                )
            ),
        )
        for topic in marker.topics
        for partition in topic.partition_indexes
    ]
    replicas.append_records(request, entries)
    return request.answered


class _MarkersAppend(AppendRequest):
    """One marker for the partitions of one transaction."""

    def __init__(self) -> None:
        super().__init__(ACKS_ALL, TIMEOUT_MS, AppendOrigin.COORDINATOR, allows_internal_topics=True)
        self.answered: asyncio.Future[list[PartitionProduceResult]] = asyncio.get_running_loop().create_future()

    def on_complete(self, results: list[PartitionProduceResult]) -> None:
        if not self.answered.done():  # the connection may have gone
            self.answered.set_result(results)


def _topics(schema: Any, results: list[PartitionProduceResult]) -> tuple[Any, ...]:
    topics: dict[str, list[tuple[int, ErrorCode]]] = {}
    for result in results:
        topic, partition = result.topic_partition
        topics.setdefault(topic, []).append((partition, result.error))
    return tuple(
        schema.WritableTxnMarkerTopicResult(
            name=topic,
            partitions=tuple(
                schema.WritableTxnMarkerPartitionResult(partition_index=partition, error_code=error)
                for partition, error in partitions
            ),
        )
        for topic, partitions in topics.items()
    )
