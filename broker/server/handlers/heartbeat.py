"""Heartbeat."""

from typing import Any

from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.group.group_messages import HeartbeatRequest
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.HEARTBEAT, versions=range(5))
async def heartbeat(request: Request, context: RequestContext, groups: GroupCoordinator) -> Any:
    """Heartbeat: a member is alive, and hears whether it must rejoin.

    Behaviour: REBALANCE_IN_PROGRESS while the group gathers, NONE while the leader assigns and while the group is
    being loaded.
    Versions: 3 static members (KIP-345).
    Left out: —
    """
    body = request.body
    error = await groups.heartbeat(
        HeartbeatRequest(
            group_id=body.group_id,
            generation=body.generation_id,
            member_id=body.member_id,
            group_instance_id=getattr(body, "group_instance_id", None),
        )
    )
    return request.schema.HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=error)
