"""DescribeGroups."""

from typing import Any, Final

from broker.common.errors import ErrorCode
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.authorized_operations import NOT_REQUESTED, AclOperation, bit_field
from broker.server.request_context import RequestContext

GROUP_OPERATIONS: Final = bit_field(
    (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
)


@handles(ApiKey.DESCRIBE_GROUPS, versions=range(7))
def describe_groups(request: Request, context: RequestContext, groups: GroupCoordinator) -> Any:
    """DescribeGroups: members of classic groups, what they offer and what they are assigned.

    Behaviour: Metadata and assignments are shown only while the group is Stable.
    Versions: 3 authorized operations (KIP-430) · 4 static members (KIP-345) · 6 absent groups are GROUP_ID_NOT_FOUND
    rather than Dead (KIP-1043).
    Left out: —
    """
    body, schema = request.body, request.schema
    asks_operations = getattr(body, "include_authorized_operations", False)
    return schema.DescribeGroupsResponse(
        throttle_time=NO_THROTTLE,
        groups=tuple(
            schema.DescribedGroup(
                error_code=group.error,
                error_message=group.error_message,
                group_id=group.group_id,
                group_state=group.state,
                protocol_type=group.protocol_type,
                protocol_data=group.protocol_data,
                members=tuple(
                    schema.DescribedGroupMember(
                        member_id=member.member_id,
                        group_instance_id=member.group_instance_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        member_metadata=member.metadata,
                        member_assignment=member.assignment,
                    )
                    for member in group.members
                ),
                authorized_operations=(
                    GROUP_OPERATIONS if asks_operations and group.error is ErrorCode.none else NOT_REQUESTED
                ),
            )
            for group in groups.describe_groups(body.groups, request.version)
        ),
    )
