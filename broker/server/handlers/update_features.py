"""UpdateFeatures: answered by the controller."""

from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.forwarded_requests import forward
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext


@handles(ApiKey.UPDATE_FEATURES, versions=range(3), is_forwarded=True)
async def update_features(
    request: Request, context: RequestContext, forwarding: ForwardingManager
) -> ForwardedResponse:
    """UpdateFeatures: Change finalized feature levels (KIP-584).

    Behaviour: refused with INVALID_UPDATE_VERSION when a registered broker, even a stopped one, does not support
      the level.
    Versions:  1 upgrade types and validate-only · 2 one error for all features.
    Left out:  —
    """
    return await forward(request, context, forwarding)
