"""Apache Kafka's own tools, and its consumer, with tiered topics; numbers in names are those of docs/testing.md."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.clients import JAVA
from tests.support import java_tools
from tests.support.patience import until
from tests.support.tiered_cluster import TieredCluster, assert_readable, produce, tiered_cluster, value_of

pytestmark = [pytest.mark.interop, pytest.mark.java]

FIRST, SECOND = 1, 2
METADATA_TOPIC = "__remote_log_metadata"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredCluster]:
    with tiered_cluster("directory", tmp_path_factory.mktemp("tiered")) as processes:
        yield processes


def get_offset(cluster: TieredCluster, topic: str, time: str) -> int:
    """kafka-get-offsets."""
    asked = ("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--time", time)
    output = java_tools.run("GetOffsetShell", *asked, with_errors=False)
    match = re.search(rf"^{topic}:0:(-?\d+)$", output, re.M)
    assert match is not None, output
    return int(match[1])


def test_24_kafka_get_offsets_and_kafka_delete_records(cluster: TieredCluster, tmp_path: Path) -> None:
    topic = cluster.tiered_topic("offsets", per_segment=2)
    produce(cluster, topic, range(3))
    cluster.wait_for_tiers(topic, remote=[0], local=[2])
    cluster.move_leader(topic, SECOND)
    produce(cluster, topic, range(3, 6))
    cluster.wait_for_tiers(topic, remote=[0, 2], local=[4])
    assert [get_offset(cluster, topic, special) for special in ("-2", "-4", "-5")] == [0, 4, 3]
    request = tmp_path / "offsets.json"
    request.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 3}]}))
    server = ("--bootstrap-server", cluster.bootstrap)
    deleted = java_tools.run("DeleteRecordsCommand", *server, "--offset-json-file", str(request))
    assert f"partition: {topic}-0\tlow_watermark: 3" in deleted
    cluster.wait_for_tiers(topic, remote=[2])
    assert get_offset(cluster, topic, "earliest") == 3


def test_kafka_configs_and_javas_consumer(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("tools", per_segment=2, config={}, is_tiered=False)
    produce(cluster, topic, range(5))
    changes = "remote.storage.enable=true,local.retention.bytes=1"
    entity = ("--entity-type", "topics", "--entity-name", topic, "--alter", "--add-config", changes)
    java_tools.run("ConfigCommand", "--bootstrap-server", cluster.bootstrap, *entity)
    cluster.wait_for_tiers(topic, remote=[0, 2], local=[4])
    cluster.move_leader(topic, SECOND)
    with cluster.remote_fetches(topic, 2, by=SECOND):
        assert JAVA.consume(cluster.bootstrap, topic, topic, 5) == [value_of(number).decode() for number in range(5)]


def test_kafka_reassign_partitions(cluster: TieredCluster, tmp_path: Path) -> None:
    topic = cluster.tiered_topic("reassigned", [(FIRST,)])
    produce(cluster, topic, range(3))
    cluster.wait_for_tiers(topic, remote=[0, 1], local=[2])
    plan = tmp_path / "plan.json"
    row = {"topic": topic, "partition": 0, "replicas": [SECOND]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    words = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
    java_tools.run("reassign.ReassignPartitionsCommand", *words, "--execute")
    until(lambda: cluster.partition(topic).replicas == [SECOND], "the partition has moved")
    assert "is completed" in java_tools.run("reassign.ReassignPartitionsCommand", *words, "--verify")
    assert cluster.local_segments(topic, SECOND) == [2]
    with cluster.remote_fetches(topic, 2, by=SECOND):
        assert_readable(cluster, topic, range(3))


def states_of(cluster: TieredCluster, topic: str) -> list[tuple[int, str]]:
    """(first offset of the segment, state) as kafka-dump-log finds them in the metadata topic, in order."""
    logs = sorted(cluster.broker(FIRST).data.glob(f"{METADATA_TOPIC}-*/*.log"))
    arguments = ("--files", ",".join(map(str, logs)), "--remote-log-metadata-decoder", "--print-data-log")
    output = java_tools.run("DumpLogSegments", *arguments)
    starts: dict[str, int] = {}
    found = []
    for line in output.splitlines():
        if f":{topic}-0, " not in line or (segment := re.search(r"id=([\w-]{22})\b", line)) is None:
            continue
        if (start := re.search(r"startOffset=(\d+)", line)) is not None:
            starts[segment[1]] = int(start[1])
        state = re.search(r"state=(\w+)", line)
        assert state is not None, line
        found.append((starts[segment[1]], state[1]))
    return found


def test_kafka_dump_log_tells_what_became_of_each_segment(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("dumped")
    produce(cluster, topic, range(3))
    cluster.wait_for_tiers(topic, remote=[0, 1], local=[2])
    cluster.move_leader(topic, SECOND)
    produce(cluster, topic, [3])
    cluster.wait_for_tiers(topic, remote=[0, 1, 2], local=[3])
    cluster.delete_records(topic, 1)
    cluster.wait_for_tiers(topic, remote=[1, 2])
    copied = [(base, f"COPY_SEGMENT_{state}") for base in range(3) for state in ("STARTED", "FINISHED")]
    deleted = [(0, f"DELETE_SEGMENT_{state}") for state in ("STARTED", "FINISHED")]
    until(lambda: len(states_of(cluster, topic)) == 8, "the deletion is told")
    assert states_of(cluster, topic) == [*copied, *deleted]
