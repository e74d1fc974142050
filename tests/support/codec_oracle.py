"""kio's entities in the terms of the codecs written by hand, so that the two can be compared."""

import io
from collections.abc import Callable
from typing import Any

from broker.common.identifiers import ZERO_UUID
from broker.protocol.durations import to_milliseconds
from broker.protocol.fetch_codec import (
    UNKNOWN_HIGH_WATERMARK,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from broker.protocol.produce_codec import NULL_RECORDS, ProduceRequest, ProduceTopic


def produce_request_of(body: Any, frame: bytes, decoded: ProduceRequest) -> ProduceRequest:
    """kio's request; where the records stand is taken from `decoded` if the bytes there are kio's."""
    topics = []
    for topic, ours in zip(body.topic_data, decoded.topics, strict=True):
        partitions = []
        for partition, (_, start, end) in zip(topic.partition_data, ours.partitions, strict=True):
            if partition.records is None:
                assert (start, end) == (NULL_RECORDS, NULL_RECORDS)
            else:
                assert frame[start:end] == partition.records
            partitions.append((partition.index, start, end))
        has_name = hasattr(topic, "name")
        topics.append(
            ProduceTopic(
                topic.name if has_name else None, None if has_name else topic.topic_id or ZERO_UUID, partitions
            )
        )
    return ProduceRequest(body.transactional_id, body.acks, to_milliseconds(body.timeout), topics)


def fetch_request_of(body: Any) -> FetchRequest:
    state = getattr(body, "replica_state", None)
    return FetchRequest(
        cluster_id=getattr(body, "cluster_id", None),
        replica_id=body.replica_id if state is None else state.replica_id,
        replica_epoch=-1 if state is None else state.replica_epoch,
        max_wait_ms=to_milliseconds(body.max_wait),
        min_bytes=body.min_bytes,
        max_bytes=body.max_bytes,
        isolation_level=body.isolation_level,
        session_id=getattr(body, "session_id", 0),
        session_epoch=getattr(body, "session_epoch", -1),
        topics=[
            FetchTopic(*_name_and_id(topic), [_partition(each) for each in topic.partitions]) for topic in body.topics
        ],
        forgotten_topics=[
            ForgottenTopic(*_name_and_id(topic), topic.partitions)
            for topic in getattr(body, "forgotten_topics_data", ())
        ],
        rack_id=getattr(body, "rack_id", ""),
    )


def _name_and_id(topic: Any) -> tuple[Any, Any]:
    return (topic.topic, None) if hasattr(topic, "topic") else (None, topic.topic_id or ZERO_UUID)


def _partition(each: Any) -> FetchPartition:
    return FetchPartition(
        partition=each.partition,
        current_leader_epoch=getattr(each, "current_leader_epoch", -1),
        fetch_offset=each.fetch_offset,
        last_fetched_epoch=getattr(each, "last_fetched_epoch", -1),
        log_start_offset=getattr(each, "log_start_offset", -1),
        max_bytes=each.partition_max_bytes,
        high_watermark=getattr(each, "high_watermark", UNKNOWN_HIGH_WATERMARK),
    )


def kio_bytes(
    write: Callable[[io.BytesIO, Any], None], entity: Any, correlation_id: int, *, has_header_tags: bool
) -> bytes:
    """A whole response as kio writes it, with its length."""
    out = io.BytesIO()
    out.write(correlation_id.to_bytes(4, "big", signed=True) + (b"\0" if has_header_tags else b""))
    write(out, entity)
    body = out.getvalue()
    return len(body).to_bytes(4, "big") + body
