"""ListPartitionReassignments: answered by the controller."""

from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.forwarded_requests import forward
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=range(1), is_forwarded=True)
async def list_partition_reassignments(
    request: Request, context: RequestContext, forwarding: ForwardingManager
) -> ForwardedResponse:
    """ListPartitionReassignments: Partitions whose replicas are being moved (KIP-455).

    Behaviour: the controller answers, for it knows first.  Partitions without a reassignment are left out.
    Versions:  0 only.
    Left out:  —
    """
    return await forward(request, context, forwarding)
