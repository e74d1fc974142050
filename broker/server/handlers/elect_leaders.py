"""ElectLeaders: answered by the controller."""

from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.forwarded_requests import forward
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext


@handles(ApiKey.ELECT_LEADERS, versions=range(3), is_forwarded=True)
async def elect_leaders(request: Request, context: RequestContext, forwarding: ForwardingManager) -> ForwardedResponse:
    """ElectLeaders: Elect the preferred or, unclean, any live replica as leader (KIP-460).

    Behaviour: ELECTION_NOT_NEEDED where the leader is already the one wanted.  No topics asked for means
      all partitions.
    Versions:  0 preferred only · 1 election type · 2 flexible.
    Left out:  —
    """
    return await forward(request, context, forwarding)
