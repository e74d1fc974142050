"""What brokers are told of the bucket of their tiered storage, and bulk for it: large records, and their hash."""

import hashlib
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import confluent_kafka.admin

from tests.support.patience import PATIENCE_S
from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY

TIERED_TOPIC: Final = {"remote.storage.enable": "true"}
COPIED_BYTES: Final = "kafka_server_brokertopicmetrics_remotecopybytes_total"
VALUE_BYTES: Final = 64 << 10
POOL_BYTES: Final = 1 << 20
STAMP_BYTES: Final = 8

# Nothing waits for a minute: tasks run each second, retention looks each second.
_SOON: Final = {
    "remote.log.storage.system.enable": "true",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
    "remote.log.manager.task.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "1000",
}


def directory_tier(directory: Path, brokers: int = 3) -> dict[str, str]:
    """The settings of brokers whose bucket is a directory, which is made."""
    directory.mkdir(parents=True, exist_ok=True)
    return {
        **_SOON,
        "rlmm.config.remote.log.metadata.topic.replication.factor": str(min(3, brokers)),
        "remote.log.storage.manager.class.name": "LocalTieredStorage",
        "rsm.config.bucket": f"file://{directory}",
    }


def s3_tier(bucket: str, url: str, brokers: int = 3) -> dict[str, str]:
    """The settings of brokers whose bucket is in the S3 server at `url`, or behind what stands before it."""
    return {
        **_SOON,
        "rlmm.config.remote.log.metadata.topic.replication.factor": str(min(3, brokers)),
        "remote.log.storage.manager.class.name": "S3RemoteStorageManager",
        "rsm.config.bucket": f"s3://{bucket}",
        "rsm.config.endpoint.url": url,
        "rsm.config.region": REGION,
        "rsm.config.access.key": ACCESS_KEY,
        "rsm.config.secret.key": SECRET_KEY,
        "rsm.config.path.style": "true",
    }


def alter_topic(bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
    """Set these, and leave others as they are."""
    entries = [
        confluent_kafka.admin.ConfigEntry(
            name, value, incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET
        )
        for name, value in config.items()
    ]
    resource = confluent_kafka.admin.ConfigResource(
        confluent_kafka.admin.ResourceType.TOPIC, topic, incremental_configs=entries
    )
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(PATIENCE_S)


class BulkWriter:
    """Random values of 64 KiB in batches of up to a megabyte, idempotent, acks=all; it has a hash of each partition.

    So large, a gigabyte costs its sender little beside what it costs brokers.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int = 1, **config: object) -> None:
        self.sent_bytes = 0
        self.records = [0] * partitions
        self.hashes = [hashlib.blake2b() for _ in range(partitions)]
        self.failures: list[str] = []
        self._topic = topic
        self._random = random.Random(seed)
        self._pool = memoryview(self._random.randbytes(POOL_BYTES + VALUE_BYTES))
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 20,
                "batch.size": 900_000,
                "message.max.bytes": 1_000_000,
                "queue.buffering.max.kbytes": 32 << 10,
                "message.timeout.ms": 600_000,
                "request.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
                **config,
            }
        )

    def write(self, size_bytes: int, until: Callable[[], bool] = lambda: False) -> None:
        """Send that much, in turn to each partition, or less when `until` says so; returns when all is acknowledged."""
        end = self.sent_bytes + size_bytes
        while self.sent_bytes < end and not self.failures and not until():
            self._send()
        left = self._producer.flush(600)
        assert not left, f"{left} records are not answered"
        assert not self.failures, self.failures[:5]

    def close(self) -> None:
        """It looks for its brokers no more."""
        del self._producer

    def _send(self) -> None:
        partition = min(range(len(self.records)), key=self.records.__getitem__)
        start = self._random.randrange(POOL_BYTES)
        body = self._pool[start : start + VALUE_BYTES - STAMP_BYTES]
        value = b"".join((self.records[partition].to_bytes(STAMP_BYTES, "big"), body))
        while True:
            try:
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(0.02)
        self._producer.poll(0)
        self.records[partition] += 1
        self.hashes[partition].update(value)
        self.sent_bytes += VALUE_BYTES

    def _delivered(self, error: confluent_kafka.KafkaError | None, _message: object) -> None:
        if error is not None:
            self.failures.append(str(error))


class BulkReader:
    """Reads partitions from an offset on; `seconds_to_first` is from the first question to the first record."""

    def __init__(self, bootstrap: str, topic: str, offsets: Mapping[int, int], **config: object) -> None:
        self.read_bytes = 0
        self.records = dict.fromkeys(offsets, 0)
        self.hashes = {partition: hashlib.blake2b() for partition in offsets}
        self.seconds = 0.0
        self.seconds_to_first = 0.0
        self._offsets = dict(offsets)
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"bulk-{time.monotonic_ns()}",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "queued.max.messages.kbytes": 16 << 10,
                "fetch.queue.backoff.ms": 10,  # else it rests for a second whenever that is full
                "log_level": 2,
                **config,
            }
        )
        self._consumer.assign(
            [confluent_kafka.TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        )

    def read(self, ends: Mapping[int, int], patience_s: float = PATIENCE_S) -> None:
        """Up to these offsets, exclusive; AssertionError for an error, a gap, or when nothing comes for so long."""
        began = last = time.monotonic()
        while any(self._offsets[partition] < end for partition, end in ends.items()):
            messages = self._consumer.consume(64, timeout=1)
            now = time.monotonic()
            for message in messages:
                self._take(message)
            if messages:
                self.seconds_to_first = self.seconds_to_first or now - began
                last = now
            assert now - last < patience_s, f"nothing for {patience_s} s at {self._offsets} of {dict(ends)}"
        self.seconds += time.monotonic() - began

    def _take(self, message: confluent_kafka.Message) -> None:
        if (error := message.error()) is not None:
            assert error.retriable() or error.name() in ("_ALL_BROKERS_DOWN", "_TRANSPORT"), error
            return
        partition, value, offset = message.partition(), message.value(), message.offset()
        assert partition is not None and value is not None and offset is not None
        assert offset == self._offsets[partition], f"{offset} of {partition} where {self._offsets[partition]} is due"
        self._offsets[partition] += 1
        self.records[partition] += 1
        self.hashes[partition].update(value)
        self.read_bytes += len(value)

    def close(self) -> None:
        self._consumer.close()


class Sampler(threading.Thread):
    """Calls `sample` every so often until it is stopped; what that raised is raised by `stop`."""

    def __init__(self, sample: Callable[[], None], every_s: float = 0.2) -> None:
        super().__init__(daemon=True)
        self._sample, self._every_s = sample, every_s
        self._ended = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._ended.wait(self._every_s):
                self._sample()
        except Exception as error:
            self._error = error

    def stop(self) -> None:
        self._ended.set()
        self.join()
        if self._error is not None:
            raise self._error

    def __enter__(self) -> "Sampler":
        self.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()
