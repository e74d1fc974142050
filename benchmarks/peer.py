"""Apache Kafka and this broker side by side: the same perf tools, the same machine, taking turns in one run.

    make bench-peer                                         three loads, a few minutes
    make bench-peer OPTIONS="--long --rounds 3"             batches of 16, 32 and 256 KiB, 1, 6 and 16 partitions,
                                                            acks=1 and all, idempotent and not
    make bench-peer OPTIONS="--batch-sizes 16384 --partitions 1 6 --acks all"
    make bench-peer KAFKA_VERSION=4.3.1                     beside another Apache Kafka

Needs `make java-tools`.  Both brokers run all the time; whoever is not asked is idle.  Every load has a topic of its
own, deleted behind it: a log that grows into memory the machine never used measures the hypervisor.  Latencies are
taken at half of what the slower of the two can take.  Compare within one run, CPU seconds per GB first.
"""

import argparse
import contextlib
import itertools
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import confluent_kafka.admin

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.workload import (  # noqa: E402  the benchmark runs from a checkout
    LATENCY_SECONDS,
    TOPIC_CONFIG,
    Figures,
    Load,
    broker_rss_mb,
    commit,
    java_consume,
    java_produce,
    measure,
    measure_at_a_rate,
)
from tests.support import java_tools  # noqa: E402
from tests.support.broker_process import BrokerProcess  # noqa: E402
from tests.support.kafka_peer import KafkaPeer  # noqa: E402

RECORD_BYTES: Final = 1024
READY_TIMEOUT_S: Final = 90
API_VERSIONS_0: Final = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
# bin/kafka-server-start.sh and kafka-run-class.sh of Apache Kafka 4.
KAFKA_JVM: Final = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class ApacheKafka(KafkaPeer):
    """As it comes: heap, collector and compiler of its start script."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        if not (self.data / "meta.properties").exists():
            self._format(properties)
        options = [f"-Dlog4j2.configurationFile={ROOT / 'tests/java/log4j2.properties'}", "-cp", f"{java_tools.JARS}/*"]
        with self.log_file.open("ab") as log:
            command = ["java", *KAFKA_JVM, *options, "kafka.Kafka", str(properties)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        return self


@dataclass
class Side:
    """One of the two brokers."""

    name: str
    broker: BrokerProcess | ApacheKafka
    ready_s: float
    idle_rss_mb: float = 0.0
    figures: dict[tuple[str, str], list[Figures]] = field(default_factory=dict)

    def note(self, load: str, phase: str, figures: Figures) -> None:
        self.figures.setdefault((load, phase), []).append(figures)

    def median(self, load: str, phase: str, read: Callable[[Figures], float | None]) -> float:
        values = [value for each in self.figures[load, phase] if (value := read(each)) is not None]
        return statistics.median(values) if values else float("nan")


def answers(port: int) -> bool:
    """Whether a client's first request is answered."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
        connection.settimeout(5)
        connection.sendall(API_VERSIONS_0)
        return bool(connection.recv(1))
    return False


@contextlib.contextmanager
def running(name: str, broker: BrokerProcess | ApacheKafka) -> Iterator[Side]:
    """Started, with the time from the start of the process to its first answer; a formatted directory is not timed."""
    with broker:  # this start formats the directory
        wait_for_answer(broker)
        broker.stop()
        began = time.monotonic()
        broker.start()
        wait_for_answer(broker)
        side = Side(name, broker, time.monotonic() - began)
        time.sleep(3)
        side.idle_rss_mb = broker_rss_mb(broker.pid)
        yield side


def wait_for_answer(broker: BrokerProcess | ApacheKafka) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not answers(broker.port):
        assert time.monotonic() < deadline, f"no answer within {READY_TIMEOUT_S} s"
        time.sleep(0.02)


def describe(load: Load) -> str:
    acks = f"acks={load.acks}" + (", idempotent" if load.is_idempotent else "")
    return f"{load.batch_size >> 10} KiB, {load.partitions} p, {acks}"


@contextlib.contextmanager
def topic(side: Side, load: Load) -> Iterator[None]:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": side.broker.bootstrap})
    new = confluent_kafka.admin.NewTopic(load.topic, load.partitions, 1, config=TOPIC_CONFIG)
    admin.create_topics([new])[load.topic].result(30)
    time.sleep(0.5)
    try:
        yield
    finally:
        admin.delete_topics([load.topic])[load.topic].result(30)


