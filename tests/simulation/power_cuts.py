"""The story of a node whose power fails again and again, and whose disk is full or slow for a while.

Everything acknowledged is checked: with log.flush.interval.messages=1 a record, a commit, a topic and a producer id
that a client was told of survive any number of power cuts.
"""

import asyncio
import hashlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC, TopicPartition
from broker.log.log_file_names import parse_log_directory
from tests.support.sim_client import (
    LEADER_ONLY,
    GroupCommitter,
    IdempotentProducer,
    Reader,
    SimClient,
    TopicChurner,
    Violation,
    new_producer_id,
    parse_log,
)
from tests.support.sim_network import SimNetwork
from tests.support.sim_node import BROKER_PORT, LOG_DIRECTORY, Crashed, NodeLoop, SimNode, simulate_nodes

NODE = "node-1"
TOPIC = "t"
PARTITIONS = 2
FAULTS = 9
CALM_S = 60.0  # how long everything may take once the faults are over

PROPERTIES = {
    "log.flush.interval.messages": "1",
    "log.flush.offset.checkpoint.interval.ms": "400",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "100",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "metadata.log.max.record.bytes.between.snapshots": "3000",
}


@dataclass
class Outcome:
    """What a run did: how often each fault and state occurred, and a fingerprint of every delivery in it."""

    seen: Counter[str] = field(default_factory=Counter)
    fingerprint: str = ""


def run(seed: int) -> Outcome:
    return simulate_nodes(lambda loop: _Story(loop).tell(), seed=seed)


