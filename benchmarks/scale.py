"""Scale: what a thousand connections and ten thousand partitions cost, and what must not grow with them.

    make bench-scale                                everything, some minutes
    make bench-scale OPTIONS="--only partitions"    one part: connections, busy, sessions, partitions

One node as `wherry server` starts it, with at most 20,000 open files.  CPU time is the broker's own, wall time includes
whatever else the machine does.  Stalls are what `broker_event_loop_lag_seconds` shows: since the start of the process
exactly, within a phase as the bound of the bucket that holds the longest.
"""

import argparse
import os
import re
import resource
import select
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from broker.protocol.api_keys import ApiKey  # noqa: E402  the benchmark runs from a checkout
from broker.protocol.durations import milliseconds  # noqa: E402
from broker.protocol.requests import encode_request  # noqa: E402
from broker.protocol.response_schema import RequestSchema  # noqa: E402
from broker.records.memory_records_builder import records_batch  # noqa: E402
from tests.support.broker_process import BrokerProcess  # noqa: E402
from tests.support.wire_client import WireClient  # noqa: E402

OPEN_FILES = 20_000
PATIENCE_S = 300
IDLE_S = 10
SCRAPES = 5
CREATE_VERSION, PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 7, 9, 15, 12

Row = tuple[str, str]


class Measured:
    """A broker and what its process costs."""

    def __init__(self, directory: Path) -> None:
        self.broker = BrokerProcess(directory)
        self.rows: list[Row] = []

    def note(self, what: str, value: str) -> None:
        self.rows.append((what, value))
        print(f"  {what:<58} {value}", flush=True)

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.broker.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def resident_mb(self) -> float:
        match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.broker.pid}/status").read_text())
        return int(match[1]) / 1024 if match else 0.0

    @property
    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.broker.pid}/fd"))

    @property
    def longest_stall_ms(self) -> float:
        return self.broker.metric("broker_event_loop_lag_longest_seconds") * 1000

    def stall_buckets(self) -> dict[float, float]:
        pattern = r'broker_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)'
        return {float(bound): float(count) for bound, count in re.findall(pattern, self.broker.metrics())}

    def longest_stall_since(self, before: dict[float, float]) -> str:
        after = self.stall_buckets()
        total = after[float("inf")] - before[float("inf")]
        bound = min(bound for bound in after if after[bound] - before[bound] >= total)
        return f"<= {bound * 1000:g} ms"

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), self.cpu_s if self.broker.is_running() else 0.0
        yield
        spent = self.cpu_s - cpu if self.broker.is_running() else None
        text = f"{time.perf_counter() - wall:.2f} s"
        self.note(what, text if spent is None else f"{text}, CPU {max(spent, 0.0):.2f} s")

    def idle(self, what: str) -> None:
        cpu, wall = self.cpu_s, time.perf_counter()
        time.sleep(IDLE_S)
        self.note(what, f"{(self.cpu_s - cpu) / (time.perf_counter() - wall) * 100:.1f} % of a core")


def create(client: WireClient, topics: Sequence[tuple[str, int]]) -> None:
    schema = RequestSchema.of(ApiKey.CREATE_TOPICS, CREATE_VERSION)
    request = schema.CreateTopicsRequest(
        topics=tuple(
            schema.CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
            )
            for name, partitions in topics
        ),
        timeout=milliseconds(PATIENCE_S * 1000),
        validate_only=False,
    )
    answer = client.ask(ApiKey.CREATE_TOPICS, CREATE_VERSION, request)
    assert all(topic.error_code == 0 for topic in answer.topics), answer.topics
    for name, partitions in topics:
        while partition_count(client, name) < partitions:
            time.sleep(0.05)


