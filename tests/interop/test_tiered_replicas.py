"""Replicas of tiered topics that come, go, die and begin anew: they fetch no record that is in the bucket.

The bucket is a directory, and one of an S3 server.  Numbers in names are those of docs/testing.md.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest

from broker.records.record_batch import batches
from tests.support.patience import PATIENCE_S, until
from tests.support.remote_bucket import objects_of
from tests.support.tiered_cluster import (
    BATCH_BYTES,
    TieredCluster,
    assert_readable,
    produce,
    tiered_cluster,
    value_of,
)

pytestmark = pytest.mark.interop

BUCKETS = ["directory", pytest.param("s3", marks=pytest.mark.s3)]
FIRST, SECOND, THIRD = 1, 2, 3  # the first one has the controller as well
BUILDS = "kafka_server_brokertopicmetrics_buildremotelogauxstaterequests_total"
BUILD_ERRORS = "kafka_server_brokertopicmetrics_buildremotelogauxstateerrors_total"
RECEIVED = "broker_replication_bytes_total"
INDEX_CACHE = "remote-log-index-cache"
CHECKPOINTS = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    ".kafka_cleanshutdown",
)
EPOCHS = "leader-epoch-checkpoint"  # of each log
KEPT = ("meta.properties", "bootstrap.checkpoint", ".lock")


@pytest.fixture(scope="module", params=BUCKETS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredCluster]:
    settings = {"replica.fetch.backoff.ms": "200"}
    with tiered_cluster(request.param, tmp_path_factory.mktemp("tiered"), brokers=3, settings=settings) as processes:
        yield processes


def epochs_of(cluster: TieredCluster, topic: str, node_id: int) -> list[str]:
    """The lines "epoch offset" of a replica's checkpoint, which is written with the next flush; empty without one."""
    file = cluster.broker(node_id).data / f"{topic}-0" / EPOCHS
    return file.read_text().splitlines()[2:] if file.exists() else []


def wait_for_written_epochs(cluster: TieredCluster, topic: str, lines: list[str], *node_ids: int) -> None:
    for node_id in node_ids:
        until(
            lambda asked=node_id: epochs_of(cluster, topic, asked) == lines,  # type: ignore[misc]
            f"{node_id} has written the epochs {lines} of {topic}",
            lambda asked=node_id: epochs_of(cluster, topic, asked),  # type: ignore[misc]
        )


def empty_disk(cluster: TieredCluster, node_id: int) -> None:
    """Of a broker that is stopped: it is the same broker still, and has nothing."""
    for entry in cluster.broker(node_id).data.iterdir():
        if entry.name not in KEPT:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


# -- Reassignments --------------------------------------------------------------------------------------------------


