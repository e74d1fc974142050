"""ListGroups."""

from typing import Any

from broker.common.errors import ErrorCode, KafkaError
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.LIST_GROUPS, versions=range(6))
def list_groups(request: Request, context: RequestContext, groups: GroupCoordinator) -> Any:
    """ListGroups: the groups this broker coordinates; admin clients ask every broker.

    Behaviour: Filters ignore case, and unknown names match nothing. While a shard loads the whole answer is
    COORDINATOR_LOAD_IN_PROGRESS, because it would not be complete.
    Versions: 4 filter by state (KIP-518) · 5 filter by type (KIP-848).
    Left out: —
    """
    body, schema = request.body, request.schema
    try:
        error, listed = (
            ErrorCode.none,
            groups.list_groups(getattr(body, "states_filter", ()), getattr(body, "types_filter", ())),
        )
    except KafkaError as failure:
        error, listed = failure.code, []
    return schema.ListGroupsResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        groups=tuple(
            schema.ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in listed
        ),
    )
