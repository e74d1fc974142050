"""What is known to break on brokers that are not Apache's, seen from the wire of a running broker."""

import struct
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.protocol.api_keys import ApiKey
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import batches
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE, PATIENCE_MS, until
from tests.support.wire_client import ConnectionClosed, WireClient

pytestmark = pytest.mark.interop

SECOND = timedelta(seconds=1)
NOW = 1_764_000_000_000


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.port) as connection:
        yield connection


def create(client: WireClient, topic: str, partitions: int = 1, **configs: str) -> uuid.UUID:
    schema = client.request(ApiKey.CREATE_TOPICS, 7)
    rows = tuple(
        schema.CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
    )
    new = schema.CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, assignments=(), configs=rows
    )
    request = schema.CreateTopicsRequest(topics=(new,), timeout=PATIENCE, validate_only=False)
    (row,) = client.ask(ApiKey.CREATE_TOPICS, 7, request).topics
    assert row.error_code is ErrorCode.none, row
    wait_for_leader(client, topic)
    identity: uuid.UUID = row.topic_id
    return identity


def metadata(client: WireClient, version: int, *topics: str, create: bool = False) -> Any:
    schema = client.request(ApiKey.METADATA, version)
    rows = tuple(schema.MetadataRequestTopic(name=name, topic_id=None) for name in topics)
    request = schema.MetadataRequest(
        topics=rows,
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return client.ask(ApiKey.METADATA, version, request)


def wait_for_leader(client: WireClient, topic: str) -> None:
    def is_led() -> bool:
        (row,) = metadata(client, 12, topic).topics
        return row.error_code is ErrorCode.none and all(partition.leader_id == 1 for partition in row.partitions)

    until(is_led, f"{topic} has a leader", lambda: metadata(client, 12, topic).topics)


def produce_request(client: WireClient, version: int, topic: str, records: bytes, acks: int = -1) -> Any:
    schema = client.request(ApiKey.PRODUCE, version)
    partition = schema.PartitionProduceData(index=0, records=records)
    data = schema.TopicProduceData(name=topic, partition_data=(partition,))
    return schema.ProduceRequest(transactional_id=None, acks=acks, timeout=PATIENCE, topic_data=(data,))


def produce(client: WireClient, topic: str, records: bytes, version: int = 9, acks: int = -1) -> Any:
    answer = client.ask(ApiKey.PRODUCE, version, produce_request(client, version, topic, records, acks))
    return answer.responses[0].partition_responses[0]


def fetch(
    client: WireClient,
    topics: dict[str, int],
    version: int = 12,
    *,
    max_bytes: int = 1 << 20,
    partition_bytes: int = 1 << 20,
    wait_ms: int = 0,
    isolation: int = 0,
) -> list[Any]:
    schema = client.request(ApiKey.FETCH, version)
    rows = tuple(
        schema.FetchTopic(
            topic=topic,
            partitions=(schema.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_bytes),),
        )
        for topic, offset in topics.items()
    )
    request = schema.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=rows,
        forgotten_topics_data=(),
        rack_id="",
    )
    answer = client.ask(ApiKey.FETCH, version, request)
    assert answer.session_id == 0
    return [row.partitions[0] for row in answer.responses]


def batch(*values: bytes, **keywords: Any) -> bytes:
    return bytes(records_batch(*((NOW, None, value) for value in values), **keywords))


def api_versions(client: WireClient, version: int) -> Any:
    schema = client.request(ApiKey.API_VERSIONS, version)
    request = schema.ApiVersionsRequest(client_software_name="wire", client_software_version="1")
    return client.ask(ApiKey.API_VERSIONS, version, request)


def test_trap_1_api_versions_answers_with_header_version_0(client: WireClient) -> None:
    schema = client.request(ApiKey.API_VERSIONS, 3)
    client.send(
        ApiKey.API_VERSIONS, 3, schema.ApiVersionsRequest(client_software_name="w", client_software_version="1")
    )
    frame = client.receive_frame()
    assert frame[:6] == b"\x00\x00\x00\x01\x00\x00"  # correlation id, error 0: no tag byte in between


