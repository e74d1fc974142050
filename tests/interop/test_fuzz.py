"""Damaged requests against a running broker: it lives, its memory is bounded, no handler is surprised, and a
well-behaved client beside them never notices.

`WHERRY_FUZZ_CASES=1000000` runs the long form (`make fuzz`); `WHERRY_FUZZ_FIRST=n` begins at another case.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop
from kio.schema.errors import ErrorCode

from broker.protocol.api_keys import ApiKey
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import batches
from tests.golden.requests.outcomes import World
from tests.support.broker_process import BrokerProcess
from tests.support.fuzz_cases import Case, case
from tests.support.patience import PATIENCE, until
from tests.support.wire_client import WireClient

pytestmark = [pytest.mark.interop, pytest.mark.timeout(24 * 3600)]

CASES = int(os.environ.get("WHERRY_FUZZ_CASES", "6000"))
FIRST = int(os.environ.get("WHERRY_FUZZ_FIRST", "0"))
ROUND = 1000
CONCURRENCY = 24
ANSWER_WAIT_S = 0.25
"""How long a case listens: parked requests and unfinished frames are cut off after it."""

RSS_LIMIT_MIB = 400
NEIGHBOUR_CPU_S = 10  # of the broker, while its neighbour waits for one answer: that is not how busy a machine is
TOPIC, GROUP = "neighbour", "neighbours"

SETTINGS = {
    "auto.create.topics.enable": "false",  # else each damaged name makes a topic
    "group.max.session.timeout.ms": "60000",
    "offsets.retention.check.interval.ms": "5000",
    "internal.log.segment.bytes": "1000000",
    "log.retention.bytes": "1000000",
    "log.retention.check.interval.ms": "2000",
    "log.segment.delete.delay.ms": "1000",
}


def test_fuzz(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(SETTINGS)
    with WireClient(broker.port) as client:
        world = World(client)
        world.prepare()
        neighbour = Neighbour(broker.port, broker.pid)
        with neighbour.running():
            for start in range(FIRST, FIRST + CASES, ROUND):
                cases = [case(number) for number in range(start, min(start + ROUND, FIRST + CASES))]
                uvloop.run(send_all(broker, cases))
                told = f"cases {start} to {start + len(cases) - 1}"
                assert broker.is_running(), f"{told}: the broker died:\n{broker.log_tail()}"
                failures = broker.metric("broker_request_handler_failures_total")
                assert failures == 0, f"{told}: {failures:.0f} handlers failed:\n{tracebacks(broker.log_file)}"
                memory = resident_mib(broker.pid)
                assert memory < RSS_LIMIT_MIB, f"{told}: {memory} MiB"
                assert not neighbour.complaints, f"{told}: {neighbour.complaints}"
                world.keep_only({TOPIC})
    assert neighbour.rounds > 10
    print(
        f"{CASES} cases; {memory} MiB; the neighbour made {neighbour.rounds} rounds, "
        f"the slowest answer took {neighbour.slowest_s:.2f} s"
    )


async def send_all(broker: BrokerProcess, cases: list[Case]) -> None:
    waiting = iter(cases)

    async def work() -> None:
        for each in waiting:
            await send(broker.controller_port if each.to_controller else broker.port, each.chunks)

    await asyncio.gather(*(work() for _ in range(CONCURRENCY)))


async def send(port: int, chunks: list[bytes]) -> None:
    """Send the chunks, and listen until the broker closes or has been silent for a while after its last answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError, TimeoutError):
        for chunk in chunks:
            if not writer.is_closing():
                writer.write(chunk)
                await asyncio.sleep(0)
        wait_s = ANSWER_WAIT_S
        while await asyncio.wait_for(reader.read(65536), wait_s):
            wait_s = ANSWER_WAIT_S / 10
    writer.transport.abort()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) // 1024


def tracebacks(log_file: Path) -> str:
    """What the broker logged of the handlers that failed."""
    lines = log_file.read_text(errors="replace").splitlines()
    starts = [number for number, line in enumerate(lines) if "Traceback" in line]
    return "\n".join("\n".join(lines[max(start - 3, 0) : start + 40]) for start in starts[:3])


