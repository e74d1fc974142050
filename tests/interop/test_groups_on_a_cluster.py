"""What one broker cannot show of groups: coordinators on several brokers, replicas that lag, logs that are trimmed."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from broker.common.errors import ErrorCode
from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC, partition_for_key
from broker.protocol.api_keys import ApiKey
from tests.interop.clients import CONFLUENT
from tests.support.cluster_process import DEDICATED_CONTROLLER_ID, ClusterProcess
from tests.support.patience import PATIENCE_S, until
from tests.support.wire_client import ConnectionClosed, WireClient

pytestmark = pytest.mark.interop

OFFSETS_PARTITIONS = 4
SETTINGS = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.topic.segment.bytes": "1",  # in fact the least a topic may have, 1 MiB
    "offsets.commit.timeout.ms": "1500",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "0",
}
PARTITIONS = 8
SIMPLE_COMMIT_VERSION = 8
SNAPSHOT_AFTER_BYTES = 32 << 20


def names(prefix: str, partition: int | None = None) -> Iterator[str]:
    """Group ids, of one partition of `__consumer_offsets` if asked."""
    all_names = (f"{prefix}-{number}" for number in itertools.count())
    return (name for name in all_names if partition in (None, partition_for_key(name, OFFSETS_PARTITIONS)))


class Node:
    """What one broker answers on the wire."""

    def __init__(self, cluster: ClusterProcess, node_id: int) -> None:
        self.id = node_id
        self._port = int(cluster.broker(node_id).bootstrap.rpartition(":")[2])

    def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        with WireClient(self._port) as client:
            schema = client.request(api_key, version)
            (request_class,) = [getattr(schema, name) for name in (f"{_NAMES[api_key]}Request",)]
            return client.ask(api_key, version, request_class(**fields))

    def find(self, version: int, group: str) -> tuple[ErrorCode, int, str, int]:
        """Error, node, host and port of the coordinator."""
        if version >= 4:
            (answer,) = self.ask(ApiKey.FIND_COORDINATOR, version, key_type=0, coordinator_keys=(group,)).coordinators
            assert answer.key == group
        elif version:
            answer = self.ask(ApiKey.FIND_COORDINATOR, version, key=group, key_type=0)
        else:
            answer = self.ask(ApiKey.FIND_COORDINATOR, version, key=group)
        return answer.error_code, answer.node_id, answer.host, answer.port

    def commit(self, group: str, topic: str, offsets: Mapping[int, int], metadata: str = "") -> set[ErrorCode]:
        with WireClient(self._port) as client:
            schema = client.request(ApiKey.OFFSET_COMMIT, SIMPLE_COMMIT_VERSION)
            rows = tuple(
                schema.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=-1,
                    committed_metadata=metadata,
                )
                for partition, offset in offsets.items()
            )
            request = schema.OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=(schema.OffsetCommitRequestTopic(name=topic, partitions=rows),),
            )
            answer = client.ask(ApiKey.OFFSET_COMMIT, SIMPLE_COMMIT_VERSION, request)
        return {row.error_code for found in answer.topics for row in found.partitions}

    def fetch(self, group: str, *, require_stable: bool = False) -> ErrorCode | dict[tuple[str, int], int]:
        answer = self.ask(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=None, require_stable=require_stable)
        if answer.error_code is not ErrorCode.none:
            return ErrorCode(answer.error_code)
        return {
            (topic.name, row.partition_index): row.committed_offset
            for topic in answer.topics
            for row in topic.partitions
        }


_NAMES = {ApiKey.FIND_COORDINATOR: "FindCoordinator", ApiKey.OFFSET_FETCH: "OffsetFetch"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    directory = tmp_path_factory.mktemp("cluster")
    with ClusterProcess(directory, settings=SETTINGS, dedicated_controller=True) as cluster:
        coordinator(cluster, "first")  # makes the topic
        cluster.wait_for_full_isr(CONSUMER_OFFSETS_TOPIC)
        yield cluster
        for broker in cluster.brokers:
            assert broker.is_running(), f"a broker died:\n{broker.log_tail()}"


@pytest.fixture
def topic(cluster: ClusterProcess, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    cluster.create_topic(name, PARTITIONS)
    return str(name)


def coordinator(cluster: ClusterProcess, group: str) -> Node:
    """As the first broker that is there has it."""
    found: list[int] = []

    def is_known() -> bool:
        for node_id in cluster.node_ids:
            if cluster.broker(node_id).is_running():
                error, found_id, _, _ = Node(cluster, node_id).find(6, group)
                found[:] = [found_id]
                return error is ErrorCode.none
        return False

    until(is_known, f"a coordinator of {group}")
    return Node(cluster, found[0])


def commit(cluster: ClusterProcess, group: str, topic: str, offsets: Mapping[int, int], metadata: str = "") -> Node:
    """The coordinator that took it; on a busy machine brokers are fenced, and it moves at any time."""
    took: list[Node] = []

    def is_committed() -> bool:
        node = coordinator(cluster, group)
        took[:] = [node]
        try:
            return node.commit(group, topic, offsets, metadata) == {ErrorCode.none}
        except (OSError, ConnectionClosed):  # it is down, and not everybody knows yet
            return False

    until(is_committed, f"a commit of {group}")
    return took[0]


def offsets_of(cluster: ClusterProcess, group: str) -> ErrorCode | dict[tuple[str, int], int]:
    """As its coordinator of now answers."""
    try:
        return coordinator(cluster, group).fetch(group)
    except (OSError, ConnectionClosed):
        return ErrorCode.network_exception


def others(cluster: ClusterProcess, node: Node) -> list[Node]:
    return [Node(cluster, node_id) for node_id in cluster.node_ids if node_id != node.id]


def test_45_on_a_fresh_cluster_coordinators_wait_for_enough_brokers(tmp_path: Path) -> None:
    cluster = ClusterProcess(tmp_path, settings=SETTINGS, dedicated_controller=True)
    try:
        for node_id in (DEDICATED_CONTROLLER_ID, 1, 2):
            cluster.launch(node_id)
        for node_id in (1, 2):
            cluster.broker(node_id).wait_until_ready()
        node = Node(cluster, 1)
        for version in range(7):  # three replicas are asked for, and there are two brokers
            assert node.find(version, "g") == (ErrorCode.coordinator_not_available, -1, "", -1)
        cluster.restart(3)
        found = coordinator(cluster, "g")
        address = ("127.0.0.1", int(cluster.broker(found.id).bootstrap.rpartition(":")[2]))
        expected = (ErrorCode.none, found.id, *address)
        for asked, version in itertools.product(cluster.node_ids, range(7)):
            until(lambda: Node(cluster, asked).find(6, "g") == expected, "every broker knows")  # noqa: B023
            assert Node(cluster, asked).find(version, "g") == expected
    finally:
        cluster.__exit__()


def test_groups_of_all_coordinators_are_administered_together(cluster: ClusterProcess, topic: str) -> None:
    groups = {next(names("spread", partition)): partition for partition in range(OFFSETS_PARTITIONS)}
    nodes = {group: commit(cluster, group, topic, {0: number}) for number, group in enumerate(groups)}
    assert len({node.id for node in nodes.values()}) > 1
    for group, node in nodes.items():
        for other in others(cluster, node):
            assert other.commit(group, topic, {0: 99}) == {ErrorCode.not_coordinator}
            assert other.fetch(group) is ErrorCode.not_coordinator
    admin = cluster.admin()
    listed = {each.group_id for each in admin.list_consumer_groups().result(PATIENCE_S).valid}
    assert listed >= groups.keys()
    described = admin.describe_consumer_groups(list(groups))
    assert {group: each.result(PATIENCE_S).coordinator.id for group, each in described.items()} == {
        group: node.id for group, node in nodes.items()
    }
    for each in admin.delete_consumer_groups(list(groups)).values():
        each.result(PATIENCE_S)
    for group in groups:
        until(lambda: offsets_of(cluster, group) == {}, "no offsets")  # noqa: B023


def test_40_offsets_of_a_deleted_topic_go_at_every_coordinator(cluster: ClusterProcess, topic: str) -> None:
    cluster.create_topic("doomed", 1)
    groups = [next(names("bereaved", partition)) for partition in range(OFFSETS_PARTITIONS)]
    for group in groups:
        commit(cluster, group, "doomed", {0: 1})
        commit(cluster, group, topic, {0: 2})
    admin = cluster.admin()
    admin.delete_topics(["doomed"])["doomed"].result(PATIENCE_S)
    for group in groups:
        until(lambda: offsets_of(cluster, group) == {(topic, 0): 2}, "the offsets go")  # noqa: B023


def test_45_what_the_followers_lack_is_neither_acknowledged_nor_shown(cluster: ClusterProcess, topic: str) -> None:
    group = next(names("patient"))
    node = commit(cluster, group, topic, {0: 5})
    stopped = others(cluster, node)
    for each in stopped:
        cluster.pause(each.id)
    try:
        assert node.commit(group, topic, {0: 6}) == {ErrorCode.coordinator_not_available}
        assert node.fetch(group) == {(topic, 0): 5}
        assert node.fetch(group, require_stable=True) is ErrorCode.not_coordinator
    finally:
        for each in stopped:
            cluster.resume(each.id)
    # The same coordinator, or another that has it, or one that never had it.
    until(lambda: offsets_of(cluster, group) in ({(topic, 0): 5}, {(topic, 0): 6}), "an answer")
    cluster.wait_for_full_isr(CONSUMER_OFFSETS_TOPIC)


@pytest.mark.parametrize("dies", ["killed", "stopped"])
def test_28_a_static_member_restarts_while_its_coordinator_does(cluster: ClusterProcess, topic: str, dies: str) -> None:
    """It comes back within its session, to another coordinator, and has what it had; nobody is disturbed."""
    group = next(names(f"static-{dies}"))
    assignments: dict[str, list[list[int]]] = {"a": [], "b": []}

    def consumer(name: str) -> confluent_kafka.Consumer:
        config = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.instance.id": name,
            "session.timeout.ms": 60_000,
            "auto.offset.reset": "earliest",
        }
        made = confluent_kafka.Consumer(config)
        made.subscribe(
            [topic], on_assign=lambda _, given: assignments[name].append(sorted(each.partition for each in given))
        )
        return made

    first, second = consumer("a"), consumer("b")
    until(
        lambda: (
            first.poll(0.1) is second.poll(0.1)
            and all(assignments.values())
            and sum(len(seen[-1]) for seen in assignments.values()) == PARTITIONS
        ),
        "an assignment for both",
        lambda: assignments,
    )
    before = {name: seen[-1] for name, seen in assignments.items()}
    rounds = {name: len(seen) for name, seen in assignments.items()}
    second.close()  # a static member does not leave
    node = coordinator(cluster, group)
    cluster.kill(node.id) if dies == "killed" else cluster.graceful_stop(node.id)
    again = consumer("b")
    until(
        lambda: again.poll(0.1) is first.poll(0.1) and len(assignments["b"]) > rounds["b"],
        "the assignment",
        lambda: assignments,
    )
    until(lambda: coordinator(cluster, group).id != node.id, "everybody knows another coordinator")
    assert {name: seen[-1] for name, seen in assignments.items()} == before
    assert len(assignments["a"]) == rounds["a"]
    for each in (first, again):
        each.close()
    cluster.restart(node.id)
    cluster.wait_for_full_isr(CONSUMER_OFFSETS_TOPIC)


def test_a_snapshot_trims_every_replica_and_serves_the_next_coordinator(cluster: ClusterProcess) -> None:
    topic, count = "wide", 100
    cluster.create_topic(topic, count)
    group = next(names("large"))
    partition = partition_for_key(group, OFFSETS_PARTITIONS)
    small = next(names("small", partition))
    commit(cluster, small, topic, {7: 77})
    written, rounds = 0, 0
    while written < SNAPSHOT_AFTER_BYTES * 5 // 4:
        rounds += 1
        commit(cluster, group, topic, dict.fromkeys(range(count), rounds), metadata="x" * 4000)
        written += count * 4000

    def first_offsets() -> list[int]:
        directories = [broker.data / f"{CONSUMER_OFFSETS_TOPIC}-{partition}" for broker in cluster.brokers]
        # A follower that begins anew has none for a moment.
        return [min((int(path.stem) for path in directory.glob("*.log")), default=0) for directory in directories]

    until(lambda: min(first_offsets()) > 0, "old segments go on every broker", first_offsets)
    expected = {(topic, each): rounds for each in range(count)}
    until(lambda: offsets_of(cluster, group) == expected, "the offsets")
    node = coordinator(cluster, group)
    cluster.kill(node.id)
    until(lambda: coordinator(cluster, group).id != node.id, "another coordinator")
    until(lambda: offsets_of(cluster, group) == expected, "the offsets")
    until(lambda: offsets_of(cluster, small) == {(topic, 7): 77}, "the other's")
    cluster.restart(node.id)
    cluster.wait_for_full_isr(CONSUMER_OFFSETS_TOPIC)


def test_44_committed_offsets_move_with_every_broker_of_a_rolling_restart(cluster: ClusterProcess, topic: str) -> None:
    CONFLUENT.produce(cluster.bootstrap, topic, "none", [str(number) for number in range(20)])
    group = next(names("rolling"))
    coordinators = []
    for number in range(1, 4):
        node = commit(cluster, group, topic, {0: number})
        coordinators.append(node.id)
        cluster.restart(node.id)
        cluster.wait_for_full_isr(CONSUMER_OFFSETS_TOPIC)
        until(lambda: offsets_of(cluster, group) == {(topic, 0): number}, "the offset")  # noqa: B023
    assert len(set(coordinators)) > 1
