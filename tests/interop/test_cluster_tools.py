"""Apache Kafka's admin tools against a cluster of three brokers, with their default settings.

Tests share the cluster; whoever stops a broker starts it again.  Replicas are compared by kafka-replica-verification
(deprecated in 4.x, but there), by kafka-dump-log of each broker's own files, and by kafka-get-offsets.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import confluent_kafka
import pytest

from tests.interop.clients import CONFLUENT
from tests.support import java_tools
from tests.support.cluster_process import ClusterProcess
from tests.support.patience import PATIENCE_MS, PATIENCE_S, until

pytestmark = [pytest.mark.interop, pytest.mark.java]

SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "unclean.leader.election.interval.ms": "3600000",
    "broker.session.timeout.ms": str(10 * PATIENCE_MS),  # only who says good-bye is fenced
}
REASSIGN = "reassign.ReassignPartitionsCommand"
Described = dict[int, tuple[int, list[int], list[int]]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with ClusterProcess(tmp_path_factory.mktemp("cluster"), settings=SETTINGS) as processes:
        yield processes
        for broker in processes.brokers:
            assert broker.is_running(), f"a broker died:\n{broker.log_tail()}"


def run(cluster: ClusterProcess, tool: str, *arguments: str, check: bool = True) -> str:
    """A tool that gets at the cluster through any of its brokers."""
    server = ("--bootstrap-server", cluster.bootstrap)
    is_option_of_command = tool == "ClusterTool"
    return java_tools.run(tool, *(arguments + server if is_option_of_command else server + arguments), check=check)


def create(cluster: ClusterProcess, topic: str, assignment: str, *configs: str) -> None:
    """`assignment` as kafka-topics takes it: `1:2,2:3` are two partitions of two replicas."""
    options = [argument for config in configs for argument in ("--config", config)]
    run(cluster, "TopicCommand", "--create", "--topic", topic, "--replica-assignment", assignment, *options)


def describe(cluster: ClusterProcess, topic: str, *options: str) -> Described:
    """What kafka-topics shows: leader (-1 for none), replicas and sorted ISR by partition."""
    output = run(cluster, "TopicCommand", "--describe", "--topic", topic, *options)
    rows = re.findall(r"Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)", output)
    return {
        int(partition): (-1 if leader == "none" else int(leader), _ids(replicas), sorted(_ids(isr)))
        for partition, leader, replicas, isr in rows
    }


def check_described(cluster: ClusterProcess, topic: str, expected: Described, *options: str) -> None:
    """kafka-topics shows this, once the broker it asks has heard of it."""
    found: list[Described | str] = []

    def is_shown() -> bool:
        try:
            found[:] = [describe(cluster, topic, *options)]
        except AssertionError as error:  # the topic is not known there yet
            found[:] = [str(error)]
        return found == [expected]

    until(is_shown, f"{expected} is shown of {topic} {options}", lambda: found)


def check_shown(is_right: Callable[[str], object], cluster: ClusterProcess, tool: str, *arguments: str) -> None:
    """The tool prints what is right, once the broker it asks has heard of it."""
    printed = ""

    def is_printed() -> bool:
        nonlocal printed
        printed = run(cluster, tool, *arguments, check=False)
        return bool(is_right(printed))

    until(is_printed, f"{tool} {arguments} prints what is right", lambda: printed)


def _ids(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def wait_for_isr(cluster: ClusterProcess, topic: str) -> None:
    cluster.wait_for_full_isr(topic)


def produce(cluster: ClusterProcess, topic: str, count: int) -> None:
    CONFLUENT.produce(cluster.bootstrap, topic, "none", [f"value-{number}" for number in range(count)])


def dumped(cluster: ClusterProcess, node_id: int, partition: str) -> list[str]:
    """Batches and records of one replica, as kafka-dump-log reads them from the broker's files."""
    segments = sorted(str(path) for path in (cluster.broker(node_id).data / partition).glob("*.log"))
    output = java_tools.run("DumpLogSegments", "--print-data-log", "--files", ",".join(segments))
    return [line for line in output.splitlines() if not line.startswith(("Dumping", "Log starting"))]


def ids_in(endpoints: str) -> set[int]:
    return {int(node_id) for node_id in re.findall(r"^(\d+)\s+127\.0\.0\.1\s", endpoints, re.M)}


