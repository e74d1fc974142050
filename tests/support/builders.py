"""Builders: configs, logs, metadata and a replica manager on a temporary directory, as small as a test wants them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import FileSystem, OsFileSystem
from broker.common.identifiers import TopicIdPartition, TopicPartition
from broker.config.broker_config import BrokerConfig
from broker.config.config_holder import ConfigHolder
from broker.config.topic_config import TopicConfig
from broker.log.log_environment import LogEnvironment
from broker.log.log_loader import load_log, partition_directory
from broker.log.unified_log import UnifiedLog
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.partition_registration import PartitionRegistration
from broker.metrics.log_metrics import LogMetrics
from broker.metrics.registry import MetricsRegistry
from broker.records.append_origin import AppendOrigin
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import RecordBatch, batches
from broker.replication.alter_partition_manager import AlterPartitionAnswer, LeaderAndIsr, ProposedIsr
from broker.replication.append_request import AppendRequest
from broker.replication.fetch_manager import FetchManager
from broker.replication.fetch_params import FetchParams, FetchPartition, FetchPartitionResult
from broker.replication.fetch_session_cache import FetchSessionCache
from broker.replication.follower_fetchers import FollowerFetchers
from broker.replication.partition import Partition
from broker.replication.produce_result import PartitionProduceResult
from broker.replication.remote_log import RemoteLog
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replica_selector import replica_selector
from broker.schemas.cluster_metadata import (
    BrokerEndpoint,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

LOCAL_BROKER_ID = 1
NOW_MS = 1_700_000_000_000
LISTENER = "PLAINTEXT"


def parsed(*buffers: bytearray) -> list[RecordBatch]:
    """Batches as the log takes them: they are patched in these buffers."""
    return [RecordBatch.parse(buffer) for buffer in buffers]


class ToldAppend(AppendRequest):
    """An append that tells whomever it is made with."""

    def __init__(
        self, tell: Callable[[list[PartitionProduceResult]], object], acks: int, timeout_ms: int = 1000, **keywords: Any
    ) -> None:
        super().__init__(acks, timeout_ms, **keywords)
        self._tell = tell

    def on_complete(self, results: list[PartitionProduceResult]) -> None:
        self._tell(results)

    @staticmethod
    def parsed(entries: Sequence[tuple[TopicPartition, bytearray]]) -> list[tuple[TopicPartition, RecordBatch]]:
        return [(topic_partition, RecordBatch.parse(each)) for topic_partition, each in entries]


class SettableClock:
    """Wall time that stands still until it is moved."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms


def broker_config(properties: Mapping[str, str] | None = None) -> BrokerConfig:
    """A complete broker with both roles; `properties` win."""
    base = {
        "process.roles": "broker,controller",
        "node.id": str(LOCAL_BROKER_ID),
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9190",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9092",
        "controller.quorum.voters": f"{LOCAL_BROKER_ID}@127.0.0.1:9190",
        "log.dirs": "./data/test",
    }
    return BrokerConfig.from_properties({**base, **(properties or {})})


def topic_uuid(name: str, incarnation: int = 0) -> UUID:
    """The same id for the same name and incarnation, never a reserved one."""
    return UUID(int=int.from_bytes(f"{name}/{incarnation}".encode().ljust(16, b"\1")[:16], "big"))


def batch(
    *values: bytes | str,
    timestamp: int = NOW_MS,
    keys: Sequence[bytes | None] | None = None,
    **keywords: Any,
) -> bytearray:
    """One batch with these values (and no keys, unless given)."""
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    used_keys = keys or [None] * len(encoded)
    return records_batch(*((timestamp, key, value) for key, value in zip(used_keys, encoded, strict=True)), **keywords)


def log_environment(
    *,
    file_system: FileSystem | None = None,
    clock: SettableClock | None = None,
    seed: int = 1,
    is_remote_storage_enabled: bool = False,
) -> LogEnvironment:
    return LogEnvironment(
        file_system or OsFileSystem(),
        clock or SettableClock(),
        Chance(seed),
        LogMetrics(MetricsRegistry()),
        is_remote_storage_enabled=is_remote_storage_enabled,
    )


def values_of(records: Any) -> list[bytes | None]:
    """The values of all records in a buffer of batches, markers left out."""
    return [record.value for each in batches(records) if not each.is_control for record in each.records()]


