"""A topic much larger than its brokers' disks may hold, with faults on the way: `make tiered-proof`.

    python -m tests.cluster.tiered_proof                              10 GB, segments of 64 MB, faults of a minute
    python -m tests.cluster.tiered_proof --gigabytes 2 --segment-megabytes 16 --fault-seconds 5

Three brokers, each with a bucket for new records (KIP-1176), share one for closed segments (KIP-405).  While records
are produced each broker is killed for a while in turn, then the shared bucket is away, then a broker's own.  At all
times the disks hold no more than is kept locally, and what waits for a bucket that is away.  A follower that lost
everything comes back without records from a leader beyond the local tail.  A consumer reads all from offset 0, and the
hash of what it read is that of what was produced.  In the end local retention empties the disks, and with faults of
more than half a minute it is waited until the brokers' own buckets are empty, ten to twenty minutes.  Exit code 1 when
one of this is not so.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from tests.support.directories import files_under
from tests.support.patience import until
from tests.support.tier import TIERED_TOPIC, BulkReader, BulkWriter, Sampler, alter_topic, directory_tier
from tests.support.wal_cluster import WAL_TOPIC, WalCluster, leaders

TOPIC: Final = "proof"
PARTITIONS: Final = 3
MB: Final = 1_000_000
LONG_S: Final = 300  # gigabytes are moved
SAMPLE_S: Final = 0.5
# Beside the local tail: the active segment, one that is being copied, one whose file goes in a second, and what comes
# meanwhile, which is more than is produced while a follower catches up.
SEGMENTS_UNDER_WAY: Final = 8
OTHER_FILES_BYTES: Final = 64 * MB  # indexes, snapshots, internal topics, the metadata log
ORPHAN_AGE_S: Final = 360  # the least that can be configured
EMPTY_S: Final = 1500  # a broker believes its clock and its start for ten minutes each before it deletes early
FETCHED_REMOTELY: Final = "kafka_server_brokertopicmetrics_remotefetchbytes_total"
KEPT_FILES: Final = ("meta.properties", "bootstrap.checkpoint", "__cluster_metadata-0", ".lock")
SETTINGS: Final = {
    "remote.wal.gc.interval.ms": "1000",
    "remote.wal.orphan.min.age.ms": str(1000 * ORPHAN_AGE_S),
    "auto.leader.rebalance.enable": "false",
}


@dataclass(frozen=True)
class Plan:
    size_bytes: int = 10_000 * MB
    segment_bytes: int = 64 * MB
    fault_seconds: float = 60.0

    @property
    def is_long(self) -> bool:
        """Long enough to wait for what takes its minutes."""
        return self.fault_seconds > 30

    @property
    def local_bytes(self) -> int:
        """What of a partition stays on a disk: local.retention.bytes."""
        return 2 * self.segment_bytes

    @property
    def disk_bytes_max(self) -> int:
        """Of a broker while nothing is wrong."""
        return PARTITIONS * (self.local_bytes + SEGMENTS_UNDER_WAY * self.segment_bytes) + OTHER_FILES_BYTES


@dataclass
class Result:
    """Megabytes are 10^6 bytes."""

    produced_mb: float = 0.0
    read_mb: float = 0.0
    produce_mb_per_s: float = 0.0
    read_mb_per_s: float = 0.0
    read_remotely_mb: float = 0.0
    disk_mb_max: float = 0.0
    disk_mb_allowed: float = 0.0
    disk_mb_while_away: float = 0.0
    tail_mb: float = 0.0
    rejoined_mb: dict[str, float] = field(default_factory=dict)  # by path
    objects_left: int = 0  # in the brokers' own buckets, in the end
    seconds: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Proof:
    """Life: `Proof(...).run()`."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self._plan = plan
        self._tier = directory / "tier"
        self._cluster = WalCluster(directory / "cluster", settings={**SETTINGS, **directory_tier(self._tier)})
        self._is_bounded = True  # while the shared bucket is there
        self.result = Result(disk_mb_allowed=plan.disk_bytes_max / MB)

    def run(self) -> Result:
        plan, cluster = self._plan, self._cluster
        with cluster:
            config = {
                **WAL_TOPIC,
                **TIERED_TOPIC,
                "min.insync.replicas": "2",
                "segment.bytes": str(plan.segment_bytes),
                "local.retention.bytes": str(plan.local_bytes),
            }
            cluster.create_topic(TOPIC, PARTITIONS, 3, config)
            cluster.wait_for_full_isr(TOPIC)
            writer = BulkWriter(cluster.bootstrap, TOPIC, PARTITIONS)
            with Sampler(self._look_at_disks, SAMPLE_S):
                self._produce(writer)
                self._replace_a_follower()
                self._read_all(writer)
            self._drain()
            self._read_what_was_drained(writer)
            self._judge_processes()
        return self.result

    def _produce(self, writer: BulkWriter) -> None:
        """A share of it quietly, then one for each fault, then the rest quietly."""
        began = time.monotonic()
        faults: dict[str, Callable[[], None]] = {
            **{f"broker {node_id}": lambda node_id=node_id: self._kill(node_id) for node_id in (3, 2, 1)},  # type: ignore[misc]
            "shared bucket": lambda: self._take_away(self._tier),
            "own bucket": lambda: self._take_away(self._cluster.bucket_directories[2]),
        }
        share = self._plan.size_bytes // (len(faults) + 2)
        with self._timed("undisturbed"):
            writer.write(share)
        self.result.produce_mb_per_s = share / MB / self.result.seconds["undisturbed"]
        for name, fault in faults.items():
            with self._timed(f"without {name}"):
                self._is_bounded = name != "shared bucket"
                with _in_background(fault):
                    writer.write(share)
                self._cluster.wait_for_full_isr(TOPIC, LONG_S)
                self._becomes(self._is_small, f"disks hold little after the {name} was back")
                self._is_bounded = True
        writer.write(self._plan.size_bytes - writer.sent_bytes)
        self.result.seconds["produce"] = round(time.monotonic() - began, 1)
        self.result.produced_mb = writer.sent_bytes / MB

    def _kill(self, node_id: int) -> None:
        self._cluster.kill(node_id)
        time.sleep(self._plan.fault_seconds)
        self._cluster.launch(node_id)
        self._cluster.nodes[node_id].wait_until_ready()

    def _take_away(self, place: Path) -> None:
        away = place.with_name(f"{place.name}-away")
        place.rename(away)
        time.sleep(self._plan.fault_seconds)
        away.rename(place)

    def _replace_a_follower(self) -> None:
        """All that is in the buckets, and on the other brokers' disks, comes without the leaders' old records."""
        cluster, node_id = self._cluster, 3
        with self._timed("rejoin"):
            self._becomes(self._is_settled, "what is local is what local.retention.bytes says")
            cluster.graceful_stop(node_id)
            for path in cluster.nodes[node_id].data.iterdir():
                if path.name not in KEPT_FILES:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
            by_leader = leaders(cluster, TOPIC).items()
            tail = sum(self._log_bytes(leader, partition) for partition, leader in by_leader)
            cluster.launch(node_id)
            cluster.nodes[node_id].wait_until_ready()
            cluster.wait_for_full_isr(TOPIC, LONG_S)
        broker = cluster.broker(node_id)
        received = {
            path: broker.metric("broker_replication_bytes_total", topic=TOPIC, path=path)
            for path in ("fetch", "fallback", "wal")
        }
        self.result.tail_mb = tail / MB
        self.result.rejoined_mb = {path: count / MB for path, count in received.items()}
        if received["fetch"] + received["fallback"] > tail or received["wal"] > tail + self._plan.segment_bytes:
            self.result.problems.append(f"the follower took {received}, and the local tail has {tail} bytes")

    def _read_all(self, writer: BulkWriter) -> None:
        with self._timed("read"):
            reader = BulkReader(self._cluster.bootstrap, TOPIC, dict.fromkeys(range(PARTITIONS), 0))
            reader.read(dict(enumerate(writer.records)), LONG_S)
            reader.close()
        self.result.read_mb = reader.read_bytes / MB
        self.result.read_mb_per_s = reader.read_bytes / MB / reader.seconds
        remotely = sum(broker.metric(FETCHED_REMOTELY, topic=TOPIC) for broker in self._cluster.brokers)
        self.result.read_remotely_mb = remotely / MB
        for partition, expected in enumerate(writer.hashes):
            if reader.hashes[partition].digest() != expected.digest():
                self.result.problems.append(f"partition {partition} was read otherwise than it was produced")
        if remotely < reader.read_bytes - PARTITIONS * (self._plan.local_bytes + 2 * self._plan.segment_bytes):
            self.result.problems.append(f"of {reader.read_bytes} bytes only {remotely} came from the shared bucket")

    def _drain(self) -> None:
        """Idle, everything leaves the disks for the shared bucket, and then the brokers' own buckets."""
        with self._timed("drain"):
            alter_topic(self._cluster.bootstrap, TOPIC, {"local.retention.ms": "1000"})
            self._becomes(lambda: self._local_bytes() == 0, "no record is on the disks")
        if self._plan.is_long:
            with self._timed("own buckets"):
                self._becomes(lambda: self._own_objects() == 0, "the brokers' own buckets are empty", EMPTY_S)
        self.result.objects_left = self._own_objects()

    def _read_what_was_drained(self, writer: BulkWriter) -> None:
        """The end of the log is in the shared bucket now."""
        begins = {partition: max(0, end - 100) for partition, end in enumerate(writer.records)}
        reader = BulkReader(self._cluster.bootstrap, TOPIC, begins)
        reader.read(dict(enumerate(writer.records)), LONG_S)
        reader.close()

    def _judge_processes(self) -> None:
        for node_id in self._cluster.node_ids:
            broker = self._cluster.broker(node_id)
            if not broker.is_running():
                self.result.problems.append(f"broker {node_id} died: {broker.log_tail(5)}")
            elif (code := self._cluster.graceful_stop(node_id)) != 0:
                self.result.problems.append(f"broker {node_id} stopped with {code}")

    # -- what is on the disks -----------------------------------------------------------------------------------------

    def _look_at_disks(self) -> None:
        fullest = max(_size_of(self._cluster.nodes[node_id].data) for node_id in self._cluster.node_ids)
        result = self.result
        if not self._is_bounded:
            result.disk_mb_while_away = max(result.disk_mb_while_away, fullest / MB)
            return
        result.disk_mb_max = max(result.disk_mb_max, fullest / MB)
        if fullest > self._plan.disk_bytes_max and len(result.problems) < 10:
            result.problems.append(f"a disk holds {fullest / MB:.0f} MB, {self._plan.disk_bytes_max / MB:.0f} at most")

    def _log_bytes(self, node_id: int, partition: int) -> int:
        place = self._cluster.nodes[node_id].data / f"{TOPIC}-{partition}"
        total = 0
        for path in place.glob("*.log"):
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def _local_bytes(self) -> int:
        return sum(self._log_bytes(n, partition) for n in self._cluster.node_ids for partition in range(PARTITIONS))

    def _is_small(self) -> bool:
        size_max = self._plan.disk_bytes_max
        return all(_size_of(self._cluster.nodes[node_id].data) <= size_max for node_id in self._cluster.node_ids)

    def _is_settled(self) -> bool:
        """A segment goes only when more than the limit would be left."""
        size_max = self._plan.local_bytes + self._plan.segment_bytes
        return all(
            self._log_bytes(node_id, partition) <= size_max
            for node_id in self._cluster.node_ids
            for partition in range(PARTITIONS)
        )

    def _own_objects(self) -> int:
        return sum(len(files_under(place, ".wal")) for place in self._cluster.bucket_directories.values())

    def _becomes(self, reached: Callable[[], bool], what: str, patience_s: float = LONG_S) -> None:
        """What does not is a problem of the result."""
        try:
            until(reached, what, patience_s=patience_s, every_s=0.25)
        except AssertionError as error:
            self.result.problems.append(str(error))

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.result.seconds[name] = round(time.monotonic() - began, 1)
        print(f"{name}: {self.result.seconds[name]} s", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _in_background(work: Callable[[], None]) -> Iterator[None]:
    """At its end it has ended, and its error is raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join()
    for error in errors:
        raise error


def _size_of(directory: Path) -> int:
    """Of all files below it; what is gone meanwhile has none."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(f"{folder}/{name}").st_size
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--segment-megabytes", type=int, default=64, help="local.retention.bytes is twice that")
    parser.add_argument("--fault-seconds", type=float, default=60.0)
    parser.add_argument("--directory", type=Path, help="where there is room; twice the gigabytes are safe")
    arguments = parser.parse_args()
    plan = Plan(round(arguments.gigabytes * 1000 * MB), arguments.segment_megabytes * MB, arguments.fault_seconds)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        result = Proof(Path(name), plan).run()
    print(json.dumps(asdict(result), indent=2))
    sys.exit(1 if result.problems else 0)


if __name__ == "__main__":
    main()
