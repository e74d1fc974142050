"""Brokers that replicate among themselves in one loop: real logs and fetchers, requests as bytes, no socket.

The cluster is the controller: it agrees to every change of an ISR that fits what it knows, and elects whom the test
names.  Metadata reaches every broker at once, except those a test leaves `unaware` for a while.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicIdPartition, TopicPartition
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_delta import MetadataDelta
from broker.metadata.metadata_image import MetadataImage
from broker.metadata.partition_registration import PartitionRegistration
from broker.network.byte_stream import AsyncioNetwork
from broker.protocol.api_keys import ApiKey
from broker.protocol.frames import Frame
from broker.protocol.requests import decode_request, decode_response, encode_request, encode_response
from broker.replication.alter_partition_manager import AlterPartitionAnswer, IsrMember, LeaderAndIsr, ProposedIsr
from broker.replication.bucket_follower import MakeBucketFollower
from broker.replication.partition import Partition
from broker.replication.remote_log import RemoteLog
from broker.replication.replica_fetcher_manager import LeaderAddress, ReplicaFetcherManager
from broker.schemas.cluster_metadata import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from broker.server.handlers.fetch import fetch
from broker.server.handlers.list_offsets import list_offsets
from broker.server.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from broker.server.leader_connector import LeaderConnector
from broker.server.remote_leader_endpoint import RemoteLeaderEndPoint
from broker.server.response_slot import ResponseSlot
from tests.support.builders import LISTENER, ReplicaWorld, topic_uuid
from tests.support.replica_requests import CONTEXT
from tests.support.sim_loop import SimLoop, simulate

T = TopicPartition("t", 0)
LATENCY_S = 0.001


class _Waiting:
    """The owner of one response's slot."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def on_slot_filled(self, slot: ResponseSlot) -> None:
        if not self.answered.done():
            self.answered.set_result(b"".join(slot.buffers)[4:])

    def close(self, reason: str) -> None:
        if not self.answered.done():
            self.answered.set_exception(ConnectionError(reason))


class ClusterConnection:
    """From one broker to another, through the handlers of the other."""

    def __init__(self, cluster: "ReplicaCluster", source: int, target: int) -> None:
        self._cluster = cluster
        self._source = source
        self._target = target

    async def send(self, api_key: int, version: int, entity: Any, timeout_ms: int) -> Any:
        def write(correlation_id: int, client_id: str) -> bytes:
            return encode_request(api_key, version, correlation_id, client_id, entity)

        return await self.exchange(write, lambda frame: decode_response(api_key, version, frame)[1], timeout_ms)

    async def exchange(self, write: Callable[[int, str], bytes], read: Callable[[bytes], Any], timeout_ms: int) -> Any:
        broker = self._reach()
        data = write(7, f"broker-{self._source}")[4:]
        request = decode_request(data)
        self._cluster.requests.append((self._source, self._target, request.body))
        await asyncio.sleep(self._cluster.latency())
        self._reach(broker)
        if request.api_key == ApiKey.FETCH:
            answer = await self._fetch(broker, data, timeout_ms)
        else:
            answer_to = offset_for_leader_epoch if request.api_key == ApiKey.OFFSET_FOR_LEADER_EPOCH else list_offsets
            response = answer_to(request, CONTEXT, broker.replicas)
            answer = b"".join(encode_response(request.api_key, request.version, 7, response))[4:]
        await asyncio.sleep(self._cluster.latency())
        self._reach(broker)
        if self._cluster.tamper is not None and request.api_key == ApiKey.FETCH:
            told = decode_response(request.api_key, request.version, answer)[1]
            told = self._cluster.tamper(self._source, told)
            answer = b"".join(encode_response(request.api_key, request.version, 7, told))[4:]
        return read(answer)

    async def _fetch(self, broker: "ClusterBroker", data: bytes, timeout_ms: int) -> bytes:
        frame = Frame(memoryview(bytearray(data)), is_owned=True)
        frame.skip_header_tags()
        waiting = _Waiting()
        slot = ResponseSlot(waiting)
        fetch(frame, CONTEXT, slot, broker.replicas, broker.sessions, broker.metadata, broker.config)
        async with asyncio.timeout(timeout_ms / 1000):
            return await waiting.answered

    def _reach(self, expected: "ClusterBroker | None" = None) -> "ClusterBroker":
        """The other broker, which must still be the process it was."""
        broker = self._cluster.brokers.get(self._target)
        is_cut = (self._source, self._target) in self._cluster.cut or self._source not in self._cluster.brokers
        if broker is None or is_cut or (expected is not None and broker is not expected):
            raise ConnectionError(f"broker {self._target} is out of reach")
        return broker

    async def close(self) -> None: ...


