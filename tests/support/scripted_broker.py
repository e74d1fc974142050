"""A broker that is nothing but what it says to the controller: it registers, beats and alters as a test tells it."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from broker.common.chance import Chance
from broker.common.errors import ErrorCode
from broker.common.identifiers import NO_EPOCH
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.server.supported_features import SUPPORTED_FEATURES
from tests.support.patience import PATIENCE
from tests.support.quorum_client import QuorumClient

TIMEOUT: Final = PATIENCE
UNKNOWN_EPOCH: Final = -1  # of a replica that never fetched: the controller does not compare it

_chance = Chance()
_ids = itertools.count(101)


class AlterPartitionAnswer(NamedTuple):
    """Of a request for one partition; the fields of the partition are those of an error when there is one."""

    top_error: ErrorCode
    error: ErrorCode
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class ScriptedBroker:
    """One process of a broker, as the controller can know it: a new object of the same id is the process restarted."""

    def __init__(
        self,
        quorum: QuorumClient,
        broker_id: int | None = None,
        *,
        directories: Sequence[UUID] | None = None,
        features: Mapping[str, tuple[int, int]] | None = None,
        rack: str | None = None,
    ) -> None:
        self.quorum = quorum
        self.id = next(_ids) if broker_id is None else broker_id
        self.incarnation_id = _chance.uuid()
        self.directories = (_chance.uuid(),) if directories is None else tuple(directories)
        self.features: Mapping[str, tuple[int, int]] = features if features is not None else dict(SUPPORTED_FEATURES)
        self.rack = rack
        self.epoch = NO_EPOCH

    def restarted(self) -> "ScriptedBroker":
        """Another process on the same disk."""
        return ScriptedBroker(
            self.quorum, self.id, directories=self.directories, features=self.features, rack=self.rack
        )

    def register(self, previous_epoch: int = NO_EPOCH) -> ErrorCode:
        schema = RequestSchema.of(ApiKey.BROKER_REGISTRATION, 4)
        features = [
            schema.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in self.features.items()
        ]
        listener = schema.Listener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)
        answer = self.quorum.send(
            ApiKey.BROKER_REGISTRATION,
            4,
            "BrokerRegistrationRequest",
            broker_id=self.id,
            cluster_id=self.quorum.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=(listener,),
            features=tuple(features),
            rack=self.rack,
            is_migrating_zk_broker=False,
            log_dirs=self.directories,
            previous_broker_epoch=previous_epoch,
        )
        if answer.error_code == ErrorCode.none:
            self.epoch = int(answer.broker_epoch)
        return ErrorCode(answer.error_code)

    def heartbeat(
        self,
        *,
        offset: int | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline: Sequence[UUID] = (),
    ) -> Any:
        """The answer; without an `offset` the broker has applied everything."""
        if offset is None:
            self.quorum.image()
            offset = self.quorum.end_offset - 1
        return self.quorum.send(
            ApiKey.BROKER_HEARTBEAT,
            1,
            "BrokerHeartbeatRequest",
            broker_id=self.id,
            broker_epoch=self.epoch,
            current_metadata_offset=offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=tuple(offline),
        )

    def unfenced(self) -> "ScriptedBroker":
        """Registered and let in."""
        assert self.register() == ErrorCode.none
        answer = self.heartbeat()
        assert answer.error_code == ErrorCode.none
        assert not answer.is_fenced
        return self

    @property
    def is_fenced(self) -> bool:
        return self.quorum.image().brokers[self.id].fenced

    def alter_partition(
        self,
        topic: str,
        isr: Iterable["ScriptedBroker | tuple[int, int]"],
        *,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        broker_epoch: int | None = None,
        recovery_state: int = 0,
    ) -> AlterPartitionAnswer:
        """Ask for these in-sync replicas of partition 0; epochs are the current ones unless given."""
        now = self.quorum.partition(topic)
        schema = RequestSchema.of(ApiKey.ALTER_PARTITION, 3)
        members = [each if isinstance(each, tuple) else (each.id, each.epoch) for each in isr]
        row = schema.PartitionData(
            partition_index=0,
            leader_epoch=now.leader_epoch if leader_epoch is None else leader_epoch,
            new_isr_with_epochs=tuple(
                schema.BrokerState(broker_id=member, broker_epoch=epoch) for member, epoch in members
            ),
            leader_recovery_state=recovery_state,
            partition_epoch=now.partition_epoch if partition_epoch is None else partition_epoch,
        )
        answer = self.quorum.send(
            ApiKey.ALTER_PARTITION,
            3,
            "AlterPartitionRequest",
            broker_id=self.id,
            broker_epoch=self.epoch if broker_epoch is None else broker_epoch,
            topics=(schema.TopicData(topic_id=self.quorum.topic_id(topic), partitions=(row,)),),
        )
        top = ErrorCode(answer.error_code)
        if not answer.topics:
            return AlterPartitionAnswer(top, top, -1, -1, (), -1)
        part = answer.topics[0].partitions[0]
        return AlterPartitionAnswer(
            top,
            ErrorCode(part.error_code),
            int(part.leader_id),
            int(part.leader_epoch),
            tuple(int(member) for member in part.isr),
            int(part.partition_epoch),
        )

    def unregister(self) -> ErrorCode:
        answer = self.quorum.send(ApiKey.UNREGISTER_BROKER, 0, "UnregisterBrokerRequest", broker_id=self.id)
        return ErrorCode(answer.error_code)


def create_topic(
    quorum: QuorumClient,
    name: str,
    *assignments: Iterable["ScriptedBroker | int"],
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str | None] | None = None,
    validate_only: bool = False,
) -> Any:
    """The row of the answer for a topic whose partitions have these replicas, or which the controller places."""
    schema = RequestSchema.of(ApiKey.CREATE_TOPICS, 7)
    topic = schema.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=tuple(
            schema.CreatableReplicaAssignment(
                partition_index=number,
                broker_ids=tuple(each if isinstance(each, int) else each.id for each in replicas),
            )
            for number, replicas in enumerate(assignments)
        ),
        configs=tuple(schema.CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()),
    )
    answer = quorum.send(
        ApiKey.CREATE_TOPICS, 7, "CreateTopicsRequest", topics=(topic,), timeout=TIMEOUT, validate_only=validate_only
    )
    return answer.topics[0]
