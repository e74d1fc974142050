"""What goes wrong with the bucket of tiered topics, and what brokers do about it, while leaders change.

The bucket is a directory, and one of an S3 server.  Numbers in names are those of docs/testing.md.
"""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.common.errors import ErrorCode
from tests.support.broker_process import BrokerProcess
from tests.support.partition_requests import fetch
from tests.support.patience import until
from tests.support.remote_bucket import SharedDirectory, objects_of
from tests.support.tiered_cluster import (
    FETCH_ERRORS,
    QUICK_TIERING,
    TieredCluster,
    assert_readable,
    produce,
    tiered_cluster,
)
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.interop

BUCKETS = ["directory", pytest.param("s3", marks=pytest.mark.s3)]
FIRST, SECOND = 1, 2
OUTAGE_S = {"directory": 4, "s3": 20}
COPY_ERRORS = "kafka_server_brokertopicmetrics_remotecopyerrors_total"
COPY_LAG = "kafka_server_brokertopicmetrics_remotecopylagsegments"
DELETE_ERRORS = "kafka_server_brokertopicmetrics_remotedeleteerrors_total"
CORRUPTIONS = "broker_remote_index_cache_corruptions_total"
METADATA_PARTITIONS = "rlmm.config.remote.log.metadata.topic.num.partitions"


@pytest.fixture(scope="module", params=BUCKETS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredCluster]:
    with tiered_cluster(kind, tmp_path_factory.mktemp("tiered")) as processes:
        yield processes


def test_18_nothing_leaves_the_disks_while_the_bucket_is_away(cluster: TieredCluster, kind: str) -> None:
    """Under load, and over a change of the leader; the lag is told, and made up for when the bucket is back."""
    topic = cluster.tiered_topic("outage", per_segment=2)
    produce(cluster, topic, range(5))
    cluster.wait_for_tiers(topic, remote=[0, 2], local=[4])
    numbers = itertools.count(5)
    cluster.set_faults({"down": "reset"})
    try:
        ends_at = time.monotonic() + OUTAGE_S[kind]
        while time.monotonic() < ends_at:
            produce(cluster, topic, itertools.islice(numbers, 4))
            time.sleep(0.2)
        until(lambda: cluster.broker(FIRST).metric(COPY_ERRORS, topic=topic) > 0, "a copy has failed")
        cluster.move_leader(topic, SECOND)
        produce(cluster, topic, itertools.islice(numbers, 4))
        until(lambda: cluster.broker(SECOND).metric(COPY_ERRORS, topic=topic) > 0, "a copy has failed there as well")
        end = next(numbers)
        waiting = list(range(4, end, 2))  # the last one of them is active
        for node_id in cluster.node_ids:
            assert cluster.local_segments(topic, node_id) == waiting
        until(
            lambda: cluster.sum_of(COPY_LAG, topic=topic) == len(waiting) - 1,
            f"{len(waiting) - 1} segments wait for their copies",
            lambda: cluster.sum_of(COPY_LAG, topic=topic),
        )
        assert cluster.remote_segments(topic) == [0, 2]
    finally:
        cluster.set_faults({})
    last = waiting[-1]
    cluster.wait_for_tiers(topic, remote=range(0, last, 2), local=[last])
    until(lambda: cluster.sum_of(COPY_LAG, topic=topic) == 0, "no copy is due")
    assert_readable(cluster, topic, range(end))


