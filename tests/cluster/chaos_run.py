"""One run: a cluster under load, faults, calm, and the judgement."""

import collections
import json
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import confluent_kafka

from tests.cluster.faults import Faults
from tests.cluster.history import Acknowledgement, Entry, Verdict, judge, unavailability
from tests.cluster.load import JavaProducer, LibrdkafkaProducer, TailReader, read_log
from tests.cluster.quorum_nodes import nodes_of
from tests.cluster.replicas import differing, digests, wait_for_identical
from tests.support import java_tools
from tests.support.apache_controllers import ApacheControllers
from tests.support.broker_process import free_port
from tests.support.cluster_process import Cluster, ClusterProcess, what_is_missing
from tests.support.kafka_cluster import KafkaCluster
from tests.support.patience import PATIENCE_S, until
from tests.support.relay import CONTROLLER, Relays
from tests.support.wal_cluster import WAL_TOPIC, WalCluster, received_bytes

TOPIC: Final = "chaos"
TOPIC_CONFIG: Final = {"min.insync.replicas": "2", "segment.bytes": str(4 << 20), "retention.ms": "-1"}
CALM_S: Final = 3  # under load, once healed


@dataclass
class Plan:
    """What is done to whom.  `kinds`: how long a fault of each kind lasts."""

    kinds: dict[str, float]
    seconds: float = 60.0
    every_s: float = 10.0
    seed: int = 1
    is_apache: bool = False
    quorum: str | None = None  # the version of three controllers of Apache Kafka; None: our own controller
    dedicated_controller: bool = False
    hits_controller: bool = True
    brokers: int = 3
    partitions: int = 6
    librdkafka_producers: int = 2
    java_producers: int = 1
    rate: int = 200  # records a second of each producer
    acks: str = "all"  # "1": not idempotent either, and records may be lost: the proof that a loss is found
    topic_config: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    is_through_bucket: bool = False  # followers take the records from buckets in directories

    @property
    def controller(self) -> str:
        """Where it is, in words."""
        if self.quorum is not None:
            return f"3 of Apache Kafka {self.quorum}"
        return "its own process" if self.dedicated_controller else "in broker 1"

    @property
    def producer_config(self) -> dict[str, object]:
        return {} if self.acks == "all" else {"acks": self.acks, "enable.idempotence": False}


@dataclass
class Outcome:
    """Figures of a run, and what went wrong in it."""

    plan: Plan
    sent: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    failures: list[str] = field(default_factory=list)  # what an application was told of its records
    reader_findings: list[str] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    complaints: dict[str, dict[str, int]] = field(default_factory=dict)
    heal_s: float | None = None
    longest_unavailability_s: float = 0.0
    unavailable_share: float = 0.0
    events: list[Any] = field(default_factory=list)
    received_bytes: dict[str, int] = field(default_factory=dict)  # by followers, by path, since each one's last start

    @property
    def problems(self) -> list[str]:
        found = [*self.other, *self.failures[:5], *self.reader_findings[:5], *self.deaths, *self.differing]
        if self.verdict.broken:
            found += self.verdict.examples
        return found

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=1, default=str)

    def row(self) -> dict[str, object]:
        """The line of the table."""
        verdict = self.verdict
        return {
            "brokers": "Apache Kafka " + java_tools.VERSION if self.plan.is_apache else "Wherry",
            "controller": self.plan.controller,
            "faults": ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items())),
            "seconds": round(self.plan.seconds),
            "sent": self.sent,
            "acknowledged": verdict.acknowledged,
            "read": verdict.read,
            "lost": verdict.lost,
            "duplicates": verdict.duplicates,
            "out of order": verdict.reordered,
            "other breaches": verdict.moved + verdict.gaps + verdict.vanished + len(self.reader_findings),
            "errors told": len(self.failures),
            "replicas differing": len(self.differing),
            "healed after, s": "never" if self.heal_s is None else round(self.heal_s, 1),
            "longest gap, s": round(self.longest_unavailability_s, 1),
            "unavailable": f"{100 * self.unavailable_share:.0f} %",
            "MiB by path": ", ".join(f"{path} {size / 2**20:.0f}" for path, size in self.received_bytes.items()) or "-",
        }


def table(outcomes: list[Outcome]) -> str:
    rows = [outcome.row() for outcome in outcomes]
    head = list(rows[0])
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    lines += ["| " + " | ".join(str(row[name]) for name in head) + " |" for row in rows]
    return "\n".join(lines)


