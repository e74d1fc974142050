"""docker-compose.kraft.yml for real: brokers under Apache Kafka's controllers, topics by remote.wal.topics."""

import re
from collections.abc import Iterator

import pytest

from tests.containers.compose_project import BROKERS, ComposeProject
from tests.support.patience import until

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(1800)]

CONTROLLERS = ("controller-1", "controller-2", "controller-3")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeProject]:
    files = ("docker-compose.yml", "docker-compose.kraft.yml")
    with ComposeProject(tmp_path_factory.mktemp("kraft"), "kraft", files) as project:
        project.up("--build")
        yield project


def test_topics_of_the_list_go_through_buckets_under_apache_controllers(cluster: ComposeProject) -> None:
    assert len(cluster.container_ids()) >= 8, "three controllers, three brokers, an object store and Prometheus"
    for topic in ("orders", "others"):
        arguments = ("--topic", topic, "--num-records", "5000", "--record-size", "1000", "--throughput", "2000")
        output = cluster.tool(
            "kafka-producer-perf-test.sh",
            *arguments,
            "--producer-props",
            "bootstrap.servers=broker-2:19092",
            "acks=all",
        )
        assert re.search(r"^5000 records sent, .* 99\.9th", output, re.M), output

    def replicated(topic: str, path: str) -> float:
        return cluster.sum_of(f'sum(broker_replication_bytes_total{{topic="{topic}",path="{path}"}})')

    def through_buckets() -> float:  # but for what a leader sends itself while a bucket is slow
        return replicated("orders", "wal") + replicated("orders", "fallback")

    until(lambda: through_buckets() >= 2 * 5_000_000, "two followers have it", cluster.report)
    assert replicated("orders", "wal") > 0
    until(lambda: replicated("others", "fetch") >= 2 * 5_000_000, "two followers have it", cluster.report)
    assert replicated("others", "wal") == 0


def test_the_quorum_is_apache_kafkas(cluster: ComposeProject) -> None:
    for service in (*BROKERS, *CONTROLLERS):
        assert cluster.inspect(service)["RestartCount"] == 0
    for service in BROKERS:
        assert re.search(r'"leader": 300[123], .*"metadata_quorum_leader"', cluster.logs(service))
    series = cluster.prometheus("query", query="kafka_controller_kafkacontroller_activecontrollercount")["result"]
    assert series == [], "no broker is a controller"
