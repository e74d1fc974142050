"""Members of consumer groups, of every client, that commit what they have processed and keep a ledger of it."""

import asyncio
import contextlib
import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

from tests.support import java_tools
from tests.support.patience import PATIENCE_S

POLL_S = 0.2


@dataclass
class Ledger:
    """What one group has done.  `again_after_commit` must stay empty: it would be records read though committed."""

    processed: Counter[tuple[int, int]] = field(default_factory=Counter)
    committed: dict[int, int] = field(default_factory=dict)
    last_commit_at: float = 0.0
    again_after_commit: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def process(self, member: str, partition: int, offset: int) -> None:
        with self._lock:
            self.processed[partition, offset] += 1
            committed = self.committed.get(partition, 0)
            if offset < committed:
                self.again_after_commit.append(f"{member}: {partition}@{offset}, committed {committed}")

    def commit(self, offsets: Mapping[int, int]) -> None:
        """These were acknowledged: the next offset by partition."""
        with self._lock:
            for partition, offset in offsets.items():
                self.committed[partition] = max(offset, self.committed.get(partition, 0))
            self.last_commit_at = time.monotonic()

    def note(self, member: str, event: str) -> None:
        with self._lock:
            self.notes.append(f"{time.strftime('%H:%M:%S')} {member}: {event}")


class Member:
    """One consumer in a thread; `instance_id` makes it a static member."""

    def __init__(self, bootstrap: str, topic: str, group: str, name: str, instance_id: str | None, ledger: Ledger):
        self.bootstrap, self.topic, self.group, self.name = bootstrap, topic, group, name
        self.instance_id, self.ledger = instance_id, ledger
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_noting, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"{self.name} does not stop"

    def abandon(self) -> None:
        """End it, as far as that is possible, when the story has failed."""
        self._is_stopping.set()
        self._thread.join(10)

    def _run_noting(self) -> None:
        try:
            self.run()
        except Exception as error:  # told by the test that sees no progress
            self.ledger.note(self.name, f"ended with {error!r}")

    def run(self) -> None:
        raise NotImplementedError

    def processed(self, records: list[tuple[int, int]]) -> dict[int, int]:
        """Note them; what to commit."""
        ends: dict[int, int] = {}
        for partition, offset in records:
            self.ledger.process(self.name, partition, offset)
            ends[partition] = offset + 1
        return ends


class ConfluentMember(Member):
    def run(self) -> None:
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.id": self.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if self.instance_id is not None:
            config["group.instance.id"] = self.instance_id
        consumer = confluent_kafka.Consumer(config)
        consumer.subscribe(
            [self.topic],
            on_assign=lambda _, partitions: self.ledger.note(self.name, f"assigned {len(partitions)}"),
            on_revoke=lambda _, partitions: self.ledger.note(self.name, f"revoked {len(partitions)}"),
            on_lost=lambda _, partitions: self.ledger.note(self.name, f"lost {len(partitions)}"),
        )
        while not self._is_stopping.is_set():
            messages = [each for each in consumer.consume(100, POLL_S) if each.error() is None]
            ends = self.processed([(each.partition() or 0, each.offset() or 0) for each in messages])
            if not ends:
                continue
            offsets = [confluent_kafka.TopicPartition(self.topic, *end) for end in ends.items()]
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
            except confluent_kafka.KafkaException as error:
                self.ledger.note(self.name, f"commit: {error}")
            else:
                self.ledger.commit(ends)
        consumer.close()


class KafkaPythonMember(Member):
    def run(self) -> None:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap.split(","),
            group_id=self.group,
            client_id=self.name,
            group_instance_id=self.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        while not self._is_stopping.is_set():
            found = consumer.poll(timeout_ms=int(1000 * POLL_S), max_records=100)
            ends = self.processed([(each.partition, each.offset) for records in found.values() for each in records])
            if not ends:
                continue
            try:
                consumer.commit(
                    {
                        kafka.TopicPartition(self.topic, partition): kafka.OffsetAndMetadata(offset, "", -1)
                        for partition, offset in ends.items()
                    }
                )
            except kafka.errors.KafkaError as error:
                self.ledger.note(self.name, f"commit: {error!r}")
            else:
                self.ledger.commit(ends)
        consumer.close()


class AiokafkaMember(Member):
    def run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap.split(","),
            group_id=self.group,
            client_id=self.name,
            group_instance_id=self.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=45_000,  # the other clients' default
            metadata_max_age_ms=2_000,  # a ListOffsets answered NOT_LEADER does not make it look for the leader
        )
        await consumer.start()
        try:
            while not self._is_stopping.is_set():
                found = await consumer.getmany(timeout_ms=int(1000 * POLL_S), max_records=100)
                ends = self.processed([(each.partition, each.offset) for records in found.values() for each in records])
                if not ends:
                    continue
                try:
                    await consumer.commit(
                        {aiokafka.TopicPartition(self.topic, partition): offset for partition, offset in ends.items()}
                    )
                except aiokafka.errors.KafkaError as error:
                    self.ledger.note(self.name, f"commit: {error!r}")
                else:
                    self.ledger.commit(ends)
        finally:
            await consumer.stop()


class JavaMember(Member):
    """Apache Kafka's VerifiableConsumer, which tells as JSON what it does."""

    def run(self) -> None:
        arguments = ["--bootstrap-server", self.bootstrap, "--topic", self.topic, "--group-id", self.group]
        if self.instance_id is not None:
            arguments += ["--group-instance-id", self.instance_id]
        command = java_tools.command("VerifiableConsumer", *arguments, "--session-timeout", "45000", heap="128m")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self._terminate_in_the_end, args=(process,), daemon=True).start()
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                with contextlib.suppress(json.JSONDecodeError):
                    self._hear(json.loads(line))
        process.wait(PATIENCE_S)

    def _terminate_in_the_end(self, process: "subprocess.Popen[str]") -> None:
        self._is_stopping.wait()
        process.terminate()

    def _hear(self, event: dict[str, object]) -> None:
        if event["name"] == "records_consumed":
            for part in event["partitions"]:  # type: ignore[attr-defined]
                offsets = range(part["minOffset"], part["maxOffset"] + 1)
                self.processed([(part["partition"], offset) for offset in offsets])
        elif event["name"] == "offsets_committed" and event["success"]:
            self.ledger.commit({each["partition"]: each["offset"] for each in event["offsets"]})  # type: ignore[attr-defined]
        else:
            self.ledger.note(self.name, json.dumps(event))


MEMBERS: dict[str, Callable[..., Member]] = {
    "confluent": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AiokafkaMember,
    "java": JavaMember,
}
