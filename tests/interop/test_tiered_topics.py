"""The life of tiered topics, whose leaders change: retention, deletion, tiering that ends and begins, more partitions.

The bucket is a directory, and one of an S3 server.  Numbers in names are those of docs/testing.md.
"""

import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from tests.support.patience import PATIENCE_S, until
from tests.support.remote_bucket import objects_of
from tests.support.tiered_cluster import (
    BATCH_BYTES,
    METADATA_PARTITIONS,
    TieredCluster,
    assert_readable,
    consume,
    produce,
    settings_of,
    tiered_cluster,
)

pytestmark = pytest.mark.interop

BUCKETS = ["directory", pytest.param("s3", marks=pytest.mark.s3)]
FIRST, SECOND = 1, 2
HOUR_MS = 3_600_000
METADATA_TOPIC = "__remote_log_metadata"
COPY_LAG_BYTES = "kafka_server_brokertopicmetrics_remotecopylagbytes"
DELETE_REQUESTS = "kafka_server_brokertopicmetrics_remotedeleterequests_total"


@pytest.fixture(scope="module", params=BUCKETS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredCluster]:
    with tiered_cluster(request.param, tmp_path_factory.mktemp("tiered")) as processes:
        yield processes


def test_03_the_metadata_topic_is_made_once_by_whoever_comes_first(cluster: TieredCluster) -> None:
    known = cluster.admin().list_topics(timeout=PATIENCE_S).topics[METADATA_TOPIC]
    assert len(known.partitions) == METADATA_PARTITIONS
    assert all(len(each.replicas) == len(cluster.brokers) for each in known.partitions.values())
    settings = settings_of(cluster, METADATA_TOPIC)
    wanted = {"cleanup.policy": "delete", "retention.ms": "-1", "remote.storage.enable": "false"}
    assert {name: settings[name] for name in wanted} == wanted
    created = [each.log_text().count('"event": "metadata_topic_created"') for each in cluster.brokers]
    assert sum(created) == 1


def test_20_segments_are_deleted_by_time(cluster: TieredCluster) -> None:
    """The log begins behind the last one, and whoever wants more is told that it is out of range."""
    topic = cluster.tiered_topic("by-time")
    now_ms = int(time.time() * 1000)
    produce(cluster, topic, [0, 1], timestamp=now_ms - 2 * HOUR_MS)
    produce(cluster, topic, [2, 3], timestamp=now_ms)
    cluster.wait_for_tiers(topic, remote=[0, 1, 2], local=[3])
    cluster.move_leader(topic, SECOND)
    cluster.alter(topic, retention_ms=str(HOUR_MS))
    cluster.wait_for_tiers(topic, remote=[2])
    assert cluster.offsets(topic) == (2, 3, 2, 4)
    assert cluster.sum_of(DELETE_REQUESTS, topic=topic) == 2
    assert_readable(cluster, topic, [2, 3], start=2)
    with pytest.raises(AssertionError, match="out of range"):
        consume(cluster, topic, 1, start=1)