def moves_file(path: Path, moves: dict[tuple[str, int], Sequence[int]]) -> str:
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas)} for (topic, index), replicas in moves.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def test_the_metadata_quorum(cluster: ClusterProcess) -> None:
    status = run(cluster, "MetadataQuorumCommand", "describe", "--status")
    assert re.search(r"^LeaderId:\s+1$", status, re.M), status
    assert re.search(r'^CurrentVoters:\s+\[\{"id": 1,', status, re.M), status
    observers = re.search(r"^CurrentObservers:\s+(\[.*\])$", status, re.M)
    assert observers is not None, status
    assert [each["id"] for each in json.loads(observers[1])] == [2, 3]
    for each in json.loads(observers[1]):
        properties = (cluster.broker(each["id"]).data / "meta.properties").read_text()
        assert f"directory.id={each['directoryId']}\n" in properties
    replication = run(cluster, "MetadataQuorumCommand", "describe", "--replication")
    rows = re.findall(r"^(\d+)\s+\S{22}\s+(\d+)\s+(\d+)\s+\d+\s+\d+\s+(\w+)\s*$", replication, re.M)
    assert [(row[0], row[3]) for row in rows] == [("1", "Leader"), ("2", "Observer"), ("3", "Observer")], replication
    assert all(int(lag) < 100 for _, _, lag, _ in rows), replication
    controller = f"127.0.0.1:{cluster.broker(1).controller_port}"
    direct = java_tools.run("MetadataQuorumCommand", "--bootstrap-controller", controller, "describe", "--status")
    assert re.search(r"^LeaderId:\s+1$", direct, re.M), direct


def test_cluster_id_endpoints_and_features(cluster: ClusterProcess) -> None:
    identity = re.search(r"Cluster ID: (\S{22})", run(cluster, "ClusterTool", "cluster-id"))
    assert identity is not None
    for broker in cluster.brokers:
        assert f"cluster.id={identity[1]}\n" in (broker.data / "meta.properties").read_text()
    row = re.compile(r"^(\d)\s+127\.0\.0\.1\s+(\d+)\s+(rack-\d)\s+(\w+)\s+broker", re.M)
    expected = [(str(id), str(cluster.broker(id).port), f"rack-{id}", "unfenced") for id in (1, 2, 3)]
    check_shown(lambda text: sorted(row.findall(text)) == expected, cluster, "ClusterTool", "list-endpoints")
    controller = f"127.0.0.1:{cluster.broker(1).controller_port}"
    endpoints = java_tools.run("ClusterTool", "list-endpoints", "--bootstrap-controller", controller)
    assert re.search(rf"^1\s+127\.0\.0\.1\s+{cluster.broker(1).controller_port}\s.*controller", endpoints, re.M), (
        endpoints
    )
    features = run(cluster, "FeatureCommand", "describe")
    assert re.search(r"metadata\.version\s.*FinalizedVersionLevel: 4\.2-IV1", features), features


def test_log_dirs_of_every_broker(cluster: ClusterProcess, topic: str) -> None:
    create(cluster, topic, "1:2,2:3")
    produce(cluster, topic, 10)
    expected = {1: [f"{topic}-0"], 2: [f"{topic}-0", f"{topic}-1"], 3: [f"{topic}-1"]}

    def is_shown(output: str) -> bool:
        answer = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
        found = {}
        for broker in answer["brokers"]:
            (directory,) = broker["logDirs"]
            assert (directory["error"], directory["logDir"]) == (None, str(cluster.broker(broker["broker"]).data))
            found[broker["broker"]] = sorted(each["partition"] for each in directory["partitions"])
        return found == expected

    check_shown(is_shown, cluster, "LogDirsCommand", "--describe", "--topic-list", topic)


def test_replicas_are_alike(cluster: ClusterProcess, topic: str) -> None:
    create(cluster, topic, "2:3:1", "min.insync.replicas=3")
    produce(cluster, topic, 500)
    offsets = run(cluster, "GetOffsetShell", "--topic", topic)
    assert re.findall(rf"^{topic}:(\d):(\d+)$", offsets, re.M) == [("0", "500")]
    first, *others = (dumped(cluster, node_id, f"{topic}-0") for node_id in (1, 2, 3))
    assert len([line for line in first if "payload: value-" in line]) == 500
    assert others == [first, first]