class ClusterBroker(ReplicaWorld):
    """One broker process; its lag follows the loop's time."""

    def __init__(self, cluster: "ReplicaCluster", broker_id: int) -> None:
        self.broker_id = broker_id
        self.epoch = -1  # given at its registration
        self.applied = 0  # batches of metadata it has heard of
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        directory = cluster.directory / str(broker_id)
        super().__init__(
            directory,
            cluster.properties,
            broker_id=broker_id,
            fetchers=self._make_fetchers,
            remote_log=cluster.remote_log,
        )
        self.logs.had_clean_shutdown = False
        self.replicas.context.alter_partition_manager = cluster
        self.replicas.context.broker_epoch = self._broker_epoch

    @property  # type: ignore[override]
    def now_ms(self) -> int:
        return 1_000_000 + round(self._loop.time() * 1000)

    @now_ms.setter
    def now_ms(self, value: int) -> None: ...

    def _broker_epoch(self) -> int:
        """Of this process: a later one has another."""
        return self.epoch

    def bucket_follower_maker(self) -> MakeBucketFollower | None:
        """Who takes records from buckets here; None follows every partition as ever."""
        return self._cluster.make_bucket_follower

    def _make_fetchers(self, world: ReplicaWorld) -> ReplicaFetcherManager:
        broker_epoch = self._broker_epoch
        connector = LeaderConnector(self.broker_id, world.config, world.metadata, broker_epoch, AsyncioNetwork())

        def connect(address: LeaderAddress, fetcher_id: int) -> RemoteLeaderEndPoint:
            return RemoteLeaderEndPoint(
                ClusterConnection(self._cluster, self.broker_id, address.broker_id),
                local_broker_id=self.broker_id,
                broker_epoch=broker_epoch,
                metadata_version=lambda: self._cluster.metadata_version,
                config=world.config,
            )

        self.fetchers = ReplicaFetcherManager(
            self.broker_id,
            world.config,
            connector.address_of,
            connect,
            make_bucket_follower=self.bucket_follower_maker(),
            remote_log=self._cluster.remote_log,
        )
        return self.fetchers


