"""A sensible request of every API a broker's listener offers, and the errors its answer tells."""

import itertools
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from broker.protocol.api_keys import ApiKey
from broker.records.memory_records_builder import records_batch
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE, until
from tests.support.wire_client import WireClient

SECOND = timedelta(seconds=1)
MEMBER_S = 600  # no member of one test goes while another one counts groups
NOW = 1_764_000_000_000

Schema = Any
Build = Callable[["Cluster", Schema], Any]
Errors = frozenset[str] | Callable[[int], frozenset[str]]

_numbers = itertools.count(1)


def some(*names: str) -> frozenset[str]:
    return frozenset(names)


def since(version: int, later: frozenset[str], earlier: frozenset[str]) -> Callable[[int], frozenset[str]]:
    """`later` from this version on, `earlier` before it."""
    return lambda asked: later if asked >= version else earlier


@dataclass(frozen=True)
class Question:
    """How to ask one API in each of its versions, and which error codes, of all levels together, must come back."""

    versions: range
    build: Build
    errors: Errors = frozenset({"none"})

    def expected(self, version: int) -> frozenset[str]:
        return self.errors(version) if callable(self.errors) else self.errors


@dataclass
class Cluster:
    """What requests speak of: the running broker, a topic with one record, and whatever a question makes itself."""

    broker: BrokerProcess
    client: WireClient
    topic: str = "every-api"
    topic_id: uuid.UUID | None = None
    cluster_id: str = ""
    broker_epoch: int = -1
    controller_epoch: int = -1
    directory_id: uuid.UUID = field(default_factory=lambda: uuid.UUID(int=0))

    def fresh(self, prefix: str) -> str:
        return f"{prefix}-{next(_numbers)}"

    def ask(self, api_key: ApiKey, version: int, **given: Any) -> Any:
        """Ask by the request's own fields."""
        schema = self.client.request(api_key, version)
        return self.client.ask(api_key, version, getattr(schema, f"{api_key.title}Request")(**given))

    def new_topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> tuple[str, uuid.UUID]:
        name = self.fresh("topic")
        schema = self.client.request(ApiKey.CREATE_TOPICS, 7)
        rows = tuple(schema.CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items())
        topic = _creatable(schema, name, partitions, rows)
        (row,) = self.ask(ApiKey.CREATE_TOPICS, 7, topics=(topic,), timeout=PATIENCE).topics
        assert row.error_code is ErrorCode.none, row
        self.wait_for_leaders(name)
        return name, row.topic_id

    def wait_for_leaders(self, topic: str) -> None:
        schema = self.client.request(ApiKey.METADATA, 12)
        asked = schema.MetadataRequestTopic(name=topic, topic_id=None)

        def errors() -> frozenset[str]:
            answer = self.ask(
                ApiKey.METADATA,
                12,
                topics=(asked,),
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
            return errors_of(answer)

        until(lambda: errors() == {"none"}, f"{topic} has leaders", errors)

    def new_member(self, group: str, session_s: float = MEMBER_S, rebalance_s: float = MEMBER_S) -> tuple[str, int]:
        """A group of one member that waits for its assignment: member id and generation."""
        answer = self.client.ask(
            ApiKey.JOIN_GROUP, 3, self.join(3, group, session_s=session_s, rebalance_s=rebalance_s)
        )
        assert answer.error_code is ErrorCode.none, answer
        return answer.member_id, answer.generation_id

    def join(
        self, version: int, group: str, member_id: str = "", session_s: float = MEMBER_S, rebalance_s: float = MEMBER_S
    ) -> Any:
        schema = self.client.request(ApiKey.JOIN_GROUP, version)
        return schema.JoinGroupRequest(
            group_id=group,
            session_timeout=session_s * SECOND,
            rebalance_timeout=rebalance_s * SECOND,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=(schema.JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\0\0\0\0"),),
            reason=None,
        )

    def new_stable_member(self, group: str, session_s: float = MEMBER_S) -> tuple[str, int]:
        """A stable group of one member."""
        member, generation = self.new_member(group, session_s)
        schema = self.client.request(ApiKey.SYNC_GROUP, 3)
        assignment = schema.SyncGroupRequestAssignment(member_id=member, assignment=b"mine")
        answer = self.ask(
            ApiKey.SYNC_GROUP,
            3,
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=None,
            assignments=(assignment,),
        )
        assert answer.error_code is ErrorCode.none, answer
        return member, generation

    def commit(self, group: str, offset: int = 1, topic: str | None = None) -> None:
        """As an administrator, into a group without members."""
        schema = self.client.request(ApiKey.OFFSET_COMMIT, 2)
        request = _offset_commit(schema, group, topic or self.topic, None, offset)
        assert errors_of(self.client.ask(ApiKey.OFFSET_COMMIT, 2, request)) == {"none"}

    def produce(self, topic: str, records: bytes, acks: int = -1) -> Any:
        """The answer's partition."""
        schema = self.client.request(ApiKey.PRODUCE, 9)
        request = _produce(schema, topic, None, records, acks)
        return self.client.ask(ApiKey.PRODUCE, 9, request).responses[0].partition_responses[0]


def errors_of(body: Any) -> frozenset[str]:
    """The names of all error codes in an answer, whatever their level."""
    if isinstance(body, ErrorCode):
        return frozenset({body.name})
    if is_dataclass(body):
        return frozenset().union(*(errors_of(getattr(body, each.name)) for each in fields(body)))
    if isinstance(body, tuple):
        return frozenset().union(*map(errors_of, body))
    return frozenset()


def batch(*values: bytes, **keywords: Any) -> bytes:
    return bytes(records_batch(*((NOW, b"key", value) for value in values), **keywords))


def _creatable(schema: Schema, name: str, partitions: int = 1, configs: tuple[Any, ...] = ()) -> Any:
    return schema.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=configs
    )


def _produce(schema: Schema, topic: str, topic_id: uuid.UUID | None, records: bytes, acks: int = -1) -> Any:
    row = schema.PartitionProduceData(index=0, records=records)
    data = schema.TopicProduceData(name=topic, topic_id=topic_id, partition_data=(row,))
    return schema.ProduceRequest(transactional_id=None, acks=acks, timeout=PATIENCE, topic_data=(data,))


def produce(cluster: Cluster, schema: Schema) -> Any:
    return _produce(schema, cluster.topic, cluster.topic_id, batch(b"value"))


def fetch(cluster: Cluster, schema: Schema) -> Any:
    row = schema.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = schema.FetchTopic(topic=cluster.topic, topic_id=cluster.topic_id, partitions=(row,))
    return schema.FetchRequest(
        max_wait=timedelta(0),
        min_bytes=0,
        max_bytes=1000,
        isolation_level=0,
        topics=(topic,),
        forgotten_topics_data=(),
    )


def list_offsets(cluster: Cluster, schema: Schema) -> Any:
    row = schema.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    topic = schema.ListOffsetsTopic(name=cluster.topic, partitions=(row,))
    return schema.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,), timeout=SECOND)


