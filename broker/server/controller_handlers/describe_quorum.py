"""DescribeQuorum: who leads the metadata quorum, and how far its followers are."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.common.identifiers import CLUSTER_METADATA_TOPIC
from broker.controller.controller import Controller
from broker.controller.quorum_endpoint import QuorumDescription, QuorumReplica
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.controller_handlers.quorum_nodes import leader_node
from broker.server.request_context import RequestContext


@handles(ApiKey.DESCRIBE_QUORUM, versions=range(3))
def describe_quorum(request: Request, context: RequestContext, controller: Controller) -> Any:
    """DescribeQuorum: the one voter, and the observers that fetched within five minutes (KIP-595, KIP-836).

    Behaviour: another topic or partition is UNKNOWN_TOPIC_OR_PARTITION.
    Versions:  1 times of fetches · 2 directory ids, the voters' addresses, error messages.
    Left out:  the voter's directory id is zero, as in every quorum of static voters (kraft.version 0).
    """
    schema = request.schema
    description = controller.quorum.describe()
    topics = tuple(
        schema.TopicData(
            topic_name=topic.topic_name,
            partitions=tuple(
                _partition(schema, topic.topic_name, partition.partition_index, description)
                for partition in topic.partitions
            ),
        )
        for topic in request.body.topics
    )
    node = leader_node(controller, context)
    listener = schema.Listener(name=node.listener_name, host=node.host, port=node.port)
    return schema.DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=topics,
        nodes=(schema.Node(node_id=node.node_id, listeners=(listener,)),),
    )


def _partition(schema: Any, topic: str, index: int, quorum: QuorumDescription) -> Any:
    is_known = topic == CLUSTER_METADATA_TOPIC and index == 0
    return schema.PartitionData(
        partition_index=index,
        error_code=ErrorCode.none if is_known else ErrorCode.unknown_topic_or_partition,
        error_message=None,
        leader_id=quorum.leader_id if is_known else -1,
        leader_epoch=quorum.leader_epoch if is_known else -1,
        high_watermark=quorum.high_watermark if is_known else -1,
        current_voters=(_replica(schema, quorum.voter),) if is_known else (),
        observers=tuple(_replica(schema, observer) for observer in quorum.observers) if is_known else (),
    )


def _replica(schema: Any, replica: QuorumReplica) -> Any:
    return schema.ReplicaState(
        replica_id=replica.replica_id,
        replica_directory_id=replica.directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )
