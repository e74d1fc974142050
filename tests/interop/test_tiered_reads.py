"""Topics whose records have left the local disks, read by ordinary clients, while their leaders change.

The bucket is a directory, and one of an S3 server.  Numbers in names are those of docs/testing.md.
"""

import time
from collections.abc import Iterator

import confluent_kafka
import pytest

from broker.common.errors import ErrorCode
from tests.cluster.load import partition_of
from tests.interop.clients import AIOKAFKA, KAFKA_PYTHON, Client
from tests.support.partition_requests import Fetched, fetch
from tests.support.patience import until
from tests.support.tiered_cluster import (
    EARLIEST,
    EARLIEST_LOCAL,
    FETCH_ERRORS,
    LATEST,
    LATEST_TIERED,
    ONE_BYTE,
    EpochOffset,
    TieredCluster,
    assert_readable,
    consume,
    produce,
    tiered_cluster,
    value_of,
)
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.interop

BUCKETS = ["directory", pytest.param("s3", marks=pytest.mark.s3)]
FIRST, SECOND = 1, 2
THROTTLED = "broker_remote_log_throttle_seconds_count"


@pytest.fixture(scope="module", params=BUCKETS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredCluster]:
    with tiered_cluster(request.param, tmp_path_factory.mktemp("tiered")) as processes:
        yield processes
        assert processes.sum_of(FETCH_ERRORS) == 0


def test_17_records_are_offloaded_and_consumed_from_the_leader(cluster: TieredCluster) -> None:
    """Local retention takes what was copied; each segment is read once, whoever leads."""
    topic = cluster.tiered_topic("offloaded", config={"local.retention.ms": "1"})
    produce(cluster, topic, range(3))
    cluster.wait_for_offsets(topic, 0, 3, 2, 3)
    with cluster.remote_fetches(topic, 3, by=FIRST):
        assert_readable(cluster, topic, range(3))
    cluster.move_leader(topic, SECOND)
    produce(cluster, topic, range(3, 6))
    cluster.wait_for_tiers(topic, remote=range(6), local=[6])
    assert cluster.offsets(topic) == (0, 6, 5, 6)
    with cluster.remote_fetches(topic, 6, by=SECOND):
        assert_readable(cluster, topic, range(6))
    with cluster.remote_fetches(topic, 3):
        assert_readable(cluster, topic, range(3, 6), start=3)


@pytest.mark.parametrize("client", [AIOKAFKA, KAFKA_PYTHON], ids=lambda client: client.name)
def test_other_clients_read_both_tiers(cluster: TieredCluster, client: Client, topic: str) -> None:
    topic = cluster.tiered_topic(topic, per_segment=3)
    produce(cluster, topic, range(10))
    cluster.wait_for_tiers(topic, remote=[0, 3, 6], local=[9])
    cluster.move_leader(topic, SECOND)
    read = client.consume(cluster.bootstrap, topic, f"group-of-{topic}", 10)
    assert read == [value_of(number).decode() for number in range(10)]
    assert cluster.sum_of("kafka_server_brokertopicmetrics_remotefetchrequests_total", topic=topic) >= 3


def test_19_an_active_segment_that_is_due_is_rolled_and_offloaded(cluster: TieredCluster) -> None:
    """An idle topic leaves the disks wholly."""
    topic = cluster.tiered_topic("idle", per_segment=100, config={})
    produce(cluster, topic, range(3))
    cluster.alter(topic, local_retention_ms="1")
    cluster.wait_for_tiers(topic, remote=[0], local=[3])
    assert cluster.offsets(topic) == (0, 3, 2, 3)
    with cluster.remote_fetches(topic, 1, by=FIRST):
        assert_readable(cluster, topic, range(3))
    cluster.alter(topic, local_retention_ms=None)
    cluster.move_leader(topic, SECOND)
    produce(cluster, topic, [3, 4])
    cluster.alter(topic, local_retention_ms="1")
    cluster.wait_for_tiers(topic, remote=[0, 3], local=[5])
    with cluster.remote_fetches(topic, 2, by=SECOND):
        assert_readable(cluster, topic, range(5))


def test_23_records_are_deleted_up_to_the_middle_of_a_remote_segment(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("deleted", per_segment=2)
    produce(cluster, topic, range(5))
    cluster.wait_for_tiers(topic, remote=[0, 2], local=[4])
    cluster.delete_records(topic, 3)
    cluster.wait_for_tiers(topic, remote=[2])
    assert cluster.offsets(topic) == (3, 4, 3, 5)
    cluster.move_leader(topic, SECOND)
    cluster.wait_for_offsets(topic, 3, 4, 3, 5)
    assert_readable(cluster, topic, [3, 4], start=3)
    with pytest.raises(AssertionError, match="out of range"):
        consume(cluster, topic, 1, start=2)


def test_24_and_25_offsets_and_timestamps_of_both_tiers(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("offsets", per_segment=2)
    begin = int(time.time() * 1000)
    produce(cluster, topic, range(3), timestamp=begin)
    cluster.wait_for_tiers(topic, remote=[0], local=[2])
    cluster.move_leader(topic, SECOND)
    produce(cluster, topic, range(3, 6), timestamp=begin + 3)
    cluster.wait_for_tiers(topic, remote=[0, 2], local=[4])
    specials = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, LATEST)
    assert [cluster.offset(topic, each) for each in specials] == [(0, 0), (1, 4), (1, 3), (1, 6)]
    by_timestamp = {after: cluster.offset(topic, begin + after) for after in (-1, 0, 1, 2, 3, 4, 5, 6)}
    remote = {-1: (0, 0), 0: (0, 0), 1: (0, 1), 2: (0, 2), 3: (1, 3)}
    assert by_timestamp == {**remote, 4: (1, 4), 5: (1, 5), 6: (-1, -1)}
    cluster.delete_records(topic, 3)
    cluster.wait_for_tiers(topic, remote=[2])
    assert [cluster.offset(topic, each) for each in specials] == [(1, 3), (1, 4), (1, 3), (1, 6)]
    cluster.delete_records(topic, 4)
    assert [cluster.offset(topic, each) for each in specials] == [(1, 4), (1, 4), (-1, 3), (1, 6)]
    cluster.wait_for_tiers(topic, remote=[], local=[4])
    assert cluster.offset(topic, LATEST_TIERED) == EpochOffset(-1, 3)
    assert_readable(cluster, topic, [4, 5], start=4)


def test_33_consumers_of_old_records_are_held_back_and_others_are_not(cluster: TieredCluster) -> None:
    """The quota of remote reads: no record and no error for the remote partition, the other one goes on."""
    remote, local = 0, 1
    topic = cluster.tiered_topic("quota", [(FIRST, SECOND)] * 2, per_segment=4)
    produce(cluster, topic, range(9), partition=remote)
    produce(cluster, topic, range(3), partition=local)
    cluster.wait_for_tiers(topic, remote=[0, 4], local=[8])
    cluster.move_leader(topic, SECOND, remote)
    cluster.move_leader(topic, SECOND, local)
    before = cluster.broker(SECOND).metric(THROTTLED, what="fetch")
    cluster.alter_brokers(remote_log_manager_fetch_max_bytes_per_second="1")
    try:
        with WireClient(cluster.broker(SECOND).port) as client:
            until(lambda: is_held_back(fetch(client, topic, {remote: 0})[remote]), "the quota is exceeded")
            answer = fetch(client, topic, {remote: 0, local: 0})
        assert [(each.error, bool(each.records)) for each in answer.values()] == [(0, False), (0, True)]
        assert cluster.broker(SECOND).metric(THROTTLED, what="fetch") > before
    finally:
        cluster.alter_brokers(remote_log_manager_fetch_max_bytes_per_second=None)
    assert_readable(cluster, topic, range(9), partition=remote)


def is_held_back(answer: Fetched) -> bool:
    return answer.error is ErrorCode.none and not answer.records


def test_55_a_follower_in_the_consumers_rack_serves_remote_records(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("racks", config=ONE_BYTE)
    produce(cluster, topic, range(4))
    cluster.wait_for_tiers(topic, remote=[0, 1, 2], local=[3])
    for leader, follower in ((FIRST, SECOND), (SECOND, FIRST)):
        cluster.move_leader(topic, leader)
        wait_until_preferred(cluster, topic, leader, follower)
        with cluster.remote_fetches(topic, 3, by=follower):
            assert_readable(cluster, topic, range(4), **{"client.rack": f"rack-{follower}"})


def wait_until_preferred(cluster: TieredCluster, topic: str, leader: int, follower: int) -> None:
    """A new leader serves consumers of other racks itself until it has heard from the follower there."""
    with WireClient(cluster.broker(leader).port) as client:
        until(
            lambda: fetch(client, topic, {0: 0}, rack=f"rack-{follower}")[0].preferred_replica == follower,
            f"{leader} sends consumers to {follower}",
        )


def test_partitions_of_one_consumer_are_read_in_parallel(cluster: TieredCluster) -> None:
    """Partitions with other leaders, whose leaders then change: every record, in order in its partition."""
    topic = cluster.tiered_topic("many", [(FIRST, SECOND), (SECOND, FIRST), (FIRST, SECOND)], per_segment=2)
    for partition in range(3):
        produce(cluster, topic, range(100 * partition, 100 * partition + 7), partition)
    for partition in range(3):
        cluster.wait_for_tiers(topic, remote=[0, 2, 4], local=[6], partition=partition)
        cluster.move_leader(topic, 3 - cluster.leader(topic, partition), partition)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    read: dict[int, list[bytes]] = {0: [], 1: [], 2: []}

    def are_read() -> bool:
        for message in consumer.consume(21, timeout=0.2):
            assert message.error() is None, message.error()
            read[partition_of(message)].append(message.value())
        return sum(map(len, read.values())) >= 21

    until(are_read, f"21 records of {topic}", lambda: read, every_s=0)
    consumer.close()
    assert read == {partition: [value_of(100 * partition + index) for index in range(7)] for partition in range(3)}
