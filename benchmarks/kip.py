"""KIP-1176's own comparison: a standard topic, one replicated through buckets, and Apache Kafka's standard topic.

    make bench-kip                                   a quarter of an hour on a quiet machine
    make bench-kip OPTIONS="--short"                 a look: fewer records, one run, three intervals
    make bench-kip OPTIONS="--without-kafka"         without Apache Kafka beside it
    make bench-kip OPTIONS="--draw FILE"             draw the plots of an earlier run again

As in the KIP: 100,000 records of 1.6 KB, batches of 32 KB at most, acks=1, replication factor 2 on three brokers of
which the third has nothing to do, and a consumer with the follower's rack, which is where it reads.  Then acks=all.
Each cluster is alone on the machine while it is measured.  Our buckets are directories with the latency of S3 Express;
followers get nothing but by the bucket.  Apache Kafka's perf tools drive it where `make java-tools` has collected them,
else confluent-kafka does, and Apache Kafka is left out.

The last part is what an interval of uploads does to latency: single records with acks=all to a cluster for each.

A table goes to the standard output, everything to a JSON file, and plots to docs/images.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from confluent_kafka.admin import NewTopic

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import kip_plots  # noqa: E402  the benchmark runs from a checkout
from benchmarks.cluster_peer import jvm  # noqa: E402
from benchmarks.wal import HOPS, SETTINGS, Scrape, inject, measured, read_probes  # noqa: E402
from benchmarks.workload import (  # noqa: E402
    TOPIC_CONFIG,
    WARM_SECONDS,
    Load,
    broker_cpu_s,
    commit,
    confluent_consume,
    confluent_produce,
    java_consume,
    java_produce,
)
from broker.wal.remote_wal_stats import WalHop  # noqa: E402
from tests.support import java_tools  # noqa: E402
from tests.support.cluster_process import Cluster  # noqa: E402
from tests.support.kafka_cluster import KafkaCluster  # noqa: E402
from tests.support.wal_cluster import WAL_TOPIC, WalCluster  # noqa: E402

SCHEMA: Final = 1
RECORD_BYTES: Final = 1600
BATCH_BYTES: Final = 32768
LEADER, FOLLOWER = 1, 2
STANDARD, WAL, KAFKA = "standard topic", "WAL topic", "Apache Kafka, standard topic"
LATENCY: Final = "s3-express"
INTERVAL_PROBES: Final = 200  # a second: enough for records to meet in an object
SELECTOR: Final = {"replica.selector.class": SETTINGS["replica.selector.class"]}
RESULT: Final = ROOT / "benchmarks/results/kip.json"
IMAGES: Final = ROOT / "docs/images"

# Name, key and how to write it.
ROWS: Final = (
    ("produce, full speed, MB/s", "full_mb_per_s", ".1f"),
    ("consume in the follower's zone, MB/s", "consume_mb_per_s", ".1f"),
    ("produce at the rate: p50 ms", "p50_ms", ".0f"),
    ("p95 ms", "p95_ms", ".0f"),
    ("p99 ms", "p99_ms", ".0f"),
    ("p99.9 ms", "p999_ms", ".0f"),
    ("read at the leader: p50 ms", "leader_p50_ms", ".0f"),
    ("p99 ms", "leader_p99_ms", ".0f"),
    ("read in the follower's zone: p50 ms", "follower_p50_ms", ".0f"),
    ("p99 ms", "follower_p99_ms", ".0f"),
    ("CPU s/GB, three brokers", "cpu_s_per_gb", ".1f"),
    ("copied by fetch, bytes per byte", "by_fetch", ".2f"),
    ("copied by bucket", "by_wal", ".2f"),
    ("objects stored per second", "puts_per_s", ".1f"),
    ("slices per object", "slices", ".1f"),
    ("metadata records per second", "metadata_records_per_s", ".0f"),
    ("dollars per GB", "dollars_per_gb", ".4f"),
)


class Side:
    """A cluster, as the drivers take it."""

    def __init__(self, cluster: Cluster, arguments: argparse.Namespace) -> None:
        self.cluster, self.arguments = cluster, arguments
        is_java = java_tools.why_not_available() is None
        self.produce: Callable[..., dict[str, float]] = java_produce if is_java else confluent_produce
        self.consume: Callable[..., dict[str, float]] = java_consume if is_java else confluent_consume

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def pid(self) -> int:
        return self.cluster.brokers[0].pid

    @property
    def cpu_s(self) -> float:
        return sum(broker_cpu_s(node.pid) for node in self.cluster.nodes.values())

    def create(self, topic: str, partitions: int, config: dict[str, str]) -> None:
        """All partitions lead on one broker and are followed on another."""
        new = NewTopic(topic, partitions, replica_assignment=[[LEADER, FOLLOWER]] * partitions, config=config)
        admin = self.cluster.admin()
        admin.create_topics([new])[topic].result(30)
        self.cluster.wait_for_full_isr(topic)

    def delete(self, topic: str) -> None:
        admin = self.cluster.admin()
        admin.delete_topics([topic])[topic].result(30)
        time.sleep(1)

    def run(self, acks: str, config: dict[str, str]) -> tuple[dict[str, float], Scrape]:
        """One run on a topic of its own; what brokers of ours counted while it was produced at the rate."""
        arguments = self.arguments
        topic, config = f"kip-{time.monotonic_ns()}", {"min.insync.replicas": "1", **config}
        self.create(topic, arguments.partitions, {**TOPIC_CONFIG, **config})
        load = Load(0, RECORD_BYTES, BATCH_BYTES, arguments.partitions, acks, topic, acks == "all")
        records, size_bytes = arguments.records, arguments.records * RECORD_BYTES
        self.produce(self, load, max(1000, records // 10), -1)
        full = self.produce(self, load, records, -1)
        time.sleep(2)  # followers may be behind: what they have not is not read there
        read = self.consume(self, load, records, -1, rack=f"rack-{FOLLOWER}")
        rate = round(arguments.megabytes_per_second * 1e6 / RECORD_BYTES)
        before, cpu_s = self._scrape(), self.cpu_s
        steady = self.produce(self, load, rate * (WARM_SECONDS + arguments.seconds), rate, rate * WARM_SECONDS)
        time.sleep(2)
        delta, cpu_s = self._scrape() - before, self.cpu_s - cpu_s
        self.delete(topic)
        steady_bytes = rate * (WARM_SECONDS + arguments.seconds) * RECORD_BYTES
        figures = {
            **steady,
            **(measured(delta, topic, steady_bytes, steady["seconds"]) if delta.samples else {}),
            **self._reads(acks, config),
            "full_mb_per_s": size_bytes / full["seconds"] / 1e6,
            "consume_mb_per_s": size_bytes / read["seconds"] / 1e6,
            "cpu_s_per_gb": cpu_s / (steady_bytes / 1e9),
        }
        return figures, delta

    def _scrape(self) -> Scrape:
        return Scrape.of(self.cluster) if isinstance(self.cluster, WalCluster) else Scrape({})

    def _reads(self, acks: str, config: dict[str, str]) -> dict[str, float]:
        topic = f"probe-{time.monotonic_ns()}"
        self.create(topic, 1, config)
        racks = {"leader": f"rack-{LEADER}", "follower": f"rack-{FOLLOWER}"}
        ages = read_probes(self.bootstrap, topic, acks, racks, self.arguments.probe_seconds)
        self.delete(topic)
        return ages


def hops_of(delta: Scrape) -> dict[str, dict[str, float]]:
    """Milliseconds by hop: mean, p50 and p99; hops that did not happen are left out."""
    found = {}
    for hop in WalHop:
        count = delta.total(f"{HOPS}_count", hop=hop.value)
        if count:
            p50, p99 = (1000 * (delta.quantile(HOPS, part, hop=hop.value) or 0) for part in (0.5, 0.99))
            mean = 1000 * delta.total(f"{HOPS}_sum", hop=hop.value) / count
            found[hop.value] = {"count": count, "mean_ms": mean, "p50_ms": p50, "p99_ms": p99}
    return found


def paths(side: Side, topics: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
    """A row for each kind of topic and acks, with medians over the runs; kinds take turns."""
    runs: dict[tuple[str, str], list[dict[str, float]]] = {}
    deltas: dict[tuple[str, str], Scrape] = {}
    for turn in range(side.arguments.runs):
        for acks in ("1", "all"):
            for kind in list(topics) if turn % 2 == 0 else list(reversed(topics)):
                print(f"run {turn + 1}, acks={acks}, {kind}", file=sys.stderr)
                figures, delta = side.run(acks, topics[kind])
                runs.setdefault((kind, acks), []).append(figures)
                deltas[kind, acks] = deltas.get((kind, acks), Scrape({})) + delta
    return [
        {
            "name": kind,
            "acks": acks,
            "figures": {key: statistics.median(run[key] for run in found) for key in found[0]},
            "hops": hops_of(deltas[kind, acks]) if kind == WAL else {},
        }
        for (kind, acks), found in runs.items()
    ]


def measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All paths, one cluster after the other."""
    found: list[dict[str, Any]] = []
    settings = {**SETTINGS, "wherry.price.list": LATENCY}
    with tempfile.TemporaryDirectory() as directory, WalCluster(Path(directory), settings=settings) as cluster:
        inject(cluster, LATENCY)
        found += paths(Side(cluster, arguments), {STANDARD: {}, WAL: WAL_TOPIC})
    if not arguments.without_kafka and java_tools.why_not_available() is None:
        quick = {key: value for key, value in SETTINGS.items() if key.startswith("log.")}
        with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
            kafka = KafkaCluster(Path(directory), settings={**SELECTOR, **quick}, jvm=jvm(arguments.heap))
            found += paths(Side(stack.enter_context(kafka), arguments), {KAFKA: {}})
    return found