class ReplicaCluster:
    """`cut` holds pairs (from, to) that cannot connect; `tamper(source, response)` may change what answers say.

    `remote_log` is what every broker asks about remote storage.
    """

    def __init__(
        self,
        directory: Path,
        *,
        broker_ids: tuple[int, ...] = (1, 2, 3),
        properties: Mapping[str, str] | None = None,
        make_bucket_follower: MakeBucketFollower | None = None,
        remote_log: RemoteLog | None = None,
    ) -> None:
        self.directory = directory
        self.remote_log = remote_log
        self.make_bucket_follower = make_bucket_follower
        self.properties = dict(properties or {})
        self.metadata_version = 25
        self.image = MetadataImage.EMPTY
        self.history: list[tuple[MetadataRecord, ...]] = []
        self.requests: list[tuple[int, int, Any]] = []
        self.cut: set[tuple[int, int]] = set()
        self.unaware: set[int] = set()
        self.tamper: Callable[[int, Any], Any] | None = None
        self.latency: Callable[[], float] = lambda: LATENCY_S
        self.controller_delay: Callable[[], float] = lambda: 0.0
        self._registrations = 10
        self.brokers: dict[int, ClusterBroker] = {}
        for broker_id in broker_ids:
            self.start(broker_id)

    # Brokers

    def start(self, broker_id: int) -> ClusterBroker:
        """A new process of a broker: it registers, and hears all there is before it does anything."""
        broker = self.make_broker(broker_id)
        self._registrations += 1
        endpoint = BrokerEndpoint(name=LISTENER, host=f"10.0.0.{broker_id}", port=9092, security_protocol=0)
        registration = RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=UUID(int=1000 + self._registrations),
            broker_epoch=self._registrations,
            fenced=False,
            end_points=(endpoint,),
        )
        self.replay(registration)
        broker.epoch = self._registrations
        self.brokers[broker_id] = broker
        self.tell(broker)
        return broker

    def make_broker(self, broker_id: int) -> ClusterBroker:
        return ClusterBroker(self, broker_id)

    async def kill(self, broker_id: int) -> None:
        """The process is gone; what it wrote is on its disk."""
        broker = self.brokers.pop(broker_id)
        await broker.fetchers.stop()
        for partition in broker.replicas.partitions():
            partition.stop(ErrorCode.kafka_storage_error, is_deleted=False)  # what is staged is not written any more
        for log in broker.logs.all():
            log.close()

    def fence(self, broker_id: int) -> None:
        """The controller has not heard of it for a session's time; its partitions stay as they are."""
        epoch = self.image.brokers[broker_id].epoch
        self.replay(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=1))

    def unfence(self, broker_id: int) -> None:
        epoch = self.image.brokers[broker_id].epoch
        self.replay(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=-1))

    async def stop(self) -> None:
        for broker_id in list(self.brokers):
            await self.kill(broker_id)

    def partition(self, broker_id: int, topic: str = "t", partition: int = 0) -> Partition:
        return self.brokers[broker_id].partition(topic, partition)

    def leader(self, topic: str = "t", partition: int = 0) -> int:
        return self.registration(topic, partition).leader

    # Metadata

    def replay(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        self.history.append(records)
        self.image = delta.apply(len(self.history), 1)
        for broker in list(self.brokers.values()):
            if broker.broker_id not in self.unaware:
                self.tell(broker)

    def tell(self, broker: ClusterBroker) -> None:
        """Publish to one broker what it has not heard of yet, as one change."""
        self.unaware.discard(broker.broker_id)
        if broker.applied == len(self.history):
            return
        delta = MetadataDelta(broker.metadata.image)
        for records in self.history[broker.applied :]:
            for record in records:
                delta.replay(record)
        broker.applied = len(self.history)
        image = delta.apply(broker.applied, 1)
        broker.metadata.set_image(image)
        broker.replicas.apply_metadata(delta, image)

    def create_topic(
        self,
        name: str = "t",
        *,
        partitions: int = 1,
        replicas: tuple[int, ...] = (1, 2, 3),
        isr: tuple[int, ...] | None = None,
        leader: int | None = None,
        configs: Mapping[str, str] | None = None,
        incarnation: int = 0,
    ) -> None:
        topic_id = topic_uuid(name, incarnation)
        config = int(ConfigResourceType.TOPIC)
        self.replay(
            TopicRecord(name=name, topic_id=topic_id),
            *(
                ConfigRecord(resource_type=config, resource_name=name, name=key, value=value)
                for key, value in (configs or {}).items()
            ),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas if isr is None else isr,
                    leader=replicas[0] if leader is None else leader,
                    leader_epoch=0,
                    partition_epoch=0,
                )
                for index in range(partitions)
            ),
        )

    def registration(self, topic: str = "t", partition: int = 0) -> PartitionRegistration:
        return self.image.topics.by_name[topic].partitions[partition]

    def place(self, topic: str = "t", partition: int = 0, **changes: Any) -> None:
        """Change fields of a registration; its partition epoch rises."""
        old = self.registration(topic, partition)
        values: dict[str, Any] = {
            "replicas": old.replicas,
            "isr": old.isr,
            "leader": old.leader,
            "leader_epoch": old.leader_epoch,
            "partition_epoch": old.partition_epoch + 1,
            **changes,
        }
        topic_id = self.image.topics.by_name[topic].id
        self.replay(PartitionRecord(partition_id=partition, topic_id=topic_id, **values))

    def elect(self, leader: int, isr: tuple[int, ...] | None = None, *, topic: str = "t", partition: int = 0) -> None:
        old = self.registration(topic, partition)
        changes: dict[str, Any] = {"leader": leader, "leader_epoch": old.leader_epoch + 1}
        self.place(topic, partition, **changes, isr=old.isr if isr is None else isr)

    def delete_topic(self, name: str = "t") -> None:
        self.replay(RemoveTopicRecord(topic_id=self.image.topics.by_name[name].id))

    # As the AlterPartitionManager of every broker

    def submit(
        self, partition: TopicIdPartition, proposal: ProposedIsr, on_complete: Callable[[AlterPartitionAnswer], None]
    ) -> None:
        asyncio.get_running_loop().call_later(
            self.controller_delay(), lambda: self._decide(partition, proposal, on_complete)
        )

    def _decide(
        self, partition: TopicIdPartition, proposal: ProposedIsr, on_complete: Callable[[AlterPartitionAnswer], None]
    ) -> None:
        topic = self.image.topics.by_id.get(partition.topic_id)
        if topic is None:
            on_complete(ErrorCode.unknown_topic_id)
            return
        known = topic.partitions[partition.partition]
        isr = tuple(member.broker_id for member in proposal.isr)
        if proposal.leader_epoch != known.leader_epoch:
            on_complete(ErrorCode.fenced_leader_epoch)
        elif proposal.partition_epoch != known.partition_epoch:
            on_complete(ErrorCode.invalid_update_version)
        elif not all(self._is_eligible(member) for member in proposal.isr):
            on_complete(ErrorCode.ineligible_replica)
        else:
            self.place(topic.name, partition.partition, isr=isr)
            on_complete(
                LeaderAndIsr(
                    known.leader, known.leader_epoch, isr, proposal.leader_recovery_state, known.partition_epoch + 1
                )
            )

    def _is_eligible(self, member: IsrMember) -> bool:
        registration = self.image.brokers[member.broker_id]
        return registration.is_active and member.broker_epoch in (-1, registration.epoch)

    # What became of it

    def log_bytes(self, broker_id: int, topic: str = "t", partition: int = 0) -> bytes:
        """The bytes of all segments."""
        log = self.partition(broker_id, topic, partition).log
        return b"".join(segment.records.path.read_bytes() for segment in log.segments)

    def digests(self, topic: str = "t", partition: int = 0) -> dict[int, str]:
        return {
            broker_id: hashlib.sha256(self.log_bytes(broker_id, topic, partition)).hexdigest()
            for broker_id in self.registration(topic, partition).replicas
        }

    def are_identical(self, topic: str = "t", partition: int = 0) -> bool:
        return len(set(self.digests(topic, partition).values())) == 1

    async def until(self, condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
        """In virtual time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not condition():
            assert loop.time() < end, f"not within {seconds} s"
            await asyncio.sleep(0.005)

    async def until_caught_up(self, topic: str = "t", partition: int = 0, *, seconds: float = 30.0) -> None:
        """Until every replica has all the leader has, and knows that it is committed."""

        def is_caught_up() -> bool:
            registration = self.registration(topic, partition)
            leader = self.partition(registration.leader, topic, partition).log
            ends = (leader.log_end_offset, leader.log_end_offset)
            logs = [self.partition(broker_id, topic, partition).log for broker_id in registration.replicas]
            return all((log.log_end_offset, log.high_watermark) == ends for log in logs)

        await self.until(is_caught_up, seconds=seconds)


Kind = TypeVar("Kind", bound=ReplicaCluster)


def tell_of(
    kind: Callable[..., Kind], directory: Path, story: Callable[[Kind], Awaitable[None]], **options: Any
) -> None:
    """A story of a cluster of that kind, in virtual time; no task or callback has failed in the end."""

    async def run(loop: SimLoop) -> None:
        cluster = kind(directory, **options)
        try:
            await story(cluster)
        finally:
            await cluster.stop()
        assert loop.failures == []

    simulate(run)
