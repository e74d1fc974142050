"""What the formulas of docs/scaling.md say, what the queue of uploads does in virtual time, and what brokers do.

    make bench-scaling                                        everything, two minutes
    make bench-scaling OPTIONS="--only measured --seconds 60"  longer runs of the small cluster
    make bench-scaling OPTIONS="--only plans"                  sizes past this machine

`measured`: three brokers, each in a zone of its own with a directory as its bucket, two loads that are light enough
for any machine: requests, events, bytes and dollars per second as brokers count them, beside what was predicted from
the load alone (goal: within 10 %).  Records go to partitions at random and are sent at random times, as the formulas
assume.
"""

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import confluent_kafka

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.wal import COPIED, METADATA_TOPIC, REQUESTS, TOPICS, Scrape  # noqa: E402  it runs from a checkout
from benchmarks.workload import commit  # noqa: E402
from broker.common.chance import Chance  # noqa: E402
from broker.config.price_book import SHIPPED  # noqa: E402
from broker.cost_model.bill import Architecture, Item, bill_of, break_even_mbps, traffic_at  # noqa: E402
from broker.cost_model.plan import Plan  # noqa: E402
from broker.cost_model.traffic import Traffic, broker_bytes  # noqa: E402
from broker.cost_model.upload_simulation import UploadSimulation  # noqa: E402
from broker.wal.cost.prices import MONTH_SECONDS  # noqa: E402
from broker.wal.upload.upload_queue import UploadLimits  # noqa: E402
from tests.support.wal_cluster import WAL_TOPIC, WalCluster  # noqa: E402

GOAL: Final = 0.10
WARM_SECONDS: Final = 3
TOPIC: Final = "scaling"
METADATA_PARTITIONS: Final = 5  # of WalCluster
MEASURED: Final = {
    "0.2 MB/s, 12 partitions": Plan(mbps=0.2, partitions=12),
    "1 MB/s, 48 partitions": Plan(mbps=1, partitions=48),
}
SLOW: Final = UploadLimits(interval_ms=100, linger_ms=100, max_bytes=8 << 20)
# Brokers, partitions and MB/s; slices are told of one by one, or not.
PLANS: Final = (
    Plan(mbps=10, brokers=3, partitions=60),
    Plan(mbps=100, brokers=3, partitions=600),
    Plan(mbps=300, brokers=6, partitions=3_000),
    Plan(mbps=300, brokers=6, partitions=3_000, slice_events=False),
    Plan(mbps=1_000, brokers=30, partitions=10_000, slice_events=False),
    Plan(mbps=5_000, brokers=100, partitions=100_000, slice_events=False),
    Plan(mbps=5_000, brokers=100, partitions=100_000, slice_events=False, upload=SLOW),
    Plan(mbps=50_000, brokers=1_000, partitions=1_000_000, slice_events=False),
    Plan(mbps=150_000, brokers=3_000, partitions=1_000_000, slice_events=False),
)
QUEUES: Final = (
    Plan(mbps=0.1),
    Plan(mbps=1, partitions=12),
    Plan(mbps=5, partitions=6),
    Plan(mbps=20, partitions=600),
    Plan(mbps=50),
    Plan(mbps=300),
    Plan(mbps=100, brokers=12, partitions=1_200),
    Plan(mbps=5_000, brokers=1_000, partitions=1_000_000),
)


def name_of(plan: Plan) -> str:
    told = "" if plan.slice_events else ", no slice events"
    paced = "" if plan.upload == UploadLimits() else f", an object every {plan.upload.interval_ms} ms"
    return f"{plan.brokers:,} brokers, {plan.partitions:,} partitions, {plan.mbps:,g} MB/s{told}{paced}"


# -- sizes past this machine -----------------------------------------------------------------------------------------


def plans() -> list[dict[str, Any]]:
    found = []
    for plan in PLANS:
        traffic = traffic_at(plan, SHIPPED)
        classic, wal = (
            bill_of(traffic, each, SHIPPED) for each in (Architecture.CLASSIC_TIERED, Architecture.WAL_TIERED)
        )
        found.append(
            {
                "name": name_of(plan),
                "objects": traffic.objects.per_second,
                "slices": traffic.objects.slices,
                "gets_per_object": traffic.reads.gets,
                "amplification": traffic.reads.amplification,
                "puts": traffic.puts,
                "gets": traffic.gets,
                "metadata_records": traffic.metadata.records,
                "metadata_read_mb": traffic.metadata.bytes_read / 1e6,
                "broker_mb": sum(vars_of(broker_bytes(traffic, through_buckets=True))) / 1e6,
                "classic": classic.replication,
                "buckets": wal.replication,
                "metadata_dollars": wal.items[Item.METADATA],
                "break_even": break_even_mbps(plan, SHIPPED, is_tiered=True),
            }
        )
    return found


def vars_of(bytes_of_broker: object) -> list[float]:
    return [getattr(bytes_of_broker, name) for name in type(bytes_of_broker).__dataclass_fields__]  # type: ignore[attr-defined]