def metadata(cluster: Cluster, schema: Schema) -> Any:
    topic = schema.MetadataRequestTopic(name=cluster.topic, topic_id=None)
    return schema.MetadataRequest(
        topics=(topic,),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )


def _offset_commit(schema: Schema, group: str, topic: str, topic_id: uuid.UUID | None, offset: int) -> Any:
    row = schema.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata="note"
    )
    return schema.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=(schema.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=(row,)),),
    )


def offset_commit(cluster: Cluster, schema: Schema) -> Any:
    return _offset_commit(schema, "every-api-offsets", cluster.topic, cluster.topic_id, 1)


def offset_fetch(cluster: Cluster, schema: Schema) -> Any:
    group = "every-api-offsets"
    cluster.commit(group)
    one = schema.OffsetFetchRequestTopic(name=cluster.topic, partition_indexes=(0,))
    of_group = schema.OffsetFetchRequestTopics(name=cluster.topic, topic_id=cluster.topic_id, partition_indexes=(0,))
    groups = (schema.OffsetFetchRequestGroup(group_id=group, topics=(of_group,)),)
    return schema.OffsetFetchRequest(group_id=group, topics=(one,), groups=groups, require_stable=True)


def find_coordinator(_cluster: Cluster, schema: Schema) -> Any:
    return schema.FindCoordinatorRequest(key="every-api", key_type=0, coordinator_keys=("every-api",))


def join_group(cluster: Cluster, schema: Schema) -> Any:
    return cluster.join(schema.version, cluster.fresh("group"))


def sync_group(cluster: Cluster, schema: Schema) -> Any:
    group = cluster.fresh("group")
    member, generation = cluster.new_member(group)
    return schema.SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type="consumer",
        protocol_name="range",
        assignments=(schema.SyncGroupRequestAssignment(member_id=member, assignment=b"mine"),),
    )


