"""Our brokers under Apache Kafka's controllers: three of theirs, three of ours, and clients that must notice nothing.

Numbers in names are those of test_controller_behaviours.py: what is asked there on the wire, brokers live by here.
"""

import contextlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from broker.protocol.api_keys import ApiKey
from broker.schemas.cluster_metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from tests.cluster.history import Verdict, judge
from tests.cluster.load import LibrdkafkaProducer, read_log
from tests.cluster.replicas import wait_for_identical
from tests.support import java_tools
from tests.support.apache_controllers import ApacheControllers, format_arguments
from tests.support.cluster_process import ClusterProcess, NodeOfCluster
from tests.support.log_events import events_in
from tests.support.patience import PATIENCE_S, until
from tests.support.quorum_client import QuorumClient
from tests.support.wire_client import WireClient

from .apache_versions import APACHE_VERSIONS, OLDEST, need
from .node_process import NodeProcess

pytestmark = [pytest.mark.interop, pytest.mark.java]

SESSION_MS = "16000"  # the living have to be heard meanwhile, and who is slow is to leave the ISR long before
CONTROLLER_SETTINGS = {
    "broker.session.timeout.ms": SESSION_MS,
    "metadata.log.max.record.bytes.between.snapshots": "20000",
}
BROKER_SETTINGS = {
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": SESSION_MS,
    "replica.lag.time.max.ms": "2000",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}
ALL = {1, 2, 3}
PARTITIONS = 3
RATE = 100

_numbers = itertools.count(1)


class Quorum:
    """Three controllers of Apache Kafka, three brokers of ours, and a client that reads the metadata log."""

    def __init__(self, controllers: ApacheControllers, cluster: ClusterProcess) -> None:
        self.controllers, self.cluster = controllers, cluster
        self.metadata = QuorumClient(controllers.ports.values(), controllers.cluster_id)

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def topic(self, partitions: int = PARTITIONS, replication_factor: int = 3) -> str:
        name = f"topic-{next(_numbers)}"
        self.cluster.create_topic(name, partitions, replication_factor)
        return name

    def isrs(self, topic: str) -> list[set[int]]:
        partitions = self.metadata.image().topics.by_name[topic].partitions
        return [set(each.isr) for each in partitions.values()]

    def leaders(self, topic: str) -> list[int]:
        return [each.leader for each in self.metadata.image().topics.by_name[topic].partitions.values()]

    def is_fenced(self, node_id: int) -> bool:
        return self.metadata.image().brokers[node_id].fenced

    @contextlib.contextmanager
    def load(self, topic: str) -> Iterator[LibrdkafkaProducer]:
        """A producer beside the body; in the end nothing it was told is lost or there twice, on every replica."""
        producer = LibrdkafkaProducer(next(_numbers), self.bootstrap, topic, PARTITIONS, RATE, {})
        producer.start()
        try:
            acknowledged(producer, 10)
            yield producer
            acknowledged(producer, 10)
        finally:
            producer.stop()
        assert producer.failures == []
        self.cluster.wait_for_full_isr(topic)
        verdict = judge(producer.acknowledged, read_log(self.bootstrap, topic, PARTITIONS))
        assert verdict == Verdict(acknowledged=producer.sent, read=producer.sent), verdict.examples
        _, problems = wait_for_identical(self.cluster, topic, PARTITIONS)
        assert problems == []


def acknowledged(producer: LibrdkafkaProducer, more: int) -> None:
    """Wait for this many more acknowledgements of each partition."""
    before = len(producer.acknowledged)

    def has_more() -> bool:
        later = [each.partition for each in producer.acknowledged[before:]]
        return all(later.count(partition) >= more for partition in range(PARTITIONS))

    until(has_more, f"{more} acknowledgements of each partition")


