"""What each broker of a cluster tells of it, what it takes in its controller's stead, and what it missed while away."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.interop.clients import CONFLUENT
from tests.support.cluster_process import DEDICATED_CONTROLLER_ID, ClusterProcess
from tests.support.patience import PATIENCE_S, until
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.interop

SETTINGS = {"auto.leader.rebalance.enable": "false", "file.delete.delay.ms": "100"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    directory = tmp_path_factory.mktemp("every-broker")
    with ClusterProcess(directory, settings=SETTINGS, dedicated_controller=True) as processes:
        yield processes


def ask(cluster: ClusterProcess, node_id: int, api_key: ApiKey, version: int, **fields: Any) -> Any:
    client = WireClient(cluster.broker(node_id).port)
    request = getattr(client.request(api_key, version), f"{api_key.title}Request")(**fields)
    return client.ask(api_key, version, request)


def create(cluster: ClusterProcess, node_id: int, name: str, *replicas: list[int]) -> None:
    """Through one broker; a partition for each list of replicas."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.broker(node_id).bootstrap})
    new = confluent_kafka.admin.NewTopic(name, len(replicas), replica_assignment=list(replicas))
    admin.create_topics([new])[name].result(PATIENCE_S)


def test_all_tell_the_same_of_a_broker_that_is_away(cluster: ClusterProcess) -> None:
    create(cluster, 1, "told", [2, 1, 3])
    create(cluster, 1, "alone", [2])
    cluster.wait_for_full_isr("told")
    cluster.graceful_stop(2)
    try:
        for node_id in (1, 3):
            _wait_until_told(cluster, node_id, brokers=[1, 3], leaders=[1, -1])
            _check_what_it_tells(cluster, node_id)
    finally:
        cluster.restart(2)
    cluster.wait_for_full_isr("told")
    for node_id in (1, 2, 3):
        _wait_until_told(cluster, node_id, brokers=[1, 2, 3], leaders=[1, 2])
        answer = _metadata(cluster, node_id, "told", "alone")
        assert [topic.partitions[0].offline_replicas for topic in answer.topics] == [(), ()]


def _wait_until_told(cluster: ClusterProcess, node_id: int, *, brokers: list[int], leaders: list[int]) -> None:
    """Until the metadata has come to this broker."""

    def told() -> tuple[list[int], list[int]]:
        answer = _metadata(cluster, node_id, "told", "alone")
        return sorted(node.node_id for node in answer.brokers), [each.partitions[0].leader_id for each in answer.topics]

    until(lambda: told() == (brokers, leaders), f"broker {node_id} knows {brokers}, led by {leaders}", told)


