"""SyncGroup."""

from typing import Any

from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.group.group_messages import SyncGroupRequest
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext

VERSION_WITH_PROTOCOL = 5


@handles(ApiKey.SYNC_GROUP, versions=range(6))
async def sync_group(request: Request, context: RequestContext, groups: GroupCoordinator) -> Any:
    """SyncGroup: the leader hands in the assignment, everybody gets its own.

    Behaviour: Followers wait for the leader. Answers leave once the assignment is committed to `__consumer_offsets`.
    While the group is being loaded: REBALANCE_IN_PROGRESS, because Java clients take COORDINATOR_LOAD_IN_PROGRESS
    for fatal here.
    Versions: 3 static members (KIP-345) · 5 protocol type and name must be given and be the group's (KIP-559).
    Left out: —
    """
    body = request.body
    result = await groups.sync_group(
        SyncGroupRequest(
            group_id=body.group_id,
            generation=body.generation_id,
            member_id=body.member_id,
            group_instance_id=getattr(body, "group_instance_id", None),
            protocol_type=getattr(body, "protocol_type", None),
            protocol_name=getattr(body, "protocol_name", None),
            assignments={each.member_id: each.assignment for each in body.assignments},
            requires_protocol=request.version >= VERSION_WITH_PROTOCOL,
        )
    )
    return request.schema.SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