class _Story:
    def __init__(self, loop: NodeLoop) -> None:
        self.loop = loop
        self.chance = loop.random
        self.seen: Counter[str] = Counter()
        self.network = SimNetwork(loop, loop.trace)
        self.node = SimNode(loop, self.network, NODE, PROPERTIES)
        self.clients: list[SimClient] = []
        self.topics = TopicChurner(self.client("topics"))
        self.ids = self.client("ids")
        self.producer_ids: list[int] = []
        self.producers = [
            IdempotentProducer(
                self.client(f"producer-{number}"),
                f"p{number}",
                TopicPartition(TOPIC, number % PARTITIONS),
                acks=self.chance.choice((1, -1)),
                end_offset=self.end_offset,
            )
            for number in range(3)
        ]
        self.readers = [
            Reader(self.client(f"reader-{number}"), TopicPartition(TOPIC, number)) for number in range(PARTITIONS)
        ]
        self.groups = [
            GroupCommitter(self.client(f"group-{number}"), f"group-{number}", TopicPartition(TOPIC, 0))
            for number in range(2)
        ]

    def client(self, name: str) -> SimClient:
        client = SimClient(self.network.host(name), NODE, BROKER_PORT, self.chance)
        self.clients.append(client)
        return client

    def end_offset(self, partition: TopicPartition) -> int:
        log = self._log(partition)
        return -1 if log is None else int(log.log_end_offset)

    def _log(self, partition: TopicPartition) -> Any:
        broker = self.node.node.broker if self.node.node is not None else None
        return None if broker is None else broker.logs.get(partition)

    # The story

    async def tell(self) -> Outcome:
        await self.start()
        small = {"internal.segment.bytes": self.chance.choice(("1500", "3000", "8000")), "index.interval.bytes": "200"}
        await self.topics.create(TOPIC, PARTITIONS, small)
        await self.topics.create(CONSUMER_OFFSETS_TOPIC, 2, {"cleanup.policy": "compact", **small})
        async with asyncio.TaskGroup() as clients:
            working = [
                clients.create_task(each.run(), name=type(each).__name__)
                for each in (*self.producers, *self.groups, self.topics)
            ]
            reading = [clients.create_task(each.run(), name="Reader") for each in self.readers]
            for _ in range(FAULTS):
                await asyncio.sleep(self.chance.expovariate(5.0))
                await self.fault()
                self.producer_ids.append(await new_producer_id(self.ids))
            async with asyncio.timeout(CALM_S):
                await self.calm(working)
            for task in reading:
                task.cancel()
        await self.check_everything()
        await self.power_cut_at_rest()
        await self.check_everything()
        self.node.crash()
        return self.outcome()

    async def calm(self, working: list[asyncio.Task[None]]) -> None:
        self.node.file_system.cut_after = None
        self.node.file_system.heal()
        self.node.disk.slowness = 1.0
        if not self.node.is_on:
            await self.start()
        for each in (*self.producers, *self.groups, self.topics):
            each.is_stopping = True
        await asyncio.wait(working)

    async def start(self) -> None:
        """Until the node serves, whatever happens on the way."""
        while True:
            if self.chance.random() < 0.15:
                self.node.crash_after(self.chance.randrange(60))
            try:
                await self.node.start()
            except Crashed:
                self.seen["cut while starting"] += 1
                continue
            self.node.file_system.cut_after = None
            self._count_recovery()
            self.check_logs()
            return

    def _count_recovery(self) -> None:
        assert self.node.node is not None and self.node.node.broker is not None
        metrics = self.node.node.broker.logs._metrics
        self.seen["bytes recovered"] += metrics.recovered_bytes.value > 0
        self.seen["recovery cut bytes"] += metrics.truncated_bytes.value > 0

    async def fault(self) -> None:
        weights = {
            self.power_cut: 3,
            self.power_cut_in_mid_sentence: 6,
            self.full_disk: 2,
            self.failing_disk: 1,
            self.slow_disk: 1,
            self.clean_restart: 1,
        }
        (kind,) = self.chance.choices(list(weights), weights=list(weights.values()))
        self.loop.trace(f"{self.loop.time():.9f} {kind.__name__}")
        await kind()
        if not self.node.is_on:
            await asyncio.sleep(self.chance.expovariate(10.0))
            await self.start()

    async def power_cut(self) -> None:
        self.seen["power cut"] += 1
        self._count_node()
        self.node.crash()

    async def power_cut_in_mid_sentence(self) -> None:
        """Before one of the next operations of the disk."""
        self.seen["power cut in mid-sentence"] += 1
        self._count_node()
        before = self.chance.choice((None, ("sync", ".log"), ("sync", ".log"), ("write", ".log"), ("rename", ".tmp")))
        self.node.crash_after(self.chance.randrange(4 if before else 40), before=before)
        while self.node.is_on:
            await asyncio.sleep(0.01)

    async def clean_restart(self) -> None:
        self.seen["clean restart"] += 1
        self._count_node()
        await self.node.stop()
        if self.chance.random() < 0.5:
            self.node.file_system.cut(self.node.chance())  # what a clean stop wrote is not to be lost either
        await asyncio.sleep(0.01)

    async def slow_disk(self) -> None:
        self.seen["slow disk"] += 1
        self.node.disk.slowness = self.chance.choice((100.0, 1_000.0))
        await asyncio.sleep(self.chance.expovariate(2.0))
        self.node.disk.slowness = 1.0

    async def full_disk(self) -> None:
        """Writes are refused, reads go on, and all is well when there is room again."""
        disk = self.node.file_system
        disk.budget_bytes = disk.used_bytes() + self.chance.randrange(1_000)
        refused = sum(each.seen["produce kafka_storage_error"] for each in self.producers)
        for _ in range(40):
            await asyncio.sleep(0.05)
            if sum(each.seen["produce kafka_storage_error"] for each in self.producers) > refused:
                self.seen["write refused by a full disk"] += 1
                break
        reader = Reader(self.client("reader-full"), TopicPartition(TOPIC, 0))
        async with asyncio.timeout(10):
            await reader.read_everything()
        self.seen["read with a full disk"] += 1
        if not self.node.is_running:
            raise Violation("a full disk ended the node")
        disk.heal()

    async def failing_disk(self) -> None:
        """The disk refuses something in the directory of one log for a while, and perhaps the power fails meanwhile."""
        operations = self.chance.choice(
            (("write",), ("sync",), ("create",), ("rename",), ("write", "sync", "truncate"))
        )
        topic = self.chance.choice((TOPIC, CONSUMER_OFFSETS_TOPIC))
        self.node.file_system.fail(LOG_DIRECTORY / f"{topic}-0", *operations)
        self.seen["failing disk"] += 1
        await asyncio.sleep(self.chance.expovariate(4.0))
        if not self.node.is_running:
            raise Violation(f"a log that cannot {' or '.join(operations)} ended the node")
        if self.chance.random() < 0.3:
            await self.power_cut()
        self.node.file_system.heal()

    async def power_cut_at_rest(self) -> None:
        self._count_node()
        self.node.crash()
        await self.start()

    def _count_node(self) -> None:
        """Before the node's counters are gone."""
        assert self.node.node is not None and self.node.node.broker is not None
        self.seen["roll"] += int(self.node.node.broker.logs._metrics.rolls.value)

    # What must hold

    def check_logs(self) -> None:
        """Each log on the disk is whole: batches follow each other without a hole, segment after segment."""
        disk = self.node.file_system
        for name in disk.list_directory(LOG_DIRECTORY):
            parsed = parse_log_directory(name)
            if parsed is None or parsed.suffix or parsed.topic_partition.topic == "__cluster_metadata":
                continue
            self._check_log(LOG_DIRECTORY / name)
        for producer in self.producers:
            newest = max(producer.acknowledged.values(), default=-1)
            if newest >= self.end_offset(producer.partition) >= 0:
                raise Violation(
                    f"{producer.partition} ends at {self.end_offset(producer.partition)} after a restart, "
                    f"offset {newest} was acknowledged"
                )

    def _check_log(self, directory: Path) -> None:
        expected = None
        for name in self.node.file_system.list_directory(directory):
            if name.endswith(".log"):
                base_offset = int(name.removesuffix(".log"))
                if expected is not None and base_offset != expected:
                    raise Violation(f"{directory / name} follows offset {expected}")
                found = parse_log(self.node.file_system.read(directory / name), base_offset)
                expected = found[-1].next_offset if found else base_offset

    async def check_everything(self) -> None:
        async with asyncio.timeout(CALM_S):
            for reader in self.readers:
                await self.check_partition(reader)
            for group in self.groups:
                await group.check()
            await self.topics.check()
        ids = [*self.producer_ids, *(producer.producer_id for producer in self.producers)]
        if len(set(ids)) != len(ids):
            raise Violation(f"a producer id was given twice: {ids}")

    async def check_partition(self, observer: Reader) -> None:
        partition = observer.partition
        reader = Reader(self.client("auditor"), partition, sizes=(5_000, 1 << 20), version=LEADER_ONLY)
        await reader.read_everything()
        if reader.values[: len(observer.values)] != observer.values:
            raise Violation(f"{partition}: what a consumer has read is not what is there now")
        written: dict[str, list[int]] = {}
        for value in reader.values:
            name, number, _ = value.split(b":")
            written.setdefault(name.decode(), []).append(int(number))
        for producer in self.producers:
            if producer.partition != partition:
                continue
            for value, offset in producer.acknowledged.items():
                if offset >= len(reader.values) or reader.values[offset] != value:
                    raise Violation(f"{partition}: {value[:20]!r} was acknowledged at {offset} and is not there")
            numbers = written.get(producer.name, [])
            if numbers != list(range(len(producer.acknowledged))):
                raise Violation(f"{partition}: {producer.name} has lost, repeated or reordered records: {numbers}")

    def outcome(self) -> Outcome:
        seen = self.seen + self.node.file_system.seen
        for each in (*self.producers, *self.groups, self.topics):
            seen += each.seen
        seen["connection reset"] += self.network.resets
        seen["read in pieces"] += self.network.splits
        seen["record acknowledged"] += sum(len(each.acknowledged) for each in self.producers)
        digest = hashlib.sha256("\n".join(self.loop.trace_lines).encode())
        return Outcome(seen, digest.hexdigest())
