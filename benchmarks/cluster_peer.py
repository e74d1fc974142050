"""Three brokers of ours beside three of Apache Kafka: produce with replication factor 3, taking turns in one run.

    make bench-cluster-peer                                     batches of 32 KiB, five runs of each
    make bench-cluster-peer OPTIONS="--batch-sizes 16384 262144 --acks 1 all --runs 3"
    make bench-cluster-peer KAFKA_VERSION=4.3.1                 beside another Apache Kafka

Needs `make java-tools` and about 4 GB.  Each broker is a process; those of Apache Kafka have the heap, collector and
compiler of its start script (`--heap`), their controller is in broker 1 on both sides.  Both clusters run all the time,
whoever is not asked is idle, and each run has a topic of its own.  CPU is that of all three processes.  Compare within
one run, CPU seconds per GB (of records sent, not of copies) first.
"""

import argparse
import itertools
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.workload import (  # noqa: E402  the benchmark runs from a checkout
    TOPIC_CONFIG,
    Load,
    broker_cpu_s,
    broker_rss_mb,
    commit,
    java_produce,
)
from tests.support import java_tools  # noqa: E402
from tests.support.cluster_process import Cluster, ClusterProcess  # noqa: E402
from tests.support.kafka_cluster import KafkaCluster  # noqa: E402

RECORD_BYTES: Final = 1024
SETTLE_S: Final = 2
QUICK_CLEANING: Final = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}


def jvm(heap: str) -> tuple[str, ...]:
    """bin/kafka-server-start.sh and kafka-run-class.sh of Apache Kafka 4."""
    return (
        *(f"-Xmx{heap}", f"-Xms{heap}", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
    )


@dataclass
class Figures:
    """Of one run."""

    mb_per_s: float
    cpu_s_per_gb: float
    p50_ms: float
    p99_ms: float
    rss_mb: float


@dataclass
class Side:
    """One of the two clusters, as a broker to the load drivers."""

    name: str
    cluster: Cluster
    figures: dict[str, list[Figures]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def pid(self) -> int:
        return self.cluster.brokers[0].pid

    @property
    def cpu_s(self) -> float:
        return sum(broker_cpu_s(node.pid) for node in self.cluster.nodes.values())

    @property
    def rss_mb(self) -> float:
        return sum(broker_rss_mb(node.pid) for node in self.cluster.nodes.values())


def describe(load: Load) -> str:
    acks = f"acks={load.acks}" + (", idempotent" if load.is_idempotent else "")
    return f"{load.batch_size >> 10} KiB, {load.partitions} p, {acks}"


def run_once(side: Side, load: Load) -> Figures:
    """One run on a topic of its own, warmed by a tenth of it."""
    load.topic = f"bench-{time.monotonic_ns()}"
    side.cluster.create_topic(load.topic, load.partitions, 3, {**TOPIC_CONFIG, "min.insync.replicas": "2"})
    side.cluster.wait_for_full_isr(load.topic)
    try:
        java_produce(side, load, load.records // 10, -1)
        before = side.cpu_s
        result = java_produce(side, load, load.records, -1)
        time.sleep(SETTLE_S)  # with acks=1 followers may still copy: their work belongs to the run
        cpu_s = side.cpu_s - before
    finally:
        admin = side.cluster.admin()
        admin.delete_topics([load.topic])[load.topic].result(30)
        time.sleep(SETTLE_S)
    size_bytes = load.records * load.record_size
    return Figures(
        size_bytes / result["seconds"] / 1e6,
        cpu_s / (size_bytes / 1e9),
        result["p50_ms"],
        result["p99_ms"],
        side.rss_mb,
    )


def spread(values: list[float], digits: int) -> str:
    """The median and the range."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def table(names: list[str], ours: Side, theirs: Side) -> str:
    reads: tuple[tuple[str, Callable[[Figures], float], int], ...] = (
        ("MB/s", lambda row: row.mb_per_s, 1),
        ("CPU s/GB, three brokers", lambda row: row.cpu_s_per_gb, 2),
        ("p50 ms", lambda row: row.p50_ms, 0),
        ("p99 ms", lambda row: row.p99_ms, 0),
        ("RSS MB, three brokers", lambda row: row.rss_mb, 0),
    )
    rows = [f"| load | figure | {ours.name} | {theirs.name} | ratio, run by run |", "| --- " * 5 + "|"]
    for name, (figure, read, digits) in itertools.product(names, reads):
        left, right = ([read(each) for each in side.figures[name]] for side in (ours, theirs))
        ratios = [one / other if other else float("nan") for one, other in zip(left, right, strict=True)]
        cells = [name, figure, spread(left, digits), spread(right, digits), spread(ratios, 2)]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=200, help="of records, in each run")
    parser.add_argument("--warm-megabytes", type=int, default=300, help="sent to each cluster before the first run")
    parser.add_argument("--batch-sizes", type=int, nargs="*", default=[32768])
    parser.add_argument("--partitions", type=int, nargs="*", default=[6])
    parser.add_argument("--acks", nargs="*", choices=["1", "all"], default=["all"], help="all: idempotent as well")
    parser.add_argument("--heap", default="1G", help="of each of Apache Kafka's JVMs")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    reason = java_tools.why_not_available()
    if reason is not None:
        sys.exit(f"bench-cluster-peer: {reason}")
    records = arguments.megabytes * 1_000_000 // RECORD_BYTES
    loads = [
        Load(records, RECORD_BYTES, batch_size, partitions, acks, "", acks == "all")
        for batch_size, partitions, acks in itertools.product(
            arguments.batch_sizes, arguments.partitions, arguments.acks
        )
    ]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        wherry = ClusterProcess(directory / "wherry", settings=QUICK_CLEANING)
        kafka = KafkaCluster(directory / "kafka", settings=QUICK_CLEANING, jvm=jvm(arguments.heap))
        ours, theirs = Side("Wherry", stack.enter_context(wherry)), Side("Apache Kafka", stack.enter_context(kafka))
        for side in (ours, theirs):
            warm = Load(arguments.warm_megabytes * 1_000_000 // RECORD_BYTES, RECORD_BYTES, 32768, 6, "all", "", True)
            run_once(side, warm)
        for turn, load in itertools.product(range(arguments.runs), loads):
            for side in (ours, theirs) if turn % 2 == 0 else (theirs, ours):
                figures = run_once(side, load)
                side.figures.setdefault(describe(load), []).append(figures)
                print(f"{turn + 1}/{arguments.runs} {describe(load)} {side.name}: {figures}", file=sys.stderr)
        print(
            f"Wherry {commit()} / Apache Kafka {java_tools.VERSION}, heap {arguments.heap}, {platform.machine()}, ",
            end="",
        )
        print(
            f"{os.cpu_count()} processors, Python {platform.python_version()}; median (range) of {arguments.runs} runs"
        )
        print(table(list(dict.fromkeys(map(describe, loads))), ours, theirs))


if __name__ == "__main__":
    main()
