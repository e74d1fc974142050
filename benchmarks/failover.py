"""How long records of a partition are not acknowledged when its leader goes: by `kill -9`, and by a stop in order.

    make bench-failover                                  five rounds of each, under default settings
    make bench-failover OPTIONS="--rounds 3 --apache"    the same of Apache Kafka (needs `make java-tools`)
    make bench-failover OPTIONS="--controller"           the victim holds the controller as well

Three brokers, replication factor 3, min.insync.replicas 2, an idempotent producer of librdkafka with acks=all that
sends to every partition all the time.  The time of a partition is the longest gap between two acknowledgements around
the fault: from the last success before it to the first after it.  Goals: a stop in order takes less than a second and
no error reaches the application; a crash takes no longer than broker.session.timeout.ms (9 s) and one second.
"""

import argparse
import itertools
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import confluent_kafka

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.workload import commit  # noqa: E402  the benchmark runs from a checkout
from tests.cluster.load import LibrdkafkaProducer  # noqa: E402
from tests.support import java_tools  # noqa: E402
from tests.support.cluster_process import Cluster, ClusterProcess  # noqa: E402
from tests.support.kafka_cluster import KafkaCluster  # noqa: E402

TOPIC: Final = "failover"
PARTITIONS: Final = 6
RATE: Final = 100 * PARTITIONS  # records a second: the resolution is ten milliseconds
SESSION_S: Final = 9
CALM_S: Final = 2
CRASH_WATCH_S: Final = 25
CLIENT: Final = {"linger.ms": 0, "request.timeout.ms": 30_000, "socket.timeout.ms": 60_000}
DEFAULTS: Final = {"retry.backoff.ms": 100, "retry.backoff.max.ms": 1000, "reconnect.backoff.max.ms": 10_000}


@dataclass
class Times:
    """Of one kind of fault: seconds by partition and round."""

    led: list[float] = field(default_factory=list)  # partitions that the victim led
    followed: list[float] = field(default_factory=list)  # partitions that it followed: acks=all waits for it as well
    errors: list[str] = field(default_factory=list)


def leaders(cluster: Cluster) -> dict[int, int]:
    """Leader by partition."""
    partitions = cluster.admin().list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    return {number: partition.leader for number, partition in partitions.items()}


def choose_victim(cluster: Cluster, *, holds_controller: bool) -> int:
    """Whoever leads most; after a few rounds the broker of the round before leads nothing."""
    led = list(leaders(cluster).values())
    able = [node for node in cluster.node_ids if ("controller" in cluster.nodes[node].roles) == holds_controller]
    return max(able, key=led.count)


def elect_preferred(cluster: Cluster) -> None:
    admin = cluster.admin()
    admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, None).result(30)


def longest_gap(moments: list[float], from_s: float, to_s: float) -> float:
    """The longest between two neighbours of which the later is after `from_s`; `to_s` bounds what never ended."""
    moments = sorted(moments)
    before = max((moment for moment in moments if moment < from_s), default=from_s)
    later = [moment for moment in moments if from_s <= moment <= to_s]
    ends = [] if later and to_s - later[-1] < 1 else [to_s]
    return max(after - earlier for earlier, after in itertools.pairwise([before, *later, *ends]))


def one_round(cluster: Cluster, *, is_crash: bool, holds_controller: bool, times: Times) -> None:
    elect_preferred(cluster)
    cluster.wait_for_full_isr(TOPIC)
    victim = choose_victim(cluster, holds_controller=holds_controller)
    producer = LibrdkafkaProducer(0, cluster.bootstrap, TOPIC, PARTITIONS, RATE, {**CLIENT, **DEFAULTS})
    producer.start()
    time.sleep(CALM_S)
    led_by = leaders(cluster)
    began_s = time.monotonic()
    if is_crash:
        cluster.kill(victim)
        time.sleep(CRASH_WATCH_S)
    else:
        cluster.graceful_stop(victim)
        time.sleep(CALM_S)
    ended_s = time.monotonic()
    cluster.restart(victim)
    cluster.wait_for_full_isr(TOPIC)
    producer.stop()
    times.errors += producer.failures
    for partition, leader in led_by.items():
        moments = [each.at_s for each in producer.acknowledged if each.partition == partition]
        gap = longest_gap(moments, began_s, ended_s)
        (times.led if leader == victim else times.followed).append(gap)


def row(name: str, times: Times, goal_s: float | None) -> str:
    def figures(values: list[float]) -> str:
        if not values:
            return "- | - | -"
        return f"{min(values):.2f} | {statistics.median(values):.2f} | {max(values):.2f}"

    goal = "-" if goal_s is None else f"{goal_s:.0f} s: {'reached' if max(times.led) <= goal_s else 'MISSED'}"
    cells = [name, str(len(times.led)), figures(times.led), figures(times.followed), str(len(times.errors)), goal]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--apache", action="store_true")
    parser.add_argument("--controller", action="store_true", help="the victim of a stop in order holds the controller")
    parser.add_argument("--only", choices=["crash", "stop"])
    arguments = parser.parse_args()
    reason = java_tools.why_not_available()
    if arguments.apache and reason is not None:
        sys.exit(f"bench-failover: {reason}")
    kinds = ("stop",) if arguments.controller else ("stop", "crash")
    results = {kind: Times() for kind in kinds if arguments.only in (None, kind)}
    kind_of_cluster = KafkaCluster if arguments.apache else ClusterProcess
    dedicated = not arguments.controller
    with (
        tempfile.TemporaryDirectory() as name,
        kind_of_cluster(Path(name), dedicated_controller=dedicated) as cluster,
    ):
        cluster.create_topic(TOPIC, PARTITIONS, config={"min.insync.replicas": "2"})
        for turn, kind in itertools.product(range(arguments.rounds), results):
            one_round(cluster, is_crash=kind == "crash", holds_controller=arguments.controller, times=results[kind])
            print(f"{turn + 1}/{arguments.rounds} {kind}: {results[kind].led[-2:]}", file=sys.stderr)
    who = f"Apache Kafka {java_tools.VERSION}" if arguments.apache else f"Wherry {commit()}"
    print(f"{who}, {arguments.rounds} rounds, seconds; {os.cpu_count()} processors, Python {platform.python_version()}")
    print("| fault | partitions it led | min | median | max | it followed: min | median | max | errors told | goal |")
    print("| --- " * 10 + "|")
    names = {"stop": ("stop in order", 1.0), "crash": ("kill -9", SESSION_S + 1.0)}
    for kind, times in results.items():
        print(row(names[kind][0], times, names[kind][1]))


if __name__ == "__main__":
    main()
