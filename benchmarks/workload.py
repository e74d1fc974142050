"""The canonical workload: produce, latency at a fixed rate, consume; throughput, percentiles, CPU and memory.

    make bench                              the canonical workload
    make bench OPTIONS="--record-size 100"  another one

Apache Kafka's perf tools drive it where `make java-tools` has collected them, else confluent-kafka does.  Absolute
figures move with the machine: compare ratios of runs side by side, CPU seconds per GB first.
"""

import argparse
import functools
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import confluent_kafka
import confluent_kafka.admin

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support import java_tools  # noqa: E402  the benchmark runs from a checkout
from tests.support.broker_process import BrokerProcess  # noqa: E402

TOPIC = "bench"
WARM_SECONDS = 4  # of a load at a rate, which percentiles leave out: a JVM that just started is late, then in a hurry
LATENCY_SECONDS = 6
# A benchmark's live log stays small: appending to memory the machine never used measures the hypervisor.
TOPIC_CONFIG = {"segment.bytes": str(64 << 20), "retention.bytes": str(128 << 20), "file.delete.delay.ms": "1000"}


@dataclass
class Figures:
    """What one phase showed; None where the driver does not tell."""

    phase: str
    driver: str
    records: int
    mb_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    broker_cpu_s_per_gb: float
    broker_rss_mb: float


@dataclass
class Load:
    """What is sent: records of one size in batches, to one topic."""

    records: int
    record_size: int
    batch_size: int
    partitions: int
    acks: str
    topic: str = TOPIC
    is_idempotent: bool = False


