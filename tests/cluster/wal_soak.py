"""Replication through faulty buckets for a long time: `make soak`.

    python -m tests.cluster.wal_soak --seconds 1800             half an hour at 70 % of what the machine bears
    python -m tests.cluster.wal_soak --seconds 120 --rate 500   so many records a second instead

Three brokers, each with a bucket of its own that answers some requests with 503 and resets others, more of them in some
minutes than in others.  In the end every record that was acknowledged was read in order, nothing lags, there is no
object that no metadata names, and the brokers' memory has not grown.  Exit code 1 when one of this is not so.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import confluent_kafka

from tests.cluster.load import partition_of
from tests.cluster.replicas import wait_for_identical
from tests.support.directories import files_under
from tests.support.patience import PATIENCE_S, until
from tests.support.wal_cluster import WAL_TOPIC, WalCluster, received_bytes

TOPIC: Final = "soak"
PARTITIONS: Final = 6
RECORD_BYTES: Final = 1000
LOAD: Final = 0.7  # of what was measured
MEASURE_S: Final = 10
FAULTS_EVERY_S: Final = 5
FAULTS_MAX: Final = 0.1  # of the requests, for each kind
SAMPLE_S: Final = 2
ORPHAN_AGE_S: Final = 360  # the least that can be configured
RETENTION_S: Final = 300
MIB: Final = 1 << 20
CONFIG: Final = {
    **WAL_TOPIC,
    "min.insync.replicas": "2",
    "segment.bytes": str(16 * MIB),
    "retention.ms": str(RETENTION_S * 1000),
}
SETTINGS: Final = {
    "remote.wal.gc.interval.ms": "5000",
    "remote.wal.orphan.min.age.ms": str(ORPHAN_AGE_S * 1000),
    "remote.wal.object.retention.mode": "replicated",
    "remote.wal.object.min.retention.ms": "60000",
    "log.retention.check.interval.ms": "30000",
}


@dataclass
class Result:
    seconds: float = 0.0
    rate: int = 0
    acknowledged: int = 0
    read: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)  # bytes by path
    memory_mib: dict[int, tuple[float, float]] = field(default_factory=dict)  # in the middle and in the end, by broker
    objects: int = 0
    orphans_deleted: int = 0
    problems: list[str] = field(default_factory=list)


class Writer:
    """Numbered records, in turn to each partition; `rate` a second, 0: as many as are taken."""

    def __init__(self, bootstrap: str) -> None:
        self.rate = 0
        self.sent = 0
        self.acknowledged = 0
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": 600_000,
                "queue.buffering.max.messages": 5_000,
            }
        )

    def start(self) -> None:
        self._thread.start()

    def set_rate(self, rate: int) -> None:
        self.rate = rate

    def _run(self) -> None:
        began, offered, rate = time.monotonic(), 0, self.rate
        while not self._stop.is_set():
            if rate != self.rate:
                began, offered, rate = time.monotonic(), 0, self.rate
            due = int((time.monotonic() - began) * rate) if rate else offered + 100
            for _ in range(min(due - offered, 100)):
                offered += 1
                self._send()
            self._producer.poll(0.005)

    def _send(self) -> None:
        value = b"%d " % self.sent
        try:
            self._producer.produce(
                TOPIC, value.ljust(RECORD_BYTES, b"."), partition=self.sent % PARTITIONS, on_delivery=self._delivered
            )
        except BufferError:
            self._producer.poll(0.05)
        else:
            self.sent += 1

    def _delivered(self, error: confluent_kafka.KafkaError | None, _message: confluent_kafka.Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(str(error))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if left := self._producer.flush(PATIENCE_S):
            self.failures.append(f"{left} records are not answered {PATIENCE_S:g} s after the last")


class Reader:
    """Reads along; each partition holds every sixth number, in order, once."""

    def __init__(self, bootstrap: str) -> None:
        self.read = 0
        self.findings: list[str] = []
        self._next = list(range(PARTITIONS))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "soak", "auto.offset.reset": "error"}
        )
        self._consumer.assign([confluent_kafka.TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set() and len(self.findings) < 10:
            for message in self._consumer.consume(1000, timeout=0.2):
                self._take(message)

    def _take(self, message: confluent_kafka.Message) -> None:
        if (error := message.error()) is not None:
            if not error.retriable() and error.name() != "_ALL_BROKERS_DOWN":
                self.findings.append(str(error))
            return
        value = message.value()
        assert value is not None
        partition, number = partition_of(message), int(value.partition(b" ")[0])
        if number != self._next[partition]:
            self.findings.append(f"partition {partition}: {number} where {self._next[partition]} is due")
        self._next[partition] = number + PARTITIONS
        self.read += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


def set_faults(cluster: WalCluster, probabilities: dict[str, float]) -> None:
    for broker in cluster.brokers:
        body = json.dumps({"probabilities": probabilities}).encode()
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{broker.metrics_port}/faults", body)).close()


def faults_occurred(cluster: WalCluster) -> dict[str, int]:
    counts: dict[str, int] = {}
    for broker in cluster.brokers:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}/faults") as answer:
            described = json.loads(answer.read())
        for bucket in described["buckets"].values():
            for name, count in bucket["occurred"].items():
                counts[name] = counts.get(name, 0) + count
    return counts


def memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def objects_without_metadata(cluster: WalCluster) -> int:
    """Files in the buckets beyond those that their brokers know of."""
    return sum(
        abs(len(files_under(place, ".wal")) - int(cluster.broker(node_id).metric("broker_wal_objects_live")))
        for node_id, place in cluster.bucket_directories.items()
    )


def lags(cluster: WalCluster) -> dict[str, float]:
    names = {
        "records of followers": "broker_replication_lag_records",
        "bytes not uploaded": "kafka_server_brokertopicmetrics_remotewalcopylagbytes",
        "records of metadata": "broker_wal_metadata_consumer_lag_records",
    }
    found = {what: sum(broker.metric(name) for broker in cluster.brokers) for what, name in names.items()}
    return {what: lag for what, lag in found.items() if lag}


class Soak:
    """`rate` None: 70 % of what is measured first.  Life: `Soak(...).run()`."""

    def __init__(self, directory: Path, seconds: float, rate: int | None, seed: int) -> None:
        self._directory, self._seconds, self._rate = directory, seconds, rate
        self._random = random.Random(seed)
        self._memory: dict[int, list[float]] = {}
        self.result = Result(seconds)

    @property
    def is_long(self) -> bool:
        """Long enough for records to be deleted, and for the sweep to take what it finds."""
        return self._seconds > RETENTION_S / 2

    def run(self) -> Result:
        with WalCluster(self._directory, settings=SETTINGS) as cluster:
            cluster.create_topic(TOPIC, PARTITIONS, 3, CONFIG)
            cluster.wait_for_full_isr(TOPIC)
            writer, reader = Writer(cluster.bootstrap), Reader(cluster.bootstrap)
            self._choose_rate(writer)
            reader.start()
            self._make_load(cluster, writer)
            set_faults(cluster, {})
            writer.stop()
            self._settle(cluster, writer, reader)
        return self.result

    def _choose_rate(self, writer: Writer) -> None:
        if self._rate is None:
            writer.start()
            before, began = writer.acknowledged, time.monotonic()
            time.sleep(MEASURE_S)
            measured = (writer.acknowledged - before) / (time.monotonic() - began)
            writer.set_rate(max(1, int(LOAD * measured)))
        else:
            writer.set_rate(self._rate)
            writer.start()
        self.result.rate = writer.rate

    def _make_load(self, cluster: WalCluster, writer: Writer) -> None:
        end = time.monotonic() + self._seconds
        next_faults = time.monotonic()
        while (now := time.monotonic()) < end:
            if now >= next_faults:
                next_faults += FAULTS_EVERY_S
                kinds = ("slow_down", "reset")
                set_faults(cluster, {kind: round(self._random.uniform(0, FAULTS_MAX), 3) for kind in kinds})
            for node_id in cluster.node_ids:
                broker = cluster.broker(node_id)
                if not broker.is_running():
                    raise AssertionError(f"broker {node_id} died:\n{broker.log_tail()}")
                self._memory.setdefault(node_id, []).append(memory_mib(broker.pid))
            if writer.failures:
                break
            time.sleep(SAMPLE_S)
        self.result.faults = faults_occurred(cluster)

    def _settle(self, cluster: WalCluster, writer: Writer, reader: Reader) -> None:
        result = self.result
        self._becomes(lambda: reader.read >= writer.acknowledged or reader.findings, "all records are read")
        reader.stop()
        result.acknowledged, result.read = writer.acknowledged, reader.read
        result.problems += [*writer.failures[:5], *reader.findings]
        if not writer.acknowledged == writer.sent == reader.read:
            result.problems.append(f"{writer.sent} sent, {writer.acknowledged} acknowledged, {reader.read} read")
        self._becomes(lambda: not lags(cluster), "no follower lags in the end", lambda: lags(cluster))
        sweep_s = ORPHAN_AGE_S if self.is_long else 0
        self._becomes(
            lambda: objects_without_metadata(cluster) == 0,
            "metadata names every object",
            lambda: f"{objects_without_metadata(cluster)} are not",
            PATIENCE_S + sweep_s,
        )
        if not self.is_long:  # later each replica deletes its old segments when it comes to it
            _, differing = wait_for_identical(cluster, TOPIC, PARTITIONS)
            result.problems += differing
        result.received = received_bytes(cluster, TOPIC)
        result.objects = sum(int(broker.metric("broker_wal_objects_live")) for broker in cluster.brokers)
        result.orphans_deleted = sum(
            int(broker.metric("broker_wal_orphan_objects_deleted_total")) for broker in cluster.brokers
        )
        self._judge_memory()

    def _becomes(
        self,
        reached: Callable[[], object],
        what: str,
        found: Callable[[], object] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """What does not is a problem of the result."""
        try:
            until(reached, what, found, patience_s=patience_s, every_s=0.2)
        except AssertionError as error:
            self.result.problems.append(str(error))

    def _judge_memory(self) -> None:
        """The last third of the run against the one before it: what is filled in the beginning is no growth."""
        for node_id, samples in self._memory.items():
            third = max(1, len(samples) // 3)
            middle, end = statistics.median(samples[third : 2 * third] or samples), statistics.median(samples[-third:])
            self.result.memory_mib[node_id] = round(middle, 1), round(end, 1)
            if end > 1.1 * middle + 16:
                self.result.problems.append(f"broker {node_id} grew from {middle:.0f} to {end:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--rate", type=int, help="records of 1,000 bytes a second")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result: Any = Soak(Path(name), arguments.seconds, arguments.rate, arguments.seed).run()
    print(result)
    sys.exit(1 if result.problems else 0)


if __name__ == "__main__":
    main()
