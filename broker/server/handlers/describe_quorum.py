"""DescribeQuorum: answered by the controller."""

from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.forwarded_requests import forward
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext


@handles(ApiKey.DESCRIBE_QUORUM, versions=range(3), is_forwarded=True)
async def describe_quorum(
    request: Request, context: RequestContext, forwarding: ForwardingManager
) -> ForwardedResponse:
    """DescribeQuorum: Voters and observers of the metadata quorum and how far they are (KIP-595).

    Behaviour: the leader of the quorum answers; a controller that lost leadership makes the broker ask the next one.
    Versions:  1 timestamps of fetches · 2 directory ids, endpoints and error messages.
    Left out:  —
    """
    return await forward(request, context, forwarding)