def test_a_replica_that_is_added_begins_behind_what_is_remote_and_leads(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("expanded", [(FIRST,)])
    produce(cluster, topic, range(3))
    cluster.wait_for_tiers(topic, remote=[0, 1], local=[2])
    cluster.reassign(topic, [FIRST, SECOND])
    assert cluster.local_segments(topic, SECOND) == [2]
    assert cluster.broker(SECOND).metric(RECEIVED, topic=topic) == BATCH_BYTES
    cluster.move_leader(topic, SECOND)
    produce(cluster, topic, [3])
    cluster.wait_for_tiers(topic, remote=[0, 1, 2], local=[3])
    with cluster.remote_fetches(topic, 3, by=SECOND):
        assert_readable(cluster, topic, range(4))


def test_replicas_move_to_other_brokers_and_what_is_remote_stays(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("moved", [(FIRST, SECOND)])
    produce(cluster, topic, range(3))
    cluster.wait_for_tiers(topic, remote=[0, 1], local=[2])
    objects = objects_of(cluster.bucket, topic)
    cluster.reassign(topic, [SECOND, THIRD])
    cluster.move_leader(topic, THIRD)
    until(lambda: cluster.local_segments(topic, FIRST) == [], "the old replica is deleted")
    assert objects_of(cluster.bucket, topic) == objects
    produce(cluster, topic, [3])
    cluster.wait_for_tiers(topic, remote=[0, 1, 2], local=[3])
    with cluster.remote_fetches(topic, 3, by=THIRD):
        assert_readable(cluster, topic, range(4))


def test_fewer_replicas_go_on_with_both_tiers(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("shrunk", [(FIRST, SECOND)])
    produce(cluster, topic, range(3))
    cluster.wait_for_tiers(topic, remote=[0, 1], local=[2])
    cluster.reassign(topic, [SECOND])
    until(lambda: cluster.leader(topic) == SECOND, "the one that stays leads")
    produce(cluster, topic, [3])
    cluster.wait_for_tiers(topic, remote=[0, 1, 2], local=[3])
    with cluster.remote_fetches(topic, 3, by=SECOND):
        assert_readable(cluster, topic, range(4))


def test_40_a_follower_that_cannot_read_the_bucket_tries_until_it_can(cluster: TieredCluster) -> None:
    """What its metadata lacks is told in virtual time; here the bucket fails it, and the way back is the same."""
    topic = cluster.tiered_topic("retried", [(FIRST,)])
    produce(cluster, topic, range(3))
    cluster.wait_for_tiers(topic, remote=[0, 1], local=[2])
    cluster.set_faults({"down": "reset"}, SECOND)
    try:
        cluster.begin_reassignment(topic, [FIRST, SECOND])
        until(lambda: cluster.broker(SECOND).metric(BUILD_ERRORS, topic=topic) >= 3, "it tries again and again")
        assert cluster.partition(topic).isrs == [FIRST]
    finally:
        cluster.set_faults({}, SECOND)
    cluster.wait_for_full_isr(topic)
    assert cluster.broker(SECOND).metric(BUILDS, topic=topic) > cluster.broker(SECOND).metric(BUILD_ERRORS, topic=topic)
    assert cluster.broker(SECOND).metric(RECEIVED, topic=topic) == BATCH_BYTES
    cluster.move_leader(topic, SECOND)
    assert_readable(cluster, topic, range(3))


# -- A broker that has lost its disk --------------------------------------------------------------------------------


class Replaced:
    """Topics on the second broker and on the third, which has come back without its disk."""

    def __init__(self, cluster: TieredCluster) -> None:
        self.cluster = cluster
        self.failures: list[object] = []
        self.producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "enable.idempotence": True}
        )
        self.plain, self.gap, self.idempotent = (
            cluster.tiered_topic(name, [(SECOND, THIRD)]) for name in ("plain", "gap", "idempotent")
        )

    def send(self, number: int) -> None:
        self.producer.produce(
            self.idempotent,
            value_of(number),
            on_delivery=lambda error, message: self.failures.append(error) if error else None,
        )
        assert self.producer.flush(PATIENCE_S) == 0

    def fill(self) -> None:
        produce(self.cluster, self.plain, range(5))
        produce(self.cluster, self.gap, [0, 1])
        for leader in (THIRD, SECOND):  # epochs without records
            self.cluster.move_leader(self.gap, leader)
        produce(self.cluster, self.gap, [2])
        for number in range(4):
            self.send(number)
        self.cluster.wait_for_tiers(self.plain, remote=range(4), local=[4])
        self.cluster.wait_for_tiers(self.gap, remote=[0, 1], local=[2])
        self.cluster.wait_for_tiers(self.idempotent, remote=[0, 1, 2], local=[3])

    def replace(self) -> None:
        assert self.cluster.graceful_stop(THIRD) == 0
        empty_disk(self.cluster, THIRD)
        self.cluster.restart(THIRD)
        for topic in (self.plain, self.gap, self.idempotent):
            self.cluster.wait_for_full_isr(topic)


@pytest.fixture(scope="module")
def replaced(cluster: TieredCluster) -> Replaced:
    topics = Replaced(cluster)
    topics.fill()
    topics.replace()
    return topics


def test_38_an_empty_follower_takes_epochs_and_producers_and_no_remote_record(replaced: Replaced) -> None:
    cluster, topic = replaced.cluster, replaced.plain
    third = cluster.broker(THIRD)
    assert cluster.local_segments(topic, THIRD) == [4]
    assert third.metric(RECEIVED, topic=topic) == BATCH_BYTES
    # It may have asked before it had read the newest metadata: that is an error, and it asks again.
    assert third.metric(BUILDS, topic=topic) - third.metric(BUILD_ERRORS, topic=topic) == 1
    wait_for_written_epochs(cluster, topic, ["0 0"], SECOND, THIRD)
    cluster.move_leader(topic, THIRD)
    with cluster.remote_fetches(topic, 4, by=THIRD):
        assert_readable(cluster, topic, range(5))
    produce(cluster, topic, range(5, 7))
    cluster.wait_for_tiers(topic, remote=range(6), local=[6])
    assert_readable(cluster, topic, range(7))


def test_39_a_gap_in_the_epochs_is_bridged(replaced: Replaced) -> None:
    """The local part begins in epoch 2, and what is remote ends in epoch 0: of epoch 1 there is nothing."""
    cluster, topic = replaced.cluster, replaced.gap
    wait_for_written_epochs(cluster, topic, ["0 0", "2 2"], SECOND, THIRD)
    assert cluster.local_segments(topic, THIRD) == [2]
    assert cluster.broker(THIRD).metric(RECEIVED, topic=topic) == BATCH_BYTES
    cluster.move_leader(topic, THIRD)
    assert_readable(cluster, topic, range(3))


def test_41_an_idempotent_producer_goes_on_at_a_leader_that_was_empty(replaced: Replaced) -> None:
    cluster, topic = replaced.cluster, replaced.idempotent
    cluster.move_leader(topic, THIRD)
    replaced.send(4)
    replaced.send(5)
    assert replaced.failures == []
    assert_readable(cluster, topic, range(6))


# -- Brokers that die, and such that have lost what they had noted --------------------------------------------------


def remote_offsets(cluster: TieredCluster, topic: str) -> set[int]:
    """Of the records in the bucket."""
    logs = [cluster.bucket.read(each.key) for each in objects_of(cluster.bucket, topic) if each.kind == ".log"]
    return {record.offset for log in logs for batch in batches(bytearray(log)) for record in batch.records()}


def test_42_a_new_leader_goes_on_copying_without_a_gap(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("killed", [(SECOND, THIRD)], per_segment=3)
    produce(cluster, topic, range(10))
    cluster.kill(SECOND)
    produce(cluster, topic, range(10, 19))
    until(lambda: cluster.local_segments(topic, THIRD) == [18], "the new leader has copied all that is closed")
    assert remote_offsets(cluster, topic) == set(range(18))
    cluster.restart(SECOND)
    cluster.wait_for_full_isr(topic)
    produce(cluster, topic, range(19, 22))
    cluster.move_leader(topic, SECOND)
    until(lambda: cluster.local_segments(topic, SECOND) == [21], "and so has the old one")
    assert remote_offsets(cluster, topic) == set(range(21))
    assert_readable(cluster, topic, range(22))


def overwrite(file: Path) -> None:
    file.write_bytes(b"what is this?\n")


DAMAGES = pytest.mark.parametrize("damage", [Path.unlink, overwrite], ids=["missing", "corrupt"])


def damage_checkpoints(cluster: TieredCluster, node_id: int, damage: Callable[[Path], object]) -> None:
    """All of a broker that is stopped; the epochs are those of all its logs."""
    data = cluster.broker(node_id).data
    epochs = list(data.glob(f"*/{EPOCHS}"))
    assert epochs
    for file in (*(data / name for name in CHECKPOINTS), *epochs):
        damage(file)


def fill_in_epochs(cluster: TieredCluster, topic: str) -> list[str]:
    """Five records, those on disks of another leader epoch than those in the bucket; what is noted of the epochs."""
    first, second = cluster.partition(topic).replicas
    for leader, numbers in ((first, [0, 1]), (second, [2, 3]), (first, [4])):
        if cluster.leader(topic) != leader:
            cluster.move_leader(topic, leader)
        produce(cluster, topic, numbers)
        cluster.wait_for_tiers(topic, remote=range(numbers[-1]), local=numbers[-1:])  # or two leaders copy the same
    assert_readable(cluster, topic, range(5))
    return ["0 0", "1 2", "2 4"]


def wait_for_epochs(cluster: TieredCluster, topic: str, *node_ids: int) -> None:
    """Until these have found again what they had noted of the epochs in the bucket."""
    until(
        lambda: all(has_restored(cluster, topic, node_id) for node_id in node_ids),
        f"{node_ids} have the epochs of {topic}",
    )


def has_restored(cluster: TieredCluster, topic: str, node_id: int) -> bool:
    lines = cluster.broker(node_id).log_text().splitlines()
    return any("leader_epochs_restored" in line and f'"{topic}-0"' in line for line in lines)


def goes_on(cluster: TieredCluster, topic: str) -> None:
    """Everything is read from both tiers, and more is copied."""
    with cluster.remote_fetches(topic, 4):
        assert_readable(cluster, topic, range(5))
    produce(cluster, topic, [5, 6])
    cluster.wait_for_tiers(topic, remote=range(6), local=[6])
    assert cluster.offsets(topic) == (0, 6, 5, 7)
    assert_readable(cluster, topic, range(7))


@DAMAGES
def test_51_and_52_all_brokers_start_without_checkpoints_and_caches(
    cluster: TieredCluster, damage: Callable[[Path], object]
) -> None:
    """All they know of the bucket is in its metadata topic, and in the bucket."""
    topics = [cluster.tiered_topic("restarted", [pair]) for pair in ((FIRST, SECOND), (SECOND, THIRD), (THIRD, FIRST))]
    for topic in topics:
        fill_in_epochs(cluster, topic)
    for node_id in (THIRD, SECOND, FIRST):
        assert cluster.graceful_stop(node_id) == 0
        damage_checkpoints(cluster, node_id, damage)
        shutil.rmtree(cluster.broker(node_id).data / INDEX_CACHE)
    for node_id in cluster.node_ids:
        cluster.launch(node_id)
    for topic in topics:
        cluster.wait_for_full_isr(topic)
        wait_for_epochs(cluster, topic, *cluster.partition(topic).replicas)
        goes_on(cluster, topic)


@DAMAGES
def test_51_a_follower_whose_checkpoints_are_damaged_leads(
    cluster: TieredCluster, damage: Callable[[Path], object]
) -> None:
    topic = cluster.tiered_topic("damaged", [(SECOND, THIRD)])
    epochs = fill_in_epochs(cluster, topic)
    assert cluster.graceful_stop(THIRD) == 0
    damage_checkpoints(cluster, THIRD, damage)
    cluster.restart(THIRD)
    cluster.wait_for_full_isr(topic)
    wait_for_epochs(cluster, topic, THIRD)
    cluster.move_leader(topic, THIRD)
    goes_on(cluster, topic)
    assert cluster.graceful_stop(THIRD) == 0
    assert epochs_of(cluster, topic, THIRD)[:3] == epochs
    cluster.restart(THIRD)
    cluster.wait_for_full_isr(topic)