def plans_table(rows: list[dict[str, Any]]) -> str:
    heads = (
        "cluster, load",
        "objects/s and broker",
        "slices/object",
        "GETs/object",
        "bytes got/wanted",
        "PUT/s",
        "GET/s",
        "metadata records/s",
        "metadata MB/s read by each broker",
        "MB/s of each broker",
        "replication, dollars a month: classic",
        "buckets",
        "of it metadata",
        "break-even MB/s",
    )
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for row in rows:
        even = row["break_even"]
        cells = [
            row["name"],
            f"{row['objects']:.0f}",
            f"{row['slices']:.1f}",
            f"{row['gets_per_object']:.1f}",
            f"{row['amplification']:.2f}",
            *(f"{row[key]:,.0f}" for key in ("puts", "gets", "metadata_records")),
            *(f"{row[key]:,.1f}" for key in ("metadata_read_mb", "broker_mb")),
            *(f"{row[key]:,.0f}" for key in ("classic", "buckets", "metadata_dollars")),
            "never" if even is None else f"{even:,.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# -- the queue in virtual time ---------------------------------------------------------------------------------------


def queues(seconds: float) -> list[dict[str, Any]]:
    found = []
    for plan in QUEUES:
        traffic = traffic_at(plan, SHIPPED)
        limits = replace(plan.upload, linger_ms=traffic.objects.linger_ms)
        broker = UploadSimulation(plan, limits, Chance(1)).run(seconds)
        pairs = {
            "objects/s": (traffic.objects.per_second, broker.objects_per_second),
            "slices/object": (traffic.objects.slices, broker.slices_per_object),
            "GETs/object": (traffic.reads.gets, broker.gets_per_object),
            "bytes got/wanted": (traffic.reads.amplification, broker.amplification),
        }
        found.append({"name": name_of(plan), "pairs": pairs})
    return found


def pairs_table(rows: list[dict[str, Any]], second: str) -> str:
    """Each cell: by formula / the other one (error)."""
    keys = list(rows[0]["pairs"])
    lines = [f"| formula / {second} (error) | {' | '.join(keys)} |", "| --- " * (len(keys) + 1) + "|"]
    for row in rows:
        cells = [pair(*row["pairs"][key]) for key in keys]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def pair(predicted: float, other: float) -> str:
    digits = 2 if abs(predicted) < 100 else 0
    return f"{predicted:,.{digits}f} / {other:,.{digits}f} ({error(predicted, other):+.1%})"


def error(predicted: float, measured: float) -> float:
    """Of the prediction, as a share of what was measured."""
    return predicted / measured - 1 if measured else float("inf")


# -- three brokers ---------------------------------------------------------------------------------------------------


class Load(threading.Thread):
    """Records at random times to random partitions, acks=all."""

    def __init__(self, bootstrap: str, plan: Plan) -> None:
        super().__init__(daemon=True)
        self._plan = plan
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": plan.producer_linger_ms,
                "batch.size": plan.batch_bytes_max,
                "compression.type": "none",
            }
        )
        self._ended = threading.Event()
        self.late_seconds = 0.0
        self.errors: list[object] = []

    def run(self) -> None:
        chance, value = random.Random(1), os.urandom(self._plan.record_bytes)
        due = time.perf_counter()
        while not self._ended.is_set():
            due += chance.expovariate(self._plan.records_per_second)
            while (wait := due - time.perf_counter()) > 0:
                self._producer.poll(min(wait, 0.01))
            self.late_seconds = max(self.late_seconds, -wait)
            self._producer.produce(
                TOPIC, value, partition=chance.randrange(self._plan.partitions), on_delivery=self._delivered
            )
        self._producer.flush(30)

    def stop(self) -> None:
        self._ended.set()
        self.join(40)
        assert not self.errors, self.errors[:3]

    def _delivered(self, problem: object, _message: object) -> None:
        if problem is not None:
            self.errors.append(problem)


@dataclass(frozen=True)
class Figure:
    """What is predicted, and how brokers count it; both per second of the cluster."""

    name: str
    predicted: Callable[[Traffic], float]
    counted: Callable[[Scrape], float]


def dollars_of(traffic: Traffic) -> float:
    bill = bill_of(traffic, Architecture.WAL, SHIPPED)
    return sum(bill.items[item] for item in (Item.PUT, Item.GET, Item.UPLOAD, Item.RETRIEVAL)) / MONTH_SECONDS