def test_trap_2_an_unknown_version_of_api_versions_is_answered_in_version_0(client: WireClient) -> None:
    client.send_bytes(struct.pack(">ihhihB", 4 + 4 + 2 + 1, 18, 9, 77, -1, 0))
    frame = client.receive_frame()
    assert frame == struct.pack(">ihihhh", 77, 35, 1, 18, 0, 4)
    assert api_versions(client, 4).error_code is ErrorCode.none  # the connection lives


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 99), (1, 3), (999, 0), (4, 0), (17, 1), (71, 0)])
def test_traps_3_and_4_any_other_unknown_key_or_version_closes(broker: BrokerProcess, key: int, version: int) -> None:
    with WireClient(broker.port) as client:
        client.send_bytes(struct.pack(">ihhih", 10, key, version, 1, -1))
        assert client.is_closed()


def test_trap_5_unknown_tagged_fields_are_skipped(client: WireClient) -> None:
    # Metadata 12, all topics; header and body both carry the unknown tag 99 with two bytes.
    tags = b"\x01\x63\x02\xab\xcd"
    frame = struct.pack(">hhih", 3, 12, 5, -1) + tags + b"\x00" + b"\x00\x00" + tags
    client.send_bytes(struct.pack(">i", len(frame)) + frame)
    correlation_id, body = client.receive(ApiKey.METADATA, 12)
    assert (correlation_id, len(body.brokers)) == (5, 1)