class LogSource:
    """The part of the log manager that replicas use, over plain directories: real logs, no tasks."""

    def __init__(self, directory: Path, environment: LogEnvironment, config_of: Callable[[str], TopicConfig]) -> None:
        self.directory = directory
        self.environment = environment
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.failure: Exception | None = None
        self.deleted: list[TopicPartition] = []
        self.set_aside: list[TopicPartition] = []
        self.had_clean_shutdown = True  # whoever used the directory before
        self._config_of = config_of

    def get_or_create(self, topic_partition: TopicPartition, topic_id: UUID) -> UnifiedLog:
        if self.failure is not None:
            raise self.failure
        existing = self.logs.get(topic_partition)
        if existing is None:
            incarnation = len(self.deleted) + len(self.set_aside)
            directory = partition_directory(self.directory / str(incarnation), topic_partition)
            directory.mkdir(parents=True, exist_ok=True)
            loaded = load_log(
                self.environment,
                directory,
                topic_partition,
                self._config_of(topic_partition.topic),
                had_clean_shutdown=self.had_clean_shutdown,
            )
            existing = self.logs[topic_partition] = loaded.log
            existing.assign_topic_id(topic_id)
        return existing

    def mark_for_deletion(self, topic_partition: TopicPartition) -> bool:
        self.deleted.append(topic_partition)
        return self.logs.pop(topic_partition, None) is not None

    def set_stray_aside(self, topic_partition: TopicPartition) -> None:
        self.set_aside.append(topic_partition)
        self.logs.pop(topic_partition, None)

    def all(self) -> list[UnifiedLog]:
        return list(self.logs.values())


class RecordingAlterPartitionManager:
    """Keeps proposals until the test answers them."""

    def __init__(self) -> None:
        self.proposals: list[tuple[TopicIdPartition, ProposedIsr, Callable[[AlterPartitionAnswer], None]]] = []

    def submit(
        self, partition: TopicIdPartition, proposal: ProposedIsr, on_complete: Callable[[AlterPartitionAnswer], None]
    ) -> None:
        self.proposals.append((partition, proposal, on_complete))

    @property
    def proposed_isr(self) -> tuple[int, ...] | None:
        """The ISR of the oldest open proposal."""
        return tuple(member.broker_id for member in self.proposals[0][1].isr) if self.proposals else None

    def answer(self, answer: AlterPartitionAnswer) -> None:
        self.proposals.pop(0)[2](answer)

    def agree(self, leader: int = LOCAL_BROKER_ID) -> None:
        """Answer as the controller does that agrees."""
        _, proposal, _ = self.proposals[0]
        isr = tuple(member.broker_id for member in proposal.isr)
        self.answer(
            LeaderAndIsr(
                leader, proposal.leader_epoch, isr, proposal.leader_recovery_state, proposal.partition_epoch + 1
            )
        )


