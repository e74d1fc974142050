"""AlterClientQuotas: answered by the controller."""

from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.forwarded_requests import forward
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext


@handles(ApiKey.ALTER_CLIENT_QUOTAS, versions=range(2), is_forwarded=True)
async def alter_client_quotas(
    request: Request, context: RequestContext, forwarding: ForwardingManager
) -> ForwardedResponse:
    """AlterClientQuotas: Set and remove quotas of users, client ids and addresses (KIP-546).

    Behaviour: a quota binds on each broker by itself, from when that broker's image reaches the change.
    Versions:  0-1 alike · 1 flexible.
    Left out:  —
    """
    return await forward(request, context, forwarding)
