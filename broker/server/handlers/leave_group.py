"""LeaveGroup."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.group.group_messages import MemberIdentity
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext

VERSION_WITH_MEMBERS = 3


@handles(ApiKey.LEAVE_GROUP, versions=range(6))
async def leave_group(request: Request, context: RequestContext, groups: GroupCoordinator) -> Any:
    """LeaveGroup: members go, or an administrator removes static ones by their instance id.

    Behaviour: Each member has its own error, and all who have left together cause one rebalance.
    Versions: 0-2 one member, whose error is the answer's · 3 several members (KIP-345) · 5 reason (KIP-800).
    Left out: The reason is not kept.
    """
    body, schema = request.body, request.schema
    if request.version >= VERSION_WITH_MEMBERS:
        members = [MemberIdentity(member.member_id, member.group_instance_id) for member in body.members]
    else:
        members = [MemberIdentity(body.member_id)]
    result = await groups.leave_group(body.group_id, members)
    error = result.error
    if request.version < VERSION_WITH_MEMBERS and error is ErrorCode.none:
        error = result.members[0].error
    return schema.LeaveGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        members=tuple(
            schema.MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=member.error
            )
            for member in result.members
        ),
    )