@pytest.fixture(scope="module", params=APACHE_VERSIONS)
def quorum(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    """Of the oldest version with static voters (kraft.version 0), of the newest with dynamic ones."""
    version = str(request.param)
    need(version)
    directory = tmp_path_factory.mktemp(f"apache-{version}")
    is_static = version == OLDEST
    with ApacheControllers(directory, version, static_voters=is_static, settings=CONTROLLER_SETTINGS) as controllers:
        settings = {**BROKER_SETTINGS, **controllers.broker_settings}
        with ClusterProcess(directory, controllers=controllers.bootstrap, settings=settings) as cluster:
            yield Quorum(controllers, cluster)
            for node in cluster.nodes.values():
                assert "Traceback" not in node.log_file.read_text()


@pytest.fixture(autouse=True)
def whole(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test every process lives: what a failed one left must not fail the next."""
    yield
    if "quorum" not in request.fixturenames:
        return
    quorum: Quorum = request.getfixturevalue("quorum")
    for node_id in quorum.controllers.ports:
        if not quorum.controllers.is_running(node_id):
            quorum.controllers.start_node(node_id)
    quorum.controllers.wait_for_leader()
    for node_id, node in quorum.cluster.nodes.items():
        if not node.is_running():
            quorum.cluster.launch(node_id)
    for node in quorum.cluster.nodes.values():
        node.wait_until_ready()


def test_brokers_are_let_in_and_serve(quorum: Quorum) -> None:
    image = quorum.metadata.image()
    assert {each.id: each.fenced for each in image.brokers.values()} == dict.fromkeys(ALL, False)
    assert all(len(each.directories) == 1 for each in image.brokers.values())
    topic = f"topic-{next(_numbers)}"
    server = ["--bootstrap-server", quorum.bootstrap]
    options = ["--partitions", str(PARTITIONS), "--replication-factor", "3"]
    java_tools.run("TopicCommand", *server, "--create", "--topic", topic, *options)
    describe = ["TopicCommand", *server, "--describe", "--topic", topic]
    until(lambda: "ReplicationFactor: 3" in java_tools.run(*describe, check=False), "the topic is shown by any broker")
    with quorum.load(topic):
        pass
    assert quorum.isrs(topic) == [ALL] * PARTITIONS
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": quorum.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])

    def is_consumed() -> bool:
        message = consumer.poll(0.5)
        return message is not None and message.error() is None

    until(is_consumed, "consumed in a group")
    consumer.commit(asynchronous=False)
    consumer.close()


def test_the_quorum_is_described_through_our_brokers(quorum: Quorum) -> None:
    server = ["--bootstrap-server", quorum.bootstrap]
    printed: list[str] = []

    def is_described() -> bool:
        """Unless another controller takes the lead between the questions."""
        status, replication = printed[:] = [
            java_tools.run("MetadataQuorumCommand", *server, "describe", each) for each in ("--status", "--replication")
        ]
        leader, epoch = quorum.controllers.leader()
        says_who_leads = re.search(rf"^LeaderId:\s+{leader}$", status, re.M)
        says_since_when = re.search(rf"^LeaderEpoch:\s+{epoch}$", status, re.M)
        roles = dict(re.findall(r"^(\d+)\s.*\s(Leader|Follower|Observer)\s*$", replication, re.M))
        expected = {
            **{str(node_id): "Leader" if node_id == leader else "Follower" for node_id in quorum.controllers.ports},
            **{str(node_id): "Observer" for node_id in ALL},
        }
        return says_who_leads is not None and says_since_when is not None and roles == expected

    until(is_described, "the quorum is described", lambda: printed)
    level = quorum.metadata.image().features.metadata_version
    assert level == {"4.0": 25, "4.2": 29}[format_arguments(quorum.controllers.version)[1]]


def test_33_and_30_a_slow_follower_leaves_the_isr_and_comes_back_without_being_fenced(quorum: Quorum) -> None:
    topic = quorum.topic()
    with quorum.load(topic) as producer:
        before = quorum.metadata.image().topics.by_name[topic].partitions
        leader = before[0].leader
        follower = min(ALL - {leader})
        since = len(quorum.metadata.batches)
        quorum.cluster.pause(follower)
        try:
            until(lambda: follower not in quorum.isrs(topic)[0], "shrunk")
            assert not is_fenced_when_it_leaves(quorum, topic, follower, since)
        finally:
            quorum.cluster.resume(follower)
        acknowledged(producer, 10)
        until(lambda: quorum.isrs(topic)[0] == ALL, "expanded")
        after = quorum.metadata.partition(topic)
        assert (after.leader, after.leader_epoch) == (leader, before[0].leader_epoch)
        assert after.partition_epoch >= before[0].partition_epoch + 2  # more where others are slow for a moment


def is_fenced_when_it_leaves(quorum: Quorum, topic: str, node_id: int, since: int) -> bool:
    """Whether it left the in-sync replicas of partition 0 because it was fenced: as the log has it, not the clock."""
    topic_id = quorum.metadata.topic_id(topic)
    for _, _, records in quorum.metadata.batches[since:]:
        registrations = (each for each in records if isinstance(each, BrokerRegistrationChangeRecord))
        if any(each.broker_id == node_id and each.fenced == 1 for each in registrations):
            return True
        changes = (each for each in records if isinstance(each, PartitionChangeRecord))
        own = (each for each in changes if (each.topic_id, each.partition_id) == (topic_id, 0))
        if any(each.isr is not None and node_id not in each.isr for each in own):
            return False
    raise AssertionError(f"{node_id} is in sync")


def test_23_and_18_a_killed_leader_is_replaced_and_joins_again(quorum: Quorum) -> None:
    topic = quorum.topic()
    with quorum.load(topic) as producer:
        victim = quorum.leaders(topic)[0]
        epoch = quorum.metadata.image().brokers[victim].epoch
        quorum.cluster.kill(victim)
        until(lambda: victim not in quorum.leaders(topic), "another leader")
        acknowledged(producer, 10)
        assert quorum.is_fenced(victim)
        # Where another one is slow it leaves as well, for a moment.
        until(lambda: quorum.isrs(topic) == [ALL - {victim}] * PARTITIONS, "only the victim is out of sync")
        quorum.cluster.restart(victim)
        until(lambda: quorum.isrs(topic) == [ALL] * PARTITIONS, "in sync again")
        assert quorum.metadata.image().brokers[victim].epoch > epoch


def test_28_a_stop_moves_the_leaders_first_and_no_client_is_told(quorum: Quorum) -> None:
    topic = quorum.topic()
    with quorum.load(topic) as producer:
        victim = quorum.leaders(topic)[0]
        read = len(quorum.metadata.batches)
        assert quorum.cluster.graceful_stop(victim) == 0
        assert victim not in quorum.leaders(topic)
        acknowledged(producer, 10)
        changes = [
            (type(record).__name__, getattr(record, "fenced", 0), getattr(record, "in_controlled_shutdown", 0))
            for _, _, records in quorum.metadata.batches[read:]
            for record in records
            if getattr(record, "broker_id", None) == victim
        ]
        assert changes == [("BrokerRegistrationChangeRecord", 0, 1), ("BrokerRegistrationChangeRecord", 1, 0)]
        epoch = quorum.metadata.image().brokers[victim].epoch
        quorum.cluster.restart(victim)
        until(lambda: quorum.isrs(topic) == [ALL] * PARTITIONS, "in sync again")
        registration = quorum.metadata.image().brokers[victim]
        assert (registration.fenced, registration.in_controlled_shutdown) == (False, False)
        assert registration.epoch > epoch
    assert set(producer.complaints) <= {"_TRANSPORT", "_ALL_BROKERS_DOWN"}  # librdkafka's words for a closed connection


def test_08_27_39_the_active_controller_is_killed_while_a_producer_and_an_admin_go_on(quorum: Quorum) -> None:
    topic = quorum.topic()
    with quorum.load(topic) as producer:
        leader, epoch = quorum.controllers.leader()
        epochs = {each.id: each.epoch for each in quorum.metadata.image().brokers.values()}
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": quorum.bootstrap})
        names = [f"{topic}-{number}" for number in range(4)]
        asked = dict(admin.create_topics([NewTopic(name, 2, 3) for name in names[:2]]))
        quorum.controllers.kill(leader)
        asked |= admin.create_topics([NewTopic(name, 2, 3) for name in names[2:]])
        quorum.controllers.wait_for_leader(epoch)
        acknowledged(producer, 10)
        for name, answer in asked.items():  # made, made before the answer was lost, or given up: never twice
            error = answer.exception(PATIENCE_S)
            code = error.args[0].name() if error is not None else "NO_ERROR"
            assert code in ("NO_ERROR", "TOPIC_ALREADY_EXISTS", "REQUEST_TIMED_OUT", "_TIMED_OUT"), (name, error)
        quorum.metadata.close()
        known = quorum.metadata.image()
        for name, answer in asked.items():
            if answer.exception() is None:
                assert sorted(known.topics.by_name[name].partitions) == [0, 1]
        assert {each.id: (each.epoch, each.fenced) for each in known.brokers.values()} == {
            broker_id: (was, False) for broker_id, was in epochs.items()
        }
        quorum.controllers.start_node(leader)
        acknowledged(producer, 10)
    for node in quorum.cluster.nodes.values():
        assert node.is_ready()


def test_08_a_controller_that_only_falls_silent_is_left_as_well(quorum: Quorum) -> None:
    topic = quorum.topic()
    with quorum.load(topic) as producer:
        leader, epoch = quorum.controllers.leader()
        quorum.controllers.pause(leader)
        try:
            until(lambda: quorum.controllers.leader()[1] > epoch, "another leader")
            quorum.metadata.close()
            victim = quorum.leaders(topic)[0]
            assert quorum.cluster.graceful_stop(victim) == 0  # heartbeats have followed
            quorum.cluster.restart(victim)
            acknowledged(producer, 10)
        finally:
            quorum.controllers.resume(leader)
            quorum.metadata.close()


def test_11_and_14_a_broker_that_was_away_takes_the_snapshot_and_then_the_log(quorum: Quorum) -> None:
    victim = 2
    assert quorum.cluster.graceful_stop(victim) == 0
    names = [f"topic-{next(_numbers)}" for _ in range(12)]
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": quorum.cluster.broker(1).bootstrap})
    for answer in admin.create_topics([NewTopic(name, 20, 2) for name in names]).values():
        answer.result(PATIENCE_S)
    fresh = QuorumClient(quorum.controllers.ports.values(), quorum.controllers.cluster_id)

    def has_snapshot() -> bool:
        fresh.leader_epoch = quorum.controllers.leader()[1]
        return bool(fresh.fetch().responses[0].partitions[0].snapshot_id.end_offset > 0)

    until(has_snapshot, "there is a snapshot")
    fresh.close()
    quorum.cluster.restart(victim)
    events = events_in(quorum.cluster.broker(victim).log_text())
    start = max(number for number, event in enumerate(events) if event["event"] == "node_starting")
    assert any(event["event"] == "metadata_snapshot" for event in events[start:])
    theirs = confluent_kafka.admin.AdminClient({"bootstrap.servers": quorum.cluster.broker(victim).bootstrap})
    assert set(names) <= theirs.list_topics(timeout=PATIENCE_S).topics.keys()
    for answer in admin.delete_topics(names).values():
        answer.result(PATIENCE_S)


def test_37_replicas_are_moved_and_the_preferred_one_elected(quorum: Quorum, tmp_path: Path) -> None:
    topic = quorum.topic(1, 2)
    replicas = list(quorum.metadata.partition(topic).replicas)
    other = min(ALL - set(replicas))
    target = [other, replicas[0]]
    plan = tmp_path / "plan.json"
    row = {"topic": topic, "partition": 0, "replicas": target}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    server = ["--bootstrap-server", quorum.bootstrap]
    java_tools.run("reassign.ReassignPartitionsCommand", *server, "--reassignment-json-file", str(plan), "--execute")

    def is_moved() -> bool:
        now = quorum.metadata.partition(topic)
        return list(now.replicas) == target and set(now.isr) == set(target) and not now.removing_replicas

    until(is_moved, "moved")
    options = ["--election-type", "preferred", "--topic", topic, "--partition", "0"]
    java_tools.run("LeaderElectionCommand", *server, *options)
    assert quorum.leaders(topic) == [other]


def test_40_producer_ids_never_repeat(quorum: Quorum) -> None:
    def producer_id(port: int) -> int:
        with WireClient(port) as client:
            schema = client.request(ApiKey.INIT_PRODUCER_ID, 4)
            request = schema.InitProducerIdRequest(
                transactional_id=None, transaction_timeout=timedelta(seconds=60), producer_id=-1, producer_epoch=-1
            )
            answer = client.ask(ApiKey.INIT_PRODUCER_ID, 4, request)
            assert answer.error_code == 0
            return int(answer.producer_id)

    ids = [producer_id(broker.port) for broker in quorum.cluster.brokers for _ in range(3)]
    quorum.cluster.restart(1)
    ids.append(producer_id(quorum.cluster.broker(1).port))
    assert len(set(ids)) == len(ids)


def test_what_the_controllers_do_not_know_is_refused(quorum: Quorum) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": quorum.bootstrap})
    name = f"topic-{next(_numbers)}"
    refused = admin.create_topics([NewTopic(name, 1, 3, config={"no.such.setting": "1"})])[name].exception(PATIENCE_S)
    assert refused is not None
    assert refused.args[0].name() == "INVALID_CONFIG"
    # Settings of brokers they take as they come: our brokers look at them first.
    change = ConfigEntry("log.retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[change])
    refused = admin.incremental_alter_configs([resource])[resource].exception(PATIENCE_S)
    assert refused is not None
    assert refused.args[0].name() == "INVALID_CONFIG"
    # A feature that one of the registered brokers lacks cannot be finalized either: nobody is shut out afterwards.
    server = ["--bootstrap-server", quorum.bootstrap]
    feature = ["upgrade", "--feature", "transaction.version=2"]
    output = java_tools.run("FeatureCommand", *server, *feature, check=False)
    assert "Could not upgrade transaction.version to 2" in output
    assert quorum.metadata.image().features.level("transaction.version") == 0


def test_topics_are_listed_for_a_bucket_where_the_controllers_know_no_such_setting(quorum: Quorum) -> None:
    """KIP-1176: these controllers refuse `remote.wal.enable`, and store `remote.wal.topics` without looking at it."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": quorum.bootstrap})
    name = f"topic-{next(_numbers)}"
    refused = admin.create_topics([NewTopic(name, 1, 3, config={"remote.wal.enable": "true"})])[name].exception(
        PATIENCE_S
    )
    assert refused is not None
    assert refused.args[0].name() == "INVALID_CONFIG"
    quorum.cluster.create_topic(name, 1, 3)

    everyone = ["--bootstrap-server", quorum.bootstrap, "--entity-type", "brokers", "--entity-default", "--alter"]

    def goes_through_a_bucket() -> bool:
        resource = ConfigResource(ResourceType.TOPIC, name)
        return bool(
            admin.describe_configs([resource])[resource].result(PATIENCE_S)["remote.wal.enable"].value == "true"
        )

    assert not goes_through_a_bucket()
    java_tools.run("ConfigCommand", *everyone, "--add-config", f"remote.wal.topics=[no-such-topic,{name}]")
    until(goes_through_a_bucket, "listed")
    java_tools.run("ConfigCommand", *everyone, "--delete-config", "remote.wal.topics")
    until(lambda: not goes_through_a_bucket(), "off the list")