def test_trap_6_topic_ids_are_there_and_new_after_re_creation(client: WireClient, topic: str) -> None:
    first = create(client, topic)
    assert metadata(client, 12, topic).topics[0].topic_id == first
    schema = client.request(ApiKey.DELETE_TOPICS, 6)
    state = schema.DeleteTopicState(name=topic, topic_id=None)
    answer = client.ask(ApiKey.DELETE_TOPICS, 6, schema.DeleteTopicsRequest(topics=(state,), timeout=PATIENCE))
    assert answer.responses[0].error_code is ErrorCode.none
    until(
        lambda: metadata(client, 12, topic).topics[0].error_code is ErrorCode.unknown_topic_or_partition,
        f"{topic} is gone",
    )
    second = create(client, topic)
    assert second not in (first, None)
    schema = client.request(ApiKey.METADATA, 12)
    row = schema.MetadataRequestTopic(name=None, topic_id=first)
    request = schema.MetadataRequest(
        topics=(row,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    (gone,) = client.ask(ApiKey.METADATA, 12, request).topics
    assert (gone.error_code, gone.name) == (ErrorCode.unknown_topic_id, None)


def test_traps_7_8_and_9_identities_and_operations(client: WireClient, topic: str) -> None:
    create(client, topic)
    answer = metadata(client, 12, topic)
    assert [node.node_id for node in answer.brokers] == [answer.controller_id] == [1]
    assert answer.cluster_id is not None
    assert len(answer.cluster_id) == 22
    assert answer.brokers[0].rack is None
    assert answer.topics[0].topic_authorized_operations == -2147483648


def test_trap_10_the_first_batch_is_returned_whole(client: WireClient, topic: str) -> None:
    other = topic + "-b"
    create(client, topic)
    create(client, other)
    for name in (topic, other):
        produce(client, name, batch(b"x" * 5000))
        produce(client, name, batch(b"y"))
    first, second = fetch(client, {topic: 0, other: 0}, max_bytes=1, partition_bytes=1)
    assert [each.base_offset for each in batches(first.records)] == [0]
    assert second.records == b""
    (whole,) = fetch(client, {topic: 0}, partition_bytes=5100)
    assert len(whole.records) == sum(each.size_bytes for each in batches(whole.records))


def test_trap_11_beyond_the_end_is_an_error_and_the_end_waits(client: WireClient, topic: str) -> None:
    create(client, topic)
    produce(client, topic, batch(b"a", b"b"))
    (beyond,) = fetch(client, {topic: 3})
    assert (beyond.error_code, beyond.records) == (ErrorCode.offset_out_of_range, b"")
    (end,) = fetch(client, {topic: 2}, wait_ms=50)
    assert (end.error_code, end.high_watermark, end.last_stable_offset, end.log_start_offset, end.records) == (
        ErrorCode.none,
        2,
        2,
        0,
        b"",
    )


def test_traps_13_and_14_no_hints_and_no_other_replica_when_all_is_well(client: WireClient, topic: str) -> None:
    create(client, topic)
    answer = client.ask(ApiKey.PRODUCE, 10, produce_request(client, 10, topic, batch(b"x")))
    row = answer.responses[0].partition_responses[0]
    assert (row.error_code, row.current_leader.leader_id, answer.node_endpoints) == (ErrorCode.none, -1, ())
    (fetched,) = fetch(client, {topic: 0})
    assert fetched.preferred_read_replica == -1
    assert metadata(client, 12, topic).brokers[0].rack is None


def test_trap_15_a_duplicate_is_answered_with_the_original_offset(client: WireClient, topic: str) -> None:
    create(client, topic)
    sent = [batch(b"a", producer_id=4711, producer_epoch=0, base_sequence=number) for number in range(7)]
    assert [produce(client, topic, each).base_offset for each in sent] == list(range(7))
    again = produce(client, topic, sent[4])
    assert (again.error_code, again.base_offset) == (ErrorCode.none, 4)
    assert produce(client, topic, sent[1]).error_code is ErrorCode.out_of_order_sequence_number
    gap = batch(b"a", producer_id=4711, producer_epoch=0, base_sequence=9)
    assert produce(client, topic, gap).error_code is ErrorCode.out_of_order_sequence_number
    unknown = batch(b"a", producer_id=4712, producer_epoch=0, base_sequence=1000)
    assert produce(client, topic, unknown).error_code is ErrorCode.none
    bumped = batch(b"a", producer_id=4711, producer_epoch=1, base_sequence=0)
    assert produce(client, topic, bumped).error_code is ErrorCode.none
    assert produce(client, topic, sent[6]).error_code is ErrorCode.invalid_producer_epoch


def test_trap_15_sequences_wrap(client: WireClient, topic: str) -> None:
    create(client, topic)
    high = batch(b"a", b"b", producer_id=1, producer_epoch=0, base_sequence=2147483646)
    wrapped = batch(b"c", producer_id=1, producer_epoch=0, base_sequence=0)
    assert produce(client, topic, high).error_code is ErrorCode.none
    assert produce(client, topic, wrapped).base_offset == 2


def test_trap_16_only_offset_and_epoch_are_rewritten(client: WireClient, topic: str) -> None:
    create(client, topic)
    produce(client, topic, batch(b"first"))
    sent = batch(b"second")
    produce(client, topic, sent)
    (row,) = fetch(client, {topic: 1})
    (stored,) = batches(row.records)
    assert (stored.base_offset, stored.partition_leader_epoch, stored.is_crc_valid()) == (1, 0, True)
    assert bytes(row.records[16:]) == sent[16:]


def test_trap_17_acks_0_is_never_answered(client: WireClient, topic: str) -> None:
    create(client, topic)
    client.send(ApiKey.PRODUCE, 9, produce_request(client, 9, topic, batch(b"silent"), acks=0))
    (row,) = fetch(client, {topic: 0}, wait_ms=PATIENCE_MS)  # the next answer on the connection is the fetch's
    assert row.high_watermark == 1


def test_trap_17_an_error_with_acks_0_closes(broker: BrokerProcess) -> None:
    with WireClient(broker.port) as client:
        client.send(ApiKey.PRODUCE, 9, produce_request(client, 9, "does-not-exist", batch(b"lost"), acks=0))
        assert client.is_closed()


def test_trap_18_answers_keep_the_order_of_requests(client: WireClient, topic: str) -> None:
    create(client, topic)
    schema = client.request(ApiKey.FETCH, 12)
    partition = schema.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    waiting = schema.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(milliseconds=300),
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(schema.FetchTopic(topic=topic, partitions=(partition,)),),
        forgotten_topics_data=(),
        rack_id="",
    )
    first = client.send(ApiKey.FETCH, 12, waiting)
    second = client.send(ApiKey.PRODUCE, 9, produce_request(client, 9, topic, batch(b"later")))
    third = client.send(ApiKey.API_VERSIONS, 0, client.request(ApiKey.API_VERSIONS, 0).ApiVersionsRequest())
    assert client.receive(ApiKey.FETCH, 12)[0] == first
    assert client.receive(ApiKey.PRODUCE, 9)[0] == second
    assert client.receive(ApiKey.API_VERSIONS, 0)[0] == third


def test_trap_18_produce_requests_are_pipelined(client: WireClient, topic: str) -> None:
    create(client, topic)
    sent = [
        client.send(ApiKey.PRODUCE, 9, produce_request(client, 9, topic, batch(b"%d" % number))) for number in range(50)
    ]
    answers = [client.receive(ApiKey.PRODUCE, 9) for _ in sent]
    assert [correlation_id for correlation_id, _ in answers] == sent
    assert [body.responses[0].partition_responses[0].base_offset for _, body in answers] == list(range(50))


def test_trap_19_errors_are_per_partition_and_name_the_bad_records(client: WireClient, topic: str) -> None:
    create(client, topic, cleanup_policy="compact")
    records = bytes(records_batch((NOW, b"k", b"v"), (NOW, None, b"v"), (NOW, None, b"v")))
    refused = produce(client, topic, records)
    assert refused.error_code is ErrorCode.invalid_record
    assert [error.batch_index for error in refused.record_errors] == [1, 2]
    corrupt = bytearray(batch(b"x"))
    corrupt[-1] ^= 1
    assert produce(client, topic, bytes(corrupt)).error_code is ErrorCode.corrupt_message
    two = batch(b"x") + batch(b"y")
    assert produce(client, topic, two).error_code is ErrorCode.invalid_record
    large = bytes(records_batch((NOW, b"k", b"x" * 1_100_000)))
    assert produce(client, topic, large).error_code is ErrorCode.message_too_large
    future = bytes(records_batch((NOW + 10**12, b"k", b"v")))
    assert produce(client, topic, future).error_code is ErrorCode.invalid_timestamp


def test_trap_19_invalid_acks(client: WireClient, topic: str) -> None:
    create(client, topic)
    assert produce(client, topic, batch(b"x"), acks=2).error_code is ErrorCode.invalid_required_acks


def wait_for_coordinator(client: WireClient, group: str) -> None:
    """The first FindCoordinator makes the topic; the coordinator is one when it has loaded its partition."""
    schema = client.request(ApiKey.FIND_COORDINATOR, 2)
    find = schema.FindCoordinatorRequest(key=group, key_type=0)
    heartbeat = client.request(ApiKey.HEARTBEAT, 3).HeartbeatRequest(
        group_id=group, generation_id=1, member_id="nobody", group_instance_id=None
    )

    def is_loaded() -> bool:
        found = client.ask(ApiKey.FIND_COORDINATOR, 2, find)
        beat = client.ask(ApiKey.HEARTBEAT, 3, heartbeat)
        return (found.error_code, beat.error_code) == (ErrorCode.none, ErrorCode.unknown_member_id)

    until(is_loaded, f"{group} has a coordinator")


def join(client: WireClient, group: str, version: int = 5, **changes: Any) -> Any:
    schema = client.request(ApiKey.JOIN_GROUP, version)
    fields = {
        "group_id": group,
        "session_timeout": 60 * SECOND,
        "rebalance_timeout": 60 * SECOND,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": (schema.JoinGroupRequestProtocol(name="range", metadata=b""),),
        **changes,
    }
    return client.ask(ApiKey.JOIN_GROUP, version, schema.JoinGroupRequest(**fields))


def test_trap_20_edges_of_groups(client: WireClient, topic: str) -> None:
    group = f"group-{topic}"
    wait_for_coordinator(client, group)
    first = join(client, group)
    assert (first.error_code, first.member_id[:12]) == (ErrorCode.member_id_required, "wire-client-")
    too_short = join(client, group, session_timeout=timedelta(milliseconds=999))
    assert too_short.error_code is ErrorCode.invalid_session_timeout
    assert join(client, group, member_id="stranger").error_code is ErrorCode.unknown_member_id
    joined = join(client, group, member_id=first.member_id)
    assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.none, 1, first.member_id)
    other = join(client, group, member_id="", protocol_type="connect")
    assert other.error_code is ErrorCode.inconsistent_group_protocol
    schema = client.request(ApiKey.HEARTBEAT, 3)
    for generation, member_id, error in (
        (1, first.member_id, ErrorCode.none),
        (2, first.member_id, ErrorCode.illegal_generation),
        (1, "stranger", ErrorCode.unknown_member_id),
    ):
        beat = schema.HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=None
        )
        assert client.ask(ApiKey.HEARTBEAT, 3, beat).error_code is error


