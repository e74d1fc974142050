"""DeleteGroups."""

from typing import Any

from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


@handles(ApiKey.DELETE_GROUPS, versions=range(3))
async def delete_groups(request: Request, context: RequestContext, groups: GroupCoordinator) -> Any:
    """DeleteGroups: forget empty groups and all they have committed (KIP-229).

    Behaviour: Each group on its own: NON_EMPTY_GROUP with members, GROUP_ID_NOT_FOUND without such a group.
    Versions: 0-2 alike.
    Left out: —
    """
    outcomes = await groups.delete_groups(request.body.groups_names)
    return request.schema.DeleteGroupsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            request.schema.DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in outcomes.items()
        ),
    )
