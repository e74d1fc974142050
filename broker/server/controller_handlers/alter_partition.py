"""AlterPartition: a leader proposes the in-sync replicas of its partitions."""

from typing import Any
from uuid import UUID

from broker.common.errors import ErrorCode
from broker.common.identifiers import ZERO_UUID
from broker.controller.controller import Controller
from broker.controller.replication_control_manager import AlterPartitionEntry, AlterPartitionResult, BrokerState
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.ALTER_PARTITION, versions=range(2, 4))
async def alter_partition(request: Request, context: RequestContext, controller: Controller) -> Any:
    """AlterPartition: changes in-sync replicas and the recovery state, partition by partition (KIP-497).

    Behaviour: a stale broker epoch fails the whole request.  Per partition: newer epochs than ours NOT_CONTROLLER, an
      older leader epoch FENCED_LEADER_EPOCH, an older partition epoch INVALID_UPDATE_VERSION, an ISR that cannot be
      INVALID_REQUEST, a member that is fenced, on its way out or of another epoch INELIGIBLE_REPLICA, a change that
      moved the leadership NEW_LEADER_ELECTED.  What changes nothing is NONE.
    Versions:  2 topic ids · 3 the epochs of the brokers (KIP-903).
    Left out:  —
    """
    body = request.body
    topics: dict[UUID, list[AlterPartitionEntry]] = {}
    for topic in body.topics:
        entries = topics.setdefault(topic.topic_id or ZERO_UUID, [])
        entries += [_entry(partition) for partition in topic.partitions]
    results = await controller.alter_partition(body.broker_id, body.broker_epoch, topics)
    schema = request.schema
    return schema.AlterPartitionResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        topics=tuple(
            schema.TopicData(topic_id=topic_id, partitions=tuple(_result(schema, each) for each in partitions))
            for topic_id, partitions in results.items()
        ),
    )


def _entry(partition: Any) -> AlterPartitionEntry:
    if hasattr(partition, "new_isr_with_epochs"):
        isr = tuple(BrokerState(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs)
    else:
        isr = tuple(map(BrokerState, partition.new_isr))
    return AlterPartitionEntry(
        partition=partition.partition_index,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        new_isr=isr,
        leader_recovery_state=partition.leader_recovery_state,
    )


def _result(schema: Any, result: AlterPartitionResult) -> Any:
    state = result.partition_state
    return schema.PartitionData(
        partition_index=result.partition,
        error_code=result.error,
        leader_id=state.leader if state else 0,
        leader_epoch=state.leader_epoch if state else 0,
        isr=state.isr if state else (),
        leader_recovery_state=int(state.leader_recovery_state) if state else 0,
        partition_epoch=state.partition_epoch if state else 0,
    )