def broker_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def broker_rss_mb(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1024 if match else 0.0


class Broker(Protocol):
    """Whoever is measured."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def pid(self) -> int: ...


def java_produce(broker: Broker, load: Load, records: int, rate: int, warm_records: int = 0) -> dict[str, float]:
    """Percentiles are without the first `warm_records`."""
    idempotence = str(load.is_idempotent).lower()
    properties = [f"acks={load.acks}", f"batch.size={load.batch_size}", "linger.ms=5"]
    properties.append(f"enable.idempotence={idempotence}")
    output = java_tools.run(
        "ProducerPerformance",
        *("--bootstrap-server", broker.bootstrap, "--topic", load.topic, "--num-records", str(records)),
        *("--record-size", str(load.record_size), "--throughput", str(rate)),
        *(("--warmup-records", str(warm_records)) if warm_records else ()),
        *("--command-property", *properties),
        heap="512m",
        timeout_s=600,
    )
    summaries = [line for line in output.splitlines() if "records/sec" in line and "99.9th" in line]
    assert summaries, output  # complaints of the client may stand behind it
    whole, steady = summaries[-2 if warm_records else -1], summaries[-1]
    return {
        "seconds": records / float(re.search(r"([\d.]+) records/sec", whole)[1]),  # type: ignore[index]
        **{
            name: float(match[1])
            for name, mark in (("p50_ms", "50th"), ("p95_ms", "95th"), ("p99_ms", "99th"), ("p999_ms", "99.9th"))
            if (match := re.search(rf"(\d+) ms {re.escape(mark)}", steady))
        },
    }


def java_consume(broker: Broker, load: Load, records: int, _rate: int, rack: str = "") -> dict[str, float]:
    output = java_tools.run(
        "ConsumerPerformance",
        *("--bootstrap-server", broker.bootstrap, "--topic", load.topic, "--num-records", str(records)),
        *("--group", f"bench-{time.monotonic_ns()}", "--timeout", "20000"),
        *(("--command-property", f"client.rack={rack}") if rack else ()),
        heap="512m",
        timeout_s=600,
    )
    row = [cell.strip() for cell in output.strip().splitlines()[-1].split(",")]
    assert int(row[4]) >= records, output
    return {"seconds": int(row[7]) / 1000}  # fetch.time.ms: without the time the group needs to form


def confluent_produce(broker: Broker, load: Load, records: int, rate: int, warm_records: int = 0) -> dict[str, float]:
    config = {"bootstrap.servers": broker.bootstrap, "acks": load.acks, "batch.size": load.batch_size, "linger.ms": 5}
    producer = confluent_kafka.Producer(config)
    value, latencies = os.urandom(load.record_size), []
    start = time.perf_counter()
    for number in range(records):
        while rate > 0 and number > rate * (time.perf_counter() - start):
            producer.poll(0.001)
        sent = time.perf_counter()

        def delivered(
            error: object, _message: object, sent: float = sent, is_warm: bool = number >= warm_records
        ) -> None:
            assert error is None, error
            if is_warm:
                latencies.append(time.perf_counter() - sent)

        while True:
            try:
                producer.produce(load.topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(60) == 0
    seconds = time.perf_counter() - start
    latencies.sort()
    at = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
    return {
        "seconds": seconds,
        **{name: 1000 * latencies[int(part * (len(latencies) - 1))] for name, part in at.items()},
    }


def confluent_consume(broker: Broker, load: Load, records: int, _rate: int, rack: str = "") -> dict[str, float]:
    group = f"bench-{time.monotonic_ns()}"
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    config |= {"client.rack": rack} if rack else {}
    consumer = confluent_kafka.Consumer(config)
    consumer.assign([confluent_kafka.TopicPartition(load.topic, number, 0) for number in range(load.partitions)])
    start, seen = time.perf_counter(), 0
    while seen < records:
        seen += len(consumer.consume(10_000, timeout=10))
    seconds = time.perf_counter() - start
    consumer.close()
    return {"seconds": seconds}


Drive = Callable[[Broker, Load, int, int], dict[str, float]]


def measure_at_a_rate(
    phase: str,
    driver: str,
    produce: Callable[..., dict[str, float]],
    broker: Broker,
    load: Load,
    rate: int,
    seconds: int,
) -> Figures:
    """Percentiles of `seconds` at that many records a second, once the client is warm; CPU of all of it."""
    drive = functools.partial(produce, warm_records=rate * WARM_SECONDS)
    return measure(phase, driver, drive, broker, load, rate * (WARM_SECONDS + seconds), rate)


def measure(phase: str, driver: str, drive: Drive, broker: Broker, load: Load, records: int, rate: int) -> Figures:
    before = broker_cpu_s(broker.pid)
    result = drive(broker, load, records, rate)
    size_bytes = records * load.record_size
    return Figures(
        phase,
        driver,
        records,
        size_bytes / result["seconds"] / 1e6,
        result.get("p50_ms"),
        result.get("p99_ms"),
        result.get("p999_ms"),
        (broker_cpu_s(broker.pid) - before) / (size_bytes / 1e9),
        broker_rss_mb(broker.pid),
    )


def run(load: Load) -> list[Figures]:
    """Start a broker, run the phases, stop it."""
    is_java = java_tools.why_not_available() is None
    driver, produce, consume = (
        ("java", java_produce, java_consume) if is_java else ("confluent-kafka", confluent_produce, confluent_consume)
    )
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory)) as broker:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        new = confluent_kafka.admin.NewTopic(TOPIC, load.partitions, 1, config=TOPIC_CONFIG)
        admin.create_topics([new])[TOPIC].result(10)
        produce(broker, load, load.records // 5, -1)  # warm: the driver compiles, the log's memory is touched
        full = measure("produce", driver, produce, broker, load, load.records, -1)
        rate = max(int(full.mb_per_s * 1e6 / load.record_size / 2), 1)
        steady = measure_at_a_rate(f"produce at {rate}/s", driver, produce, broker, load, rate, LATENCY_SECONDS)
        small = min(load.records, (64 << 20) // load.record_size)
        read = measure("consume", driver, consume, broker, load, small, -1)
    return [full, steady, read]


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def table(figures: list[Figures]) -> str:
    rows = ["| phase | MB/s | p50 ms | p99 ms | p99.9 ms | broker CPU s/GB | RSS MB |", "| --- " * 7 + "|"]
    for row in figures:
        latencies = [f"{value:.1f}" if value is not None else "-" for value in (row.p50_ms, row.p99_ms, row.p999_ms)]
        cells = [
            row.phase,
            f"{row.mb_per_s:.0f}",
            *latencies,
            f"{row.broker_cpu_s_per_gb:.2f}",
            f"{row.broker_rss_mb:.0f}",
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--record-size", type=int, default=1600)
    parser.add_argument("--batch-size", type=int, default=32768)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--acks", default="1", choices=["0", "1", "all"])
    parser.add_argument("--save", action="store_true", help="keep the figures as benchmarks/results/COMMIT.json")
    arguments = parser.parse_args()
    save = arguments.save
    del arguments.save
    load = Load(**vars(arguments))
    figures = run(load)
    print(f"{load} on {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {commit()}")
    print(table(figures))
    if save:
        target = ROOT / "benchmarks/results" / f"{commit()}.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(
            json.dumps({"load": asdict(load), "figures": [asdict(row) for row in figures]}, indent=1) + "\n"
        )
        print(f"saved as {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
