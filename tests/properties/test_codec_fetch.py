"""The Fetch codec against kio, in every version that is offered."""

from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.common.errors import ErrorCode
from broker.protocol import fetch_codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.frames import Frame
from broker.protocol.produce_codec import NodeEndpoint
from broker.protocol.requests import decode_response, encode_request, encode_response, has_request_header_tags
from broker.protocol.response_schema import RequestSchema, ResponseSchema
from tests.support.codec_oracle import fetch_request_of

VERSIONS = range(4, 19)
INT8 = st.integers(-128, 127)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(max_size=200)
UUIDS = st.builds(lambda value: UUID(int=value), st.integers(1, (1 << 128) - 1))


class Pair(NamedTuple):
    """Stands for LeaderHint, EpochEndOffset and AbortedTransaction alike."""

    leader_id: int
    leader_epoch: int

    @property
    def epoch(self) -> int:
        return self.leader_id

    @property
    def end_offset(self) -> int:
        return self.leader_epoch

    @property
    def producer_id(self) -> int:
        return self.leader_id

    @property
    def first_offset(self) -> int:
        return self.leader_epoch


class Result(NamedTuple):
    partition: int
    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: tuple[Pair, ...] | None
    records: bytes
    diverging_epoch: Pair | None
    preferred_read_replica: int
    current_leader: Pair | None


PAIRS = st.builds(Pair, st.integers(0, 1000), st.integers(0, 1000))
RESULTS = st.builds(
    Result,
    INT32,
    st.sampled_from([ErrorCode.none, ErrorCode.offset_out_of_range, ErrorCode.fenced_leader_epoch]),
    INT64,
    INT64,
    INT64,
    st.none() | st.lists(PAIRS, max_size=3).map(tuple),
    st.binary(max_size=300),
    st.none() | PAIRS,
    INT32,
    st.none() | PAIRS,
)


@st.composite
def partitions(draw: st.DrawFn, with_tags: st.SearchStrategy[bool]) -> list[dict[str, Any]]:
    """Few or many, some of them with tagged fields, so that both ways of reading are taken."""
    return [
        {
            "partition": draw(INT32),
            "current_leader_epoch": draw(INT32),
            "fetch_offset": draw(INT64),
            "last_fetched_epoch": draw(INT32),
            "log_start_offset": draw(INT64),
            "partition_max_bytes": draw(INT32),
            "replica_directory_id": draw(UUIDS) if draw(with_tags) else None,
            "high_watermark": draw(INT64) if draw(with_tags) else fetch_codec.UNKNOWN_HIGH_WATERMARK,
        }
        for _ in range(draw(st.integers(0, 7)))
    ]


PARTITIONS = st.one_of(partitions(st.just(False)), partitions(st.booleans()))


@settings(max_examples=100)
@given(
    version=st.sampled_from(VERSIONS),
    head=st.tuples(INT32, INT64, INT32, INT32, INT32, INT8, INT32, INT32),
    topics=st.lists(st.tuples(TEXT, UUIDS, PARTITIONS), max_size=3),
    forgotten=st.lists(st.tuples(TEXT, UUIDS, st.lists(INT32, max_size=4)), max_size=2),
    rack_id=TEXT,
    cluster_id=st.none() | TEXT,
)
def test_requests(version: int, head: Any, topics: Any, forgotten: Any, rack_id: str, cluster_id: str | None) -> None:
    replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = head
    schema = RequestSchema.of(ApiKey.FETCH, version)
    body = schema.FetchRequest(
        cluster_id=cluster_id,
        replica_id=replica_id,
        replica_state=schema.ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch),
        max_wait=timedelta(milliseconds=max_wait_ms),
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=tuple(
            schema.FetchTopic(
                topic=name, topic_id=topic_id, partitions=tuple(schema.FetchPartition(**each) for each in asked)
            )
            for name, topic_id, asked in topics
        ),
        forgotten_topics_data=tuple(
            schema.ForgottenTopic(topic=name, topic_id=topic_id, partitions=tuple(numbers))
            for name, topic_id, numbers in forgotten
        ),
        rack_id=rack_id,
    )
    raw = encode_request(ApiKey.FETCH, version, 7, "client", body)[4:]
    frame = Frame(memoryview(raw), is_owned=True)
    if has_request_header_tags(ApiKey.FETCH, version):
        frame.skip_header_tags()
    assert fetch_codec.decode(frame.buffer, frame.body_position, version) == fetch_request_of(body)


@settings(max_examples=100)
@given(
    version=st.sampled_from(VERSIONS),
    correlation_id=INT32,
    error=st.sampled_from([ErrorCode.none, ErrorCode.fetch_session_id_not_found]),
    session_id=INT32,
    topics=st.lists(st.tuples(TEXT, UUIDS, st.lists(RESULTS, max_size=3)), max_size=3),
    throttle_ms=st.integers(0, 10_000),
    endpoints=st.lists(st.builds(NodeEndpoint, INT32, TEXT, INT32, st.none() | TEXT), max_size=2),
)
def test_responses(
    version: int,
    correlation_id: int,
    error: ErrorCode,
    session_id: int,
    topics: Any,
    throttle_ms: int,
    endpoints: Any,
) -> None:
    ours = fetch_codec.encode_response(
        version,
        correlation_id,
        error,
        session_id,
        [(topic_id if version >= 13 else name, results) for name, topic_id, results in topics],
        throttle_ms,
        endpoints,
    )
    schema = ResponseSchema.of(ApiKey.FETCH, version)
    entity = schema.FetchResponse(
        throttle_time=timedelta(milliseconds=throttle_ms),
        error_code=error,
        session_id=session_id,
        responses=tuple(
            schema.FetchableTopicResponse(
                topic=name, topic_id=topic_id, partitions=tuple(_kio(schema, each) for each in results)
            )
            for name, topic_id, results in topics
        ),
        node_endpoints=tuple(
            schema.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in endpoints
        ),
    )
    kio = encode_response(ApiKey.FETCH, version, correlation_id, entity)
    assert b"".join(ours) == b"".join(kio)
    assert decode_response(ApiKey.FETCH, version, b"".join(ours)[4:]) == (correlation_id, entity)
    given_records = [each.records for _, _, results in topics for each in results if each.records]
    assert all(any(buffer is records for buffer in ours) for records in given_records), "records are not copied"


def _kio(schema: ResponseSchema, each: Result) -> Any:
    tags: dict[str, Any] = {}
    if each.diverging_epoch is not None:
        tags["diverging_epoch"] = schema.EpochEndOffset(
            epoch=each.diverging_epoch.epoch, end_offset=each.diverging_epoch.end_offset
        )
    if each.current_leader is not None:
        tags["current_leader"] = schema.LeaderIdAndEpoch(
            leader_id=each.current_leader.leader_id, leader_epoch=each.current_leader.leader_epoch
        )
    aborted = each.aborted_transactions
    return schema.PartitionData(
        partition_index=each.partition,
        error_code=each.error,
        high_watermark=each.high_watermark,
        last_stable_offset=each.last_stable_offset,
        log_start_offset=each.log_start_offset,
        aborted_transactions=(
            None
            if aborted is None
            else tuple(
                schema.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in aborted
            )
        ),
        preferred_read_replica=each.preferred_read_replica,
        records=each.records,
        **tags,
    )
