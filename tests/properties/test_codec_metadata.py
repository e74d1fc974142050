"""The Metadata response codec against kio, in every version."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from broker.common.errors import ErrorCode
from broker.protocol import metadata_codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import decode_response
from broker.protocol.response_schema import ResponseSchema
from tests.support.codec_oracle import kio_bytes

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(max_size=60)
ERRORS = st.sampled_from([ErrorCode.none, ErrorCode.leader_not_available, ErrorCode.unknown_topic_or_partition])
NODES = st.lists(st.integers(0, 9), max_size=4).map(tuple)
UUIDS = st.none() | st.builds(lambda value: UUID(int=value), st.integers(1, (1 << 128) - 1))
BROKERS = st.lists(st.tuples(INT32, TEXT, INT32, st.none() | TEXT), max_size=3)
PARTITIONS = st.lists(st.tuples(ERRORS, INT32, INT32, INT32, NODES, NODES, NODES), max_size=5)
TOPICS = st.lists(st.tuples(ERRORS, TEXT, st.booleans(), UUIDS, st.booleans(), PARTITIONS, INT32), max_size=4)


@settings(max_examples=100)
@given(
    version=st.integers(0, 13),
    correlation_id=INT32,
    throttle_ms=st.integers(0, 10_000),
    brokers=BROKERS,
    cluster_id=st.none() | TEXT,
    controller_id=INT32,
    topics=TOPICS,
    operations=INT32,
    error=ERRORS,
)
def test_responses(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    brokers: Any,
    cluster_id: str | None,
    controller_id: int,
    topics: Any,
    operations: int,
    error: ErrorCode,
) -> None:
    schema = ResponseSchema.of(ApiKey.METADATA, version)
    entity = schema.MetadataResponse(
        throttle_time=timedelta(milliseconds=throttle_ms),
        brokers=tuple(
            schema.MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in brokers
        ),
        cluster_id=cluster_id,
        controller_id=controller_id,
        topics=tuple(_topic(schema, *topic) for topic in topics),
        cluster_authorized_operations=operations,
        error_code=error,
    )
    (ours,) = metadata_codec.encode_response(version, correlation_id, entity)
    assert ours == kio_bytes(entity_writer(type(entity)), entity, correlation_id, has_header_tags=version >= 9)
    assert decode_response(ApiKey.METADATA, version, ours[4:]) == (correlation_id, entity)


def _topic(
    schema: ResponseSchema,
    error: ErrorCode,
    name: str,
    has_null_name: bool,
    topic_id: UUID | None,
    is_internal: bool,
    partitions: Any,
    operations: int,
) -> Any:
    return schema.MetadataResponseTopic(
        error_code=error,
        name=None if has_null_name and schema.version >= 12 else name,
        topic_id=topic_id,
        is_internal=is_internal,
        partitions=tuple(
            schema.MetadataResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader_id,
                leader_epoch=leader_epoch,
                replica_nodes=replicas,
                isr_nodes=isr,
                offline_replicas=offline,
            )
            for error, index, leader_id, leader_epoch, replicas, isr, offline in partitions
        ),
        topic_authorized_operations=operations,
    )
