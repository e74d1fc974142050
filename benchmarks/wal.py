"""A topic replicated through buckets (KIP-1176) beside one replicated as ever: three brokers, each in its own zone.

    make bench-wal                                                 Express, Express without slice events, and S3
    make bench-wal OPTIONS="--sections express --acks all --seconds 60 --megabytes-per-second 10"

Each section is a cluster of its own: buckets are directories, to which the fault switch gives the latency of S3 Express
or of S3 (log-normal), `no-slices` is Express without events by slice, and `local` adds no latency.  In each the
standard topic and the WAL topic take turns: as fast as it goes, then at a rate (from which percentiles, hops, requests,
bytes and dollars are), then read from leader and follower.  Followers get nothing but by the bucket
(remote.wal.fallback.enable=false).  Apache Kafka's perf tools drive it where `make java-tools` has collected them, else
confluent-kafka does.

The goals for acks=all are ratios to what is injected: p50 within 1.5 times the sum of the medians of PUT and GET and
the linger, p99 within 3 times that of their 99th percentiles.  Compare within one run.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import confluent_kafka

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.workload import (  # noqa: E402  the benchmark runs from a checkout
    TOPIC_CONFIG,
    WARM_SECONDS,
    Load,
    broker_cpu_s,
    commit,
    confluent_produce,
    java_produce,
)
from broker.demo import scrape  # noqa: E402
from broker.objectstore.fault_switch import LATENCIES  # noqa: E402
from broker.wal.remote_wal_stats import WalHop  # noqa: E402
from tests.support import java_tools  # noqa: E402
from tests.support.wal_cluster import WAL_TOPIC, WalCluster  # noqa: E402

RECORD_BYTES: Final = 1600
BATCH_BYTES: Final = 32768
LINGER_MS: Final = 20  # of the combiner, by default
PROBES_PER_SECOND: Final = 50
METADATA_TOPIC: Final = "__remote_wal_log_metadata"
TOPICS: Final = "kafka_server_brokertopicmetrics"
REQUESTS: Final = "broker_objectstore_requests_total"
COPIED: Final = "broker_replication_bytes_total"
HOPS: Final = "broker_wal_hop_seconds"
SETTINGS: Final = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "remote.wal.fallback.enable": "false",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
}


@dataclass(frozen=True)
class Section:
    """A cluster: what its buckets are like, and the settings it differs in."""

    name: str
    latency: str | None
    settings: Mapping[str, str]


SECTIONS: Final = {
    each.name: each
    for each in (
        Section("express", "s3-express", {"wherry.price.list": "s3-express"}),
        Section(
            "no-slices",
            "s3-express",
            {"wherry.price.list": "s3-express", "remote.wal.metadata.slice.events.enable": "false"},
        ),
        Section("s3", "s3-standard", {"wherry.price.list": "s3-standard"}),
        Section("local", None, {"wherry.price.list": "s3-express"}),
    )
}


class Scrape(scrape.Scrape):
    """The samples of all brokers, added up."""

    @classmethod
    def of(cls, cluster: WalCluster) -> "Scrape":
        total = scrape.Scrape.sum_of(scrape.Scrape.parse(broker.metrics()) for broker in cluster.brokers)
        return cls(total.samples)

    def __sub__(self, earlier: "Scrape") -> "Scrape":
        return Scrape(self.increase_since(earlier).samples)

    def __add__(self, other: "Scrape") -> "Scrape":
        return Scrape(scrape.Scrape.sum_of((self, other)).samples)


class Figures:
    """Of one topic at one kind of acknowledgement, run by run."""

    def __init__(self) -> None:
        self.runs: list[dict[str, float]] = []
        self.delta = Scrape({})  # of all runs at the rate

    def median(self, key: str) -> float:
        return statistics.median(run[key] for run in self.runs)

    def cell(self, key: str, form: str) -> str:
        return format(self.median(key), form) if all(key in run for run in self.runs) else "-"


class Bench:
    """One section."""

    def __init__(self, section: Section, cluster: WalCluster, arguments: argparse.Namespace) -> None:
        self.section, self.cluster, self.arguments = section, cluster, arguments
        self.produce = java_produce if java_tools.why_not_available() is None else confluent_produce
        self.figures: dict[tuple[str, str], Figures] = {}

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def pid(self) -> int:
        return self.cluster.brokers[0].pid

    @property
    def cpu_s(self) -> float:
        return sum(broker_cpu_s(node.pid) for node in self.cluster.nodes.values())

    def run(self) -> None:
        inject(self.cluster, self.section.latency)
        for turn in range(self.arguments.runs):
            for acks in self.arguments.acks:
                kinds = ("standard", "WAL") if turn % 2 == 0 else ("WAL", "standard")
                for kind in kinds:
                    print(f"{self.section.name}: run {turn + 1}, acks={acks}, {kind} topic", file=sys.stderr)
                    self.run_one(kind, acks)

    def run_one(self, kind: str, acks: str) -> None:
        """One topic: warmed, at full speed, at the rate, and read."""
        topic = f"{kind.lower()}-{time.monotonic_ns()}"
        config = {**TOPIC_CONFIG, "min.insync.replicas": "2", **(WAL_TOPIC if kind == "WAL" else {})}
        self.cluster.create_topic(topic, self.arguments.partitions, 3, config)
        self.cluster.wait_for_full_isr(topic)
        load = Load(0, RECORD_BYTES, BATCH_BYTES, self.arguments.partitions, acks, topic, acks == "all")
        rate = round(self.arguments.megabytes_per_second * 1e6 / RECORD_BYTES)
        self.produce(self, load, max(1000, rate), rate)
        full_mb_per_s = self._full_speed(load)
        self.wait_until_followed(topic)
        before, cpu_s = Scrape.of(self.cluster), self.cpu_s
        warm_records = rate * WARM_SECONDS
        records = warm_records + rate * self.arguments.seconds
        size_bytes = records * RECORD_BYTES
        result = self.produce(self, load, records, rate, warm_records)
        self.wait_until_followed(topic)
        delta, cpu_s = Scrape.of(self.cluster) - before, self.cpu_s - cpu_s
        self._delete(topic)
        figures = self.figures.setdefault((kind, acks), Figures())
        figures.delta = figures.delta + delta
        figures.runs.append(
            {
                **result,
                **measured(delta, topic, size_bytes, result["seconds"]),
                **self._reads(kind, acks),
                "full_mb_per_s": full_mb_per_s,
                "cpu_s_per_gb": cpu_s / (size_bytes / 1e9),
            }
        )

    def wait_until_followed(self, topic: str, timeout_s: float = 60) -> None:
        """Until no follower lacks anything: with acks=1 their work belongs to the run."""
        deadline = time.monotonic() + timeout_s
        while Scrape.of(self.cluster).total("broker_replication_lag_records", topic=topic) > 0:
            assert time.monotonic() < deadline, f"followers of {topic} are behind after {timeout_s} s"
            time.sleep(0.2)

    def _full_speed(self, load: Load) -> float:
        records = self.arguments.full_megabytes * 1_000_000 // RECORD_BYTES
        return records * RECORD_BYTES / self.produce(self, load, records, -1)["seconds"] / 1e6

    def _reads(self, kind: str, acks: str) -> dict[str, float]:
        """How long a record takes from its producer to a consumer at the leader, and to one in a follower's zone."""
        topic = f"probe-{time.monotonic_ns()}"
        self.cluster.create_topic(topic, 1, 3, {"min.insync.replicas": "2", **(WAL_TOPIC if kind == "WAL" else {})})
        self.cluster.wait_for_full_isr(topic)
        leader = self.cluster.admin().list_topics(timeout=10).topics[topic].partitions[0].leader
        follower = next(node_id for node_id in self.cluster.node_ids if node_id != leader)
        ages = read_probes(
            self.cluster.bootstrap,
            topic,
            acks,
            {"leader": f"rack-{leader}", "follower": f"rack-{follower}"},
            self.arguments.probe_seconds,
        )
        served = self.cluster.broker(follower).metric(f"{TOPICS}_bytesout_total", topic=topic)
        assert served > 0, "the consumer in the follower's zone did not read there"
        self._delete(topic)
        return ages

    def _delete(self, topic: str) -> None:
        admin = self.cluster.admin()
        admin.delete_topics([topic])[topic].result(30)
        time.sleep(1)