class ChaosRun:
    """Life: `with ChaosRun(plan, directory) as run: outcome = run.judged()`; the cluster still runs then."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan, self.directory = plan, directory
        self.outcome = Outcome(plan)
        self._stack = ExitStack()
        self.relays: Relays | None = None
        self.cluster: Cluster
        self.acknowledged: list[Acknowledgement] = []
        self.log: dict[int, list[Entry]] = {}
        self.producers: list[LibrdkafkaProducer | JavaProducer] = []

    def __enter__(self) -> "ChaosRun":
        with self._stack:
            self._stack.enter_context(self._running_cluster())
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for producer in self.producers:
            if isinstance(producer, JavaProducer):
                producer.kill()
        self._stack.close()

    @contextmanager
    def _running_cluster(self) -> Iterator[None]:
        plan = self.plan
        options: dict[str, Any] = {"brokers": plan.brokers, "dedicated_controller": plan.dedicated_controller}
        options["settings"] = plan.settings
        with ExitStack() as stack:
            if "cut" in plan.kinds:
                self.relays = stack.enter_context(Relays())
                options["advertised_ports"] = {node_id: free_port() for node_id in range(1, plan.brokers + 1)}
                options["advertised_controller_port"] = free_port()
            controllers = None
            if plan.quorum is not None:
                assert self.relays is None, "no relay stands before a controller of Apache Kafka"
                controllers = ApacheControllers(self.directory / "quorum", plan.quorum)
                stack.callback(controllers.stop)
                options["controllers"] = controllers.start().bootstrap
            kind = KafkaCluster if plan.is_apache else WalCluster if plan.is_through_bucket else ClusterProcess
            self.cluster = kind(self.directory, **options)
            if self.relays is not None:
                self._put_relays_between(self.relays)
            stack.enter_context(self.cluster)
            if controllers is not None:
                self.cluster.nodes |= nodes_of(controllers)
            config = {**TOPIC_CONFIG, **plan.topic_config, **(WAL_TOPIC if plan.is_through_bucket else {})}
            self.cluster.create_topic(TOPIC, plan.partitions, plan.brokers, config)
            self.cluster.wait_for_full_isr(TOPIC)
            yield

    def _put_relays_between(self, relays: Relays) -> None:
        for node_id, node in self.cluster.nodes.items():
            if "broker" in node.roles:
                relays.listen(str(node_id), node.advertised_port, node.port)
            if "controller" in node.roles:
                relays.listen(CONTROLLER, node.advertised_controller_port, node.controller_port)

    def _build_producers(self) -> None:
        plan, bootstrap = self.plan, self.cluster.bootstrap
        for number in range(plan.librdkafka_producers):
            config = {**plan.producer_config, **({"compression.type": "lz4"} if number % 2 else {})}
            self.producers.append(LibrdkafkaProducer(number, bootstrap, TOPIC, plan.partitions, plan.rate, config))
        for number in range(plan.java_producers):
            self.producers.append(
                JavaProducer(100 + number, bootstrap, TOPIC, plan.rate, self.directory, plan.producer_config)
            )

    def judged(self) -> Outcome:
        """Load and faults, then calm: the whole run."""
        self._build_producers()
        reader = TailReader(self.cluster.bootstrap, TOPIC, self.plan.partitions)
        for load in (*self.producers, reader):
            load.start()
        self._wait_until_acknowledged_everywhere(time.monotonic(), "before any fault")
        if isinstance(self.cluster, WalCluster):
            _wait_until_buckets_serve(self.cluster)  # later all may come from leaders, as long as a fault is felt
        self._make_faults()
        self._calm_down()
        for producer in self.producers:
            self._attempt(producer.stop)
            self.acknowledged += producer.acknowledged
            self.outcome.failures += producer.failures
        self._note_loads(reader)
        self.log = read_log(self.cluster.bootstrap, TOPIC, self.plan.partitions)
        self._let_reader_finish(reader)
        self.outcome.verdict = judge(self.acknowledged, self.log, reader.log)
        _, self.outcome.differing = wait_for_identical(self.cluster, TOPIC, self.plan.partitions)
        if isinstance(self.cluster, WalCluster):
            self.outcome.received_bytes = received_bytes(self.cluster, TOPIC)
        return self.outcome

    def _attempt(self, work: Any) -> None:
        try:
            work()
        except AssertionError as error:
            self.outcome.other.append(str(error))

    def _make_faults(self) -> None:
        plan, outcome = self.plan, self.outcome
        faults = Faults(self.cluster, random.Random(plan.seed), self.relays, plan.hits_controller)
        if isinstance(self.cluster, WalCluster):
            faults.buckets = self.cluster.bucket_directories
        began_s = time.monotonic()
        if set(plan.kinds) == {"roll"}:
            self._attempt(lambda: faults.roll_all(TOPIC))
        else:
            faults.run(plan.kinds, plan.seconds, plan.every_s)
        ended_s = time.monotonic()
        plan.seconds = ended_s - began_s
        outcome.counts, outcome.events, outcome.deaths = faults.counts, faults.events, faults.deaths
        acknowledged = [each for producer in self.producers for each in producer.acknowledged]
        gaps = unavailability(acknowledged, range(plan.partitions), began_s, ended_s)
        outcome.longest_unavailability_s = max(gap.longest_s for gap in gaps.values())
        total = sum(gap.above_one_second_s for gap in gaps.values())
        outcome.unavailable_share = total / (len(gaps) * plan.seconds)

    def _calm_down(self) -> None:
        """Without help: full in-sync replicas, no fenced broker, and every partition takes records."""
        self._attempt(self._heal)
        time.sleep(CALM_S)
        for node_id, node in self.cluster.nodes.items():
            if not node.is_running():
                self.outcome.deaths.append(f"node {node_id} ended by itself in calm:\n{node.log_tail(15)}")

    def _heal(self) -> None:
        began_s = time.monotonic()
        admin = self.cluster.admin(**{"socket.timeout.ms": 5000, "log_level": 2})

        def missing() -> str | None:
            return what_is_missing(admin, TOPIC, self.plan.brokers)

        until(lambda: missing() is None, "the cluster is healed after the faults", missing)
        self._wait_until_acknowledged_everywhere(began_s, "after the faults")
        self.outcome.heal_s = time.monotonic() - began_s

    def _wait_until_acknowledged_everywhere(self, since_s: float, when: str) -> None:
        """Each producer got an answer, and each partition took a record, after this moment."""

        def recent() -> dict[str, set[int]]:
            return {
                producer.name: {each.partition for each in producer.acknowledged[-500:] if each.at_s >= since_s}
                for producer in self.producers
            }

        def is_everywhere() -> bool:
            found = recent()
            return all(found.values()) and len(set().union(*found.values())) == self.plan.partitions

        until(is_everywhere, f"records are acknowledged in every partition {when}", recent)

    def _note_loads(self, reader: TailReader) -> None:
        sent = [producer.sent for producer in self.producers if isinstance(producer, LibrdkafkaProducer)]
        java = [producer for producer in self.producers if isinstance(producer, JavaProducer)]
        self.outcome.sent = sum(sent) + sum(len(each.acknowledged) + len(each.failures) for each in java)
        self.outcome.complaints = {
            each.name: dict(each.complaints) for each in self.producers if isinstance(each, LibrdkafkaProducer)
        }
        self.outcome.complaints["reader"] = dict(reader.complaints)
        for node_id, node in self.cluster.nodes.items():
            self.outcome.complaints[f"node {node_id}"] = errors_logged(node.log_text())

    def _let_reader_finish(self, reader: TailReader) -> None:

        def has_all() -> bool:
            return all(len(reader.log[partition]) >= len(entries) for partition, entries in self.log.items())

        def got() -> str:
            return f"it got {sum(map(len, reader.log.values()))} of {sum(map(len, self.log.values()))}"

        self._attempt(lambda: until(lambda: has_all() or reader.findings, "the reader gets every record", got))
        reader.stop()
        self.outcome.reader_findings = reader.findings

    def stop_and_compare(self) -> None:
        """Stop the cluster in order: every node ends with 0, and the files of the replicas are still identical."""
        before, _ = wait_for_identical(self.cluster, TOPIC, self.plan.partitions)
        last = self.cluster.controller
        for node_id, node in sorted(self.cluster.nodes.items(), key=lambda item: item[1] is last):
            code = node.stop() if node.is_running() else -1
            if code != 0:
                self.outcome.deaths.append(f"node {node_id} ended with {code} at its stop")
        after = digests(self.cluster, TOPIC, self.plan.partitions)
        self.outcome.differing = self.outcome.differing or differing(after)
        if before != after:
            self.outcome.other.append("the stop changed the logs")

    def plant_duplicate(self) -> None:
        """A record that was acknowledged is written once more; not one that `plant_loss` may take."""
        known = next(each for each in self.acknowledged if each.partition != 0)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all"})
        producer.produce(TOPIC, f"{known.record.producer}.{known.record.sequence}", partition=known.partition)
        assert producer.flush(PATIENCE_S) == 0

    def plant_loss(self) -> None:
        """The first record of partition 0 goes."""
        admin = self.cluster.admin()
        position = confluent_kafka.TopicPartition(TOPIC, 0, 1)
        admin.delete_records([position])[position].result(PATIENCE_S)

    def plant_other_bytes(self) -> None:
        """One bit of one replica's file; the cluster should be stopped."""
        path = sorted((self.cluster.nodes[1].data / f"{TOPIC}-0").glob("*.log"))[-1]
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    def judge_again(self) -> Verdict:
        """The log as it is now against what was acknowledged."""
        self.log = read_log(self.cluster.bootstrap, TOPIC, self.plan.partitions)
        return judge(self.acknowledged, self.log)


def _wait_until_buckets_serve(cluster: WalCluster) -> None:
    until(lambda: received_bytes(cluster, TOPIC).get("wal", 0) > 0, "records come through buckets")


def errors_logged(text: str) -> dict[str, int]:
    """How often a broker logged each event of level error or above, and tracebacks."""
    counts: collections.Counter[str] = collections.Counter()
    for line in text.splitlines():
        if line.startswith("Traceback") or "Traceback (most recent" in line:
            counts["traceback"] += 1
        if line.startswith("{"):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("level") in ("error", "critical"):
                counts[str(event.get("event"))] += 1
        elif "] ERROR " in line or "] FATAL " in line:
            counts[line.partition("] ")[2][:60]] += 1
    return dict(counts)
