"""The story of a cluster whose topic is tiered (KIP-405): what is old is in a bucket alone, which fails as well.

All that holds of other topics holds of this one, whatever is left of it on local disks.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final
from unittest import mock

from broker.broker_server import BrokerServer
from broker.common.identifiers import (
    REMOTE_LOG_METADATA_TOPIC,
    REMOTE_WAL_LOG_METADATA_TOPIC,
    TopicPartition,
)
from broker.objectstore.decorated import Operation
from broker.tiering import remote_log_sweeper
from tests.simulation.cluster import RACK_AWARE, TOPIC, ClusterStory, Outcome, Worker, spare_the_collector
from tests.simulation.cluster_faults import ClusterFaults
from tests.simulation.tiered_cluster_faults import TieredClusterFaults
from tests.support import sim_buckets, sim_remote_storage
from tests.support.sim_buckets import SimBuckets
from tests.support.sim_client import TopicChurner, Violation
from tests.support.sim_cluster import SimCluster
from tests.support.sim_cluster_client import AnyBroker, LeaderClient
from tests.support.sim_cluster_work import AcksOneProducer, ClusterReader, RecordDeleter
from tests.support.sim_node import NodeLoop, simulate_nodes
from tests.support.sim_remote_storage import TieredBucket
from tests.support.sim_tiered_observer import TieredObserver
from tests.support.sim_tiered_work import (
    HistoryReader,
    TieredChurner,
    TieredLeaderClient,
    TieredReader,
    TieringSwitch,
    TransactionalWriter,
)

UNCLEAN: Final = TopicPartition("u", 0)
UNCLEAN_CONFIGS: Final = {
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "1",
    "remote.storage.enable": "true",
    "internal.segment.bytes": "400",
}
SWEEP_S: Final = 3.0  # instead of hours
LOCAL_BYTES: Final = 6_000
RETENTION_BYTES: Final = 12_000
RETENTION_MS: Final = 12_000
SEGMENT_BYTES: Final = 3_000
BATCH_BYTES_MAX: Final = 1_500
COUNTS: Final = (
    "fetch_requests",
    "fetch_errors",
    "copy_requests",
    "copy_errors",
    "delete_requests",
    "delete_errors",
    "build_aux_state_requests",
    "build_aux_state_errors",
)


def run(seed: int) -> Outcome:
    try:
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(remote_log_sweeper, "UNKNOWN_SECONDS", SWEEP_S))
            defaults = remote_log_sweeper.RemoteLogSweeper.__init__.__kwdefaults__
            stack.enter_context(mock.patch.dict(defaults, interval_seconds=SWEEP_S))
            return simulate_nodes(lambda loop: TieredClusterStory(loop).tell(), seed=seed)
    finally:
        spare_the_collector()


class TieredClusterStory(ClusterStory):
    """`retention` is that of both tiers; `is_disabled` at times: tiering ends, and begins again."""

    pauses_per_s = 8.0
    reading_client = TieredLeaderClient

    def __init__(self, loop: NodeLoop) -> None:
        super().__init__(loop)
        chance = self.chance
        self.tier = TieredBucket(self.buckets.by_url[sim_remote_storage.BUCKET])
        tiered = [*self.partitions, UNCLEAN] if self.is_unclean else self.partitions
        self.watcher = TieredObserver(self.cluster, self.tier, tiered)
        deleting = self.partitions if chance.random() < 0.3 else []
        self.deleters = {
            reader.partition: RecordDeleter(
                LeaderClient(*self._place("deleter"), reader.partition), lambda reader=reader: len(reader.values)
            )
            for reader in self.readers
            if reader.partition in deleting
        }
        self.histories = [
            HistoryReader(
                TieredLeaderClient(*self._place("historian"), each),
                "rack-1",
                lambda each=each: self.gone_below(each),
            )
            for each in self.partitions
        ]
        self.transactions = [
            TransactionalWriter(
                self.cluster, TieredLeaderClient(*self._place("transactions"), each), f"x{each.partition}"
            )
            for each in self.partitions
            if chance.random() < 0.4
        ]
        self.switches = self._switches()
        self.unclean_producers = []
        if self.is_unclean:
            self.observer.lossy = frozenset({UNCLEAN.topic})
            self.unclean_producers.append(AcksOneProducer(LeaderClient(*self._place("unclean"), UNCLEAN), "u"))
        self.watcher.may_be_disabled = self.is_disabled

    def _switches(self) -> list[TieringSwitch]:
        client = AnyBroker(*self._place("switch"))
        self.is_disabled = False
        match self.chance.randrange(6):
            case 0:
                off: dict[str, str | None] = {"remote.log.copy.disable": "true", **dict.fromkeys(self.local_retention)}
                return [TieringSwitch(client, TOPIC, off, {"remote.log.copy.disable": None, **self.local_retention})]
            case 1:
                self.is_disabled = True
                off = {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
                off |= dict.fromkeys(self.local_retention)
                return [TieringSwitch(client, TOPIC, off, {"remote.storage.enable": "true", **self.local_retention})]
        return []

    async def tell(self) -> Outcome:
        self.buckets.install()
        self.histories_reading: list[asyncio.Task[None]] = []
        return await super().tell()

    @property
    def workers(self) -> tuple[Worker, ...]:
        return (*super().workers, *self.deleters.values(), *self.transactions, *self.switches, *self.unclean_producers)

    def make_cluster(self) -> SimCluster:
        chance = self.chance
        self.has_wal = chance.random() < 0.2
        self.is_unclean = chance.random() < 0.2
        self.clocks_jump = chance.random() < 0.3
        self.buckets = buckets = SimBuckets(self.loop, 2, self.loop.trace)
        buckets.add(sim_remote_storage.BUCKET)
        return SimCluster(
            self.loop,
            dedicated_controller=self.is_unclean or chance.random() < 0.7,
            properties={
                **(RACK_AWARE if chance.random() < 0.5 else {}),
                "replica.high.watermark.checkpoint.interval.ms": chance.choice(("700", "60000")),
                "log.initial.task.delay.ms": "100",  # else local retention begins when all is over
                "log.retention.check.interval.ms": chance.choice(("200", "1000")),
                "remote.fetch.max.wait.ms": chance.choice(("500", "4000")),  # bucket errors come before or after it
                "remote.log.storage.system.enable": "true",
                "remote.log.storage.manager.class.name": sim_remote_storage.STORAGE_MANAGER,
                "rsm.config.bucket": sim_remote_storage.BUCKET,
                "remote.log.manager.task.interval.ms": chance.choice(("300", "1000")),
                "remote.log.index.file.cache.total.size.bytes": chance.choice(("1", "1000", "100000")),
                "remote.log.reader.threads": chance.choice(("1", "10")),
                "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
                "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
                "rlmm.config.remote.log.metadata.consume.wait.ms": "4000",
                **(self._wal_properties() if self.has_wal else {}),
            },
            properties_of=lambda node_id: {
                "broker.rack": f"rack-{buckets.zone_of(node_id)}",
                **({"rwsm.config.bucket": buckets.urls[buckets.zone_of(node_id)]} if self.has_wal else {}),
            },
        )

    def _wal_properties(self) -> Mapping[str, str]:
        return {
            "remote.wal.storage.system.enable": "true",
            "remote.wal.storage.manager.class.name": sim_buckets.STORAGE_MANAGER,
            "remote.wal.fallback.lag.ms": "1500",
            "remote.wal.combine.interval.ms": "10",
            "remote.wal.upload.timeout.ms": "1000",
            "remote.wal.fetch.timeout.ms": "1000",
            "rwlmm.config.remote.wal.log.metadata.topic.num.partitions": "3",
            "rwlmm.config.remote.wal.log.metadata.topic.replication.factor": "3",
        }

    def make_faults(self) -> ClusterFaults:
        admin = AnyBroker(*self._place("admin"))
        faults = TieredClusterFaults(self.cluster, self.hosts, self.seen, self.buckets, admin)
        faults.has_wal, faults.clocks_jump = self.has_wal, self.clocks_jump
        faults.unclean = UNCLEAN if self.is_unclean else None
        return faults

    def topic_configs(self) -> dict[str, str]:
        return {
            "internal.segment.bytes": str(SEGMENT_BYTES),
            "remote.storage.enable": "true",
            **self.local_retention,
            **self.retention,
            **({"remote.wal.enable": "true"} if self.has_wal else {}),
        }

    def make_topics(self) -> TopicChurner:
        chance = self.chance
        self.local_retention = chance.choice(({"local.retention.ms": "1"}, {"local.retention.bytes": str(LOCAL_BYTES)}))
        self.retention = self._draw_retention()
        configs = {
            "internal.segment.bytes": "1500",
            "remote.storage.enable": "true",
            "local.retention.bytes": "1",
        }
        admin = AnyBroker(*self._place("admin"))
        return TieredChurner(admin, lambda partition: TieredLeaderClient(*self._place("filler"), partition), configs)

    def _draw_retention(self) -> dict[str, str]:
        """Ages are told by the brokers' clocks, so these must not jump."""
        unlimited = {"retention.ms": "-1", "retention.bytes": "-1"}
        kind = self.chance.randrange(4)
        if kind == 0:
            return unlimited | {"retention.bytes": str(RETENTION_BYTES)}
        if kind == 1 and not self.clocks_jump:
            return unlimited | {"retention.ms": str(RETENTION_MS), "message.timestamp.type": "LogAppendTime"}
        return unlimited

    def make_reader(self, client: LeaderClient, rack: str) -> ClusterReader:
        return TieredReader(client, rack, lambda: self.gone_below(client.partition))

    def gone_below(self, partition: TopicPartition) -> int:
        return self.watcher.highest_log_start(partition)

    def written(self) -> list[TopicPartition]:
        image = self.cluster.image
        found = [*super().written(), *([UNCLEAN] if self.is_unclean else [])]
        for name in (REMOTE_LOG_METADATA_TOPIC, REMOTE_WAL_LOG_METADATA_TOPIC):
            topic = None if image is None else image.topics.topic(name)
            found += [TopicPartition(name, number) for number in (() if topic is None else topic.partitions)]
        return found

    # The story

    async def observe(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for each in self.histories:
                tasks.create_task(self._read_history(each), name="historian")
            tasks.create_task(self._watch(), name="watcher")
            await super().observe()

    async def _read_history(self, history: HistoryReader) -> None:
        while self.cluster.registration(history.partition) is None:
            await asyncio.sleep(0.2)
        await history.run()

    async def _watch(self) -> None:
        while True:
            self.watcher.sample()
            await asyncio.sleep(0.05)

    async def calm(self, working: list[asyncio.Task[None]]) -> None:
        """Sometimes all brokers have to start again, and know nothing but what their disks and the topic say."""
        if self.chance.random() < 0.2:
            await self.faults.all_have_their_bytes()
            self.seen["all brokers killed"] += 1
            for _, node in list(self.cluster.living()):
                node.kill()
        await super().calm(working)

    async def trouble(self, tasks: asyncio.TaskGroup) -> None:
        if self.is_unclean:
            await self.topics.create(UNCLEAN.topic, 1, UNCLEAN_CONFIGS | self.local_retention, 3)
        await super().trouble(tasks)
        self.check_tiers()

    def is_level(self) -> bool:
        self.check_tiers()
        return super().is_level() and self.unfinished() is None

    def unfinished(self) -> str | None:
        """What tiering has still to do when nothing fails and nobody writes."""
        slack_bytes = SEGMENT_BYTES + BATCH_BYTES_MAX
        not_drained = None if self.clocks_jump else self.watcher.not_drained(self.local_retention, slack_bytes)
        return not_drained or self.watcher.not_known(self._brokers()) or self.leaked()

    def complaint(self) -> str | None:
        return super().complaint() or (self.unfinished() if all(each.is_stopping for each in self.workers) else None)

    def leaked(self) -> str | None:
        """A topic that is deleted and has something in the bucket; clocks that jump keep the sweeper from it."""
        image = self.cluster.image
        if image is None or self.clocks_jump:
            return None
        for key, found in self.tier.objects():
            if found.topic_id not in image.topics.by_id:
                return f"{key} is of a topic that was deleted"
        return None

    def check_tiers(self) -> None:
        self.observer.check_logs()
        self.watcher.check(self.observer.committed, self.limits())

    def limits(self) -> dict[TopicPartition, int]:
        """How far clients have asked for records to be deleted."""
        return {partition: deleter.gone_below for partition, deleter in self.deleters.items()}

    # What must hold in the end

    async def check_everything(self) -> None:
        self.check_tiers()
        self.watcher.check_finished(self._brokers())
        await super().check_everything()
        if self.is_unclean:
            await self.check_unclean()

    async def check_partition(self, observer: ClusterReader) -> None:
        await super().check_partition(observer)
        partition = observer.partition
        for only_committed in (False, True):
            client = TieredLeaderClient(*self._place("auditor"), partition)
            reader = TieredReader(client, "", lambda: self.gone_below(partition), only_committed=only_committed)
            await reader.read_everything()
            client.close()
            for writer in self.transactions:
                if writer._client.partition == partition:
                    self.check_transactions(writer, reader)

    async def check_unclean(self) -> None:
        """What a consumer reads is the leader's log, whatever of other logs is in the bucket."""
        client = TieredLeaderClient(*self._place("auditor"), UNCLEAN)
        reader = TieredReader(client, "", lambda: self.gone_below(UNCLEAN))
        await reader.read_everything()
        client.close()
        leader = self.cluster.leader_of(UNCLEAN)
        log = None if leader is None else self.cluster.log_of(leader, UNCLEAN)
        assert log is not None
        for offset, epoch in reader.epochs.items():
            if log.leader_epochs.epoch_for_offset(max(offset, log.log_start_offset)) != epoch:
                raise Violation(f"{UNCLEAN}: offset {offset} is read of epoch {epoch}: {log.leader_epochs.entries}")
        values = list(filter(None, reader.values))
        if len(values) != len(set(values)) or not values:
            raise Violation(f"{UNCLEAN}: records are read twice, or none: {values}")
        self.seen["epochs of a log elected uncleanly"] += len(log.leader_epochs.entries)

    def check_transactions(self, writer: TransactionalWriter, reader: TieredReader) -> None:
        for value, offset in writer.committed.items():
            found = reader.values[offset]
            if found is not None and found != value:
                raise Violation(f"{reader.partition}: {value!r} was committed at {offset}, and {found!r} is there")
        if reader.only_committed:
            shown = writer.aborted.intersection(filter(None, reader.values))
            if shown:
                raise Violation(f"{reader.partition}: aborted records are shown: {sorted(shown)[:3]}")

    def _brokers(self) -> Iterator[BrokerServer]:
        """Those that run."""
        for _, node in self.cluster.living():
            assert node.node is not None and node.node.broker is not None
            yield node.node.broker

    def outcome(self) -> Outcome:
        outcome = super().outcome()
        seen = outcome.seen
        for each in (*self.deleters.values(), *self.switches, *self.histories, *self.transactions):
            seen += each.seen
        seen["run through the fast bucket as well"] += self.has_wal
        seen["run with disabling"] += self.is_disabled
        for name in self.retention:
            seen[f"run with {name}={self.retention[name]}"] += 1
        for name in self.local_retention:
            seen[f"run with {name}"] += 1
        seen += self.buckets.occurred
        seen += self.watcher.seen
        for operation in Operation:
            seen[f"request {operation}"] += self.tier.count(operation)
        for node in self.cluster.nodes.values():
            for process in node.processes:
                if process.broker is not None and process.broker.tiered_reading is not None:
                    stats = process.broker.tiered_reading.stats
                    for counts in stats.topics.values():
                        for name in COUNTS:
                            seen[name.replace("_", " ")] += getattr(counts, name)
                    seen["leaked partitions deleted"] += stats.leaked_partitions_deleted
        return outcome