class Reader(threading.Thread):
    """A consumer at the end of a topic, from which replica its rack says, and how old what it reads is."""

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        super().__init__(daemon=True)
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"bench-{topic}-{rack}",
                "client.rack": rack,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        self._ended = threading.Event()
        self.ages_ms: list[float] = []

    def run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.ages_ms.append(time.time() * 1000 - message.timestamp()[1])
        self._consumer.close()

    def stop(self) -> None:
        self._ended.set()
        self.join(30)

    def percentiles(self) -> dict[str, float]:
        """Without the first second."""
        ages = sorted(self.ages_ms[PROBES_PER_SECOND:])
        assert ages, "nothing was read"
        return {f"p{name}_ms": ages[int(part * (len(ages) - 1))] for name, part in (("50", 0.5), ("99", 0.99))}


def read_probes(bootstrap: str, topic: str, acks: str, racks: Mapping[str, str], seconds: int) -> dict[str, float]:
    """How old single records of partition 0 are when consumers in these racks read them, which have names."""
    readers = {place: Reader(bootstrap, topic, rack) for place, rack in racks.items()}
    for reader in readers.values():
        reader.start()
    time.sleep(2)  # until they have found their replica
    send_probes(bootstrap, topic, acks, seconds)
    time.sleep(2)
    for reader in readers.values():
        reader.stop()
    return {
        f"{place}_{name}": value for place, reader in readers.items() for name, value in reader.percentiles().items()
    }


