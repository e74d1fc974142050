"""AlterConfigs: settings of brokers are checked here, and the controller answers."""

from typing import Any

from broker.metadata.config_repository import ConfigRepository
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.config_admin_manager import forward_checked
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext


@handles(ApiKey.ALTER_CONFIGS, versions=range(3), is_forwarded=True)
async def alter_configs(
    request: Request, context: RequestContext, forwarding: ForwardingManager, repository: ConfigRepository
) -> ForwardedResponse | Any:
    """AlterConfigs: Replace all dynamic settings of a resource (the old form).

    Behaviour: what the request does not name is removed; prefer IncrementalAlterConfigs.
      Settings of brokers are checked by this broker first, alone and together, for controllers may not know them.
    Versions:  0-2 alike · 2 flexible.
    Left out:  settings of broker loggers.
    """
    return await forward_checked(request, context, forwarding, repository, request.schema.AlterConfigsResponse)