def test_trap_21_a_commit_comes_back_with_epoch_and_metadata(client: WireClient, topic: str) -> None:
    create(client, topic)
    group = f"group-{topic}"
    schema = client.request(ApiKey.OFFSET_COMMIT, 7)
    row = schema.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=3, committed_metadata="note"
    )
    request = schema.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=(schema.OffsetCommitRequestTopic(name=topic, partitions=(row,)),),
    )
    wait_for_coordinator(client, group)
    answer = client.ask(ApiKey.OFFSET_COMMIT, 7, request).topics[0].partitions[0]
    assert answer.error_code is ErrorCode.none
    schema = client.request(ApiKey.OFFSET_FETCH, 5)
    wanted = schema.OffsetFetchRequestTopic(name=topic, partition_indexes=(0, 7))
    answer = client.ask(ApiKey.OFFSET_FETCH, 5, schema.OffsetFetchRequest(group_id=group, topics=(wanted,)))
    rows = [
        (each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata)
        for each in answer.topics[0].partitions
    ]
    assert rows == [(0, 5, 3, "note"), (7, -1, -1, "")]


def test_trap_22_auto_creation_answers_with_leaders(client: WireClient, topic: str) -> None:
    (row,) = metadata(client, 12, topic, create=False).topics
    assert row.error_code is ErrorCode.unknown_topic_or_partition
    assert _leaders_once_created(client, 12, topic) == [1]
    assert _leaders_once_created(client, 1, topic + "-implicit") == [1]  # before version 4 creation is implied
    (row,) = metadata(client, 12, "bad name", create=True).topics
    assert row.error_code is ErrorCode.invalid_topic_exception


