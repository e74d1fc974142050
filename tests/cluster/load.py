"""The load of a run: idempotent producers of librdkafka and of the Java client, and a reader that follows the log."""

import collections
import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Final

import confluent_kafka

from tests.cluster.history import Acknowledgement, Entry, parse_value
from tests.support import java_tools
from tests.support.patience import PATIENCE_S, until

DELIVERY_TIMEOUT_MS: Final = 600_000  # longer than any fault: of each record it is known what became of it
REQUEST_TIMEOUT_MS: Final = 5_000  # a request into a cut link is given up
REFUSED_BY_A_CLOSED_PRODUCER: Final = (
    "Cannot perform operation after producer has been closed",
    "Producer closed while send in progress",
)
PADDING: Final = "x" * 100


def entry_of(message: confluent_kafka.Message) -> Entry:
    offset, value = message.offset(), message.value()
    assert offset is not None and value is not None
    return Entry(offset, parse_value(value))


def partition_of(message: confluent_kafka.Message) -> int:
    partition = message.partition()
    assert partition is not None
    return partition


class LibrdkafkaProducer:
    """`rate` records a second, spread over the partitions; what an application would be told is remembered."""

    def __init__(
        self, number: int, bootstrap: str, topic: str, partitions: int, rate: int, config: dict[str, object]
    ) -> None:
        self.name = f"librdkafka-{number}"
        self.acknowledged: list[Acknowledgement] = []
        self.failures: list[str] = []
        self.complaints: collections.Counter[str] = collections.Counter()
        self.sent = 0
        self._gave_up = False
        self._number, self._topic, self._partitions, self._rate = number, topic, partitions, rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"chaos-{self.name}",
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "socket.timeout.ms": 2 * REQUEST_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 500,
                "linger.ms": 5,
                "error_cb": self._on_error,
                "log_level": 2,
                **config,
            }
        )

    def _on_error(self, error: confluent_kafka.KafkaError) -> None:
        self.complaints[error.name()] += 1
        if error.fatal():
            self.failures.append(f"fatal: {error}")

    def _run(self) -> None:
        try:
            self._offer()
        except confluent_kafka.KafkaException as error:  # fatal: an application would have to begin anew
            self.failures.append(f"gave up: {error}")
            self._gave_up = True

    def _offer(self) -> None:
        began = time.monotonic()
        offered = 0
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self._rate)
            # What could not be sent for a while is not made up for: the rate is that of a calm application.
            offered = max(offered, due - self._rate)
            while offered < due and not self._stop.is_set():
                self._send()
                offered += 1
            self._producer.poll(0.005)

    def _send(self) -> None:
        partition = self.sent % self._partitions
        value = f"{self._number}.{self.sent} {PADDING}"
        while not self._stop.is_set():
            try:
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                self.sent += 1
                return
            except BufferError:
                self._producer.poll(0.05)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        value, offset = message.value(), message.offset()
        assert value is not None
        record = parse_value(value)
        if error is not None:
            self.failures.append(f"{record}: {error}")
            return
        at = -1 if offset is None else offset
        self.acknowledged.append(Acknowledgement(record, partition_of(message), at, time.monotonic()))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._gave_up:
            return
        left = self._producer.flush(PATIENCE_S)
        assert left == 0, f"{self.name}: {left} records are still under way {PATIENCE_S:g} s after the faults"