def test_replica_verification(cluster: ClusterProcess, topic: str) -> None:
    """It never ends by itself: it is asked for its first reports."""
    create(cluster, topic, "2:3:1", "min.insync.replicas=3")
    produce(cluster, topic, 500)
    output = java_tools.run_until(
        "ReplicaVerificationTool",
        *("--broker-list", cluster.bootstrap, "--topics-include", topic),
        *("--time", "-2", "--report-interval-ms", "1000"),
        line=r"max lag is 0 for partition \S+ at offset 500 among 1 partitions",
    )
    assert "has same checksum" not in output
    assert not re.search(r"doesn't match|partition .* has message|checksum", output), output


def test_partitions_are_added_on_other_brokers(cluster: ClusterProcess, topic: str) -> None:
    create(cluster, topic, "1:2")
    run(
        cluster, "TopicCommand", "--alter", "--topic", topic, "--partitions", "3", "--replica-assignment", "1:2,3:1,2:3"
    )
    check_described(cluster, topic, {0: (1, [1, 2], [1, 2]), 1: (3, [3, 1], [1, 3]), 2: (2, [2, 3], [2, 3])})
    run(cluster, "TopicCommand", "--alter", "--topic", topic, "--partitions", "9")
    described: Described = until(lambda: len(shown := describe(cluster, topic)) == 9 and shown, "nine partitions")
    leaders = [leader for leader, _, _ in list(described.values())[3:]]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
    run(cluster, "TopicCommand", "--delete", "--topic", topic)
    gone = f"Topic '{topic}' does not exist as expected"
    check_shown(lambda text: gone in text, cluster, "TopicCommand", "--describe", "--topic", topic)
    until(
        lambda: (
            not any(
                path.name.startswith(f"{topic}-")
                for broker in cluster.brokers
                for path in broker.data.iterdir()
                if not path.name.endswith("-delete")
            )
        ),
        "the logs of the deleted topic are gone",
    )


def test_reassignment_with_a_throttle(cluster: ClusterProcess, topic: str, tmp_path: Path) -> None:
    create(cluster, topic, "1:2,2:1")
    produce(cluster, topic, 300)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = run(
        cluster, REASSIGN, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,2,3"
    )
    current, proposed = (json.loads(line) for line in generated.splitlines() if line.startswith("{"))
    assert [each["replicas"] for each in current["partitions"]] == [[1, 2], [2, 1]]
    assert {len(each["replicas"]) for each in proposed["partitions"]} == {2}

    plan = moves_file(tmp_path / "plan.json", {(topic, 0): [3, 2], (topic, 1): [2, 3]})
    executed = run(cluster, REASSIGN, "--execute", "--reassignment-json-file", plan, "--throttle", "50000000")
    assert "The inter-broker throttle limit was set to 50000000 B/s" in executed, executed
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in executed, executed
    second = ("ConfigCommand", "--entity-type", "brokers", "--entity-name", "2", "--describe")
    for side in ("follower", "leader"):
        rate = f"{side}.replication.throttled.rate=50000000"
        check_shown(lambda text: rate in text, cluster, *second)  # noqa: B023
    settings = ("ConfigCommand", "--entity-type", "topics", "--entity-name", topic, "--describe")
    check_shown(lambda text: "leader.replication.throttled.replicas=" in text, cluster, *settings)

    def is_complete() -> bool:
        verified = run(cluster, REASSIGN, "--verify", "--reassignment-json-file", plan, "--preserve-throttles")
        return verified.count("is completed.") == 2

    until(is_complete, "both moves are complete")
    check_described(cluster, topic, {0: (3, [3, 2], [2, 3]), 1: (2, [2, 3], [2, 3])})  # 1 led, and has left
    verified = run(cluster, REASSIGN, "--verify", "--reassignment-json-file", plan)
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified, verified
    assert f"Clearing topic-level throttles on topic {topic}" in verified, verified
    check_shown(lambda text: "Dynamic configs" in text and "throttled" not in text, cluster, *settings)
    check_shown(lambda text: "Dynamic configs" in text and "throttled.rate" not in text, cluster, *second)
    assert "No partition reassignments found." in run(cluster, REASSIGN, "--list")
    until(lambda: not (cluster.broker(1).data / f"{topic}-0").exists(), "broker 1 has dropped its replica")
    assert dumped(cluster, 3, f"{topic}-0") == dumped(cluster, 2, f"{topic}-0")