def heartbeat(cluster: Cluster, schema: Schema) -> Any:
    group = cluster.fresh("group")
    member, generation = cluster.new_stable_member(group)
    return schema.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)


def leave_group(cluster: Cluster, schema: Schema) -> Any:
    group = cluster.fresh("group")
    member, _ = cluster.new_stable_member(group)
    leaver = schema.MemberIdentity(member_id=member, group_instance_id=None, reason="done")
    return schema.LeaveGroupRequest(group_id=group, member_id=member, members=(leaver,))


def describe_groups(cluster: Cluster, schema: Schema) -> Any:
    group = cluster.fresh("group")
    cluster.new_stable_member(group)
    return schema.DescribeGroupsRequest(groups=(group,), include_authorized_operations=True)


def list_groups(_cluster: Cluster, schema: Schema) -> Any:
    return schema.ListGroupsRequest(states_filter=("Stable",), types_filter=("classic",))


def delete_groups(cluster: Cluster, schema: Schema) -> Any:
    group = cluster.fresh("group")
    cluster.commit(group)
    return schema.DeleteGroupsRequest(groups_names=(group,))


def offset_delete(cluster: Cluster, schema: Schema) -> Any:
    group = cluster.fresh("group")
    cluster.commit(group)
    row = schema.OffsetDeleteRequestPartition(partition_index=0)
    topic = schema.OffsetDeleteRequestTopic(name=cluster.topic, partitions=(row,))
    return schema.OffsetDeleteRequest(group_id=group, topics=(topic,))


def api_versions(_cluster: Cluster, schema: Schema) -> Any:
    return schema.ApiVersionsRequest(client_software_name="wire", client_software_version="1")


def create_topics(cluster: Cluster, schema: Schema) -> Any:
    topics = (_creatable(schema, cluster.fresh("created")),)
    return schema.CreateTopicsRequest(topics=topics, timeout=PATIENCE)


def delete_topics(cluster: Cluster, schema: Schema) -> Any:
    name, identity = cluster.new_topic()
    state = schema.DeleteTopicState(name=None, topic_id=identity)
    return schema.DeleteTopicsRequest(topic_names=(name,), topics=(state,), timeout=PATIENCE)


def create_partitions(cluster: Cluster, schema: Schema) -> Any:
    name, _ = cluster.new_topic()
    topic = schema.CreatePartitionsTopic(name=name, count=2, assignments=None)
    return schema.CreatePartitionsRequest(topics=(topic,), timeout=PATIENCE, validate_only=False)


def delete_records(cluster: Cluster, schema: Schema) -> Any:
    name, _ = cluster.new_topic()
    cluster.produce(name, batch(b"gone"))
    row = schema.DeleteRecordsPartition(partition_index=0, offset=-1)
    topic = schema.DeleteRecordsTopic(name=name, partitions=(row,))
    return schema.DeleteRecordsRequest(topics=(topic,), timeout=PATIENCE)


def init_producer_id(_cluster: Cluster, schema: Schema) -> Any:
    return schema.InitProducerIdRequest(transactional_id=None, transaction_timeout=60 * SECOND)


def offset_for_leader_epoch(cluster: Cluster, schema: Schema) -> Any:
    row = schema.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = schema.OffsetForLeaderTopic(topic=cluster.topic, partitions=(row,))
    return schema.OffsetForLeaderEpochRequest(replica_id=-1, topics=(topic,))


def write_txn_markers(cluster: Cluster, schema: Schema) -> Any:
    name, _ = cluster.new_topic()
    topic = schema.WritableTxnMarkerTopic(name=name, partition_indexes=(0,))
    marker = schema.WritableTxnMarker(
        producer_id=9, producer_epoch=0, transaction_result=True, topics=(topic,), coordinator_epoch=0
    )
    return schema.WriteTxnMarkersRequest(markers=(marker,))


def acl_filter(make: Callable[..., Any]) -> Any:
    return make(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def describe_acls(_cluster: Cluster, schema: Schema) -> Any:
    return acl_filter(schema.DescribeAclsRequest)


def delete_acls(_cluster: Cluster, schema: Schema) -> Any:
    return schema.DeleteAclsRequest(filters=(acl_filter(schema.DeleteAclsFilter),))


def create_acls(cluster: Cluster, schema: Schema) -> Any:
    creation = schema.AclCreation(
        resource_type=2, resource_name=cluster.topic, principal="User:a", host="*", operation=3, permission_type=3
    )
    return schema.CreateAclsRequest(creations=(creation,))


def describe_configs(cluster: Cluster, schema: Schema) -> Any:
    resources = tuple(
        schema.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, cluster.topic), (4, "1"))
    )
    return schema.DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)