def _leaders_once_created(client: WireClient, version: int, topic: str) -> list[int]:
    """A broker holds its answer back for a second only: on a busy disk it says that the topic is not there yet."""

    def created() -> Any:
        (row,) = metadata(client, version, topic, create=True).topics
        assert row.error_code in (ErrorCode.none, ErrorCode.unknown_topic_or_partition), row
        return row if row.error_code is ErrorCode.none else None

    row = until(created, f"{topic} is created")
    return [partition.leader_id for partition in row.partitions]


def test_traps_23_and_24_what_is_offered(client: WireClient) -> None:
    offered = {row.api_key: (row.min_version, row.max_version) for row in api_versions(client, 4).api_keys}
    assert {key: offered[key] for key in (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 22)} == {
        0: (0, 13),
        1: (4, 18),
        2: (1, 10),
        3: (0, 13),
        8: (2, 10),
        9: (1, 10),
        10: (0, 6),
        11: (0, 9),
        12: (0, 4),
        13: (0, 5),
        14: (0, 5),
        18: (0, 4),
        22: (0, 5),
    }
    assert {15, 16, 19, 20, 21, 23, 32, 33, 35, 37, 42, 43, 44, 46, 47, 60, 61, 74, 75} <= offered.keys()
    assert offered.keys().isdisjoint({4, 5, 6, 7, 24, 25, 26, 28, 68, 69, 71, 72, 62, 63, 56, 52, 53, 54})


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_metadata(client: WireClient, topic: str, version: int) -> None:
    create(client, topic, 2)
    (row,) = metadata(client, version, topic).topics
    assert (row.name, len(row.partitions)) == (topic, 2)


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_of_fetch_by_name(client: WireClient, topic: str, version: int) -> None:
    create(client, topic)
    produce(client, topic, batch(b"x"))
    (row,) = _fetch_any(client, topic, version)
    assert [each.record_count for each in batches(row.records)] == [1]