# -- the interval of uploads -----------------------------------------------------------------------------------------


def intervals(arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Single records with acks=all, by the interval and linger of the combiner."""
    return [interval(each, arguments.probe_seconds) for each in arguments.intervals]


def interval(milliseconds: int, seconds: int) -> dict[str, float]:
    settings = {
        **SETTINGS,
        "wherry.price.list": LATENCY,
        "remote.wal.combine.interval.ms": str(milliseconds),
        "remote.wal.combine.max.linger.ms": str(milliseconds),
        "remote.wal.combine.economy.linger.ms": str(max(milliseconds, 100)),
    }
    print(f"an object every {milliseconds} ms", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory, WalCluster(Path(directory), settings=settings) as cluster:
        inject(cluster, LATENCY)
        cluster.create_topic("interval", 3, 3, {"min.insync.replicas": "2", **WAL_TOPIC})
        cluster.wait_for_full_isr("interval")
        acknowledged(cluster.bootstrap, 3)
        before = Scrape.of(cluster)
        latencies = acknowledged(cluster.bootstrap, seconds)
        puts = (Scrape.of(cluster) - before).total("broker_wal_slices_per_object_count")
    return {
        "interval_ms": milliseconds,
        "puts_per_s": puts / seconds,
        **{f"p{name}_ms": quantile(latencies, part) for name, part in (("50", 0.5), ("95", 0.95), ("99", 0.99))},
    }


def acknowledged(bootstrap: str, seconds: int) -> list[float]:
    """Milliseconds until each of INTERVAL_PROBES single records a second was acknowledged by all, in order of size."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    value, start = os.urandom(RECORD_BYTES), time.perf_counter()
    latencies: list[float] = []
    for number in range(INTERVAL_PROBES * seconds):
        while (wait_s := start + number / INTERVAL_PROBES - time.perf_counter()) > 0:
            producer.poll(min(wait_s, 0.005))
        sent = time.perf_counter()

        def delivered(error: object, _message: object, sent: float = sent) -> None:
            assert error is None, error
            latencies.append(1000 * (time.perf_counter() - sent))

        producer.produce("interval", value, partition=number % 3, on_delivery=delivered)
    assert producer.flush(60) == 0
    return sorted(latencies)


def quantile(ordered: Sequence[float], part: float) -> float:
    return ordered[int(part * (len(ordered) - 1))]


# -- what becomes of it ----------------------------------------------------------------------------------------------


def table(rows: Sequence[dict[str, Any]]) -> str:
    heads = [f"{row['name']}, acks={row['acks']}" for row in rows]
    lines = [f"| | {' | '.join(heads)} |", "| --- " * (len(rows) + 1) + "|"]
    for name, key, form in ROWS:
        cells = [format(row["figures"][key], form) if key in row["figures"] else "-" for row in rows]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def hops_table(rows: Sequence[dict[str, Any]]) -> str:
    through = [row for row in rows if row["hops"]]
    heads = [f"acks={row['acks']}: mean / p50 / p99 ms" for row in through]
    lines = [f"| hop of the WAL topic | {' | '.join(heads)} |", "| --- " * (len(through) + 1) + "|"]
    for hop in WalHop:
        found = [row["hops"].get(hop.value) for row in through]
        cells = ["-" if each is None else " / ".join(f"{each[key]:.1f}" for key in kip_plots.TIMES) for each in found]
        lines.append(f"| {hop.value} | {' | '.join(cells)} |")
    return "\n".join(lines)


def intervals_table(rows: Sequence[dict[str, float]]) -> str:
    lines = ["| interval and linger, ms | p50 ms | p95 ms | p99 ms | objects stored per second |", "| --- " * 5 + "|"]
    for row in rows:
        cells = [f"{row[key]:.0f}" for key in ("interval_ms", "p50_ms", "p95_ms", "p99_ms", "puts_per_s")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--megabytes-per-second", type=float, default=5, help="at which latencies are taken")
    parser.add_argument("--seconds", type=int, default=20, help="of the run at that rate")
    parser.add_argument("--probe-seconds", type=int, default=10, help="of single records, read or by interval")
    parser.add_argument("--intervals", type=int, nargs="*", default=[5, 10, 20, 50, 100], help="milliseconds")
    parser.add_argument("--heap", default="1G", help="of each of Apache Kafka's JVMs")
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--short", action="store_true", help="20,000 records, one run, 1 MB/s for 8 s, three intervals")
    parser.add_argument("--json", type=Path, default=RESULT, metavar="FILE")
    parser.add_argument("--images", type=Path, default=IMAGES, metavar="DIR")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="measure nothing, draw this run again")
    arguments = parser.parse_args()
    if arguments.short:
        arguments.records, arguments.runs, arguments.megabytes_per_second = 20_000, 1, 1
        arguments.seconds, arguments.probe_seconds, arguments.intervals = 8, 6, [10, 20, 50]
    return arguments


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    began, load = time.monotonic(), os.getloadavg()[0]
    rows = measure(arguments)
    is_java = java_tools.why_not_available() is None
    return {
        "schema": SCHEMA,
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "is_short": arguments.short,
        "machine": {
            "architecture": platform.machine(),
            "processors": os.cpu_count(),
            "python": platform.python_version(),
            "load_before": round(load, 1),
        },
        "driver": f"Apache Kafka {java_tools.VERSION}'s perf tools" if is_java else "confluent-kafka",
        "load": {
            "records": arguments.records,
            "record_bytes": RECORD_BYTES,
            "batch_bytes": BATCH_BYTES,
            "partitions": arguments.partitions,
            "replication_factor": 2,
            "megabytes_per_second": arguments.megabytes_per_second,
            "seconds": arguments.seconds,
            "runs": arguments.runs,
            "bucket_latency": LATENCY,
        },
        "paths": rows,
        "intervals": intervals(arguments),
        "seconds": round(time.monotonic() - began),
    }


def main() -> None:
    arguments = parse()
    if arguments.draw is not None:
        result = json.loads(arguments.draw.read_text())
    else:
        result = run(arguments)
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    machine, load = result["machine"], result["load"]
    print(
        f"Wherry {result['commit']}, {result['date']}, {result['driver']}, {machine['architecture']}, "
        f"{machine['processors']} processors, load {machine['load_before']} before; {load['records']:,} records of "
        f"{load['record_bytes']} bytes, latencies at {load['megabytes_per_second']:g} MB/s for {load['seconds']} s, "
        f"medians of {load['runs']} runs; {result['seconds']} s in all\n"
    )
    print(table(result["paths"]), hops_table(result["paths"]), intervals_table(result["intervals"]), sep="\n\n")
    for path in kip_plots.draw(result, arguments.images):
        print(f"drawn: {path.name}", file=sys.stderr)


if __name__ == "__main__":
    main()