def newcomer(quorum: Quorum, directory: Path, node_id: int, **more: str) -> NodeProcess:
    """A fourth process that wants to be a broker of this cluster."""
    settings = {
        "process.roles": "broker",
        "node.id": str(node_id),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        **quorum.controllers.broker_settings,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return NodeProcess.server(directory, settings)


def test_17_a_second_process_of_an_id_gives_up_and_disturbs_nobody(quorum: Quorum, tmp_path: Path) -> None:
    epoch = quorum.metadata.image().brokers[1].epoch
    with newcomer(quorum, tmp_path, 1, initial_broker_registration_timeout_ms="5000") as twin:
        assert twin.wait() == 1
        assert twin.stderr.splitlines()[-1] == (
            "wherry: broker 1 could not register within 5000 ms: another process with node.id=1 is alive"
        )
    assert quorum.metadata.image().brokers[1].epoch == epoch
    assert quorum.cluster.broker(1).is_ready()


def test_the_id_of_a_controller_is_not_for_a_broker(quorum: Quorum, tmp_path: Path) -> None:
    leader = quorum.controllers.wait_for_leader()
    with newcomer(quorum, tmp_path, leader) as namesake:
        # With static voters the configuration says it, else the first answer of the quorum.
        assert namesake.wait() == (2 if quorum.controllers.static_voters else 1)
        assert (
            f"wherry: {'If process.roles' if quorum.controllers.static_voters else f'node.id={leader} is'}"
            in (namesake.stderr.splitlines()[-1])
        )


def test_15_a_copied_directory_is_refused(quorum: Quorum, tmp_path: Path) -> None:
    original = (quorum.cluster.broker(1).data / "meta.properties").read_text()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text(original.replace("node.id=1", "node.id=4"))
    with newcomer(quorum, tmp_path, 4) as copy:
        assert copy.wait() == 1
        assert "is its directory id" in copy.stderr.splitlines()[-1]


def test_07_a_directory_of_another_cluster_is_refused(quorum: Quorum, tmp_path: Path) -> None:
    ours = "MkU3OEVBNTcwNTJENDM2Qk"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text(
        f"version=1\ncluster.id={ours}\nnode.id=4\ndirectory.id=LTNojMnBShS6ELDEP2qStQ\n"
    )
    with newcomer(quorum, tmp_path, 4) as stranger:
        assert stranger.wait() == 2
        assert stranger.stderr.splitlines()[-1] == (
            f"wherry: {tmp_path}/data/meta.properties belongs to cluster.id={ours}, but the cluster is "
            f"cluster.id={quorum.controllers.cluster_id}: this data is of another cluster."
        )


# -- Quorums that were formatted in another way: one voter each ----------------------------------------------------


@pytest.mark.parametrize("version", APACHE_VERSIONS)
def test_16_a_quorum_with_features_we_lack_is_refused_with_the_way_out(version: str, tmp_path: Path) -> None:
    need(version)
    with ApacheControllers(tmp_path, version, voters=1, format_with=()) as controllers:
        settings = {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:0", **controllers.broker_settings}
        with NodeProcess.server(tmp_path / "broker", {"node.id": "1", **settings}) as node:
            assert node.wait() == 1
            sentence = node.stderr.splitlines()[-1]
    assert sentence.startswith("wherry: The cluster has finalized features this broker does not support")
    assert "group.version=1 (this broker: 0)" in sentence
    assert "transaction.version=2 (this broker: 0)" in sentence
    assert ("metadata.version=33 (this broker: 7 to 29)" in sentence) == (version != OLDEST)
    assert "--release-version 4.2 --feature group.version=0" in sentence


def format_node(node: NodeOfCluster, cluster_id: str) -> None:
    """What an operator does with `wherry format`."""
    node.directory.mkdir()
    file = node.directory / "broker.properties"
    settings = {"controller.listener.names": "CONTROLLER", **node.overrides}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [sys.executable, "-m", "broker", "format", "--cluster-id", cluster_id, str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)


def test_20_the_lowest_level_and_an_upgrade_under_running_brokers(tmp_path: Path) -> None:
    need(OLDEST)
    lowest = ["--release-version", "3.3-IV3"]
    with ApacheControllers(tmp_path, OLDEST, voters=1, static_voters=True, format_with=lowest) as controllers:
        settings = {**BROKER_SETTINGS, **controllers.broker_settings}
        processes = ClusterProcess(tmp_path, brokers=2, controllers=controllers.bootstrap, settings=settings)
        for node in processes.nodes.values():  # controllers tell the cluster id from 3.7-IV0 on
            format_node(node, controllers.cluster_id)
        with processes as cluster:
            metadata = QuorumClient(controllers.ports.values(), controllers.cluster_id)
            assert metadata.image().features.metadata_version == 7
            assert [each.directories for each in metadata.image().brokers.values()] == [(), ()]
            cluster.create_topic("before", 1, 2)
            producer = LibrdkafkaProducer(1, cluster.bootstrap, "before", 1, RATE, {})
            producer.start()
            try:
                until(lambda: len(producer.acknowledged) > 50, "acknowledged")
                epochs = {each.id: each.epoch for each in metadata.image().brokers.values()}
                server = ["--bootstrap-server", cluster.bootstrap]
                java_tools.run("FeatureCommand", *server, "upgrade", "--feature", "metadata.version=25")
                until(lambda: all(each.directories for each in metadata.image().brokers.values()), "registered again")
                known = metadata.image()
                assert known.features.metadata_version == 25
                assert {each.id: (each.epoch, each.fenced) for each in known.brokers.values()} == {
                    broker_id: (epoch, False) for broker_id, epoch in epochs.items()
                }
                cluster.create_topic("after", 1, 2)
                after = metadata.partition("after")
                directories = metadata.image().brokers
                assert after.directories == tuple(directories[each].directories[0] for each in after.replicas)
                until(
                    lambda: (
                        metadata.partition("before").directories
                        == tuple(directories[each].directories[0] for each in metadata.partition("before").replicas)
                    ),
                    "directories of the older topic",
                )
            finally:
                producer.stop()
            assert producer.failures == []
            verdict = judge(producer.acknowledged, read_log(cluster.bootstrap, "before", 1))
            assert verdict == Verdict(acknowledged=producer.sent, read=producer.sent), verdict.examples
            metadata.close()
