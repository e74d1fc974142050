"""AlterPartitionReassignments: answered by the controller."""

from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.forwarded_requests import forward
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=range(2), is_forwarded=True)
async def alter_partition_reassignments(
    request: Request, context: RequestContext, forwarding: ForwardingManager
) -> ForwardedResponse:
    """AlterPartitionReassignments: Move replicas, or cancel a move (KIP-455).

    Behaviour: a move is complete when all its target replicas are in sync.  Null replicas cancel it.
    Versions:  1 replication factor changes can be refused.
    Left out:  —
    """
    return await forward(request, context, forwarding)