def inject(cluster: WalCluster, latency: str | None) -> None:
    """Give every broker's buckets that latency."""
    body = json.dumps({} if latency is None else {"latency": latency}).encode()
    for broker in cluster.brokers:
        request = urllib.request.Request(f"http://127.0.0.1:{broker.metrics_port}/faults", body)
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200, answer.read()


def send_probes(bootstrap: str, topic: str, acks: str, seconds: int) -> None:
    """Single records at an even pace."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    value, start = os.urandom(RECORD_BYTES), time.perf_counter()
    for number in range(PROBES_PER_SECOND * seconds):
        while (wait_s := start + number / PROBES_PER_SECOND - time.perf_counter()) > 0:
            producer.poll(min(wait_s, 0.01))
        producer.produce(topic, value, timestamp=round(time.time() * 1000))
    assert producer.flush(60) == 0


def goals(latency: str | None) -> tuple[float, float]:
    """The largest p50 and p99 in milliseconds for acks=all."""
    if latency is None:
        return 1.5 * LINGER_MS, 3 * LINGER_MS
    get, put = LATENCIES[latency]
    return 1.5 * (1000 * (put.median + get.median) + LINGER_MS), 3 * (1000 * (put.p99 + get.p99) + LINGER_MS)


# Name and how to write it; the values are medians over the runs.
FIGURES: Final = (
    ("full speed, MB/s", "full_mb_per_s", ".1f"),
    ("p50 ms at the rate", "p50_ms", ".0f"),
    ("p95 ms", "p95_ms", ".0f"),
    ("p99 ms", "p99_ms", ".0f"),
    ("p99.9 ms", "p999_ms", ".0f"),
    ("CPU s/GB, three brokers", "cpu_s_per_gb", ".1f"),
    ("read at the leader, p50 ms", "leader_p50_ms", ".0f"),
    ("p99 ms", "leader_p99_ms", ".0f"),
    ("read in a follower's zone, p50 ms", "follower_p50_ms", ".0f"),
    ("p99 ms", "follower_p99_ms", ".0f"),
    ("copied by fetch, bytes per byte", "by_fetch", ".2f"),
    ("copied by bucket", "by_wal", ".2f"),
    ("copied by fallback", "by_fallback", ".2f"),
    ("objects stored per second", "puts_per_s", ".1f"),
    ("reads per object", "gets_per_put", ".2f"),
    ("mean object, KB", "object_kb", ".0f"),
    ("slices per object", "slices", ".1f"),
    ("metadata records per second", "metadata_records_per_s", ".0f"),
    ("metadata bytes per byte", "metadata_bytes", ".3f"),
    ("dollars per GB", "dollars_per_gb", ".4f"),
)


def measured(delta: Scrape, topic: str, size_bytes: int, seconds: float) -> dict[str, float]:
    """What the brokers counted in a run of a topic."""
    requests = {operation: count for (operation,), count in delta.by(REQUESTS, "operation", outcome="ok").items()}
    puts, gets = requests.get("put_if_absent", 0.0), requests.get("get_range", 0.0)
    copied = {path: count / size_bytes for (path,), count in delta.by(COPIED, "path", topic=topic).items()}
    return {
        **{f"by_{path}": copied.get(path, 0.0) for path in ("fetch", "wal", "fallback")},
        "puts_per_s": puts / seconds,
        "gets_per_put": gets / puts if puts else 0.0,
        "object_kb": delta.total("broker_wal_object_size_bytes_sum") / puts / 1000 if puts else 0.0,
        "slices": delta.total("broker_wal_slices_per_object_sum") / puts if puts else 0.0,
        "metadata_records_per_s": delta.total(f"{TOPICS}_messagesin_total", topic=METADATA_TOPIC) / seconds,
        "metadata_bytes": delta.total(f"{TOPICS}_bytesin_total", topic=METADATA_TOPIC) / size_bytes,
        "dollars_per_gb": delta.total("broker_cost_dollars_total") / (size_bytes / (1 << 30)),
    }


def comparison(bench: Bench) -> str:
    """A row for each figure, a column for each topic and acknowledgement."""
    columns = list(bench.figures)
    heads = [f"{kind}, acks={acks}" for kind, acks in columns]
    lines = [f"| {bench.section.name} | {' | '.join(heads)} |", "| --- " * (len(columns) + 1) + "|"]
    for name, key, form in FIGURES:
        cells = [bench.figures[column].cell(key, form) for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def hops(bench: Bench) -> str:
    """Where the time goes, of the WAL topics at the rate."""
    columns = [key for key in bench.figures if key[0] == "WAL"]
    heads = [f"acks={acks}: count, mean / p50 / p99 ms" for _, acks in columns]
    lines = [f"| hop | {' | '.join(heads)} |", "| --- " * (len(columns) + 1) + "|"]
    for hop in WalHop:
        cells = [hop_cell(bench.figures[column].delta, hop) for column in columns]
        lines.append(f"| {hop.value} | {' | '.join(cells)} |")
    return "\n".join(lines)


def hop_cell(delta: Scrape, hop: WalHop) -> str:
    count = delta.total(f"{HOPS}_count", hop=hop.value)
    if not count:
        return "-"
    mean_ms = 1000 * delta.total(f"{HOPS}_sum", hop=hop.value) / count
    p50, p99 = (1000 * (delta.quantile(HOPS, part, hop=hop.value) or 0) for part in (0.5, 0.99))
    return f"{count:.0f}, {mean_ms:.1f} / {p50:.1f} / {p99:.1f}"


def verdicts(bench: Bench) -> Iterable[str]:
    """The goals, and how far from them."""
    for acks in bench.arguments.acks:
        standard, wal = (bench.figures[kind, acks] for kind in ("standard", "WAL"))
        if acks == "1":
            ratio = wal.median("full_mb_per_s") / standard.median("full_mb_per_s")
            latency = wal.median("p50_ms") / max(standard.median("p50_ms"), 1)
            yield f"acks=1: {ratio:.2f} of the standard topic's MB/s (goal 0.95), {latency:.2f} of its p50 at the rate"
        else:
            p50, p99 = goals(bench.section.latency)
            yield (
                f"acks={acks}: p50 {wal.median('p50_ms'):.0f} ms (goal {p50:.0f}), "
                f"p99 {wal.median('p99_ms'):.0f} ms (goal {p99:.0f})"
            )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="*", choices=list(SECTIONS), default=["express", "no-slices", "s3"])
    parser.add_argument("--acks", nargs="*", choices=["1", "all"], default=["1", "all"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--megabytes-per-second", type=float, default=10)
    parser.add_argument("--seconds", type=int, default=20, help="of the run at that rate")
    parser.add_argument("--full-megabytes", type=int, default=160, help="sent as fast as it goes")
    parser.add_argument("--probe-seconds", type=int, default=10, help="of single records that are read")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    driver = "confluent-kafka" if java_tools.why_not_available() else f"Apache Kafka {java_tools.VERSION}'s perf tools"
    for name in arguments.sections:
        section = SECTIONS[name]
        settings = {**SETTINGS, **section.settings}
        with tempfile.TemporaryDirectory() as directory, WalCluster(Path(directory), settings=settings) as cluster:
            bench = Bench(section, cluster, arguments)
            bench.run()
        print(
            f"\n{name}: Wherry {commit()}, {driver}, {platform.machine()}, {os.cpu_count()} processors, Python "
            f"{platform.python_version()}; {arguments.partitions} partitions, records of {RECORD_BYTES} bytes, "
            f"{arguments.megabytes_per_second:g} MB/s for {arguments.seconds} s, medians of {arguments.runs} runs\n"
        )
        print(comparison(bench), hops(bench), "\n".join(verdicts(bench)), sep="\n\n", flush=True)


if __name__ == "__main__":
    main()