def _metadata(cluster: ClusterProcess, node_id: int, *names: str) -> Any:
    schema = WireClient(cluster.broker(node_id).port).request(ApiKey.METADATA, 12)
    return ask(
        cluster,
        node_id,
        ApiKey.METADATA,
        12,
        topics=tuple(schema.MetadataRequestTopic(name=name, topic_id=None) for name in names),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def _check_what_it_tells(cluster: ClusterProcess, node_id: int) -> None:
    answer = _metadata(cluster, node_id, "told", "alone")
    assert sorted((node.node_id, node.rack) for node in answer.brokers) == [(1, "rack-1"), (3, "rack-3")]
    assert answer.controller_id == node_id
    led, leaderless = (topic.partitions[0] for topic in answer.topics)
    assert (led.error_code, led.leader_id, set(led.isr_nodes)) == (ErrorCode.none, 1, {1, 3})
    assert (led.replica_nodes, led.offline_replicas) == ((2, 1, 3), (2,))
    assert (leaderless.error_code, leaderless.leader_id) == (ErrorCode.leader_not_available, -1)
    assert (leaderless.isr_nodes, leaderless.offline_replicas) == ((2,), (2,))

    schema = WireClient(cluster.broker(node_id).port).request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    described = ask(
        cluster,
        node_id,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=tuple(schema.TopicRequest(name=name) for name in ("told", "alone")),
        response_partition_limit=100,
        cursor=None,
    )
    for old, topic in zip((leaderless, led), described.topics, strict=True):  # sorted by name
        (new,) = topic.partitions
        assert (new.error_code, new.leader_id, new.leader_epoch) == (old.error_code, old.leader_id, old.leader_epoch)
        assert (new.isr_nodes, new.offline_replicas) == (old.isr_nodes, old.offline_replicas)

    for include_fenced, expected in ((False, [(1, False), (3, False)]), (True, [(1, False), (2, True), (3, False)])):
        nodes = ask(
            cluster,
            node_id,
            ApiKey.DESCRIBE_CLUSTER,
            2,
            include_cluster_authorized_operations=False,
            endpoint_type=1,
            include_fenced_brokers=include_fenced,
        ).brokers
        assert sorted((node.broker_id, node.is_fenced) for node in nodes) == expected

    logs = ask(cluster, node_id, ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None).results[0]
    assert logs.log_dir == str(cluster.broker(node_id).data)
    (told,) = (topic for topic in logs.topics if topic.name == "told")
    assert [each.partition_index for each in told.partitions] == [0]

    schema = WireClient(cluster.broker(node_id).port).request(ApiKey.DESCRIBE_QUORUM, 2)
    asked = schema.TopicData(topic_name="__cluster_metadata", partitions=(schema.PartitionData(partition_index=0),))
    (quorum,) = ask(cluster, node_id, ApiKey.DESCRIBE_QUORUM, 2, topics=(asked,)).topics[0].partitions
    assert (quorum.leader_id, [each.replica_id for each in quorum.current_voters]) == (
        DEDICATED_CONTROLLER_ID,
        [DEDICATED_CONTROLLER_ID],
    )
    assert {1, 3} <= {each.replica_id for each in quorum.observers}


def test_any_broker_takes_admin_requests(cluster: ClusterProcess) -> None:
    """Each names itself to its clients as the controller, and forwards what only the controller can decide."""
    for node_id in (1, 2, 3):
        name = f"made-by-{node_id}"
        create(cluster, node_id, name, [1, 2, 3], [2, 3, 1])
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.broker(node_id).bootstrap})

        def known() -> tuple[int, int]:
            answer = _metadata(cluster, node_id, name)  # noqa: B023
            return answer.controller_id, len(answer.topics[0].partitions)

        # An admin client asks whom it likes, and who is asked waits for its own metadata for a moment only.
        until(lambda: known() == (node_id, 2), "seen where it was made", known)  # noqa: B023
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            create(cluster, node_id, name, [1])
        assert refused.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
        admin.delete_topics([name])[name].result(PATIENCE_S)


def test_topics_deleted_and_made_again_while_a_broker_was_away(cluster: ClusterProcess) -> None:
    for name in ("gone", "again"):
        create(cluster, 1, name, [1, 2, 3])
        CONFLUENT.produce(cluster.bootstrap, name, "none", [f"old-{number}" for number in range(20)])
        cluster.wait_for_full_isr(name)
    old = _topic_id_in_directory(cluster, 2, "again")
    cluster.kill(2)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.broker(1).bootstrap})
    for future in admin.delete_topics(["gone", "again"]).values():
        future.result(PATIENCE_S)
    create(cluster, 1, "again", [1, 2, 3])
    CONFLUENT.produce(cluster.broker(1).bootstrap, "again", "none", ["new-0", "new-1"])
    cluster.launch(2)
    cluster.broker(2).wait_until_ready()
    cluster.wait_for_full_isr("again")
    assert _topic_id_in_directory(cluster, 2, "again") == _topic_id_in_directory(cluster, 1, "again") != old
    until(lambda: _log_bytes(cluster, 2, "again-0") == _log_bytes(cluster, 1, "again-0") != b"", "equal logs")
    assert b"new-1" in _log_bytes(cluster, 2, "again-0")
    assert b"old-" not in _log_bytes(cluster, 2, "again-0")
    until(lambda: not (cluster.broker(2).data / "gone-0").exists(), "what is gone goes there, too")
    assert CONFLUENT.consume(cluster.bootstrap, "again", "group", 2) == ["new-0", "new-1"]


def _topic_id_in_directory(cluster: ClusterProcess, node_id: int, topic: str) -> str:
    return (cluster.broker(node_id).data / f"{topic}-0" / "partition.metadata").read_text()


def _log_bytes(cluster: ClusterProcess, node_id: int, partition: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((cluster.broker(node_id).data / partition).glob("*.log")))
