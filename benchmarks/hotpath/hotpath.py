"""The hot path beside a small C server: broker CPU per gigabyte and per request, as ratios of one interleaved run.

    make bench-hotpath                                  the table, in two minutes
    make bench-hotpath OPTIONS="--rounds 9"             steadier
    make bench-hotpath OPTIONS="--only '16 KB'"         some rows

Broker and reference run on one processor, the load generator on another.  CPU seconds are what the kernel charged to
the server; both servers keep little data, because appending to memory the machine never used measures the hypervisor.
"""

import argparse
import contextlib
import json
import os
import platform
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import confluent_kafka.admin

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.hotpath import request_frames  # noqa: E402  the benchmark runs from a checkout
from benchmarks.workload import broker_cpu_s, commit  # noqa: E402
from broker.protocol.api_keys import ApiKey  # noqa: E402
from broker.protocol.durations import milliseconds  # noqa: E402
from broker.protocol.requests import decode_response, encode_request  # noqa: E402
from broker.protocol.response_schema import RequestSchema  # noqa: E402
from tests.support.broker_process import BrokerProcess, free_port  # noqa: E402

TOPIC: Final = "hotpath"
READ_TOPIC: Final = "hotpath-read"  # filled once and kept
IDLE_TOPIC: Final = "hotpath-idle"  # never written
WIDE_TOPIC: Final = "hotpath-wide"
PARTITIONS: Final = 4
WIDE_PARTITIONS: Final = 1000
SEGMENT_MB: Final = 32
SEGMENTS_KEPT: Final = 3
FILL_SECONDS: Final = 0.3

SERVER_CPU, CLIENT_CPU = 0, 1

QUICK_RETENTION: Final = {
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "100",
}
KEPT_SHORT: Final = {
    "segment.bytes": str(SEGMENT_MB << 20),
    "retention.bytes": str(2 * SEGMENT_MB << 20),
    "file.delete.delay.ms": "100",
    "max.message.bytes": "2000000",
}


@dataclass(frozen=True)
class Load:
    """One row: what is asked, and what its broker may cost at most."""

    name: str
    mode: str
    size_bytes: int
    depth: int
    unit: str = "cpu_s_gb"
    goal: str = ""
    connections: int = PARTITIONS
    rate: int = 0
    is_idempotent: bool = False
    max_wait_ms: int = 0
    topic: str = TOPIC
    has_reference: bool = True


LOADS: Final = (
    Load("produce 1 KB, pipelined", "produce", 1_085, 20, "us_request", "12 us"),
    Load("produce 16 KB", "produce", 16_384, 8, goal="1.6, 1.6 C"),
    Load("produce 64 KB", "produce", 65_536, 5, goal="0.95, 1.5 C"),
    Load("produce 1 MB", "produce", 1_000_000, 3, goal="0.7"),
    Load("produce 16 KB, idempotent, acks=all", "produce", 16_384, 5, is_idempotent=True),
    Load("produce 64 KB, idempotent, acks=all", "produce", 65_536, 5, is_idempotent=True),
    Load("fetch 64 KB", "fetch", 65_536, 1, goal="0.9, 1.8 C", topic=READ_TOPIC),
    Load("fetch 1 MB", "fetch", 1 << 20, 1, goal="0.45", topic=READ_TOPIC),
    Load("produce 1 KB at 1,000/s", "produce", 1_085, 1000, "us_request", "2 C", connections=1, rate=1000),
    Load(
        "idle consumers, 200 at 100 ms",
        "fetch",
        1 << 20,
        1,
        "us_request",
        "50 us",
        connections=200,
        max_wait_ms=100,
        topic=IDLE_TOPIC,
        has_reference=False,
    ),
)


@dataclass
class Server:
    name: str
    port: int
    pid: int


def build(name: str, directory: Path) -> Path:
    target = directory / name
    subprocess.run(["cc", "-O2", "-march=native", "-o", target, HERE / f"{name}.c"], check=True)
    return target


def pin(pid: int, cpu: int) -> None:
    for thread in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(thread), {cpu})


@contextlib.contextmanager
def wherry(directory: Path) -> Iterator[Server]:
    with BrokerProcess(directory / "wherry", QUICK_RETENTION) as broker:
        pin(broker.pid, SERVER_CPU)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = (
            (TOPIC, PARTITIONS, KEPT_SHORT),
            (READ_TOPIC, PARTITIONS, {"segment.bytes": str(SEGMENT_MB << 20), "max.message.bytes": "2000000"}),
            (IDLE_TOPIC, PARTITIONS, {}),
            (WIDE_TOPIC, WIDE_PARTITIONS, {}),
        )
        new = [confluent_kafka.admin.NewTopic(name, count, 1, config=config) for name, count, config in topics]
        for created in admin.create_topics(new).values():
            created.result(30)
        time.sleep(0.5)
        yield Server("wherry", broker.port, broker.pid)