class Neighbour:
    """Produces, fetches, commits and asks, one after the other; everything must be right, and soon."""

    def __init__(self, port: int, pid: int) -> None:
        self._port, self._pid = port, pid
        self._stop = threading.Event()
        self.rounds = 0
        self.slowest_s = 0.0
        self.complaints: list[str] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        try:
            with WireClient(self._port) as client:
                self._create(client)
                while not self._stop.wait(0.005):
                    self._round(client)
                    self.rounds += 1
        except Exception as error:
            self.complaints.append(repr(error))

    def _ask(self, client: WireClient, api_key: ApiKey, version: int, request: Any) -> Any:
        started, cpu_s = time.monotonic(), cpu_seconds(self._pid)
        answer = client.ask(api_key, version, request)
        self.slowest_s = max(self.slowest_s, time.monotonic() - started)
        spent_s = cpu_seconds(self._pid) - cpu_s
        assert spent_s < NEIGHBOUR_CPU_S, f"{api_key.title} waited while the broker worked for {spent_s} s"
        return answer

    def _create(self, client: WireClient) -> None:
        schema = client.request(ApiKey.CREATE_TOPICS, 7)
        topic = schema.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=())
        request = schema.CreateTopicsRequest(topics=(topic,), timeout=PATIENCE, validate_only=False)
        (row,) = client.ask(ApiKey.CREATE_TOPICS, 7, request).topics
        assert row.error_code is ErrorCode.none, row
        until(lambda: self._metadata(client) == ErrorCode.none, f"{TOPIC} is there")

    def _metadata(self, client: WireClient) -> ErrorCode:
        schema = client.request(ApiKey.METADATA, 12)
        asked = schema.MetadataRequestTopic(name=TOPIC, topic_id=None)
        request = schema.MetadataRequest(
            topics=(asked,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        (row,) = self._ask(client, ApiKey.METADATA, 12, request).topics
        found: ErrorCode = row.error_code
        return found

    def _round(self, client: WireClient) -> None:
        value = f"value {self.rounds}".encode()
        assert self._metadata(client) is ErrorCode.none
        offset = self._produce(client, value)
        assert self._fetch(client, offset) == value
        self._commit(client, offset)

    def _produce(self, client: WireClient, value: bytes) -> int:
        schema = client.request(ApiKey.PRODUCE, 9)
        records = bytes(records_batch((time.time_ns() // 1_000_000, None, value)))
        row = schema.PartitionProduceData(index=0, records=records)
        data = schema.TopicProduceData(name=TOPIC, partition_data=(row,))
        request = schema.ProduceRequest(transactional_id=None, acks=-1, timeout=PATIENCE, topic_data=(data,))
        (answer,) = self._ask(client, ApiKey.PRODUCE, 9, request).responses[0].partition_responses
        assert answer.error_code is ErrorCode.none, answer
        return int(answer.base_offset)

    def _fetch(self, client: WireClient, offset: int) -> bytes | None:
        schema = client.request(ApiKey.FETCH, 11)
        row = schema.FetchPartition(
            partition=0, current_leader_epoch=-1, fetch_offset=offset, log_start_offset=-1, partition_max_bytes=100_000
        )
        request = schema.FetchRequest(
            replica_id=-1,
            max_wait=timedelta(seconds=1),
            min_bytes=1,
            max_bytes=100_000,
            isolation_level=1,
            session_id=0,
            session_epoch=-1,
            topics=(schema.FetchTopic(topic=TOPIC, partitions=(row,)),),
            forgotten_topics_data=(),
            rack_id="",
        )
        (answer,) = self._ask(client, ApiKey.FETCH, 11, request).responses[0].partitions
        assert answer.error_code is ErrorCode.none, answer
        (record,) = next(iter(batches(answer.records))).records()
        assert record.offset == offset
        return record.value

    def _commit(self, client: WireClient, offset: int) -> None:
        schema = client.request(ApiKey.OFFSET_COMMIT, 7)
        row = schema.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=None
        )
        request = schema.OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=(schema.OffsetCommitRequestTopic(name=TOPIC, partitions=(row,)),),
        )
        (answer,) = self._ask(client, ApiKey.OFFSET_COMMIT, 7, request).topics[0].partitions
        assert answer.error_code is ErrorCode.none, answer