def test_a_reassignment_is_cancelled(cluster: ClusterProcess, topic: str, tmp_path: Path) -> None:
    """Towards a broker that does not come along: it stands still, and its session goes on."""
    create(cluster, topic, "1:2")
    produce(cluster, topic, 10)
    plan = moves_file(tmp_path / "plan.json", {(topic, 0): [1, 3]})
    cluster.pause(3)
    try:
        server = ("--bootstrap-server", cluster.broker(1).bootstrap)
        executed = java_tools.run(REASSIGN, *server, "--execute", "--reassignment-json-file", plan)
        assert f"Successfully started partition reassignment for {topic}-0" in executed, executed
        listed = java_tools.run(REASSIGN, *server, "--list")
        assert f"{topic}-0: replicas: 1,3,2. adding: 3. removing: 2." in listed, listed
        cancelled = java_tools.run(
            REASSIGN, *server, "--cancel", "--reassignment-json-file", plan, "--preserve-throttles"
        )
        assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled, cancelled
    finally:
        cluster.resume(3)
    wait_for_isr(cluster, topic)
    check_described(cluster, topic, {0: (1, [1, 2], [1, 2])})
    again = run(cluster, REASSIGN, "--cancel", "--reassignment-json-file", plan, "--preserve-throttles")
    assert "None of the specified partition moves are active." in again, again
    until(lambda: not (cluster.broker(3).data / f"{topic}-0").exists(), "broker 3 has dropped what it began")


def test_a_stopped_broker_shows_and_gets_its_leadership_back(cluster: ClusterProcess, topic: str) -> None:
    alone = f"{topic}-alone"
    create(cluster, topic, "2:3:1,3:2:1", "min.insync.replicas=2")
    create(cluster, alone, "2")
    produce(cluster, topic, 50)
    check_described(cluster, topic, {}, "--under-replicated-partitions")
    cluster.graceful_stop(2)
    try:
        without_2: Described = {0: (3, [2, 3, 1], [1, 3]), 1: (3, [3, 2, 1], [1, 3])}
        check_described(cluster, topic, without_2)
        check_described(cluster, topic, without_2, "--under-replicated-partitions")
        check_described(cluster, topic, without_2, "--at-min-isr-partitions")
        check_described(cluster, topic, {}, "--under-min-isr-partitions")
        check_described(cluster, topic, {}, "--unavailable-partitions")
        check_described(cluster, alone, {0: (-1, [2], [2])}, "--unavailable-partitions")
        check_shown(lambda text: ids_in(text) == {1, 3}, cluster, "ClusterTool", "list-endpoints")
        fenced = re.compile(r"^2\s+127\.0\.0\.1\s.*\sfenced\s", re.M)
        check_shown(fenced.search, cluster, "ClusterTool", "list-endpoints", "--include-fenced-brokers")
    finally:
        cluster.restart(2)
    wait_for_isr(cluster, topic)
    for option in ("--under-replicated-partitions", "--at-min-isr-partitions", "--unavailable-partitions"):
        check_described(cluster, topic, {}, option)
    check_described(cluster, alone, {0: (2, [2], [2])})
    whole: Described = {0: (3, [2, 3, 1], [1, 2, 3]), 1: (3, [3, 2, 1], [1, 2, 3])}
    check_described(cluster, topic, whole)
    options = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    elected = run(cluster, "LeaderElectionCommand", *options)
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in elected, elected
    check_described(cluster, topic, {**whole, 0: (2, [2, 3, 1], [1, 2, 3])})
    assert "Valid replica already elected" in run(cluster, "LeaderElectionCommand", *options)


