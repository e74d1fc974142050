"""`__remote_wal_log_metadata` of real processes, as an ordinary consumer and an admin client see it (KIP-1176)."""

from collections.abc import Iterator
from uuid import UUID

import confluent_kafka
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from broker.common.identifiers import REMOTE_WAL_LOG_METADATA_TOPIC
from broker.schemas.remote_metadata_partitioner import combined_event_partition_of, metadata_partition_of
from broker.schemas.remote_wal_metadata import (
    RemoteWalCombinedLogSegmentMetadataRecord,
    RemoteWalLogSegmentMetadataRecord,
    RemoteWalMetadataRecord,
    decode,
    slice_records,
)
from tests.support.patience import PATIENCE_S, until
from tests.support.wal_cluster import WAL_TOPIC, WalCluster

pytestmark = pytest.mark.interop

PARTITIONS = 5
TOPIC = "t"
TOPIC_PARTITIONS = 4
ROUNDS = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WalCluster]:
    with WalCluster(tmp_path_factory.mktemp("wal")) as processes:
        processes.create_topic(TOPIC, partitions=TOPIC_PARTITIONS, replication_factor=3, config=WAL_TOPIC)
        yield processes


def produce(cluster: WalCluster, rounds: int = ROUNDS) -> None:
    """A record for each partition in each round, acknowledged by all replicas."""
    failed: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "enable.idempotence": True}
    )
    for number in range(rounds):
        for partition in range(TOPIC_PARTITIONS):
            producer.produce(
                TOPIC,
                f"{number}".encode() * 20,
                partition=partition,
                on_delivery=lambda error, message: failed.append(error) if error else None,
            )
        producer.poll(0.02)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def read_events(cluster: WalCluster) -> list[tuple[int, RemoteWalMetadataRecord]]:
    """All there is, by partition in order."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "looker", "enable.partition.eof": True}
    )
    places = [
        confluent_kafka.TopicPartition(REMOTE_WAL_LOG_METADATA_TOPIC, number, confluent_kafka.OFFSET_BEGINNING)
        for number in range(PARTITIONS)
    ]
    consumer.assign(places)
    events: list[tuple[int, RemoteWalMetadataRecord]] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"only {ended} were read to their ends"
        error, place, value = message.error(), message.partition(), message.value()
        assert place is not None
        if error is None:
            assert value is not None
            events.append((place, decode(value)))
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ended.add(place)
        else:
            raise confluent_kafka.KafkaException(error)
    consumer.close()
    return events


def slices_in_place(events: list[tuple[int, RemoteWalMetadataRecord]]) -> list[RemoteWalLogSegmentMetadataRecord]:
    """The slice events in their order, each once; that every event is where it belongs is checked on the way."""
    slices: dict[UUID, RemoteWalLogSegmentMetadataRecord] = {}
    for place, event in events:
        if isinstance(event, RemoteWalCombinedLogSegmentMetadataRecord):
            assert place == combined_event_partition_of(event.broker_id, PARTITIONS)
        elif isinstance(event, RemoteWalLogSegmentMetadataRecord):
            about = event.remote_log_segment_id.topic_id_partition
            assert place == metadata_partition_of(about.id, about.partition, PARTITIONS)
            slices.setdefault(event.remote_log_segment_id.id, event)  # again: acknowledged, and nobody heard of it
    return list(slices.values())


def slices_of_objects(events: list[tuple[int, RemoteWalMetadataRecord]]) -> list[RemoteWalLogSegmentMetadataRecord]:
    """Whatever is announced of an object is announced of its slices."""
    objects = [event for _, event in events if isinstance(event, RemoteWalCombinedLogSegmentMetadataRecord)]
    return [each for announced in objects for each in slice_records(announced)]


def covered(slices: list[RemoteWalLogSegmentMetadataRecord]) -> dict[int, int]:
    """By partition, up to which offset the slices hold everything."""
    ends = dict.fromkeys(range(TOPIC_PARTITIONS), 0)
    for event in sorted(slices, key=lambda each: each.start_offset):
        number = event.remote_log_segment_id.topic_id_partition.partition
        if event.start_offset <= ends[number]:
            ends[number] = max(ends[number], event.end_offset + 1)
    return ends


def test_it_was_created_once_with_settings_of_its_own(cluster: WalCluster) -> None:
    """Behaviour 3."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    produce(cluster, 1)
    topic = admin.list_topics(REMOTE_WAL_LOG_METADATA_TOPIC).topics[REMOTE_WAL_LOG_METADATA_TOPIC]
    assert {len(each.replicas) for each in topic.partitions.values()} == {3}
    assert len(topic.partitions) == PARTITIONS
    resource = ConfigResource(ResourceType.TOPIC, REMOTE_WAL_LOG_METADATA_TOPIC)
    (answer,) = admin.describe_configs([resource]).values()
    configs = {name: entry.value for name, entry in answer.result().items()}
    expected = {
        "cleanup.policy": "delete",
        "retention.ms": "7200000",
        "segment.ms": "600000",
        "segment.bytes": "67108864",
        "min.insync.replicas": "2",
        "remote.storage.enable": "false",
        "remote.wal.enable": "false",
    }
    assert {name: configs[name] for name in expected} == expected
    said = [node.log_text().count("metadata_topic_created") for node in cluster.brokers]
    assert sum(said) == 1, said


def test_each_event_is_where_it_belongs_and_in_its_order(cluster: WalCluster) -> None:
    """Behaviours 1 and 2."""
    records = ROUNDS + 1
    produce(cluster)
    wanted = dict.fromkeys(range(TOPIC_PARTITIONS), records)
    until(  # a slice's own event may come after its records are acknowledged
        lambda: covered(slices_in_place(read_events(cluster))) == wanted,
        f"events of {wanted}",
        lambda: covered(slices_in_place(read_events(cluster))),
    )
    events = read_events(cluster)
    slices = slices_in_place(events)
    combined = [event for _, event in events if isinstance(event, RemoteWalCombinedLogSegmentMetadataRecord)]
    assert {event for each in combined for event in slice_records(each)} == set(slices)
    assert {event.broker_id for event in combined} == {1, 2, 3}
    assert covered(slices) == wanted
    for number in range(TOPIC_PARTITIONS):
        own = [each for each in slices if each.remote_log_segment_id.topic_id_partition.partition == number]
        assert [each.start_offset for each in own[1:]] == [each.end_offset + 1 for each in own[:-1]]


def test_nothing_is_missing_when_the_leaders_of_the_topic_change(cluster: WalCluster) -> None:
    """Behaviour 55."""
    records = ROUNDS + 1
    for victim in (2, 3):
        cluster.kill(victim)
        produce(cluster, 30)
        cluster.restart(victim)
        produce(cluster, 30)
        records += 60
    # A broker that is killed takes the events of its last slices along, which are behind those of their objects; and
    # what it had not announced at all is uploaded again by who leads next.
    wanted = dict.fromkeys(range(TOPIC_PARTITIONS), records)
    until(
        lambda: covered(slices_of_objects(read_events(cluster))) == wanted,
        f"events of {wanted}",
        lambda: covered(slices_of_objects(read_events(cluster))),
        every_s=0.5,
    )
