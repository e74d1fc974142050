"""Apache Kafka's own tools against a running broker, with their default settings."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.clients import CONFLUENT
from tests.support import java_tools
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_MS

pytestmark = [pytest.mark.interop, pytest.mark.java]


def create(broker: BrokerProcess, topic: str, partitions: int = 1, *options: str) -> None:
    java_tools.run(
        "TopicCommand",
        "--bootstrap-server",
        broker.bootstrap,
        "--create",
        "--topic",
        topic,
        "--partitions",
        str(partitions),
        *options,
    )


def end_offsets(broker: BrokerProcess, topic: str) -> dict[int, int]:
    """What kafka-get-offsets says, by partition."""
    output = java_tools.run("GetOffsetShell", "--bootstrap-server", broker.bootstrap, "--topic", topic)
    return {int(partition): int(offset) for partition, offset in re.findall(rf"^{topic}:(\d+):(\d+)$", output, re.M)}


@pytest.mark.parametrize("acks", ["1", "all"])
def test_producer_and_consumer_perf(broker: BrokerProcess, topic: str, acks: str) -> None:
    create(broker, topic, 6, "--config", "segment.bytes=67108864", "--config", "retention.bytes=134217728")
    output = java_tools.run(
        "ProducerPerformance",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--num-records",
        "100000",
        "--record-size",
        "1600",
        "--throughput",
        "-1",
        "--command-property",
        f"acks={acks}",
        "batch.size=32768",
        heap="512m",
    )
    assert re.search(r"^100000 records sent", output, re.M), output
    assert sum(end_offsets(broker, topic).values()) == 100_000
    consumed = java_tools.run(
        "ConsumerPerformance",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--num-records",
        "100000",
        "--group",
        f"group-{topic}",
        "--timeout",
        str(PATIENCE_MS),
        heap="512m",
        with_errors=False,
    )
    row = [cell.strip() for cell in consumed.splitlines()[-1].split(",")]
    assert int(row[4]) == 100_000, consumed


def test_topics(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic, 3, "--config", "cleanup.policy=compact")
    server = ["--bootstrap-server", broker.bootstrap]
    assert topic in java_tools.run("TopicCommand", *server, "--list").split()
    described = java_tools.run("TopicCommand", *server, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "cleanup.policy=compact" in described
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 3
    java_tools.run("TopicCommand", *server, "--alter", "--topic", topic, "--partitions", "4")
    assert "PartitionCount: 4" in java_tools.run("TopicCommand", *server, "--describe", "--topic", topic)
    java_tools.run("TopicCommand", *server, "--delete", "--topic", topic)
    assert topic not in java_tools.run("TopicCommand", *server, "--list").split()


def test_configs(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    entity = ["--bootstrap-server", broker.bootstrap, "--entity-type", "topics", "--entity-name", topic]
    java_tools.run("ConfigCommand", *entity, "--alter", "--add-config", "retention.ms=61000,max.message.bytes=2000")
    described = java_tools.run("ConfigCommand", *entity, "--describe")
    assert "retention.ms=61000" in described
    assert "max.message.bytes=2000" in described
    java_tools.run("ConfigCommand", *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in java_tools.run("ConfigCommand", *entity, "--describe")
    refused = java_tools.run("ConfigCommand", *entity, "--alter", "--add-config", "retention.ms=soon", check=False)
    assert "InvalidConfigurationException" in refused
    broker_entity = ["--bootstrap-server", broker.bootstrap, "--entity-type", "brokers", "--entity-name", "1"]
    assert "log.segment.bytes=1073741824" in java_tools.run("ConfigCommand", *broker_entity, "--describe", "--all")


def test_consumer_groups(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    group = f"group-{topic}"
    CONFLUENT.produce(broker.bootstrap, topic, "none", [str(number) for number in range(10)])
    assert len(CONFLUENT.consume(broker.bootstrap, topic, group, 10)) == 10
    CONFLUENT.produce(broker.bootstrap, topic, "none", ["10", "11"])
    tool, server = "consumer.group.ConsumerGroupCommand", ["--bootstrap-server", broker.bootstrap]
    assert group in java_tools.run(tool, *server, "--list").split()
    described = java_tools.run(tool, *server, "--describe", "--group", group)
    assert re.search(rf"{group}\s+{topic}\s+0\s+10\s+12\s+2\s", described), described
    assert "Empty" in java_tools.run(tool, *server, "--describe", "--group", group, "--state")
    options = ["--group", group, "--topic", topic]
    reset = java_tools.run(tool, *server, "--reset-offsets", *options, "--to-earliest", "--execute")
    assert re.search(rf"{topic}\s+0\s+0", reset), reset
    java_tools.run(tool, *server, "--delete-offsets", *options)
    java_tools.run(tool, *server, "--delete", "--group", group)
    assert group not in java_tools.run(tool, *server, "--list").split()


def test_get_offsets_and_delete_records(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    create(broker, topic)
    CONFLUENT.produce(broker.bootstrap, topic, "none", [str(number) for number in range(20)])
    assert end_offsets(broker, topic) == {0: 20}
    request = tmp_path / "delete.json"
    request.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 5}]}))
    server = ["--bootstrap-server", broker.bootstrap]
    deleted = java_tools.run("DeleteRecordsCommand", *server, "--offset-json-file", str(request))
    assert "low_watermark: 5" in deleted
    earliest = java_tools.run("GetOffsetShell", *server, "--topic", topic, "--time", "earliest")
    assert f"{topic}:0:5" in earliest


def test_verifiable_producer_and_consumer(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic)
    server = ["--bootstrap-server", broker.bootstrap]
    produced = java_tools.run("VerifiableProducer", *server, "--topic", topic, "--max-messages", "2000", "--acks", "-1")
    events = [json.loads(line) for line in produced.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 2000
    consumed = java_tools.run(
        "VerifiableConsumer",
        *server,
        "--topic",
        topic,
        "--group-id",
        f"group-{topic}",
        "--max-messages",
        "2000",
        "--reset-policy",
        "earliest",
    )
    events = [json.loads(line) for line in consumed.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 2000
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")


def test_end_to_end_latency(broker: BrokerProcess, topic: str) -> None:
    output = java_tools.run(
        "EndToEndLatency",
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--num-records",
        "1000",
        "--producer-acks",
        "all",
        "--record-size",
        "100",
    )
    assert "Percentiles" in output, output


def test_client_compatibility(broker: BrokerProcess, topic: str) -> None:
    create(broker, topic, 1, "--replication-factor", "1")
    output = java_tools.run(
        "ClientCompatibilityTest",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--num-cluster-nodes", "1"),
        *("--offsets-for-times-supported", "true", "--cluster-id-supported", "true"),
        *("--expect-record-too-large-exception", "false", "--create-topics-supported", "true"),
        *("--describe-acls-supported", "true", "--describe-configs-supported", "true"),
        *("--idempotent-producer-supported", "true"),
    )
    assert "SUCCESS" in output, output


def test_cluster_tools(broker: BrokerProcess, topic: str) -> None:
    server = ["--bootstrap-server", broker.bootstrap]
    create(broker, topic)
    assert re.search(r"Cluster ID: \S{22}", java_tools.run("ClusterTool", "cluster-id", *server))
    assert "Produce(0)" in java_tools.run("BrokerApiVersionsCommand", *server)
    status = java_tools.run("MetadataQuorumCommand", *server, "describe", "--status")
    assert re.search(r"LeaderId:\s+1", status), status
    assert "metadata.version" in java_tools.run("FeatureCommand", *server, "describe")
    directories = java_tools.run("LogDirsCommand", *server, "--describe", "--topic-list", topic)
    assert f'"partition":"{topic}-0"' in directories, directories
    election = java_tools.run(
        "LeaderElectionCommand", *server, "--election-type", "preferred", "--topic", topic, "--partition", "0"
    )
    assert "Valid replica already elected" in election, election


def test_an_auto_created_topic_can_be_used_at_once(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = own_broker({"num.partitions": "3"})
    output = java_tools.run(
        "ProducerPerformance",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic),
        *("--num-records", "100", "--record-size", "10", "--throughput", "-1"),
    )
    assert "100 records sent" in output
    assert sum(end_offsets(broker, topic).values()) == 100
