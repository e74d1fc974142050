"""Tiered storage (KIP-405): copies to a bucket, and reads from it beside reads of the same bytes from the local log.

    make bench-tiering                                                   a directory, SeaweedFS, and the latency of S3
    make bench-tiering OPTIONS="--stores s3-standard --megabytes 256 --runs 1"

One broker for each store.  It takes a log, copies it, and forgets it; then consumers take turns, each time with a
broker that was started again: the log that stayed local, the bucket without reading ahead, and with it.  `s3-standard`
is a directory to which the fault switch gives the latency of S3 (log-normal; no limit to bandwidth).  Consumers are
librdkafka's, values 64 KiB; the first byte is that of a Fetch request at a random offset.  CPU is the broker's own.
Several consumers read the first quarter at once.  Compare within one run.
"""

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import confluent_kafka
import confluent_kafka.admin

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.workload import broker_cpu_s, broker_rss_mb, commit  # noqa: E402  the benchmark runs from a checkout
from broker.protocol.api_keys import ApiKey  # noqa: E402
from tests.support.broker_process import BrokerProcess  # noqa: E402
from tests.support.s3_server import SeaweedServer  # noqa: E402
from tests.support.tier import (  # noqa: E402
    COPIED_BYTES,
    TIERED_TOPIC,
    VALUE_BYTES,
    BulkReader,
    BulkWriter,
    alter_topic,
    directory_tier,
    s3_tier,
)
from tests.support.wire_client import WireClient  # noqa: E402

STORES: Final = ("directory", "seaweedfs", "s3-standard")
LOCAL: Final = "local"  # the topic that is not tiered
TIERED: Final = "tiered"
READ_AHEAD: Final = "wherry.remote.log.read.ahead.chunks"
TIER_BYTES: Final = "broker_objectstore_bytes_total"
TIER_REQUESTS: Final = "broker_objectstore_requests_total"
FETCH_VERSION: Final = 12  # the last one with names of topics
FETCH_BYTES: Final = 1 << 20
PATIENCE_S: Final = 600


@dataclass
class Copy:
    mb_per_s: float
    cpu_s_per_gb: float
    requests_per_gb: float


@dataclass
class Read:
    """`fetched` is in bytes from the bucket for each byte read."""

    mb_per_s: float
    first_byte_ms: float
    cpu_s_per_gb: float
    fetched: float
    gets_per_gb: float
    crowd_mb_per_s: float
    crowd_fetched: float
    rss_mb: float


@dataclass
class Result:
    store: str
    copies: list[Copy] = field(default_factory=list)
    reads: dict[str, list[Read]] = field(default_factory=dict)


