"""UnregisterBroker: answered by the controller."""

from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.forwarded_requests import forward
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext


@handles(ApiKey.UNREGISTER_BROKER, versions=range(1), is_forwarded=True)
async def unregister_broker(
    request: Request, context: RequestContext, forwarding: ForwardingManager
) -> ForwardedResponse:
    """UnregisterBroker: Forget a broker that is gone for good.

    Behaviour: its replicas leave every ISR.  A running broker that is unregistered stops serving.
    Versions:  0 only.
    Left out:  —
    """
    return await forward(request, context, forwarding)
