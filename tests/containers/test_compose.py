"""docker-compose.yml for real: the walk of the README, then restarts, and an object store that breaks.

One cluster for all tests, in this order; it is built, started and taken down here.
"""

import itertools
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.containers.compose_project import BROKERS, BUILD_S, ComposeProject
from tests.support import readme
from tests.support.patience import PATIENCE_S, until

pytestmark = [
    pytest.mark.containers,
    pytest.mark.java,
    pytest.mark.kcat,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]

TOPIC = "orders"
FALLBACK_PARTITIONS = "kafka_server_brokertopicmetrics_remotewalfallbackpartitions"
BYTES_BY_BUCKET = f'broker_replication_bytes_total{{topic="{TOPIC}",path="wal"}}'
OUTAGE_S = 20
RATE_PER_S = 100


@dataclass
class Walk:
    """What was seen on the way through the README's section, which ends with `docker compose down`."""

    outputs: dict[str, str]  # by command
    running: int  # containers, after the first command
    cluster_id: str
    records: int  # in TOPIC
    exit_codes: dict[str, int]

    def output_of(self, word: str, number: int = 0) -> str:
        return [output for command, output in self.outputs.items() if word in command][number]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeProject]:
    with ComposeProject(tmp_path_factory.mktemp("compose"), "compose") as project:
        yield project


@pytest.fixture(scope="module")
def walk(project: ComposeProject) -> Walk:
    first, *commands, last = readme.commands("Containers")
    assert (first, last) == ("docker compose up --build -d", "docker compose down")
    outputs = {first: project.shell(first, timeout_s=BUILD_S)}
    running = len(project.container_ids())
    project.wait_until_healthy()
    for command in commands:
        outputs[command] = project.shell(command)
    project.wait_until_healthy()
    walked = Walk(outputs, running, cluster_id(project), sum(ends(project).values()), {})
    project.compose("stop")
    walked.exit_codes = {service: project.inspect(service)["State"]["ExitCode"] for service in (*BROKERS, "buckets")}
    outputs[last] = project.shell(last)
    return walked


@pytest.fixture(scope="module")
def cluster(project: ComposeProject, walk: Walk) -> ComposeProject:
    """The cluster after `down` and `up`."""
    assert project.container_ids("-a") == []
    project.up()
    return project


def test_the_commands_of_the_readme_do_what_it_says(walk: Walk) -> None:
    assert walk.running >= 5, "three brokers, an object store and Prometheus were to be started"
    for number in (0, 1):  # in a container, on the host
        sent = re.search(
            r"^(\d+) records sent, .* 99\.9th", walk.output_of("kafka-producer-perf-test.sh", number), re.M
        )
        assert sent is not None, walk.outputs
        assert sent[1] == "20000", sent[0]
    assert walk.records >= 40_000
    read = walk.output_of("kafka-consumer-perf-test.sh").strip().splitlines()[-1].split(",")
    assert int(read[4]) >= 40_000, walk.outputs
    assert len(re.findall(r"^\S", walk.output_of("kcat"), re.M)) >= 3
    assert '"path":"wal"' in walk.output_of("curl"), walk.outputs


def test_brokers_are_told_to_stop_and_end_in_order(walk: Walk) -> None:
    assert walk.exit_codes == dict.fromkeys((*BROKERS, "buckets"), 0)


def test_down_and_up_keep_the_cluster_and_its_data(cluster: ComposeProject, walk: Walk) -> None:
    assert cluster_id(cluster) == walk.cluster_id
    assert sum(ends(cluster).values()) == walk.records
    assert len(list(records(cluster))) == walk.records
    assert all('"was_clean_shutdown": true' in cluster.logs(service) for service in BROKERS)


def test_each_broker_is_in_a_zone_of_its_own_and_no_root(cluster: ComposeProject) -> None:
    for service, zone in zip(BROKERS, ("zone-a", "zone-b", "zone-c"), strict=True):
        seen = cluster.compose("exec", "-T", service, "sh", "-c", "id -u; echo $WHERRY_BROKER_RACK $MALLOC_ARENA_MAX")
        assert seen.split() == ["10001", zone, "2"]
        assert cluster.inspect(service)["RestartCount"] == 0
    replicas = consumer(cluster).list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions.values()
    assert all(sorted(partition.replicas) == [1, 2, 3] for partition in replicas)


