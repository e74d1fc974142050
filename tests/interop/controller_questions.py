"""A sensible request of every API the controller's listener offers, and the errors its answer tells."""

import itertools
import struct
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import encode_request
from broker.protocol.response_schema import RequestSchema
from tests.support.wire_client import WireClient

from . import api_questions
from .api_questions import SECOND, Cluster, Question, Schema, errors_of, since, some

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = uuid.UUID(int=1)
DIRECTORY_ID = uuid.UUID(int=0x5EED)

_broker_ids = itertools.count(1000)


def fetch(cluster: Cluster, schema: Schema) -> Any:
    row = schema.FetchPartition(
        partition=0,
        current_leader_epoch=cluster.controller_epoch,
        fetch_offset=0,
        partition_max_bytes=1000,
        last_fetched_epoch=0,
    )
    return schema.FetchRequest(
        max_wait=timedelta(0),
        min_bytes=0,
        max_bytes=1000,
        isolation_level=0,
        topics=(schema.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(row,)),),
        forgotten_topics_data=(),
    )


def fetch_snapshot(cluster: Cluster, schema: Schema) -> Any:
    row = schema.PartitionSnapshot(
        partition=0,
        current_leader_epoch=cluster.controller_epoch,
        snapshot_id=schema.SnapshotId(end_offset=1 << 40, epoch=1),
        position=0,
    )
    return schema.FetchSnapshotRequest(topics=(schema.TopicSnapshot(name=METADATA_TOPIC, partitions=(row,)),))


def vote(_cluster: Cluster, schema: Schema) -> Any:
    row = schema.PartitionData(
        partition_index=0,
        replica_epoch=1,
        replica_id=2,
        replica_directory_id=DIRECTORY_ID,
        voter_directory_id=None,
        last_offset_epoch=0,
        last_offset=0,
        pre_vote=True,
    )
    return schema.VoteRequest(topics=(schema.TopicData(topic_name=METADATA_TOPIC, partitions=(row,)),), voter_id=1)


def begin_quorum_epoch(_cluster: Cluster, schema: Schema) -> Any:
    row = schema.PartitionData(partition_index=0, leader_id=2, leader_epoch=1, voter_directory_id=None)
    topic = schema.TopicData(topic_name=METADATA_TOPIC, partitions=(row,))
    return schema.BeginQuorumEpochRequest(topics=(topic,), voter_id=1, leader_endpoints=())


def end_quorum_epoch(_cluster: Cluster, schema: Schema) -> Any:
    row = schema.PartitionData(
        partition_index=0, leader_id=2, leader_epoch=1, preferred_successors=(), preferred_candidates=()
    )
    topic = schema.TopicData(topic_name=METADATA_TOPIC, partitions=(row,))
    return schema.EndQuorumEpochRequest(topics=(topic,), leader_endpoints=())


def alter_partition(cluster: Cluster, schema: Schema) -> Any:
    """The in-sync replicas as they are."""
    row = schema.PartitionData(
        partition_index=0,
        leader_epoch=0,
        partition_epoch=0,
        leader_recovery_state=0,
        new_isr=(1,),
        new_isr_with_epochs=(schema.BrokerState(broker_id=1, broker_epoch=cluster.broker_epoch),),
    )
    topic = schema.TopicData(topic_id=cluster.topic_id, partitions=(row,))
    return schema.AlterPartitionRequest(broker_id=1, broker_epoch=cluster.broker_epoch, topics=(topic,))


def envelope(cluster: Cluster, schema: Schema) -> Any:
    inner = encode_request(
        ApiKey.CREATE_TOPICS,
        7,
        1,
        "wire-client",
        api_questions.create_topics(cluster, RequestSchema.of(ApiKey.CREATE_TOPICS, 7)),
    )
    principal = struct.pack(">h", 0) + b"\x05User\x0aANONYMOUS\x00\x00"  # DefaultPrincipalData, version 0
    return schema.EnvelopeRequest(
        request_data=inner[4:], request_principal=principal, client_host_address=bytes([127, 0, 0, 1])
    )


def describe_cluster(_cluster: Cluster, schema: Schema) -> Any:
    return schema.DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=2, include_fenced_brokers=False
    )


def registration(cluster: Cluster, schema: Schema, broker_id: int) -> Any:
    listener = schema.Listener(name="PLAINTEXT", host="127.0.0.1", port=1, security_protocol=0)
    features = (("metadata.version", 1, 30), ("kraft.version", 0, 1), ("group.version", 0, 1))
    return schema.BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster.cluster_id,
        incarnation_id=uuid.UUID(int=broker_id),
        listeners=(listener,),
        features=tuple(
            schema.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in features
        ),
        rack=None,
        log_dirs=(uuid.UUID(int=broker_id << 64),),
    )