def run_load(sides: list[Side], load: Load) -> None:
    """All phases of one load, the two brokers taking turns."""
    name = describe(load)
    with contextlib.ExitStack() as stack:
        for side in sides:
            stack.enter_context(topic(side, load))
        rates = []
        for side in sides:
            java_produce(side.broker, load, load.records // 10, -1)  # warm
            figures = measure("produce", "java", java_produce, side.broker, load, load.records, -1)
            rates.append(figures.mb_per_s * 1e6 / load.record_size)
            side.note(name, "produce", figures)
        rate = max(int(min(rates) / 2), 1)
        for side in sides:
            steady = measure_at_a_rate("at a rate", "java", java_produce, side.broker, load, rate, LATENCY_SECONDS)
            side.note(name, "at a rate", steady)
        for side in sides:
            side.note(name, "consume", measure("consume", "java", java_consume, side.broker, load, load.records, -1))


def warm_up(sides: list[Side], megabytes: int) -> None:
    """What a virtual machine compiles at first is no cost of the load."""
    load = Load(megabytes * 1_000_000 // RECORD_BYTES, RECORD_BYTES, 16384, 6, "1", "bench-warm-up")
    for side in sides:
        with topic(side, load):
            java_produce(side.broker, load, load.records, -1)
            java_consume(side.broker, load, load.records, -1)


def loads(arguments: argparse.Namespace) -> list[Load]:
    if not arguments.long and not (arguments.batch_sizes or arguments.partitions or arguments.acks):
        chosen = [(16384, 6, "1", False), (32768, 6, "all", True), (262144, 6, "1", False)]
    else:
        chosen = [
            (batch_size, partitions, acks, is_idempotent)
            for batch_size, partitions, acks in itertools.product(
                arguments.batch_sizes or (16384, 32768, 262144),
                arguments.partitions or (1, 6, 16),
                arguments.acks or ("1", "all"),
            )
            for is_idempotent in ((False, True) if acks == "all" else (False,))
        ]
    records = arguments.megabytes * 1_000_000 // RECORD_BYTES
    return [
        Load(records, RECORD_BYTES, batch_size, partitions, acks, "", is_idempotent)
        for batch_size, partitions, acks, is_idempotent in chosen
    ]


def pair(ours: float, theirs: float, digits: int) -> str:
    """Ours, theirs and the ratio."""
    ratio = f"{ours / theirs:.2f}" if theirs else "-"
    return f"{ours:.{digits}f} / {theirs:.{digits}f} ({ratio})"


def table(names: list[str], ours: Side, theirs: Side) -> str:
    rows = ["| load | phase | MB/s | CPU s/GB | p50 ms | p99 ms | p99.9 ms | RSS MB |", "| --- " * 8 + "|"]
    reads: tuple[tuple[Callable[[Figures], float | None], int], ...] = (
        (lambda row: row.mb_per_s, 0),
        (lambda row: row.broker_cpu_s_per_gb, 2),
        (lambda row: row.p50_ms, 1),
        (lambda row: row.p99_ms, 0),
        (lambda row: row.p999_ms, 0),
        (lambda row: row.broker_rss_mb, 0),
    )
    for name in names:
        for phase in ("produce", "at a rate", "consume"):
            cells = []
            for read, digits in reads:
                left, right = ours.median(name, phase, read), theirs.median(name, phase, read)
                cells.append("-" if left != left else pair(left, right, digits))
            rows.append("| " + " | ".join([name, phase, *cells]) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--megabytes", type=int, default=200, help="per load, phase and broker")
    parser.add_argument("--warm-megabytes", type=int, default=300, help="sent and read before anything is measured")
    parser.add_argument("--long", action="store_true", help="every combination")
    parser.add_argument("--batch-sizes", type=int, nargs="*")
    parser.add_argument("--partitions", type=int, nargs="*")
    parser.add_argument("--acks", nargs="*", choices=["1", "all"])
    arguments = parser.parse_args()
    reason = java_tools.why_not_available()
    if reason is not None:
        sys.exit(f"bench-peer: {reason}")
    chosen = loads(arguments)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        quick = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}
        ours = stack.enter_context(running("Wherry", BrokerProcess(directory / "wherry", quick)))
        theirs = stack.enter_context(running("Apache Kafka", ApacheKafka(directory / "kafka", quick)))
        warm_up([ours, theirs], arguments.warm_megabytes)
        for turn, load in itertools.product(range(arguments.rounds), chosen):
            load.topic = f"bench-{turn}-{time.monotonic_ns()}"
            run_load([ours, theirs] if turn % 2 == 0 else [theirs, ours], load)
            print(f"{turn + 1}/{arguments.rounds} {describe(load)}", file=sys.stderr)
        print(f"Wherry {commit()} / Apache Kafka {java_tools.VERSION} (ratio), {platform.machine()}, ", end="")
        print(f"{os.cpu_count()} processors, Python {platform.python_version()}")
        print(table(list(dict.fromkeys(map(describe, chosen))), ours, theirs))
        print(f"\nstart to first answer, s: {pair(ours.ready_s, theirs.ready_s, 2)}")
        print(f"resident memory when idle, MB: {pair(ours.idle_rss_mb, theirs.idle_rss_mb, 0)}")


if __name__ == "__main__":
    main()