class Bench:
    """One store."""

    def __init__(self, broker: BrokerProcess, store: str, arguments: argparse.Namespace) -> None:
        self.broker, self.store, self.arguments = broker, store, arguments
        self.size_bytes = arguments.megabytes * 1_000_000
        self.result = Result(store)
        self.ends: dict[int, int] = {}  # what of the tiered log is in the bucket alone

    def run(self) -> Result:
        self._inject()
        for turn in range(self.arguments.runs):
            self._say(f"run {turn + 1}, copy")
            self.result.copies.append(self._copy(TIERED if turn == 0 else f"again-{turn}"))
        self._write(LOCAL, {})
        kinds = {"local": (LOCAL, None), "bucket, no read-ahead": (TIERED, "0"), "bucket": (TIERED, None)}
        for turn in range(self.arguments.runs):
            for kind in list(kinds)[:: 1 if turn % 2 == 0 else -1]:
                self._say(f"run {turn + 1}, read, {kind}")
                self.result.reads.setdefault(kind, []).append(self._read(*kinds[kind]))
        return self.result

    def _say(self, text: str) -> None:
        print(f"{self.store}: {text}", file=sys.stderr)

    def _inject(self) -> None:
        if self.store == "s3-standard":
            url = f"http://127.0.0.1:{self.broker.metrics_port}/faults"
            urllib.request.urlopen(urllib.request.Request(url, json.dumps({"latency": self.store}).encode())).close()

    def _write(self, topic: str, config: Mapping[str, str]) -> int:
        """The bytes of its closed segments, all partitions together."""
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.broker.bootstrap})
        segment = {"segment.bytes": str(self.arguments.segment_megabytes << 20)}
        new = confluent_kafka.admin.NewTopic(topic, self.arguments.partitions, 1, config={**segment, **config})
        admin.create_topics([new])[topic].result(30)
        BulkWriter(self.broker.bootstrap, topic, self.arguments.partitions).write(self.size_bytes)
        closed = 0
        for partition in range(self.arguments.partitions):
            segments = sorted((self.broker.data / f"{topic}-{partition}").glob("*.log"))
            if topic == TIERED:
                self.ends[partition] = int(segments[-1].stem)
            closed += sum(each.stat().st_size for each in segments[:-1])
        return closed

    def _copy(self, topic: str) -> Copy:
        closed = self._write(topic, {**TIERED_TOPIC, "remote.log.copy.disable": "true"})
        cpu_s, requests, began = broker_cpu_s(self.broker.pid), self.broker.metric(TIER_REQUESTS), time.monotonic()
        alter_topic(self.broker.bootstrap, topic, {"remote.log.copy.disable": "false"})
        self._becomes(lambda: self.broker.metric(COPIED_BYTES, topic=topic) >= closed)
        seconds, gigabytes = time.monotonic() - began, closed / 1e9
        cpu_s = broker_cpu_s(self.broker.pid) - cpu_s
        requests = self.broker.metric(TIER_REQUESTS) - requests
        alter_topic(self.broker.bootstrap, topic, {"local.retention.bytes": "1"})
        last = self.broker.data / f"{topic}-0"
        self._becomes(lambda: not (last / f"{0:020}.log").exists())
        return Copy(1000 * gigabytes / seconds, cpu_s / gigabytes, requests / gigabytes)

    def _becomes(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline, self.broker.log_tail()
            time.sleep(0.2)

    def _restart(self, read_ahead: str | None) -> None:
        self.broker.overrides.pop(READ_AHEAD, None)
        if read_ahead is not None:
            self.broker.overrides[READ_AHEAD] = read_ahead
        self.broker.stop()
        self.broker.launch()
        self.broker.wait_until_ready()
        self._inject()

    def _read(self, topic: str, read_ahead: str | None) -> Read:
        self._restart(read_ahead)
        before, cpu_s = self._from_bucket(), broker_cpu_s(self.broker.pid)
        reader = self._reader(topic)
        reader.read(self.ends)
        reader.close()
        gigabytes = reader.read_bytes / 1e9
        cpu_s, fetched = broker_cpu_s(self.broker.pid) - cpu_s, self._from_bucket()
        crowd_bytes, crowd_s = self._crowd(topic)
        by_crowd = self._from_bucket()[0] - fetched[0]
        return Read(
            mb_per_s=1000 * gigabytes / reader.seconds,
            first_byte_ms=self._first_byte_ms(topic),
            cpu_s_per_gb=cpu_s / gigabytes,
            fetched=(fetched[0] - before[0]) / reader.read_bytes,
            gets_per_gb=(fetched[1] - before[1]) / gigabytes,
            crowd_mb_per_s=crowd_bytes / crowd_s / 1e6,
            crowd_fetched=by_crowd / crowd_bytes,
            rss_mb=broker_rss_mb(self.broker.pid),
        )

    def _from_bucket(self) -> tuple[float, float]:
        """Bytes and requests since the start."""
        return (
            self.broker.metric(TIER_BYTES, operation="get_range"),
            self.broker.metric(TIER_REQUESTS, operation="get_range"),
        )

    def _reader(self, topic: str) -> BulkReader:
        return BulkReader(self.broker.bootstrap, topic, dict.fromkeys(self.ends, 0))

    def _crowd(self, topic: str) -> tuple[int, float]:
        """What several consumers of the log's first quarter, each a little after the other, read, and in how long."""
        ends = {partition: max(1, end // 4) for partition, end in self.ends.items()}
        readers = [self._reader(topic) for _ in range(self.arguments.crowd)]
        threads = [threading.Thread(target=reader.read, args=(ends,)) for reader in readers]
        began = time.monotonic()
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
        for reader in readers:
            reader.close()
        return sum(reader.read_bytes for reader in readers), seconds

    def _first_byte_ms(self, topic: str) -> float:
        """The median over offsets that nobody has read of late."""
        chance, times = random.Random(1), []
        with WireClient(self.broker.port, timeout_s=60) as client:
            for _ in range(self.arguments.seeks):
                partition = chance.choice(list(self.ends))
                began = time.perf_counter()
                records = fetch(client, topic, partition, chance.randrange(self.ends[partition]))
                times.append(1000 * (time.perf_counter() - began))
                assert len(records) > VALUE_BYTES, "nothing was read"
        return statistics.median(times)


def fetch(client: WireClient, topic: str, partition: int, offset: int) -> bytes:
    schema = client.request(ApiKey.FETCH, FETCH_VERSION)
    row = schema.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    request = schema.FetchRequest(
        max_wait=timedelta(0),
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=0,
        topics=(schema.FetchTopic(topic=topic, partitions=(row,)),),
        forgotten_topics_data=(),
    )
    answer = client.ask(ApiKey.FETCH, FETCH_VERSION, request)
    return bytes(answer.responses[0].partitions[0].records or b"")


@contextmanager
def running(store: str, directory: Path) -> Iterator[BrokerProcess]:
    with ExitStack() as stack:
        if store == "seaweedfs":
            tier = s3_tier("tier", stack.enter_context(SeaweedServer(directory / "s3", ["tier"])).url, brokers=1)
        else:
            tier = directory_tier(directory / "tier", brokers=1)
        broker = BrokerProcess(directory / "broker", {**tier, "offsets.topic.replication.factor": "1"})
        stack.callback(broker.__exit__)
        broker.launch()
        yield broker.wait_until_ready()


def table(results: list[Result]) -> str:
    """A row for each store and way to read; medians over the runs, ratios to the local log in the same run."""
    lines = [
        "| store | read | MB/s | of local | first byte, ms | CPU s/GB | of local | bytes fetched per byte | GETs per "
        "GB | several consumers: MB/s | bytes fetched per byte | resident, MB |",
        "| --- " * 12 + "|",
    ]
    for result in results:
        local = result.reads["local"]
        for kind, reads in result.reads.items():
            cells = [
                f"{_median(reads, 'mb_per_s'):.0f}",
                f"{_ratio(reads, local, 'mb_per_s'):.2f}",
                f"{_median(reads, 'first_byte_ms'):.1f}",
                f"{_median(reads, 'cpu_s_per_gb'):.2f}",
                f"{_ratio(reads, local, 'cpu_s_per_gb'):.2f}",
                f"{_median(reads, 'fetched'):.2f}",
                f"{_median(reads, 'gets_per_gb'):.0f}",
                f"{_median(reads, 'crowd_mb_per_s'):.0f}",
                f"{_median(reads, 'crowd_fetched'):.2f}",
                f"{_median(reads, 'rss_mb'):.0f}",
            ]
            lines.append(f"| {result.store} | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def copies(results: list[Result]) -> str:
    lines = ["| copy to | MB/s | CPU s/GB | requests per GB |", "| --- " * 4 + "|"]
    for result in results:
        names = (("mb_per_s", ".0f"), ("cpu_s_per_gb", ".2f"), ("requests_per_gb", ".0f"))
        cells = [format(statistics.median(getattr(each, name) for each in result.copies), form) for name, form in names]
        lines.append(f"| {result.store} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _median(reads: list[Read], name: str) -> float:
    return statistics.median(getattr(each, name) for each in reads)


def _ratio(reads: list[Read], local: list[Read], name: str) -> float:
    return statistics.median(
        getattr(mine, name) / getattr(theirs, name) for mine, theirs in zip(reads, local, strict=True)
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", nargs="*", choices=STORES, default=list(STORES))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--segment-megabytes", type=int, default=64)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--crowd", type=int, default=8, help="consumers of the same log at once")
    parser.add_argument("--seeks", type=int, default=30, help="from which the time to the first byte is")
    parser.add_argument("--json", action="store_true", help="every run's figures as well")
    return parser.parse_args()


def main() -> None:
    arguments, results = parse(), []
    for store in arguments.stores:
        with tempfile.TemporaryDirectory() as directory, running(store, Path(directory)) as broker:
            results.append(Bench(broker, store, arguments).run())
    print(
        f"Wherry {commit()}, {platform.machine()}, {os.cpu_count()} processors, load "
        f"{os.getloadavg()[1]:.1f}, Python {platform.python_version()}; {arguments.megabytes} MB in "
        f"{arguments.partitions} partitions, segments of {arguments.segment_megabytes} MiB, {arguments.crowd} "
        f"consumers at once, medians of {arguments.runs} runs\n"
    )
    print(table(results), copies(results), sep="\n\n", flush=True)
    if arguments.json:
        print(json.dumps([asdict(result) for result in results]))


if __name__ == "__main__":
    main()