@contextlib.contextmanager
def reference(directory: Path) -> Iterator[Server]:
    program, port, data = build("reference_server", directory), free_port(), directory / "reference"
    data.mkdir()
    command = [program, str(port), data, str(SEGMENT_MB), str(SEGMENTS_KEPT)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        pin(process.pid, SERVER_CPU)
        assert process.stdout is not None
        process.stdout.readline()
        yield Server("reference", port, process.pid)
    finally:
        process.kill()
        process.wait()


class Generator:
    """Runs loads; requests are encoded once, those of idempotent producers anew so that sequences begin at 0."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._program = build("load_generator", directory)
        self._next_producer_id = 1_000_000

    def run(self, load: Load, server: Server, seconds: float) -> dict[str, float]:
        requests = self._requests(load)
        command: list[Any] = [self._program, load.mode, server.port, requests, load.connections, load.depth]
        command += [seconds, load.rate, server.pid]
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {CLIENT_CPU}),
        )
        assert done.returncode == 0, f"{load.name} against {server.name}: {done.stderr}"
        result: dict[str, float] = json.loads(done.stdout)
        assert not result["errors"], f"{load.name} against {server.name}: {done.stdout}{done.stderr}"
        return result

    def fill(self, server: Server) -> None:
        """Something to read."""
        self.run(Load("fill", "produce", 16_384, 8, topic=READ_TOPIC), server, FILL_SECONDS)

    def _requests(self, load: Load) -> Path:
        path = self._directory / f"{load.mode}-{load.topic}-{load.size_bytes}-{load.max_wait_ms}-{load.is_idempotent}"
        if load.is_idempotent:
            request_frames.write_produce(path, load.topic, PARTITIONS, load.size_bytes, self._next_producer_id)
            self._next_producer_id += PARTITIONS
        elif not path.exists():
            if load.mode == "produce":
                request_frames.write_produce(path, load.topic, PARTITIONS, load.size_bytes)
            else:
                request_frames.write_fetch(path, load.topic, PARTITIONS, load.size_bytes, max_wait_ms=load.max_wait_ms)
        return path


def empty_session_fetches_us(server: Server, count: int = 10_000) -> float:
    """Broker CPU microseconds per fetch of a session with a thousand partitions in which nothing happens."""
    version = request_frames.FETCH_VERSION
    schema = RequestSchema.of(ApiKey.FETCH, version)

    def request(session_id: int, session_epoch: int, partitions: int) -> bytearray:
        asked = tuple(
            schema.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
            for number in range(partitions)
        )
        entity = schema.FetchRequest(
            max_wait=milliseconds(0),
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=(schema.FetchTopic(topic=WIDE_TOPIC, partitions=asked),) if asked else (),
            forgotten_topics_data=(),
            rack_id="",
        )
        return bytearray(encode_request(ApiKey.FETCH, version, 0, "bench", entity))

    with socket.create_connection(("127.0.0.1", server.port)) as connection, connection.makefile("rb") as responses:

        def ask(frame: bytearray) -> bytes:
            connection.sendall(frame)
            (size,) = struct.unpack(">i", responses.read(4))
            return responses.read(size)

        _, opened = decode_response(ApiKey.FETCH, version, ask(request(0, 0, WIDE_PARTITIONS)))
        mark = 0x01020304
        frame = request(opened.session_id, mark, 0)
        epoch_at = frame.index(struct.pack(">i", mark))
        before = broker_cpu_s(server.pid)
        for epoch in range(1, count + 1):
            struct.pack_into(">i", frame, epoch_at, epoch)
            ask(frame)
        return (broker_cpu_s(server.pid) - before) / count * 1e6


def median(results: list[dict[str, float]], name: str) -> float:
    return statistics.median(result[name] for result in results)


def row(load: Load, ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> str:
    digits = 1 if load.unit == "us_request" else 2
    cells = [load.name, f"{median(ours, load.unit):.{digits}f} {'us' if load.unit == 'us_request' else 's/GB'}"]
    if theirs:
        cells += [f"{median(theirs, load.unit):.{digits}f}"]
        cells += [f"{statistics.median(a[load.unit] / b[load.unit] for a, b in zip(ours, theirs, strict=True)):.2f}"]
    else:
        cells += ["-", "-"]
    cells += [
        f"{median(ours, 'mb_s'):.0f}",
        f"{median(ours, 'p50_us') / 1000:.2f}",
        f"{median(ours, 'p99_us') / 1000:.1f}",
    ]
    return "| " + " | ".join([*cells, load.goal]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="per load and round")
    parser.add_argument("--realtime", action="store_true", help="stop all other work meanwhile (SCHED_RR, needs root)")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    arguments = parser.parse_args()
    loads = [load for load in LOADS if arguments.only in load.name]
    if arguments.realtime:  # inherited by all that is started
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        directory = Path(name)
        generator = Generator(directory)
        servers = [stack.enter_context(wherry(directory)), stack.enter_context(reference(directory))]
        if any(load.topic == READ_TOPIC for load in loads):
            for server in servers:
                generator.fill(server)
        for turn in range(arguments.rounds):
            for load in loads:
                for server in servers if turn % 2 == 0 else reversed(servers):
                    if load.has_reference or server.name == "wherry":
                        found = generator.run(load, server, arguments.seconds)
                        results.setdefault((load.name, server.name), []).append(found)
        session_us = empty_session_fetches_us(servers[0]) if not arguments.only else None
    print(f"{commit()}, {platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}")
    print("| load | broker CPU | reference | ratio | MB/s | p50 ms | p99 ms | goal |")
    print("| --- " * 8 + "|")
    for load in loads:
        print(row(load, results[load.name, "wherry"], results.get((load.name, "reference"), [])))
    if session_us is not None:
        print(f"| empty fetch, session of {WIDE_PARTITIONS} | {session_us:.1f} us | - | - | - | - | - | 50 us |")


if __name__ == "__main__":
    main()
