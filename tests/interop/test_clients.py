"""Each ordinary client produces, consumes, commits and administrates with its default settings and every codec."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import aiokafka.admin
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest

from broker.records.record_batch import batches
from tests.interop.clients import AIOKAFKA, CONFLUENT, JAVA, KAFKA_PYTHON, KCAT, Client
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S, eventually, until

pytestmark = pytest.mark.interop

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
VALUES = [f"value-{number:04d}-{'x' * 100}" for number in range(200)]

CLIENTS = [
    pytest.param(CONFLUENT, id="confluent"),
    pytest.param(AIOKAFKA, id="aiokafka"),
    pytest.param(KAFKA_PYTHON, id="kafka-python"),
    pytest.param(KCAT, id="kcat", marks=pytest.mark.kcat),
    pytest.param(JAVA, id="java", marks=pytest.mark.java),
]


def codecs_on_disk(data: Path, topic: str) -> set[str]:
    """The codecs of all batches in the segment files of a topic."""
    found = set()
    for segment in sorted(data.glob(f"{topic}-*/*.log")):
        found |= {batch.compression.label for batch in batches(segment.read_bytes())}
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", CLIENTS)
def test_produce_and_consume(broker: BrokerProcess, topic: str, client: Client, codec: str) -> None:
    client.produce(broker.bootstrap, topic, codec, VALUES)
    assert codecs_on_disk(broker.data, topic) == {codec}
    assert client.consume(broker.bootstrap, topic, f"group-{topic}", len(VALUES)) == VALUES


@pytest.mark.parametrize("reader", CLIENTS)
def test_what_one_client_wrote_every_other_reads(broker: BrokerProcess, topic: str, reader: Client) -> None:
    for number, writer in enumerate([CONFLUENT, AIOKAFKA, KAFKA_PYTHON]):
        writer.produce(broker.bootstrap, topic, CODECS[1 + number], [f"{writer.name}-{value}" for value in VALUES])
    values = reader.consume(broker.bootstrap, topic, f"group-{topic}", 3 * len(VALUES))
    assert values == [f"{name}-{value}" for name in ("confluent", "aiokafka", "kafka-python") for value in VALUES]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_goes_on_where_it_committed(broker: BrokerProcess, topic: str, client: Client) -> None:
    client.produce(broker.bootstrap, topic, "none", VALUES)
    assert client.consume(broker.bootstrap, topic, f"group-{topic}", len(VALUES)) == VALUES
    client.produce(broker.bootstrap, topic, "none", ["one more"])
    assert client.consume(broker.bootstrap, topic, f"group-{topic}", 1) == ["one more"]


@pytest.fixture
def confluent_admin(broker: BrokerProcess) -> confluent_kafka.admin.AdminClient:
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def kafka_python_admin(broker: BrokerProcess) -> Iterator[kafka.admin.KafkaAdminClient]:
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield admin
    admin.close()


def test_confluent_administrates(confluent_admin: confluent_kafka.admin.AdminClient, topic: str) -> None:
    admin = confluent_kafka.admin
    config = {"retention.ms": "60000"}
    confluent_admin.create_topics([admin.NewTopic(topic, 3, 1, config=config)])[topic].result(PATIENCE_S)

    def leaders() -> list[int]:
        known = confluent_admin.list_topics(timeout=PATIENCE_S).topics.get(topic)
        return [] if known is None else [partition.leader for partition in known.partitions.values()]

    until(lambda: leaders() == [1, 1, 1], "three partitions, led by the broker", leaders)

    resource = admin.ConfigResource(admin.ResourceType.TOPIC, topic)

    def value(name: str) -> str:
        return str(confluent_admin.describe_configs([resource])[resource].result(PATIENCE_S)[name].value)

    assert value("retention.ms") == "60000"
    assert value("cleanup.policy") == "delete"

    change = admin.ConfigResource(
        admin.ResourceType.TOPIC,
        topic,
        incremental_configs=[
            admin.ConfigEntry("retention.ms", "120000", incremental_operation=admin.AlterConfigOpType.SET)
        ],
    )
    confluent_admin.incremental_alter_configs([change])[change].result(PATIENCE_S)
    until(lambda: value("retention.ms") == "120000", "another retention")

    confluent_admin.create_partitions([admin.NewPartitions(topic, 5)])[topic].result(PATIENCE_S)
    until(lambda: leaders() == [1] * 5, "two partitions more", leaders)

    confluent_admin.delete_topics([topic])[topic].result(PATIENCE_S)
    until(lambda: topic not in confluent_admin.list_topics(timeout=PATIENCE_S).topics, "the topic is gone")


def test_confluent_sees_the_error_of_an_existing_topic(
    confluent_admin: confluent_kafka.admin.AdminClient, topic: str
) -> None:
    new = confluent_kafka.admin.NewTopic(topic, 1, 1)
    confluent_admin.create_topics([new])[topic].result(PATIENCE_S)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        confluent_admin.create_topics([new])[topic].result(PATIENCE_S)
    assert raised.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS


def test_confluent_describes_and_deletes_groups(
    broker: BrokerProcess, confluent_admin: confluent_kafka.admin.AdminClient, topic: str
) -> None:
    group = f"group-{topic}"
    CONFLUENT.produce(broker.bootstrap, topic, "none", VALUES)
    CONFLUENT.consume(broker.bootstrap, topic, group, len(VALUES))

    def states() -> dict[str, confluent_kafka.ConsumerGroupState]:
        return {row.group_id: row.state for row in confluent_admin.list_consumer_groups().result(PATIENCE_S).valid}

    # A client that leaves waits for the answer, but not for long.
    until(lambda: states()[group] == confluent_kafka.ConsumerGroupState.EMPTY, "the group is empty", states)
    request = confluent_kafka.ConsumerGroupTopicPartitions(group)
    committed = confluent_admin.list_consumer_group_offsets([request])[group].result(PATIENCE_S)
    assert sum(entry.offset for entry in committed.topic_partitions) == len(VALUES)
    described = confluent_admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
    assert (described.group_id, list(described.members)) == (group, [])
    confluent_admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
    assert group not in states()


def test_kafka_python_administrates(kafka_python_admin: kafka.admin.KafkaAdminClient, topic: str) -> None:
    kafka_python_admin.create_topics([kafka.admin.NewTopic(name=topic, num_partitions=2, replication_factor=1)])
    until(lambda: topic in kafka_python_admin.list_topics(), "the topic is listed")
    described = kafka_python_admin.describe_topics([topic])[0]
    assert len(described["partitions"]) == 2
    kafka_python_admin.delete_topics([topic])
    until(lambda: topic not in kafka_python_admin.list_topics(), "the topic is gone")


def test_aiokafka_administrates(broker: BrokerProcess, topic: str) -> None:
    async def lists(admin: aiokafka.admin.AIOKafkaAdminClient, expected: bool) -> bool:
        return (topic in await admin.list_topics()) == expected

    async def administrate() -> None:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.create_topics([aiokafka.admin.NewTopic(topic, 2, 1)])
            await eventually(partial(lists, admin, True), "the topic is listed")
            description = (await admin.describe_topics([topic]))[0]
            assert [row["partition"] for row in description["partitions"]] == [0, 1]
            await admin.delete_topics([topic])
            await eventually(partial(lists, admin, False), "the topic is gone")
        finally:
            await admin.close()

    asyncio.run(asyncio.wait_for(administrate(), PATIENCE_S))


def test_two_members_share_the_partitions(
    broker: BrokerProcess, confluent_admin: confluent_kafka.admin.AdminClient, topic: str
) -> None:
    confluent_admin.create_topics([confluent_kafka.admin.NewTopic(topic, 4, 1)])[topic].result(PATIENCE_S)
    config = {"bootstrap.servers": broker.bootstrap, "group.id": f"group-{topic}", "session.timeout.ms": 45_000}
    members = [confluent_kafka.Consumer(config) for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    shares: list[set[int]] = []

    def are_shared() -> bool:
        for member in members:
            member.poll(0.05)
        shares[:] = [{entry.partition for entry in member.assignment()} for member in members]
        return [len(share) for share in shares] == [2, 2]

    until(are_shared, "two partitions for each", lambda: shares, every_s=0)
    assert shares[0] | shares[1] == {0, 1, 2, 3}
    for member in members:
        member.close()


def test_committed_offsets_survive_kill_9(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = own_broker()
    CONFLUENT.produce(broker.bootstrap, topic, "none", VALUES)
    assert CONFLUENT.consume(broker.bootstrap, topic, "survivor", len(VALUES)) == VALUES
    broker.kill()
    broker.start()
    CONFLUENT.produce(broker.bootstrap, topic, "none", ["after"])
    assert CONFLUENT.consume(broker.bootstrap, topic, "survivor", 1) == ["after"]


def test_the_broker_half_talks_to_the_controller_over_its_port(broker: BrokerProcess, topic: str) -> None:
    CONFLUENT.produce(broker.bootstrap, topic, "none", ["one"])
    assert broker.metric("broker_frames_received_total", listener="CONTROLLER") > 0
    for request in ("BrokerRegistration", "BrokerHeartbeat", "Envelope"):
        assert broker.metric("kafka_network_requestmetrics_requests_total", request=request) > 0, request
