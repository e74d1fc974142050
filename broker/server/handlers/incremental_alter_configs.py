"""IncrementalAlterConfigs: settings of brokers are checked here, and the controller answers."""

from typing import Any

from broker.metadata.config_repository import ConfigRepository
from broker.protocol.api_keys import ApiKey
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.config_admin_manager import forward_checked
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=range(2), is_forwarded=True)
async def incremental_alter_configs(
    request: Request, context: RequestContext, forwarding: ForwardingManager, repository: ConfigRepository
) -> ForwardedResponse | Any:
    """IncrementalAlterConfigs: Set, delete, append to or subtract from settings (KIP-339).

    Behaviour: all changes of one resource are made or none; the result is validated as a whole.
      Settings of brokers are checked by this broker first, alone and together, for controllers may not know them.
      Topic settings and dynamic broker settings take effect when this broker's image reaches the change.
    Versions:  0-1 alike · 1 flexible.
    Left out:  settings of broker loggers.
    """
    return await forward_checked(
        request, context, forwarding, repository, request.schema.IncrementalAlterConfigsResponse
    )
