"""AlterConfigs: answered by the controller."""

from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.forwarded_requests import forward
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext


@handles(ApiKey.ALTER_CONFIGS, versions=range(3), is_forwarded=True)
async def alter_configs(request: Request, context: RequestContext, forwarding: ForwardingManager) -> ForwardedResponse:
    """AlterConfigs: Replace all dynamic settings of a resource (the old form).

    Behaviour: what the request does not name is removed; prefer IncrementalAlterConfigs.
    Versions:  0-2 alike · 2 flexible.
    Left out:  settings of broker loggers.
    """
    return await forward(request, context, forwarding)