class ReplicaWorld:
    """A replica manager with its metadata, logs and time, driven by a test.

    `now_ms` is the monotonic time of replica lag; it moves when the test moves it.  `fetchers` makes what follows
    leaders, from this world; without it nobody is followed.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        broker_id: int = LOCAL_BROKER_ID,
        fetchers: "Callable[[ReplicaWorld], FollowerFetchers] | None" = None,
        remote_log: RemoteLog | None = None,
    ) -> None:
        self.now_ms = 1_000_000
        self.is_fenced = False
        self.clock = SettableClock()
        self.config = ConfigHolder(broker_config({"log.dirs": str(directory), **(properties or {})}))
        self.metadata = MetadataCache()
        self.alter_partition = RecordingAlterPartitionManager()
        environment = log_environment(
            clock=self.clock, is_remote_storage_enabled=self.config.current.remote_log_storage_system_enable
        )
        self.logs = LogSource(directory, environment, self.topic_config)
        self.replicas = ReplicaManager(
            local_broker_id=broker_id,
            config=self.config,
            log_manager=self.logs,
            metadata_cache=self.metadata,
            disk=InlineDiskExecutor(),
            clock=self.clock,
            alter_partition_manager=self.alter_partition,
            broker_epoch=lambda: 10 + broker_id,
            monotonic_ms=lambda: self.now_ms,
            is_fenced=lambda: self.is_fenced,
            fetchers=fetchers(self) if fetchers is not None else None,
            remote_log=remote_log,
            replica_selector=replica_selector(
                self.config.current.replica_selector_class, broker_id, self.metadata, lambda: self.now_ms
            ),
        )
        self.sessions = FetchManager(
            FetchSessionCache(1000, Chance(2)),
            monotonic_ms=lambda: self.now_ms,
            topic_name=self.metadata.topic_name,
        )
        self._offset = 0

    def topic_config(self, topic: str) -> TopicConfig:
        overrides = self.metadata.image.configs.properties(ConfigResourceType.TOPIC, topic)
        return TopicConfig.effective(self.config.current, overrides)

    # Metadata

    def replay(self, *records: MetadataRecord) -> None:
        """Publish the records as one batch and apply them."""
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        self._offset += 1
        image = delta.apply(self._offset, 1)
        self.metadata.set_image(image)
        self.replicas.apply_metadata(delta, image)

    def register_brokers(
        self, *broker_ids: int, fenced: bool = False, epoch: int | None = None, rack: str | None = None
    ) -> None:
        """Brokers on 10.0.0.<id>:9092 with the epoch 10 + id."""
        self.replay(
            *(
                RegisterBrokerRecord(
                    broker_id=broker_id,
                    incarnation_id=UUID(int=1000 + broker_id),
                    broker_epoch=10 + broker_id if epoch is None else epoch,
                    fenced=fenced,
                    rack=rack,
                    end_points=(
                        BrokerEndpoint(name=LISTENER, host=f"10.0.0.{broker_id}", port=9092, security_protocol=0),
                    ),
                )
                for broker_id in broker_ids
            )
        )

    def create_topic(
        self,
        name: str = "t",
        *,
        partitions: int = 1,
        replicas: tuple[int, ...] = (LOCAL_BROKER_ID,),
        isr: tuple[int, ...] | None = None,
        leader: int = LOCAL_BROKER_ID,
        leader_epoch: int = 0,
        configs: Mapping[str, str] | None = None,
        incarnation: int = 0,
    ) -> TopicPartition:
        """A topic whose partitions are all alike; returns its first partition."""
        topic_id = topic_uuid(name, incarnation)
        self.replay(
            TopicRecord(name=name, topic_id=topic_id),
            *(
                ConfigRecord(resource_type=int(ConfigResourceType.TOPIC), resource_name=name, name=key, value=value)
                for key, value in (configs or {}).items()
            ),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas if isr is None else isr,
                    leader=leader,
                    leader_epoch=leader_epoch,
                    partition_epoch=0,
                )
                for index in range(partitions)
            ),
        )
        return TopicPartition(name, 0)

    def place(self, name: str = "t", partition: int = 0, **changes: Any) -> None:
        """Change fields of a partition's registration; its partition epoch rises unless it is given."""
        topic = self.metadata.image.topics.by_name[name]
        old = topic.partitions[partition]
        values: dict[str, Any] = {
            "replicas": old.replicas,
            "isr": old.isr,
            "leader": old.leader,
            "leader_epoch": old.leader_epoch,
            "partition_epoch": old.partition_epoch + 1,
            "adding_replicas": old.adding_replicas,
            "removing_replicas": old.removing_replicas,
            **changes,
        }
        self.replay(PartitionRecord(partition_id=partition, topic_id=topic.id, **values))

    def delete_topic(self, name: str = "t") -> None:
        self.replay(RemoveTopicRecord(topic_id=self.metadata.image.topics.by_name[name].id))

    # Partitions

    def partition(self, topic: str = "t", partition: int = 0) -> Partition:
        found = self.replicas.hosted_partition(TopicPartition(topic, partition))
        assert found is not None, f"{topic}-{partition} is not hosted"
        return found

    def append(self, *batches_: bytearray, topic: str = "t", partition: int = 0) -> None:
        """Append to a leader at once, as a producer with acks=1 does."""
        results = self.partition(topic, partition).append_records_to_leader(parsed(*batches_), AppendOrigin.CLIENT)
        assert all(result.error is None for result in results), results

    # Requests

    async def produce(
        self,
        entries: Sequence[tuple[TopicPartition, bytearray]],
        *,
        acks: int = 1,
        timeout_ms: int = 30_000,
        **keywords: Any,
    ) -> list[PartitionProduceResult]:
        """Append and wait for the answer."""
        answered: asyncio.Future[list[PartitionProduceResult]] = asyncio.get_running_loop().create_future()
        request = ToldAppend(answered.set_result, acks, timeout_ms, **keywords)
        self.replicas.append_records(request, request.parsed(entries))
        return await answered

    def start_fetch(self, params: FetchParams, partitions: Any) -> "asyncio.Future[Sequence[FetchPartitionResult]]":
        """Fetch; the future is done once it is answered."""
        answered: asyncio.Future[Sequence[FetchPartitionResult]] = asyncio.get_running_loop().create_future()
        self.replicas.fetch(params, partitions, answered.set_result)
        return answered

    async def fetch(self, params: FetchParams, *partitions: FetchPartition) -> Sequence[FetchPartitionResult]:
        return await self.start_fetch(params, list(partitions))


async def settle() -> None:
    """Let everything run that is due now."""
    for _ in range(5):
        await asyncio.sleep(0)


def first_batch(records: Any) -> RecordBatch:
    return next(iter(batches(records)))


def registration(**fields: Any) -> PartitionRegistration:
    """A partition led here by the only replica, unless fields say otherwise."""
    defaults: dict[str, Any] = {"replicas": (1,), "isr": (1,), "leader": 1}
    return PartitionRegistration(**{**defaults, **fields})
