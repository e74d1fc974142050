"""The Produce codec against kio, in every version that is offered."""

from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.protocol import produce_codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import to_instant
from broker.protocol.frames import Frame
from broker.protocol.requests import decode_response, encode_request, encode_response, has_request_header_tags
from broker.protocol.response_schema import RequestSchema, ResponseSchema
from tests.support.codec_oracle import produce_request_of

VERSIONS = range(3, 14)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(max_size=200)
UUIDS = st.builds(lambda value: UUID(int=value), st.integers(1, (1 << 128) - 1))


class Hint(NamedTuple):
    leader_id: int
    leader_epoch: int


class RecordError(NamedTuple):
    batch_index: int
    message: str | None


class Result(NamedTuple):
    topic_partition: TopicPartition
    error: ErrorCode
    base_offset: int
    log_append_time: int
    log_start_offset: int
    record_errors: tuple[RecordError, ...]
    error_message: str | None
    current_leader: Hint | None


ERRORS = st.sampled_from([ErrorCode.none, ErrorCode.invalid_record, ErrorCode.not_leader_or_follower])


@st.composite
def results(draw: st.DrawFn) -> Result:
    error = draw(ERRORS)
    has_details = error != ErrorCode.none
    return Result(
        TopicPartition("t", draw(INT32)),
        error,
        draw(INT64),
        draw(st.one_of(st.just(-1), st.integers(0, 253402300799999))),
        draw(INT64),
        tuple(draw(st.lists(st.builds(RecordError, INT32, st.none() | TEXT), max_size=3))) if has_details else (),
        draw(st.none() | TEXT) if has_details else None,
        draw(st.none() | st.builds(Hint, st.integers(0, 9), INT32)) if has_details else None,
    )


@settings(max_examples=100)
@given(
    version=st.sampled_from(VERSIONS),
    transactional_id=st.none() | TEXT,
    acks=INT16,
    timeout_ms=INT32,
    topics=st.lists(
        st.tuples(TEXT, UUIDS, st.lists(st.tuples(INT32, st.none() | st.binary(max_size=300)), max_size=3)), max_size=3
    ),
    client_id=st.none() | TEXT,
)
def test_requests(
    version: int, transactional_id: str | None, acks: int, timeout_ms: int, topics: Any, client_id: str | None
) -> None:
    schema = RequestSchema.of(ApiKey.PRODUCE, version)
    body = schema.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=tuple(
            schema.TopicProduceData(
                name=name,
                topic_id=topic_id,
                partition_data=tuple(
                    schema.PartitionProduceData(index=index, records=records) for index, records in partitions
                ),
            )
            for name, topic_id, partitions in topics
        ),
    )
    raw = encode_request(ApiKey.PRODUCE, version, 7, client_id, body)[4:]
    frame = Frame(memoryview(raw), is_owned=True)
    assert frame.client_id == client_id
    if has_request_header_tags(ApiKey.PRODUCE, version):
        frame.skip_header_tags()
    decoded = produce_codec.decode(frame.buffer, frame.body_position, version)
    assert decoded == produce_request_of(body, raw, decoded)


@settings(max_examples=100)
@given(
    version=st.sampled_from(VERSIONS),
    correlation_id=INT32,
    topics=st.lists(st.tuples(TEXT, UUIDS, st.lists(results(), max_size=3)), max_size=3),
    throttle_ms=st.integers(0, 10_000),
    endpoints=st.lists(st.builds(produce_codec.NodeEndpoint, INT32, TEXT, INT32, st.none() | TEXT), max_size=2),
)
def test_responses(version: int, correlation_id: int, topics: Any, throttle_ms: int, endpoints: Any) -> None:
    ours = produce_codec.encode_response(
        version,
        correlation_id,
        [(topic_id if version >= 13 else name, partitions) for name, topic_id, partitions in topics],
        throttle_ms,
        endpoints,
    )
    schema = ResponseSchema.of(ApiKey.PRODUCE, version)
    entity = schema.ProduceResponse(
        responses=tuple(
            schema.TopicProduceResponse(
                name=name, topic_id=topic_id, partition_responses=tuple(_kio(schema, each) for each in partitions)
            )
            for name, topic_id, partitions in topics
        ),
        throttle_time=timedelta(milliseconds=throttle_ms),
        node_endpoints=tuple(
            schema.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in endpoints
        ),
    )
    kio = encode_response(ApiKey.PRODUCE, version, correlation_id, entity)
    assert b"".join(ours) == b"".join(kio)
    assert decode_response(ApiKey.PRODUCE, version, b"".join(ours)[4:])[0] == correlation_id


def _kio(schema: ResponseSchema, each: Result) -> Any:
    hint = each.current_leader
    return schema.PartitionProduceResponse(
        index=each.topic_partition.partition,
        error_code=each.error,
        base_offset=each.base_offset,
        log_append_time=to_instant(each.log_append_time),
        log_start_offset=each.log_start_offset,
        record_errors=tuple(
            schema.BatchIndexAndErrorMessage(batch_index=one.batch_index, batch_index_error_message=one.message)
            for one in each.record_errors
        ),
        error_message=each.error_message,
        **(
            {}
            if hint is None
            else {"current_leader": schema.LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)}
        ),
    )