def test_reads_of_what_is_remote_fail_while_the_bucket_is_away(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("unreadable", [(FIRST, SECOND)] * 2)
    produce(cluster, topic, range(3), partition=0)
    produce(cluster, topic, [7], partition=1)
    cluster.wait_for_tiers(topic, remote=[0, 1], local=[2])
    cluster.set_faults({"down": "reset"})
    try:
        with WireClient(cluster.broker(FIRST).port) as client:
            answer = fetch(client, topic, {0: 0, 1: 0})
        assert [each.error for each in answer.values()] == [ErrorCode.unknown_server_error, ErrorCode.none]
        assert [bool(each.records) for each in answer.values()] == [False, True]
        assert cluster.broker(FIRST).metric(FETCH_ERRORS, topic=topic) == 1
    finally:
        cluster.set_faults({})
    cluster.move_leader(topic, SECOND)
    with WireClient(cluster.broker(SECOND).port) as client:
        until(lambda: fetch(client, topic, {0: 0})[0].records, "the bucket is asked again")
    assert_readable(cluster, topic, range(3))


def test_an_object_that_somebody_deleted_costs_its_own_records_alone(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("by-hand", [(FIRST, SECOND)] * 2)
    for partition in (0, 1):
        produce(cluster, topic, range(4), partition)
        cluster.wait_for_tiers(topic, remote=[0, 1, 2], local=[3], partition=partition)
    (log,) = [each.key for each in objects_of(cluster.bucket, topic) if (each.base_offset, each.kind) == (0, ".log")]
    cluster.bucket.delete(log)
    delete_errors = cluster.sum_of(DELETE_ERRORS, topic=topic)  # the bucket may have been left alone for a while
    for leader in (FIRST, SECOND):
        cluster.move_leader(topic, leader)
        cluster.move_leader(topic, leader, 1)
        with WireClient(cluster.broker(leader).port) as client:
            answer = fetch(client, topic, {0: 0, 1: 0})
        assert [each.error for each in answer.values()] == [ErrorCode.unknown_server_error, ErrorCode.none]
        assert answer[1].records
        assert cluster.broker(leader).metric(FETCH_ERRORS, topic=topic) == 1
    assert_readable(cluster, topic, range(1, 4), start=1)
    assert_readable(cluster, topic, range(4), partition=1)
    cluster.delete_records(topic, 2)  # what is gone already is deleted like anything else
    until(
        lambda: {each.base_offset for each in objects_of(cluster.bucket, topic)} == {2}, "segments 0 and 1 are deleted"
    )
    assert cluster.sum_of(DELETE_ERRORS, topic=topic) == delete_errors


def test_52_an_index_that_went_bad_in_the_cache_is_fetched_again(cluster: TieredCluster) -> None:
    topic = cluster.tiered_topic("bad-index", [(SECOND, FIRST)], per_segment=20)
    produce(cluster, topic, range(41))
    cluster.wait_for_tiers(topic, remote=[0, 20], local=[40])
    assert_readable(cluster, topic, range(30, 41), start=30)
    assert cluster.graceful_stop(SECOND) == 0
    second = cluster.broker(SECOND)
    cached = (second.data / "remote-log-index-cache").glob("20_*.index")
    indexes = [file for file in cached if file.stat().st_size]  # segments of two batches have no entries
    assert indexes
    for file in indexes:
        file.write_bytes(b"\xff" * file.stat().st_size)
    cluster.restart(SECOND)
    cluster.wait_for_full_isr(topic)
    cluster.move_leader(topic, SECOND)
    assert_readable(cluster, topic, range(30, 41), start=30)
    assert second.metric(CORRUPTIONS) == 1
    assert second.metric(FETCH_ERRORS) == 0


def test_04_a_metadata_topic_with_another_partition_count_stops_the_broker(tmp_path: Path) -> None:
    settings = {**QUICK_TIERING, **SharedDirectory(tmp_path / "bucket").settings}
    settings["rlmm.config.remote.log.metadata.topic.replication.factor"] = "1"
    with BrokerProcess(tmp_path / "broker", settings) as broker:
        until(lambda: "metadata_topic_created" in broker.log_text(), "the topic is made")
        broker.stop()
        broker.overrides[METADATA_PARTITIONS] = str(int(settings[METADATA_PARTITIONS]) + 1)
        broker.launch()
        until(lambda: not broker.is_running(), "the broker has stopped", broker.log_tail)
        assert broker.wait_for_end() != 0
        assert "remote_log_metadata_not_initialized" in broker.log_text()