def alter_configs(cluster: Cluster, schema: Schema) -> Any:
    rows = (schema.AlterableConfig(name="retention.ms", value="123456789"),)
    resource = schema.AlterConfigsResource(resource_type=2, resource_name=cluster.topic, configs=rows)
    return schema.AlterConfigsRequest(resources=(resource,), validate_only=False)


def incremental_alter_configs(cluster: Cluster, schema: Schema) -> Any:
    rows = (schema.AlterableConfig(name="retention.ms", config_operation=0, value="123456789"),)
    resource = schema.AlterConfigsResource(resource_type=2, resource_name=cluster.topic, configs=rows)
    return schema.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)


def alter_replica_log_dirs(cluster: Cluster, schema: Schema) -> Any:
    topic = schema.AlterReplicaLogDirTopic(name=cluster.topic, partitions=(0,))
    directory = schema.AlterReplicaLogDir(path=str(cluster.broker.data), topics=(topic,))
    return schema.AlterReplicaLogDirsRequest(dirs=(directory,))


def describe_log_dirs(cluster: Cluster, schema: Schema) -> Any:
    return schema.DescribeLogDirsRequest(topics=(schema.DescribableLogDirTopic(topic=cluster.topic, partitions=(0,)),))


def elect_leaders(cluster: Cluster, schema: Schema) -> Any:
    row = schema.TopicPartitions(topic=cluster.topic, partitions=(0,))
    return schema.ElectLeadersRequest(topic_partitions=(row,), election_type=0, timeout=PATIENCE)


def alter_partition_reassignments(cluster: Cluster, schema: Schema) -> Any:
    row = schema.ReassignablePartition(partition_index=0, replicas=None)
    topic = schema.ReassignableTopic(name=cluster.topic, partitions=(row,))
    return schema.AlterPartitionReassignmentsRequest(topics=(topic,), timeout=PATIENCE)


def list_partition_reassignments(_cluster: Cluster, schema: Schema) -> Any:
    return schema.ListPartitionReassignmentsRequest(topics=None, timeout=PATIENCE)


def describe_client_quotas(_cluster: Cluster, schema: Schema) -> Any:
    component = schema.ComponentData(entity_type="client-id", match_type=2, match=None)
    return schema.DescribeClientQuotasRequest(components=(component,), strict=False)