def test_21_segments_are_deleted_by_size_and_never_below_the_limit(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("by-size")
    produce(cluster, topic, range(5))
    cluster.wait_for_tiers(topic, remote=[0, 1, 2, 3], local=[4])
    cluster.alter(topic, retention_bytes=str(3 * BATCH_BYTES + 1))
    cluster.wait_for_tiers(topic, remote=[1, 2, 3])
    cluster.move_leader(topic, SECOND)
    cluster.wait_for_offsets(topic, 1, 4, 3, 5)
    cluster.alter(topic, retention_bytes=str(3 * BATCH_BYTES))
    cluster.wait_for_tiers(topic, remote=[2, 3], local=[4])
    assert cluster.offsets(topic) == (2, 4, 3, 5)
    assert cluster.sum_of(DELETE_REQUESTS, topic=topic) == 2
    with cluster.remote_fetches(topic, 2, by=SECOND):
        assert_readable(cluster, topic, [2, 3, 4], start=2)


def test_46_a_deleted_topic_leaves_nothing_and_another_of_its_name_begins_anew(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("gone", [(FIRST, SECOND), (SECOND, FIRST)])
    for partition in (0, 1):
        produce(cluster, topic, range(3), partition)
        cluster.wait_for_tiers(topic, remote=[0, 1], local=[2], partition=partition)
    assert_readable(cluster, topic, range(3))
    cluster.move_leader(topic, SECOND)
    cluster.delete_topic(topic)
    until(
        lambda: not objects_of(cluster.bucket, topic, 0) + objects_of(cluster.bucket, topic, 1),
        "the bucket has nothing of it",
        lambda: objects_of(cluster.bucket, topic, 0) + objects_of(cluster.bucket, topic, 1),
    )
    until(lambda: cluster.sum_of("broker_remote_partitions_being_removed") == 0, "nothing is left to be removed")
    again = cluster.tiered_topic(topic, is_named=True)
    produce(cluster, again, range(10, 12))
    cluster.wait_for_tiers(again, remote=[0], local=[1])
    assert_readable(cluster, again, range(10, 12))


def test_47_copies_are_disabled_and_enabled_again(cluster: TieredCluster) -> None:
    """Nothing is uploaded meanwhile; what is in the bucket is read, and expires."""
    topic = cluster.tiered_topic("read-only")
    produce(cluster, topic, range(3))
    cluster.wait_for_tiers(topic, remote=[0, 1], local=[2])
    cluster.alter(topic, remote_log_copy_disable="true", local_retention_bytes=None)
    produce(cluster, topic, [3, 4])
    cluster.move_leader(topic, SECOND)
    other = cluster.tiered_topic("meanwhile", [(SECOND, FIRST)])
    produce(cluster, other, range(3))
    cluster.wait_for_tiers(other, remote=[0, 1], local=[2])
    assert cluster.remote_segments(topic) == [0, 1]
    assert cluster.sum_of(COPY_LAG_BYTES, topic=topic) == 0
    with cluster.remote_fetches(topic, 2, by=SECOND):
        assert_readable(cluster, topic, range(5))
    cluster.alter(topic, retention_bytes=str(4 * BATCH_BYTES))
    cluster.wait_for_tiers(topic, remote=[1], local=[2, 3, 4])
    cluster.wait_for_offsets(topic, 1, 2, 1, 5)
    cluster.alter(topic, remote_log_copy_disable="false", local_retention_bytes="1", retention_bytes=None)
    cluster.wait_for_tiers(topic, remote=[1, 2, 3], local=[4])
    assert_readable(cluster, topic, range(1, 5), start=1)


def test_48_tiering_ends_with_what_is_remote_and_begins_again(cluster: TieredCluster) -> None:
    """The log begins where its local part began; records of the bucket are no more."""
    topic = cluster.tiered_topic("no-more")
    produce(cluster, topic, range(3))
    cluster.wait_for_tiers(topic, remote=[0, 1], local=[2])
    with pytest.raises(confluent_kafka.KafkaException, match=r"remote\.log\.delete\.on\.disable"):
        cluster.alter(topic, remote_storage_enable="false")
    cluster.move_leader(topic, SECOND)
    cluster.alter(topic, remote_storage_enable="false", remote_log_delete_on_disable="true", local_retention_bytes=None)
    cluster.wait_for_tiers(topic, remote=[])
    cluster.wait_for_offsets(topic, 2, 2, -1, 3)
    until(lambda: not objects_of(cluster.bucket, topic), "the bucket has nothing of it")
    produce(cluster, topic, [3, 4])
    cluster.move_leader(topic, FIRST)
    assert_readable(cluster, topic, [2, 3, 4], start=2)
    cluster.alter(topic, remote_storage_enable="true", remote_log_delete_on_disable=None, local_retention_bytes="1")
    cluster.wait_for_tiers(topic, remote=[2, 3], local=[4])
    assert cluster.offsets(topic) == (2, 4, 3, 5)
    with cluster.remote_fetches(topic, 2, by=FIRST):
        assert_readable(cluster, topic, [2, 3, 4], start=2)


def test_49_an_existing_topic_is_tiered_with_all_it_has(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("from-now-on", per_segment=2, config={}, is_tiered=False)
    produce(cluster, topic, range(5))
    cluster.move_leader(topic, SECOND)
    produce(cluster, topic, range(5, 7))
    assert cluster.offsets(topic) == (0, 0, -1, 7)
    cluster.alter(topic, remote_storage_enable="true", local_retention_bytes="1")
    cluster.wait_for_tiers(topic, remote=[0, 2, 4], local=[6])
    assert cluster.offsets(topic) == (0, 6, 5, 7)
    with cluster.remote_fetches(topic, 3, by=SECOND):
        assert_readable(cluster, topic, range(7))
    cluster.move_leader(topic, FIRST)
    produce(cluster, topic, range(7, 9))
    cluster.wait_for_tiers(topic, remote=[0, 2, 4, 6], local=[8])
    assert_readable(cluster, topic, range(9))


def test_partitions_that_are_added_are_tiered_as_the_others_are(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("more")
    produce(cluster, topic, range(3))
    more = NewPartitions(topic, 3, replica_assignment=[[SECOND, FIRST], [FIRST, SECOND]])
    admin = cluster.admin()
    admin.create_partitions([more])[topic].result(PATIENCE_S)
    cluster.wait_for_full_isr(topic)
    for partition in (1, 2):
        produce(cluster, topic, range(10 * partition, 10 * partition + 3), partition)
    for partition in range(3):
        cluster.wait_for_tiers(topic, remote=[0, 1], local=[2], partition=partition)
        cluster.move_leader(topic, FIRST if partition == 1 else SECOND, partition)
        produce(cluster, topic, [10 * partition + 3], partition)
        cluster.wait_for_tiers(topic, remote=[0, 1, 2], local=[3], partition=partition)
        assert_readable(cluster, topic, range(10 * partition, 10 * partition + 4), partition=partition)
