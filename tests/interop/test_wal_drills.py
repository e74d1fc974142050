"""What operators see of replication through buckets: its metrics, its bill, and drills with faulty buckets."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from broker.wal.remote_wal_stats import WalHop
from tests.support.broker_process import BrokerProcess
from tests.support.directories import files_under
from tests.support.patience import PATIENCE_S, until
from tests.support.wal_cluster import WAL_TOPIC, WalCluster, log_bytes, wait_until_equal

pytestmark = pytest.mark.interop

TOPICS = "kafka_server_brokertopicmetrics"
COPIED = "broker_replication_bytes_total"
EXPRESS = {"put": 0.00113 / 1000, "get": 0.00003 / 1000}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WalCluster]:
    # A machine that stands still for a few seconds is no reason to fall back, nor to ask a bucket a second time.
    settings = {
        "wherry.price.list": "s3-express",
        "remote.wal.fallback.lag.ms": "10000",
        "remote.wal.upload.timeout.ms": "10000",
        "remote.wal.fetch.timeout.ms": "10000",
    }
    with WalCluster(tmp_path_factory.mktemp("drills"), settings=settings) as processes:
        yield processes
        for broker in processes.brokers:
            assert broker.is_running(), f"a broker died:\n{broker.log_tail()}"


def produce(cluster: WalCluster, topic: str, count: int, acks: str = "all") -> None:
    failed: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 5})
    for number in range(count):
        producer.produce(
            topic,
            f"{number:08}".encode() * 50,
            partition=0,
            on_delivery=lambda error, message: failed.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def new_topic(cluster: WalCluster, name: str) -> int:
    """Followed through the bucket; returns the leader's id."""
    cluster.create_topic(name, partitions=1, replication_factor=3, config=WAL_TOPIC)
    cluster.wait_for_full_isr(name)
    return int(cluster.admin().list_topics(timeout=PATIENCE_S).topics[name].partitions[0].leader)


def total(cluster: WalCluster, name: str, **labels: str) -> float:
    return sum(broker.metric(name, **labels) for broker in cluster.brokers)


def becomes(read: Callable[[], float], wanted: Callable[[float], bool]) -> float:
    value = float("nan")

    def is_wanted() -> bool:
        nonlocal value
        value = read()
        return wanted(value)

    until(is_wanted, "another value", lambda: value)
    return value


def faults(broker: BrokerProcess, wanted: dict[str, Any] | None = None) -> Any:
    body = None if wanted is None else json.dumps(wanted).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{broker.metrics_port}/faults", body)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


def test_a_healthy_run_shows_in_every_metric(cluster: WalCluster) -> None:
    topic = "healthy"
    leader = new_topic(cluster, topic)
    produce(cluster, topic, 1000)
    wait_until_equal(cluster, topic, partitions=1)
    produced = log_bytes(cluster, topic, 0, leader)
    here = f"rack-{leader}"
    copied = {
        path: total(cluster, COPIED, topic=topic, path=path, zone_from=here) for path in ("fetch", "wal", "fallback")
    }
    assert copied == {"fetch": 0, "wal": 2 * produced, "fallback": 0}
    assert total(cluster, COPIED, topic=topic, zone_to=here) == 0
    assert total(cluster, f"{TOPICS}_remotewalcopybytes_total", topic=topic) == produced
    assert total(cluster, f"{TOPICS}_remotewalfetchbytes_total", topic=topic) >= 2 * produced
    assert total(cluster, f"{TOPICS}_remotewalfallbackbytes_total", topic=topic) == 0
    assert total(cluster, f"{TOPICS}_remotewalfallbackpartitions") == 0
    assert total(cluster, "broker_wal_bucket_circuit_open") == 0
    becomes(lambda: total(cluster, "broker_wal_hop_seconds_count", hop="high_watermark"), lambda count: count > 0)
    counts = {hop.value: total(cluster, "broker_wal_hop_seconds_count", hop=hop.value) for hop in WalHop}
    assert all(counts.values()), counts
    becomes(lambda: total(cluster, "broker_replication_lag_records", topic=topic, path="wal"), lambda lag: lag == 0)
    becomes(lambda: total(cluster, f"{TOPICS}_remotewalcopylagbytes", topic=topic), lambda lag: lag == 0)
    # Events of slices come after their records are acknowledged.
    becomes(lambda: total(cluster, "broker_wal_metadata_consumer_lag_records"), lambda lag: lag == 0)