class JavaProducer:
    """`kafka-verifiable-producer` of Apache Kafka's tools, told to be idempotent; its output is the history."""

    def __init__(
        self, number: int, bootstrap: str, topic: str, rate: int, directory: Path, config: dict[str, object]
    ) -> None:
        self.name = f"java-{number}"
        self.acknowledged: list[Acknowledgement] = []
        self.failures: list[str] = []
        self._error_log = directory / f"{self.name}.log"
        properties = directory / f"{self.name}.properties"
        settings = {
            "client.id": f"chaos-{self.name}",
            "enable.idempotence": "true",
            "acks": "all",
            "retries": str(2**31 - 1),
            "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "max.block.ms": DELIVERY_TIMEOUT_MS,
            "reconnect.backoff.max.ms": 500,
            "linger.ms": 5,
            **config,
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._command = java_tools.command(
            "VerifiableProducer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--throughput", str(rate)),
            *(
                "--value-prefix",
                str(number),
                "--repeating-keys",
                "64",
                "--acks",
                str(settings["acks"]).replace("all", "-1"),
            ),
            *("--command-config", str(properties)),
        )
        self._process: subprocess.Popen[str] | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._read, name=self.name, daemon=True)

    def start(self) -> None:
        with self._error_log.open("ab") as errors:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            now = time.monotonic()
            event = json.loads(line)
            if event["name"] == "producer_send_success":
                record = parse_value(event["value"])
                self.acknowledged.append(Acknowledgement(record, event["partition"], event["offset"], now))
            elif event["name"] == "producer_send_error" and not self._came_too_late(event):
                self.failures.append(f"{event['value']}: {event['exception']}: {event['message']}")

    def _came_too_late(self, event: dict[str, str | None]) -> bool:
        """The tool may offer one more record to a producer it has closed, when it is told to end: that is not sent."""
        return self._is_stopping and event["message"] in REFUSED_BY_A_CLOSED_PRODUCER

    def stop(self) -> None:
        assert self._process is not None
        self._is_stopping = True
        self._process.terminate()  # it sends what it has, and ends
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {PATIENCE_S:g} s of the faults") from None
        finally:
            self.kill()
        self._thread.join(PATIENCE_S)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class TailReader:
    """Follows all partitions from their beginning while the faults go on; what it got must stay true.

    An offset out of range, and a truncation behind its position (KIP-320), end its partition with a finding.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.log: dict[int, list[Entry]] = {partition: [] for partition in range(partitions)}
        self.findings: list[str] = []
        self.complaints: collections.Counter[str] = collections.Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail-reader", daemon=True)
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "chaos-reader",
                "group.id": "chaos-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 500,
                "socket.timeout.ms": 2 * REQUEST_TIMEOUT_MS,
                "fetch.wait.max.ms": 200,
                "log_level": 2,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1000, timeout=0.2):
                self._take(message)

    def _take(self, message: confluent_kafka.Message) -> None:
        error = message.error()
        if error is None:
            entries = self.log[partition_of(message)]
            entry = entry_of(message)
            if entry.offset != len(entries):
                self.findings.append(f"partition {message.partition()}: {entry.offset} behind {len(entries)} records")
            entries.append(entry)
        elif error.name() in ("_AUTO_OFFSET_RESET", "_LOG_TRUNCATION", "OFFSET_OUT_OF_RANGE"):
            self.findings.append(f"partition {message.partition()}: {error}")
        else:
            self.complaints[error.name()] += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


def read_log(bootstrap: str, topic: str, partitions: int) -> dict[int, list[Entry]]:
    """Everything from the log starts to the high watermarks of now."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-judge",
            "client.id": "chaos-judge",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    log: dict[int, list[Entry]] = {}
    ends: dict[int, int] = {}
    assigned = []
    for partition in range(partitions):
        position = confluent_kafka.TopicPartition(topic, partition)
        position.offset, ends[partition] = consumer.get_watermark_offsets(position, timeout=PATIENCE_S)
        log[partition] = []
        if position.offset < ends[partition]:
            assigned.append(position)
    consumer.assign(assigned)

    def is_read() -> bool:
        for message in consumer.consume(10_000, timeout=1):
            assert message.error() is None, message.error()
            entry, partition = entry_of(message), partition_of(message)
            if entry.offset < ends[partition]:
                log[partition].append(entry)
        return all(entries and entries[-1].offset >= ends[partition] - 1 for partition, entries in log.items())

    def came() -> str:
        return f"{sum(map(len, log.values()))} of {sum(ends.values())} records came"

    until(is_read, f"{topic} is read", came, every_s=0)
    consumer.close()
    return log