def test_an_unclean_election(cluster: ClusterProcess, topic: str) -> None:
    create(cluster, topic, "2:3")
    produce(cluster, topic, 10)
    options = ("--election-type", "unclean", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected" in run(cluster, "LeaderElectionCommand", *options)
    cluster.graceful_stop(3)
    try:
        cluster.graceful_stop(2)
        cluster.restart(3)
        check_described(cluster, topic, {0: (-1, [2, 3], [2])})
        elected = run(cluster, "LeaderElectionCommand", *options)
        assert f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0" in elected, elected
        check_described(cluster, topic, {0: (3, [2, 3], [3])})
        produce(cluster, topic, 10)
    finally:
        for node_id in (2, 3):
            if not cluster.broker(node_id).is_running():
                cluster.restart(node_id)
    wait_for_isr(cluster, topic)
    check_described(cluster, topic, {0: (3, [2, 3], [2, 3])})
    assert dumped(cluster, 2, f"{topic}-0") == dumped(cluster, 3, f"{topic}-0")


def test_unregistering_a_broker_that_comes_back(cluster: ClusterProcess, topic: str) -> None:
    create(cluster, topic, "1:3")
    cluster.graceful_stop(3)
    try:
        removed = run(cluster, "ClusterTool", "unregister", "--id", "3")
        assert "Broker 3 is no longer registered." in removed, removed
        everyone = ("ClusterTool", "list-endpoints", "--include-fenced-brokers")
        check_shown(lambda text: ids_in(text) == {1, 2}, cluster, *everyone)
        check_described(cluster, topic, {0: (1, [1, 3], [1])})
        again = run(cluster, "ClusterTool", "unregister", "--id", "3", check=False)
        assert "BrokerIdNotRegisteredException" in again, again
    finally:
        cluster.restart(3)
    wait_for_isr(cluster, topic)
    check_described(cluster, topic, {0: (1, [1, 3], [1, 3])})


def delivery_error(cluster: ClusterProcess, topic: str, partition: int, size_bytes: int) -> str | None:
    """What a producer is told of one record; None when it is acknowledged."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": PATIENCE_MS})
    told: list[str | None] = []
    producer.produce(
        topic, bytes(size_bytes), partition=partition, on_delivery=lambda error, _: told.append(error and error.name())
    )
    assert producer.flush(PATIENCE_S) == 0
    return told[0]


def test_dynamic_settings_on_every_broker(cluster: ClusterProcess, topic: str) -> None:
    """For all brokers, and otherwise for one: each shows its own, and does it."""
    create(cluster, topic, "1:2,2:3,3:1")
    everyone = ("--entity-type", "brokers", "--entity-default")
    second = ("--entity-type", "brokers", "--entity-name", "2")
    try:
        run(cluster, "ConfigCommand", *everyone, "--alter", "--add-config", "message.max.bytes=2000")
        run(cluster, "ConfigCommand", *second, "--alter", "--add-config", "message.max.bytes=90000")
        shared = ("ConfigCommand", *everyone, "--describe")
        check_shown(lambda text: "message.max.bytes=2000" in text, cluster, *shared)
        for node_id, value in ((1, "2000"), (2, "90000"), (3, "2000")):
            own = ("ConfigCommand", "--entity-type", "brokers", "--entity-name", str(node_id), "--describe", "--all")
            shown = f"  message.max.bytes={value} "
            check_shown(lambda text: shown in text, cluster, *own)  # noqa: B023
        refused = [delivery_error(cluster, topic, partition, 5000) for partition in (0, 1, 2)]
        assert refused == ["MSG_SIZE_TOO_LARGE", None, "MSG_SIZE_TOO_LARGE"]
    finally:
        for entity in (everyone, second):
            run(cluster, "ConfigCommand", *entity, "--alter", "--delete-config", "message.max.bytes", check=False)
    until(lambda: delivery_error(cluster, topic, 0, 5000) is None, "the default holds again")


def test_producers_of_a_partition_are_asked_of_its_leader(cluster: ClusterProcess, topic: str) -> None:
    create(cluster, topic, "3:1")
    produce(cluster, topic, 10)
    options = ("describe-producers", "--topic", topic, "--partition", "0")
    from_leader = run(cluster, "TransactionsCommand", *options)
    assert "ProducerId" in from_leader
    refused = run(cluster, "TransactionsCommand", *options, "--broker-id", "2", check=False)
    assert "NotLeaderOrFollowerException" in refused, refused
