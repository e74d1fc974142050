"""JoinGroup."""

from typing import Any

from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.group.group_messages import JoinGroupRequest, MemberProtocol
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE, to_milliseconds
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext

VERSION_WITH_REBALANCE_TIMEOUT = 1
VERSION_WITH_KNOWN_MEMBER_ID = 4
VERSION_WITH_NULLABLE_PROTOCOL = 7
VERSION_WITH_SKIP_ASSIGNMENT = 9


@handles(ApiKey.JOIN_GROUP, versions=range(10))
async def join_group(request: Request, context: RequestContext, groups: GroupCoordinator) -> Any:
    """JoinGroup: become or stay a member of a classic group; waits for the others.

    Behaviour: Answered when the join phase ends: after the initial delay of a new group, else when all members are
    back or the rebalance timeout is over. The protocol most members prefer wins; of equals the first one voted for.
    A static member that comes back under a full group takes its own place.
    Versions: 0 one timeout for both · 1 rebalance timeout · 4 MEMBER_ID_REQUIRED (KIP-394) · 5 static members
    (KIP-345) · 7 protocol type (KIP-559) · 8 reason (KIP-800) · 9 skip assignment (KIP-814).
    Left out: The reason is not kept. Migration to groups of the newer protocol (KIP-848).
    """
    body, version = request.body, request.version
    session_timeout_ms = rebalance_timeout_ms = to_milliseconds(body.session_timeout)
    if version >= VERSION_WITH_REBALANCE_TIMEOUT:
        rebalance_timeout_ms = to_milliseconds(body.rebalance_timeout)
    result = await groups.join_group(
        JoinGroupRequest(
            group_id=body.group_id,
            member_id=body.member_id,
            group_instance_id=getattr(body, "group_instance_id", None),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=body.protocol_type,
            protocols=tuple(MemberProtocol(protocol.name, protocol.metadata) for protocol in body.protocols),
            client_id=request.client_id or "",
            client_host=f"/{context.client_host}",  # as Java writes an InetAddress without a name
            requires_known_member_id=version >= VERSION_WITH_KNOWN_MEMBER_ID,
            supports_skipping_assignment=version >= VERSION_WITH_SKIP_ASSIGNMENT,
        )
    )
    schema = request.schema
    protocol_name = result.protocol_name
    return schema.JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=protocol_name if version >= VERSION_WITH_NULLABLE_PROTOCOL else protocol_name or "",
        leader=result.leader_id,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=tuple(
            schema.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in result.members
        ),
    )