FIGURES: Final = (
    Figure(
        "PUT/s",
        lambda traffic: traffic.puts,
        lambda delta: delta.total(REQUESTS, operation="put_if_absent", outcome="ok"),
    ),
    Figure(
        "GET/s", lambda traffic: traffic.gets, lambda delta: delta.total(REQUESTS, operation="get_range", outcome="ok")
    ),
    Figure(
        "slices/s",
        lambda traffic: traffic.puts * traffic.objects.slices,
        lambda delta: delta.total("broker_wal_slices_per_object_sum"),
    ),
    Figure(
        "metadata records/s",
        lambda traffic: traffic.metadata.records,
        lambda delta: delta.total(f"{TOPICS}_messagesin_total", topic=METADATA_TOPIC),
    ),
    Figure(
        "metadata bytes/s",
        lambda traffic: traffic.metadata.bytes,
        lambda delta: delta.total(f"{TOPICS}_bytesin_total", topic=METADATA_TOPIC),
    ),
    Figure(
        "produced bytes/s",
        lambda traffic: traffic.plan.log_bytes_per_second,
        lambda delta: delta.total(f"{TOPICS}_bytesin_total", topic=TOPIC),
    ),
    Figure(
        "uploaded bytes/s",
        lambda traffic: traffic.uploaded_bytes,
        lambda delta: delta.total("broker_wal_object_size_bytes_sum"),
    ),
    Figure(
        "bytes/s to followers by bucket",
        lambda traffic: traffic.replicated_bytes,
        lambda delta: delta.total(COPIED, path="wal", topic=TOPIC),
    ),
    Figure(
        "metadata bytes/s read, all brokers",
        lambda traffic: traffic.metadata.bytes_read * traffic.plan.brokers,
        lambda delta: delta.total(f"{TOPICS}_bytesout_total", topic=METADATA_TOPIC),
    ),
    Figure(
        "dollars a month",
        lambda traffic: dollars_of(traffic) * MONTH_SECONDS,
        lambda delta: (
            sum(delta.total("broker_cost_dollars_total", item=item) for item in ("put", "get", "upload", "retrieval"))
            * MONTH_SECONDS
        ),
    ),
)


def measured(seconds: int) -> list[dict[str, Any]]:
    """One cluster, one load after the other."""
    return [measured_once(name, plan, seconds) for name, plan in MEASURED.items()]


def measured_once(name: str, plan: Plan, seconds: int) -> dict[str, Any]:
    settings = {"wherry.price.list": "s3-express", "remote.wal.fallback.enable": "false"}
    with tempfile.TemporaryDirectory() as directory, WalCluster(Path(directory), settings=settings) as cluster:
        cluster.create_topic(TOPIC, plan.partitions, 3, {"min.insync.replicas": "2", **WAL_TOPIC})
        cluster.wait_for_full_isr(TOPIC)
        plan = replace(
            plan,
            metadata_partitions=METADATA_PARTITIONS,
            topic=TOPIC,
            bucket=f"file://{cluster.bucket_directories[1]}",
        )
        load = Load(cluster.bootstrap, plan)
        load.start()
        time.sleep(WARM_SECONDS)
        before, began = Scrape.of(cluster), time.monotonic()
        time.sleep(seconds)
        after, ended = Scrape.of(cluster), time.monotonic()
        load.stop()
    traffic, delta = traffic_at(plan, SHIPPED), after - before
    return {
        "name": name,
        "late_ms": load.late_seconds * 1000,
        "pairs": {each.name: (each.predicted(traffic), each.counted(delta) / (ended - began)) for each in FIGURES},
    }


def measured_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"| predicted / measured (error) | {' | '.join(row['name'] for row in rows)} |",
        "| --- " * (len(rows) + 1) + "|",
    ]
    for figure in FIGURES:
        lines.append(f"| {figure.name} | {' | '.join(pair(*row['pairs'][figure.name]) for row in rows)} |")
    return "\n".join(lines)


def worst(rows: list[dict[str, Any]]) -> tuple[str, float]:
    """The figure whose prediction was furthest off."""
    errors = {f"{figure}, {row['name']}": error(*values) for row in rows for figure, values in row["pairs"].items()}
    return max(errors.items(), key=lambda each: abs(each[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="*", choices=["plans", "queue", "measured"], default=["plans", "queue", "measured"]
    )
    parser.add_argument("--seconds", type=int, default=30, help="that each load of the small cluster is measured")
    parser.add_argument("--virtual-seconds", type=float, default=20, help="of the queue")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"commit": commit(), "machine": f"{platform.machine()}, {os.cpu_count()} processors"}
    print(f"Wherry {commit()}, {result['machine']}, load {os.getloadavg()[0]:.1f}, prices of {SHIPPED.as_of}")
    if "plans" in arguments.only:
        result["plans"] = plans()
        print("", plans_table(result["plans"]), sep="\n", flush=True)
    if "queue" in arguments.only:
        result["queue"] = queues(arguments.virtual_seconds)
        print("", pairs_table(result["queue"], "in virtual time"), sep="\n", flush=True)
    if "measured" in arguments.only:
        result["measured"] = measured(arguments.seconds)
        figure, off = worst(result["measured"])
        print("", measured_table(result["measured"]), sep="\n")
        print(f"\nfurthest off: {figure}, {off:+.1%} (goal: within {GOAL:.0%})")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