def _fetch_any(client: WireClient, topic: str, version: int) -> list[Any]:
    schema = client.request(ApiKey.FETCH, version)
    request = schema.FetchRequest(
        replica_id=-1,
        max_wait=timedelta(0),
        min_bytes=0,
        max_bytes=1000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(
            schema.FetchTopic(
                topic=topic,
                partitions=(schema.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000),),
            ),
        ),
        forgotten_topics_data=(),
        rack_id="",
    )
    return [row.partitions[0] for row in client.ask(ApiKey.FETCH, version, request).responses]


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_of_produce_by_name(client: WireClient, topic: str, version: int) -> None:
    create(client, topic)
    row = produce(client, topic, batch(b"x"), version=version)
    assert (row.error_code, row.base_offset) == (ErrorCode.none, 0)


def test_produce_and_fetch_by_topic_id(client: WireClient, topic: str) -> None:
    identity = create(client, topic)
    schema = client.request(ApiKey.PRODUCE, 13)

    def by_id(topic_id: uuid.UUID) -> Any:
        data = schema.TopicProduceData(
            topic_id=topic_id, partition_data=(schema.PartitionProduceData(index=0, records=batch(b"x")),)
        )
        request = schema.ProduceRequest(transactional_id=None, acks=1, timeout=PATIENCE, topic_data=(data,))
        return client.ask(ApiKey.PRODUCE, 13, request).responses[0].partition_responses[0]

    assert by_id(identity).error_code is ErrorCode.none
    assert by_id(uuid.UUID(int=12345)).error_code is ErrorCode.unknown_topic_id


def refused_frames(broker: BrokerProcess) -> float:
    closed = "broker_connections_closed_total"
    return broker.metric(closed, reason="malformed") + broker.metric(closed, reason="too_large")


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 3) + b"\0\0\0",
        struct.pack(">ihhih", 12, 3, 12, 1, -1) + b"\0\xff",
        struct.pack(">ihhi", 9, 3, 1, 1) + b"\x7f",
    ],
    ids=["negative length", "huge length", "no header", "cut body", "cut client id"],
)
def test_a_malformed_frame_closes_its_connection_alone(broker: BrokerProcess, client: WireClient, frame: bytes) -> None:
    before = refused_frames(broker)
    with WireClient(broker.port) as bad:
        bad.send_bytes(frame)
        assert bad.is_closed()
    assert refused_frames(broker) == before + 1
    assert api_versions(client, 0).error_code is ErrorCode.none


def test_a_frame_may_arrive_byte_by_byte(client: WireClient) -> None:
    for byte in struct.pack(">ihhih", 10, 18, 0, 9, -1):
        client.send_bytes(bytes([byte]))
    assert client.receive(ApiKey.API_VERSIONS, 0)[0] == 9


def test_connection_limits(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker({"max.connections.per.ip": "3"})
    clients = [WireClient(broker.port) for _ in range(3)]
    for client in clients:
        assert api_versions(client, 0).error_code is ErrorCode.none
    with WireClient(broker.port) as refused, pytest.raises(ConnectionClosed):
        api_versions(refused, 0)


def test_idle_connections_are_closed(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker({"connections.max.idle.ms": "2000"})
    clients = [WireClient(broker.port) for _ in range(3)]
    assert all(client.is_closed() for client in clients)


def test_a_request_larger_than_the_limit_is_refused(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = own_broker({"socket.request.max.bytes": "100000"})
    with WireClient(broker.port) as client:
        create(client, topic)
        client.send_bytes(struct.pack(">i", 100_001))
        assert client.is_closed()