def alter_client_quotas(cluster: Cluster, schema: Schema) -> Any:
    """A quota that binds nobody, so large it is; the address cannot have it."""
    change = schema.OpData(key="producer_byte_rate", value=1e12, remove=False)
    parts = (("user", cluster.fresh("user")), ("client-id", None)), (("ip", "10.0.0.1"),)
    return schema.AlterClientQuotasRequest(
        entries=tuple(
            schema.EntryData(
                entity=tuple(schema.EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
                ops=(change,),
            )
            for entity in parts
        ),
        validate_only=False,
    )


def describe_user_scram_credentials(_cluster: Cluster, schema: Schema) -> Any:
    return schema.DescribeUserScramCredentialsRequest(users=None)


def describe_quorum(_cluster: Cluster, schema: Schema) -> Any:
    row = schema.PartitionData(partition_index=0)
    return schema.DescribeQuorumRequest(topics=(schema.TopicData(topic_name="__cluster_metadata", partitions=(row,)),))


def update_features(_cluster: Cluster, schema: Schema) -> Any:
    update = schema.FeatureUpdateKey(feature="no.such.feature", max_version_level=1, allow_downgrade=False)
    return schema.UpdateFeaturesRequest(feature_updates=(update,), timeout=PATIENCE)


def describe_cluster(_cluster: Cluster, schema: Schema) -> Any:
    return schema.DescribeClusterRequest(
        include_cluster_authorized_operations=True, endpoint_type=1, include_fenced_brokers=False
    )


def describe_producers(cluster: Cluster, schema: Schema) -> Any:
    topic = schema.TopicRequest(name=cluster.topic, partition_indexes=(0,))
    return schema.DescribeProducersRequest(topics=(topic,))


def unregister_broker(_cluster: Cluster, schema: Schema) -> Any:
    return schema.UnregisterBrokerRequest(broker_id=4242)


def list_config_resources(_cluster: Cluster, schema: Schema) -> Any:
    return schema.ListConfigResourcesRequest(resource_types=(2, 4))


def describe_topic_partitions(cluster: Cluster, schema: Schema) -> Any:
    return schema.DescribeTopicPartitionsRequest(topics=(schema.TopicRequest(name=cluster.topic),), cursor=None)


QUESTIONS: Mapping[ApiKey, Question] = {
    ApiKey.PRODUCE: Question(range(3, 14), produce),
    ApiKey.FETCH: Question(range(4, 19), fetch),
    ApiKey.LIST_OFFSETS: Question(range(1, 11), list_offsets),
    ApiKey.METADATA: Question(range(14), metadata),
    ApiKey.OFFSET_COMMIT: Question(range(2, 11), offset_commit),
    ApiKey.OFFSET_FETCH: Question(range(1, 11), offset_fetch),
    ApiKey.FIND_COORDINATOR: Question(range(7), find_coordinator),
    ApiKey.JOIN_GROUP: Question(range(10), join_group, since(4, some("member_id_required"), some("none"))),
    ApiKey.HEARTBEAT: Question(range(5), heartbeat),
    ApiKey.LEAVE_GROUP: Question(range(6), leave_group),
    ApiKey.SYNC_GROUP: Question(range(6), sync_group),
    ApiKey.DESCRIBE_GROUPS: Question(range(7), describe_groups),
    ApiKey.LIST_GROUPS: Question(range(6), list_groups),
    ApiKey.API_VERSIONS: Question(range(5), api_versions),
    ApiKey.CREATE_TOPICS: Question(range(2, 8), create_topics),
    ApiKey.DELETE_TOPICS: Question(range(1, 7), delete_topics),
    ApiKey.DELETE_RECORDS: Question(range(3), delete_records),
    ApiKey.INIT_PRODUCER_ID: Question(range(6), init_producer_id),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Question(range(2, 5), offset_for_leader_epoch),
    ApiKey.WRITE_TXN_MARKERS: Question(range(1, 3), write_txn_markers),
    ApiKey.DESCRIBE_ACLS: Question(range(1, 4), describe_acls, some("security_disabled")),
    ApiKey.CREATE_ACLS: Question(range(1, 4), create_acls, some("security_disabled")),
    ApiKey.DELETE_ACLS: Question(range(1, 4), delete_acls, some("security_disabled")),
    ApiKey.DESCRIBE_CONFIGS: Question(range(1, 5), describe_configs),
    ApiKey.ALTER_CONFIGS: Question(range(3), alter_configs),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Question(range(1, 3), alter_replica_log_dirs),
    ApiKey.DESCRIBE_LOG_DIRS: Question(range(1, 6), describe_log_dirs),
    ApiKey.CREATE_PARTITIONS: Question(range(4), create_partitions),
    ApiKey.DELETE_GROUPS: Question(range(3), delete_groups),
    ApiKey.ELECT_LEADERS: Question(
        range(3), elect_leaders, since(1, some("none", "election_not_needed"), some("election_not_needed"))
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Question(range(2), incremental_alter_configs),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Question(
        range(2), alter_partition_reassignments, some("none", "no_reassignment_in_progress")
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Question(range(1), list_partition_reassignments),
    ApiKey.OFFSET_DELETE: Question(range(1), offset_delete),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Question(range(2), describe_client_quotas),
    ApiKey.ALTER_CLIENT_QUOTAS: Question(range(2), alter_client_quotas, some("none", "invalid_request")),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Question(range(1), describe_user_scram_credentials),
    ApiKey.DESCRIBE_QUORUM: Question(range(3), describe_quorum),
    ApiKey.UPDATE_FEATURES: Question(range(3), update_features, some("invalid_update_version")),
    ApiKey.DESCRIBE_CLUSTER: Question(range(3), describe_cluster),
    ApiKey.DESCRIBE_PRODUCERS: Question(range(1), describe_producers),
    ApiKey.UNREGISTER_BROKER: Question(range(1), unregister_broker, some("broker_id_not_registered")),
    ApiKey.LIST_CONFIG_RESOURCES: Question(range(2), list_config_resources),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Question(range(1), describe_topic_partitions),
}