def test_an_idle_cluster_asks_its_buckets_nothing(cluster: WalCluster) -> None:
    topic = "idle"
    new_topic(cluster, topic)
    produce(cluster, topic, 10)
    wait_until_equal(cluster, topic, partitions=1)
    assert total(cluster, "broker_objectstore_requests_total") > 0

    def is_quiet() -> bool:
        requests = total(cluster, "broker_objectstore_requests_total")
        time.sleep(5)
        return total(cluster, "broker_objectstore_requests_total") == requests

    until(is_quiet, "five seconds without a request, once the last one is answered")


def test_the_bill_is_that_of_what_is_in_the_buckets(cluster: WalCluster) -> None:
    topic = "billed"
    new_topic(cluster, topic)
    produce(cluster, topic, 500)
    wait_until_equal(cluster, topic, partitions=1)
    objects = [path for place in cluster.bucket_directories.values() for path in files_under(place, ".wal")]
    size_bytes = sum(path.stat().st_size for path in objects)
    requests = "broker_objectstore_requests_total"
    assert total(cluster, requests, operation="put_if_absent", outcome="ok") == len(objects)
    becomes(lambda: total(cluster, "broker_wal_objects_live"), lambda count: count == len(objects))  # once told
    assert total(cluster, "broker_wal_objects_live_bytes") == size_bytes
    gets = sum(total(cluster, requests, operation=each, outcome="ok") for each in ("get_range", "probe"))
    dollars = {item: total(cluster, "broker_cost_dollars_total", item=item) for item in ("put", "get", "upload")}
    assert dollars["put"] == pytest.approx(len(objects) * EXPRESS["put"], rel=0.02)
    assert dollars["get"] == pytest.approx(gets * EXPRESS["get"], rel=0.02)
    assert dollars["upload"] == pytest.approx(size_bytes * 0.0032 / (1 << 30), rel=0.02)
    moved = sum(total(cluster, COPIED, topic=name, path="wal") for name in ("healthy", "idle", "billed"))
    assert total(cluster, "broker_cost_saved_dollars_total") == pytest.approx(moved * 0.02 / (1 << 30))
    assert total(cluster, "broker_cost_dollars_total", item="fallback") == 0


def test_a_bucket_that_is_lost_costs_traffic_and_nothing_else(cluster: WalCluster) -> None:
    topic = "drilled"
    leader = new_topic(cluster, topic)
    produce(cluster, topic, 10)
    broker = cluster.broker(leader)
    own = f"file://{cluster.bucket_directories[leader]}"
    assert faults(broker, {"bucket": own, "down": "reset"})["buckets"][own]["down"] == "reset"
    produce(cluster, topic, 100, acks="1")
    becomes(lambda: broker.metric("broker_wal_bucket_circuit_open", store=own), lambda value: value == 1)
    until(lambda: "bucket_unavailable" in broker.log_text(), "it is said")
    produce(cluster, topic, 100)  # the followers are served by the leader
    assert broker.metric(f"{TOPICS}_remotewalfallbackpartitions") >= 1
    assert total(cluster, COPIED, topic=topic, path="fallback") > 0
    assert total(cluster, f"{TOPICS}_remotewalfallbackbytes_total", topic=topic) > 0
    assert total(cluster, "broker_cost_dollars_total", item="fallback") > 0
    assert faults(broker)["buckets"][own]["occurred"]["reset"] >= 5
    faults(broker, {})
    becomes(lambda: broker.metric("broker_wal_bucket_circuit_open", store=own), lambda value: value == 0)
    before = total(cluster, COPIED, topic=topic, path="wal")

    def bytes_after_more() -> float:
        produce(cluster, topic, 10)
        return total(cluster, COPIED, topic=topic, path="wal")

    becomes(bytes_after_more, lambda size: size > before)  # the bucket has to be well for ten seconds
    becomes(lambda: broker.metric(f"{TOPICS}_remotewalfallbackpartitions"), lambda count: count == 0)
    becomes(lambda: broker.log_text().count("wal_fallback_ended"), lambda count: count >= 2)  # a moment later
    wait_until_equal(cluster, topic, partitions=1)


def test_nonsense_sets_no_fault(cluster: WalCluster) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        faults(cluster.brokers[0], {"down": "nonsense"})
    assert refused.value.code == 400
    assert refused.value.read().startswith(b"there is no fault 'nonsense': slow_down, ")