def test_prometheus_scrapes_every_broker_with_our_alarms(cluster: ComposeProject) -> None:
    def all_up() -> bool:
        targets = cluster.prometheus("targets", state="active")["activeTargets"]
        up = {each["labels"]["instance"] for each in targets if each["health"] == "up"}
        return up == {f"{service}:9404" for service in BROKERS}

    until(all_up, "three targets are up", cluster.report)
    until(
        lambda: cluster.sum_of(f'sum(kafka_log_log_logendoffset{{topic="{TOPIC}"}})') > 0,
        "series of the topic",
        cluster.report,
    )
    controllers = "sum(kafka_controller_kafkacontroller_activecontrollercount)"
    until(lambda: cluster.sum_of(controllers) == 1, "the active controller was scraped", cluster.report)
    groups = cluster.prometheus("rules", type="alert")["groups"]
    assert sum(len(group["rules"]) for group in groups) > 0


def test_closed_segments_are_in_the_bucket(cluster: ComposeProject) -> None:
    """What was copied before the restart is known after it, and more is copied."""
    metric = f'sum(kafka_server_brokertopicmetrics_remotelogsizebytes{{topic="{TOPIC}"}})'
    until(lambda: cluster.sum_of(metric) > 0, metric, cluster.report)


def test_an_outage_of_the_object_store_loses_nothing(cluster: ComposeProject) -> None:
    load = Load(cluster)
    with load:
        load.wait_for_more(3 * RATE_PER_S)
        cluster.shell("docker compose stop s3")
        time.sleep(OUTAGE_S)
        load.wait_for_more(RATE_PER_S)  # without the object store
        fallen_back = f"sum(max_over_time({FALLBACK_PARTITIONS}[{OUTAGE_S}s]))"
        until(lambda: cluster.sum_of(fallen_back) > 0, "followers fetch from their leaders", cluster.report)
        cluster.shell("docker compose start s3")
        until(lambda: cluster.sum_of(f"sum({FALLBACK_PARTITIONS})") == 0, "no fallback", cluster.report)
        before = cluster.sum_of(f"sum({BYTES_BY_BUCKET})")
        until(lambda: cluster.sum_of(f"sum({BYTES_BY_BUCKET})") > before, "the bucket serves", cluster.report)
    assert load.failures == []
    found = {(record.partition(), record.offset()): record.value() for record in records(cluster)}
    lost = [where for where, value in load.acknowledged.items() if found.get(where) != value]
    assert not lost, f"{len(lost)} of {len(load.acknowledged)} acknowledged records are lost, as {lost[:5]}"
    assert all(cluster.inspect(service)["RestartCount"] == 0 for service in BROKERS)


class Load:
    """An idempotent producer with acks=all at a steady rate, from another thread, while the block runs."""

    def __init__(self, project: ComposeProject) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}  # by partition and offset
        self.failures: list[str] = []
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": project.bootstrap, "enable.idempotence": True, "delivery.timeout.ms": 600_000}
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= wanted, f"{count} more acknowledged", lambda: self.failures)

    def _run(self) -> None:
        for number in itertools.count():
            if self._ending.wait(1 / RATE_PER_S):
                break
            self._producer.produce(TOPIC, b"load-%d-" % number + bytes(1000), on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: confluent_kafka.KafkaError | None, record: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[record.partition(), record.offset()] = record.value()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._ending.set()
        self._thread.join()
        if (left := self._producer.flush(PATIENCE_S)) != 0:
            self.failures.append(f"{left} records were not answered")


def cluster_id(project: ComposeProject) -> str:
    found: str = (
        confluent_kafka.admin.AdminClient({"bootstrap.servers": project.bootstrap})
        .list_topics(timeout=PATIENCE_S)
        .cluster_id
    )
    assert found
    return found


def consumer(project: ComposeProject) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {"bootstrap.servers": project.bootstrap, "group.id": "verification", "enable.auto.commit": False}
    )


def ends(project: ComposeProject) -> dict[int, int]:
    """The end offset of each partition of TOPIC."""
    reader = consumer(project)
    partitions = reader.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions
    try:
        return {
            each: reader.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, each), timeout=PATIENCE_S)[1]
            for each in partitions
        }
    finally:
        reader.close()


def records(project: ComposeProject) -> Iterator[confluent_kafka.Message]:
    """Every record of TOPIC up to now, on the host."""
    wanted = ends(project)
    reader = consumer(project)
    try:
        reader.assign([confluent_kafka.TopicPartition(TOPIC, each, 0) for each in wanted])
        left = sum(wanted.values())
        while left > 0:
            # It waits for so many, or for the whole time: the last ones are fewer.
            for record in until(lambda: reader.consume(2000, timeout=1), f"{left} records of {TOPIC}", every_s=0):
                assert record.error() is None, record.error()
                if record.offset() < wanted[record.partition()]:
                    left -= 1
                    yield record
    finally:
        reader.close()