def broker_registration(cluster: Cluster, schema: Schema) -> Any:
    return registration(cluster, schema, next(_broker_ids))


def unregister_broker(cluster: Cluster, schema: Schema) -> Any:
    broker_id = next(_broker_ids)
    request = registration(cluster, RequestSchema.of(ApiKey.BROKER_REGISTRATION, 4), broker_id)
    with WireClient(cluster.broker.controller_port) as controller:
        assert errors_of(controller.ask(ApiKey.BROKER_REGISTRATION, 4, request)) == {"none"}
    return schema.UnregisterBrokerRequest(broker_id=broker_id)


def broker_heartbeat(cluster: Cluster, schema: Schema) -> Any:
    return schema.BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=cluster.broker_epoch,
        current_metadata_offset=cluster.broker_epoch,
        want_fence=False,
        want_shut_down=False,
    )


def allocate_producer_ids(cluster: Cluster, schema: Schema) -> Any:
    return schema.AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.broker_epoch)


def assign_replicas_to_dirs(cluster: Cluster, schema: Schema) -> Any:
    topic = schema.TopicData(topic_id=cluster.topic_id, partitions=(schema.PartitionData(partition_index=0),))
    directory = schema.DirectoryData(id_=cluster.directory_id, topics=(topic,))
    return schema.AssignReplicasToDirsRequest(broker_id=1, broker_epoch=cluster.broker_epoch, directories=(directory,))


def add_raft_voter(cluster: Cluster, schema: Schema) -> Any:
    return schema.AddRaftVoterRequest(
        cluster_id=cluster.cluster_id, timeout=SECOND, voter_id=2, voter_directory_id=DIRECTORY_ID, listeners=()
    )


def remove_raft_voter(cluster: Cluster, schema: Schema) -> Any:
    return schema.RemoveRaftVoterRequest(cluster_id=cluster.cluster_id, voter_id=2, voter_directory_id=DIRECTORY_ID)


def update_raft_voter(cluster: Cluster, schema: Schema) -> Any:
    return schema.UpdateRaftVoterRequest(
        cluster_id=cluster.cluster_id,
        current_leader_epoch=1,
        voter_id=2,
        voter_directory_id=DIRECTORY_ID,
        listeners=(),
        k_raft_version_feature=schema.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
    )


_SHARED = (
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
)  # the same question as at the broker, which forwards it

QUESTIONS: Mapping[ApiKey, Question] = {
    **{api_key: api_questions.QUESTIONS[api_key] for api_key in _SHARED},
    ApiKey.FETCH: Question(range(13, 19), fetch),
    ApiKey.VOTE: Question(range(3), vote, some("invalid_request")),
    ApiKey.BEGIN_QUORUM_EPOCH: Question(range(2), begin_quorum_epoch, some("invalid_request")),
    ApiKey.END_QUORUM_EPOCH: Question(range(2), end_quorum_epoch, some("invalid_request")),
    ApiKey.ALTER_PARTITION: Question(range(2, 4), alter_partition),
    ApiKey.ENVELOPE: Question(range(1), envelope),
    ApiKey.FETCH_SNAPSHOT: Question(range(2), fetch_snapshot, some("none", "snapshot_not_found")),
    ApiKey.DESCRIBE_CLUSTER: Question(
        range(3), describe_cluster, since(1, some("none"), some("mismatched_endpoint_type"))
    ),
    ApiKey.BROKER_REGISTRATION: Question(
        range(5), broker_registration, since(2, some("none"), some("invalid_registration"))
    ),
    ApiKey.BROKER_HEARTBEAT: Question(range(2), broker_heartbeat),
    ApiKey.UNREGISTER_BROKER: Question(range(1), unregister_broker),
    ApiKey.ALLOCATE_PRODUCER_IDS: Question(range(1), allocate_producer_ids),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Question(range(1), assign_replicas_to_dirs),
    ApiKey.ADD_RAFT_VOTER: Question(range(2), add_raft_voter, some("unsupported_version")),
    ApiKey.REMOVE_RAFT_VOTER: Question(range(1), remove_raft_voter, some("unsupported_version")),
    ApiKey.UPDATE_RAFT_VOTER: Question(range(1), update_raft_voter, some("unsupported_version")),
}
