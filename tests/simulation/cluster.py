"""The story of three brokers and a controller whose machines, disks, clocks and network fail, and then get well.

Two phases.  In the first, faults are drawn from the seed, and what must hold at any moment is watched.  In the second
nothing fails any more, and everything must get well within a deadline: leaders, full ISRs, the clients' work.

What is within the promise.  As in Kafka, a record is acknowledged when the ISR has it in memory; nobody waits for a
disk.  A broker whose power fails may lose bytes it has acknowledged, and stays in its ISRs until the controller fences
it or registers it anew.  For so long Kafka promises nothing if the other members go: of two that lose bytes at the same
time, of the last one (without KIP-966's ELR), of one that others leave alone in the ISR.  So power cuts, which take
unsynced bytes, are drawn for a broker that is the last member of no ISR while all others run and hear each other, and
nothing that could take another broker out of an ISR is drawn until the controller has registered it anew.  Everything
else overlaps: `kill -9`, which takes nothing but the process, of any number of brokers at a time, clean stops, cuts,
delays.  The controller syncs its log before it answers, and may lose its power at any time.
"""

import asyncio
import functools
import gc
import hashlib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Protocol

from broker.common.identifiers import CONSUMER_OFFSETS_TOPIC, TopicPartition
from tests.simulation.cluster_faults import ClusterFaults
from tests.support.sim_client import IdempotentProducer, TopicChurner, Violation
from tests.support.sim_cluster import SimCluster
from tests.support.sim_cluster_client import Address, AnyBroker, CoordinatorClient, LeaderClient
from tests.support.sim_cluster_work import AcksOneProducer, ClusterReader, Reassigner
from tests.support.sim_group import GroupLedger, GroupMember, check_offsets
from tests.support.sim_network import SimHost
from tests.support.sim_node import NodeLoop, simulate_nodes
from tests.support.sim_observer import ClusterObserver

TOPIC: Final = "t"
PARTITIONS: Final = 2
GROUP: Final = "g"
PRODUCERS: Final = 2
MEMBERS: Final = 2
FAULTS: Final = 6
FAULT_EVERY_S: Final = 1.5
FAULTS_AT_ONCE: Final = 3
CALM_S: Final = 60.0  # how long it may take to get well
RACK_AWARE: Final = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
SAMPLE_EVERY_S: Final = 0.05
POLL_S: Final = 0.1


class Worker(Protocol):
    """Works until it is told to stop."""

    is_stopping: bool

    async def run(self) -> None: ...


@dataclass
class Outcome:
    """What a run did: how often each fault and state occurred, and a fingerprint of every delivery in it."""

    seen: Counter[str] = field(default_factory=Counter)
    fingerprint: str = ""


def run(seed: int) -> Outcome:
    try:
        return simulate_nodes(lambda loop: ClusterStory(loop).tell(), seed=seed)
    finally:
        spare_the_collector()


@functools.cache
def spare_the_collector() -> None:
    """After the first run all modules and schemas are loaded: looking at them again is a fifth of each later run."""
    gc.collect()
    gc.freeze()