def partition_count(client: WireClient, name: str | None) -> int:
    """Partitions of one topic, or of all."""
    schema = RequestSchema.of(ApiKey.METADATA, METADATA_VERSION)
    topics = None if name is None else (schema.MetadataRequestTopic(topic_id=None, name=name),)
    request = schema.MetadataRequest(
        topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    answer = client.ask(ApiKey.METADATA, METADATA_VERSION, request)
    return sum(len(topic.partitions) for topic in answer.topics)


def produce_frame(topic: str, partition: int) -> bytes:
    schema = RequestSchema.of(ApiKey.PRODUCE, PRODUCE_VERSION)
    batch = bytes(records_batch((int(time.time() * 1000), None, b"v" * 1024)))
    data = schema.TopicProduceData(
        name=topic, partition_data=(schema.PartitionProduceData(index=partition, records=batch),)
    )
    request = schema.ProduceRequest(transactional_id=None, acks=1, timeout=milliseconds(10_000), topic_data=(data,))
    return encode_request(ApiKey.PRODUCE, PRODUCE_VERSION, 1, "scale", request)


def idle_connections(measured: Measured) -> None:
    """A: a thousand clients that said hello and wait."""
    broker = measured.broker
    measured.idle("idle, no connection")
    before = measured.resident_mb
    schema = RequestSchema.of(ApiKey.API_VERSIONS, 3)
    hello = schema.ApiVersionsRequest(client_software_name="scale", client_software_version="1")
    clients = [WireClient(broker.port) for _ in range(1000)]
    for client in clients:
        client.ask(ApiKey.API_VERSIONS, 3, hello)
    grown = measured.resident_mb - before
    measured.note("1,000 idle connections, memory of one", f"{grown * 1024 / 1000:.1f} KB")
    measured.idle("idle, 1,000 connections")
    for client in clients:
        client.close()


def busy_connections(measured: Measured) -> None:
    """C: each connection has one produce request of 1 KB in flight."""
    with WireClient(measured.broker.port) as client:
        create(client, [("busy", 16)])
    frames = [produce_frame("busy", partition) for partition in range(16)]
    for count in (10, 10, 100, 500, 1000, 1500):
        connections = [socket.create_connection(("127.0.0.1", measured.broker.port)) for _ in range(count)]
        exchange(connections, frames, 2 * count)
        requests = 30_000
        cpu, wall = measured.cpu_s, time.perf_counter()
        exchange(connections, frames, requests)
        cpu, wall = measured.cpu_s - cpu, time.perf_counter() - wall
        measured.note(
            f"{count} busy connections, CPU of a request", f"{cpu / requests * 1e6:.1f} us ({requests / wall:,.0f}/s)"
        )
        for connection in connections:
            connection.close()


def exchange(connections: Sequence[socket.socket], frames: Sequence[bytes], requests: int) -> None:
    """So many requests and answers, one at a time on each connection."""
    poll = select.epoll()
    by_descriptor = {connection.fileno(): connection for connection in connections}
    sent = answered = 0
    for descriptor, connection in by_descriptor.items():
        poll.register(descriptor, select.EPOLLIN)
        connection.sendall(frames[sent % len(frames)])
        sent += 1
    while answered < sent:
        for descriptor, _ in poll.poll(PATIENCE_S):
            connection = by_descriptor[descriptor]
            assert connection.recv(4096), "the broker closed a connection"
            answered += 1
            if sent < requests:
                connection.sendall(frames[sent % len(frames)])
                sent += 1
    poll.close()


def sessions(measured: Measured) -> None:
    """D: one partition of a session gets a record, then the session is asked."""
    with WireClient(measured.broker.port) as client:
        create(client, [("wide", 5000)])
        topic_id = topic_id_of(client, "wide")
        offsets = [0] * 10
        for count in (10, 10, 1000, 5000):
            asked = [(partition, offsets[partition] if partition < 10 else 0) for partition in range(count)]
            session = Session(client, topic_id, fetch(client, 0, 0, topic_id, asked).session_id, offsets)
            session.exchange(50)
            cpu, rounds = measured.cpu_s, 2000
            session.exchange(rounds)
            spent = (measured.cpu_s - cpu) / rounds * 1e6
            measured.note(f"session of {count:,} partitions, CPU of a produce and a fetch", f"{spent:.0f} us")
            fetch(client, session.session_id, -1, topic_id, ())


class Session:
    """A consumer of partitions the first ten of which get a record each in turn."""

    def __init__(self, client: WireClient, topic_id: Any, session_id: int, offsets: list[int]) -> None:
        self.session_id = session_id
        self._client = client
        self._topic_id = topic_id
        self._offsets = offsets
        self._epoch = 0
        self._frames = [produce_frame("wide", partition) for partition in range(len(offsets))]
        self._moved: list[tuple[int, int]] = []

    def exchange(self, rounds: int) -> None:
        for _ in range(rounds):
            self._epoch += 1
            partition = self._epoch % len(self._frames)
            self._client.send_bytes(self._frames[partition])
            self._client.receive(ApiKey.PRODUCE, PRODUCE_VERSION)
            answer = fetch(self._client, self.session_id, self._epoch, self._topic_id, self._moved)
            changed = [each.partition_index for topic in answer.responses for each in topic.partitions]
            assert changed == [partition], (changed, partition)
            self._offsets[partition] += 1
            self._moved = [(partition, self._offsets[partition])]


def topic_id_of(client: WireClient, name: str) -> Any:
    schema = RequestSchema.of(ApiKey.METADATA, METADATA_VERSION)
    topic = schema.MetadataRequestTopic(topic_id=None, name=name)
    request = schema.MetadataRequest(
        topics=(topic,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    return client.ask(ApiKey.METADATA, METADATA_VERSION, request).topics[0].topic_id


def fetch(client: WireClient, session_id: int, epoch: int, topic_id: Any, partitions: Sequence[tuple[int, int]]) -> Any:
    """Ask a session, with what changed in it: partitions and their offsets."""
    schema = RequestSchema.of(ApiKey.FETCH, FETCH_VERSION)
    asked = tuple(
        schema.FetchPartition(
            partition=partition,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=1,
        )
        for partition, offset in partitions
    )
    request = schema.FetchRequest(
        cluster_id=None,
        replica_state=schema.ReplicaState(replica_id=-1, replica_epoch=-1),
        max_wait=milliseconds(0),
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=(schema.FetchTopic(topic_id=topic_id, partitions=asked),) if asked else (),
        forgotten_topics_data=(),
        rack_id="",
    )
    return client.ask(ApiKey.FETCH, FETCH_VERSION, request)


def partitions(measured: Measured, topics: Sequence[tuple[str, int]], per_request: int) -> None:
    """B and E: ten thousand partitions in so many topics, of which a request makes `per_request`."""
    broker = measured.broker
    shape = f"{len(topics)} x {topics[0][1]:,}"
    before = measured.resident_mb
    with WireClient(broker.port, timeout_s=PATIENCE_S) as client:
        with measured.timed(f"{shape}: created"):
            for first in range(0, len(topics), per_request):
                create(client, topics[first : first + per_request])
        measured.note(f"{shape}: longest stall meanwhile", f"{measured.longest_stall_ms:.0f} ms")
        count = sum(number for _, number in topics)
        grown = measured.resident_mb - before
        measured.note(
            f"{shape}: memory of a partition", f"{grown * 1024 / count:.1f} KB ({measured.resident_mb:.0f} MB)"
        )
        measured.note(f"{shape}: open files", str(measured.open_files))
        with measured.timed(f"{shape}: Metadata of all topics"):
            assert partition_count(client, None) == count
    scrape(measured, shape)
    buckets = measured.stall_buckets()
    measured.idle(f"{shape}: idle")
    measured.note(f"{shape}: longest stall in {IDLE_S} idle seconds", measured.longest_stall_since(buckets))
    stop(measured, f"{shape}: stop")
    start(measured, f"{shape}: start after a clean stop")
    stop(measured, f"{shape}: stop again")
    start(measured, f"{shape}: start again")
    broker.kill()
    start(measured, f"{shape}: start after kill -9")


def scrape(measured: Measured, shape: str) -> None:
    buckets = measured.stall_buckets()
    cpu, wall = measured.cpu_s, time.perf_counter()
    for _ in range(SCRAPES):
        size = len(measured.broker.metrics())
    cpu, wall = (measured.cpu_s - cpu) / SCRAPES, (time.perf_counter() - wall) / SCRAPES
    measured.note(f"{shape}: a scrape", f"{wall:.2f} s, CPU {cpu:.2f} s, {size / 1e6:.1f} MB")
    measured.note(f"{shape}: longest stall in {SCRAPES} scrapes", measured.longest_stall_since(buckets))


def stop(measured: Measured, what: str) -> None:
    wall = time.perf_counter()
    assert measured.broker.stop() == 0, measured.broker.log_tail()
    measured.note(what, f"{time.perf_counter() - wall:.2f} s")


def start(measured: Measured, what: str) -> None:
    wall = time.perf_counter()
    measured.broker.start()
    measured.note(
        what,
        f"{time.perf_counter() - wall:.2f} s, CPU {measured.cpu_s:.2f} s, "
        f"longest stall {measured.longest_stall_ms:.0f} ms",
    )


PARTS: dict[str, list[Callable[[Measured], None]]] = {
    "connections": [idle_connections],
    "busy": [busy_connections],
    "sessions": [sessions],
    "partitions": [
        lambda measured: partitions(measured, [(f"many-{index}", 100) for index in range(100)], 50),
        lambda measured: partitions(measured, [("one", 9_999)], 1),
    ],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, help="one part instead of all")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    BrokerProcess.patience_s = PATIENCE_S
    rows: list[Row] = []
    for name in [arguments.only] if arguments.only else PARTS:
        for part in PARTS[name]:
            print(f"{name}: load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
            with tempfile.TemporaryDirectory(prefix="wherry-scale-") as directory:
                measured = Measured(Path(directory))
                with measured.broker:
                    part(measured)
                rows += measured.rows
    print("\n| what | measured |\n| --- | --- |")
    for what, value in rows:
        print(f"| {what} | {value} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