class ClusterStory:
    """`tell` it once.  Other stories of clusters differ in what they override."""

    pauses_per_s = 3.0  # of producers, if they did nothing else: the higher, the more records
    reading_client = LeaderClient

    def __init__(self, loop: NodeLoop) -> None:
        self.loop = loop
        self.chance = loop.random
        self.seen: Counter[str] = Counter()
        self.cluster = self.make_cluster()
        self.observer = ClusterObserver(self.cluster)
        self.complaint_of_a_moment: Violation | None = None
        self.hosts: list[str] = []
        self.partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self.topics = self.make_topics()
        self.producers = [self._producer(number) for number in range(PRODUCERS)]
        self.careless = AcksOneProducer(LeaderClient(*self._place("careless"), self.partitions[0]), "careless")
        self.readers = [
            self.make_reader(self.reading_client(*self._place("reader"), each), "rack-1") for each in self.partitions
        ]
        self.ledger = GroupLedger(GROUP, TOPIC, PARTITIONS)
        self.members = [
            GroupMember(CoordinatorClient(*self._place("member"), GROUP), self.ledger) for _ in range(MEMBERS)
        ]
        self.reassigners = [
            Reassigner(AnyBroker(*self._place("reassigner")), self.partitions[-1], self.cluster.broker_ids)
            for _ in range(self.chance.choice((0, 0, 1)))
        ]
        self.faults = self.make_faults()

    # What other stories override

    def make_cluster(self) -> SimCluster:
        return SimCluster(
            self.loop,
            dedicated_controller=self.chance.random() < 0.5,
            properties={
                **(RACK_AWARE if self.chance.random() < 0.5 else {}),
                # A leader that comes back begins with the one it wrote last.
                "replica.high.watermark.checkpoint.interval.ms": self.chance.choice(("700", "60000")),
            },
            properties_of=lambda node_id: {"broker.rack": f"rack-{node_id % 2}"},
        )

    def make_faults(self) -> ClusterFaults:
        return ClusterFaults(self.cluster, self.hosts, self.seen)

    def make_topics(self) -> TopicChurner:
        return TopicChurner(AnyBroker(*self._place("admin")), names=3, replication_factor=3, rate=0.7)

    def make_reader(self, client: LeaderClient, rack: str) -> ClusterReader:
        return ClusterReader(client, rack, gone_below=lambda: self.gone_below(client.partition))

    def topic_configs(self) -> dict[str, str]:
        return {"internal.segment.bytes": self.chance.choice(("3000", "100000"))}

    def written(self) -> list[TopicPartition]:
        """What somebody writes to, clients or brokers."""
        return [*self.partitions, TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)]

    def gone_below(self, partition: TopicPartition) -> int:
        """Below that offset records may have been deleted."""
        return 0

    def end_faults(self) -> None:
        self.faults.end()

    def check_traffic(self) -> None:
        """What brokers have said of it, before they are switched off."""

    @property
    def workers(self) -> tuple[Worker, ...]:
        return (*self.producers, self.careless, *self.members, self.topics, *self.reassigners)

    def _place(self, name: str) -> tuple[SimHost, list[Address], random.Random]:
        """Where a client is, whom it knows, and its chance."""
        self.hosts.append(f"{name}-{len(self.hosts)}")
        return self.cluster.network.host(self.hosts[-1]), self.cluster.bootstrap, self.chance

    def _producer(self, number: int) -> IdempotentProducer:
        partition = self.partitions[number % PARTITIONS]
        client = LeaderClient(*self._place("producer"), partition)
        return IdempotentProducer(
            client,
            f"p{number}",
            partition,
            acks=-1,
            end_offset=self.cluster.end_offset,
            pauses_per_second=self.pauses_per_s,
        )

    # The story

    async def tell(self) -> Outcome:
        async with asyncio.TaskGroup() as tasks:
            observing = tasks.create_task(self.observe(), name="observer")
            self.loop.on_quiet = self.watch
            await self.cluster.start()
            await self.topics.create(TOPIC, PARTITIONS, self.topic_configs(), 3)
            await self.topics.create(CONSUMER_OFFSETS_TOPIC, 1, {"cleanup.policy": "compact"}, 3)
            working = [tasks.create_task(each.run(), name=type(each).__name__) for each in self.workers]
            reading = [tasks.create_task(each.run(), name="reader") for each in self.readers]
            await self.trouble(tasks)
            deadline = self.loop.time() + CALM_S
            try:
                async with asyncio.timeout(CALM_S):
                    await self.calm(working)
            except TimeoutError:
                complaint = self.complaint() or "clients wait"
                raise Violation(f"not well {CALM_S} s after the last fault: {complaint}") from None
            self.seen["seconds to get well"] += round(self.loop.time() - deadline + CALM_S)
            for task in (observing, *reading):
                task.cancel()
        if self.complaint_of_a_moment is not None:
            raise self.complaint_of_a_moment
        await self.check_everything()
        self.check_traffic()
        self.cluster.switch_off()
        return self.outcome()

    def watch(self) -> None:
        """A complaint at a moment when nobody could hear it is told by `observe`, a little later."""
        if self.complaint_of_a_moment is None:
            try:
                self.observer.on_quiet()
            except Violation as violation:
                self.complaint_of_a_moment = violation

    async def observe(self) -> None:
        while True:
            self.observer.sample()
            if self.complaint_of_a_moment is not None:
                raise self.complaint_of_a_moment
            await asyncio.sleep(SAMPLE_EVERY_S)

    async def trouble(self, tasks: asyncio.TaskGroup) -> None:
        under_way: set[asyncio.Task[None]] = set()
        for number in range(FAULTS):
            await asyncio.sleep(self.chance.expovariate(1 / FAULT_EVERY_S))
            self.observer.check_logs()
            while len(under_way) >= FAULTS_AT_ONCE:
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                under_way = {task for task in under_way if not task.done()}
            under_way.add(tasks.create_task(self.faults.strike(), name=f"fault-{number}"))
        if under_way:
            await asyncio.wait(under_way)

    async def calm(self, working: list[asyncio.Task[None]]) -> None:
        self.loop.trace(f"{self.loop.time():.9f} calm")
        self.end_faults()
        for node_id in self.cluster.nodes:
            await self.cluster.keep_starting(node_id)
        while self.complaint() is not None:
            await asyncio.sleep(POLL_S)
        for each in self.workers:
            each.is_stopping = True
        await asyncio.wait(working)
        while self.observer.misplaced() is not None or not self.is_level():
            await asyncio.sleep(POLL_S)

    def complaint(self) -> str | None:
        """What is not well yet; None when all is."""
        image = self.cluster.image
        if image is None:
            return "the controller is off"
        for node_id in self.cluster.broker_ids:
            registration = image.brokers.get(node_id)
            if registration is None or registration.fenced:
                return f"broker {node_id} is fenced"
        for topic in image.topics.by_id.values():
            for number, partition in topic.partitions.items():
                if partition.leader < 0 or len(partition.isr) != len(partition.replicas) or partition.adding_replicas:
                    return f"{topic.name}-{number} has leader {partition.leader} and ISR {list(partition.isr)}"
        return self.observer.misplaced() or (None if self.is_grouped() else "the group has not settled")

    def is_grouped(self) -> bool:
        newest = {member.generation for member in self.members}
        owned = sorted(partition for member in self.members for partition in member.assigned)
        return len(newest) == 1 and owned == list(range(PARTITIONS))

    def is_level(self) -> bool:
        """Nobody writes any more: every replica has everything, and knows that it is committed."""
        for partition in self.written():
            registration = self.cluster.registration(partition)
            if registration is None or registration.adding_replicas or registration.removing_replicas:
                return False
            logs = [self.cluster.log_of(node_id, partition) for node_id in registration.replicas]
            ends = {(log.log_end_offset, log.high_watermark) for log in logs if log is not None}
            if None in logs or len(ends) != 1 or any(end != high for end, high in ends):
                return False
        return True

    # What must hold in the end

    async def check_everything(self) -> None:
        self.observer.sample()
        self.observer.check_logs()
        self.observer.check_equality()
        async with asyncio.timeout(CALM_S):
            await self.topics.check()
            for reader in self.readers:
                await self.check_partition(reader)
            client = CoordinatorClient(*self._place("auditor"), GROUP)
            await check_offsets(client, self.ledger)
            client.close()

    async def check_partition(self, observer: ClusterReader) -> None:
        partition = observer.partition
        client = self.reading_client(*self._place("auditor"), partition)
        reader = self.make_reader(client, "")
        await reader.read_everything()
        client.close()
        both = zip(reader.values, observer.values, strict=False)
        if len(reader.values) < len(observer.values) or any(mine != theirs for mine, theirs in both if mine and theirs):
            raise Violation(f"{partition}: what a consumer has read is not what is there now")
        written: dict[str, list[int]] = {}
        for value in filter(None, reader.values):
            name, number, _ = value.split(b":")
            written.setdefault(name.decode(), []).append(int(number))
        for producer in self.producers:
            if producer.partition == partition:
                self.check_producer(producer, reader.values, written.get(producer.name, []))
        careless = written.get(self.careless.name, [])
        # What it gave up may arrive late, after what it sent then; but nothing arrives twice.
        if len(careless) != len(set(careless)) or any(number >= self.careless.sent for number in careless):
            raise Violation(f"{partition}: {self.careless.name} has repeated records: {careless}")

    def check_producer(self, producer: IdempotentProducer, values: list[bytes | None], numbers: list[int]) -> None:
        deleted = 0
        for value, offset in producer.acknowledged.items():
            if offset < len(values) and values[offset] is None:
                deleted += 1
            elif offset >= len(values) or values[offset] != value:
                raise Violation(
                    f"{producer.partition}: {value[:20]!r} was acknowledged at {offset} and is not there: "
                    f"{(values[offset] or b'')[:20] if offset < len(values) else len(values)!r}"
                )
        if numbers != list(range(deleted, len(producer.acknowledged))):
            raise Violation(f"{producer.partition}: {producer.name} has lost, repeated or reordered: {numbers}")

    def outcome(self) -> Outcome:
        seen = self.seen + self.cluster.seen + self.ledger.seen + self.careless.seen
        for node in self.cluster.nodes.values():
            seen += node.file_system.seen
        for each in (*self.producers, *self.readers, self.topics, *self.reassigners):
            seen += each.seen
        seen["leader epoch"] += self.observer.leader_epochs_seen
        seen["connection reset"] += self.cluster.network.resets
        seen["record acknowledged"] += sum(len(each.acknowledged) for each in self.producers)
        seen["record read"] += sum(len(each.values) for each in self.readers)
        seen["seconds"] += round(self.loop.time())
        digest = hashlib.sha256("\n".join(self.loop.trace_lines).encode())
        return Outcome(seen, digest.hexdigest())
