"""AlterConfigs on a controller: the older way, which replaces everything."""

from typing import Any

from broker.controller.controller import Controller
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.controller_handlers.config_resources import refused_resources, resource_of, resource_responses
from broker.server.request_context import RequestContext


@handles(ApiKey.ALTER_CONFIGS, versions=range(3))
async def alter_configs(request: Request, context: RequestContext, controller: Controller) -> Any:
    """AlterConfigs: replaces all configs of each resource; what is not named is deleted.

    Behaviour: as IncrementalAlterConfigs otherwise.
    Versions:  2 flexible.
    Left out:  groups, client metrics and broker loggers (INVALID_REQUEST).
    """
    body = request.body
    errors = refused_resources(body.resources)
    properties = {
        resource_of(resource): {config.name: config.value for config in resource.configs}
        for resource in body.resources
        if resource_of(resource) not in errors
    }
    errors |= await controller.legacy_alter_configs(properties, validate_only=body.validate_only)
    return request.schema.AlterConfigsResponse(
        throttle_time=NO_THROTTLE, responses=resource_responses(request.schema, body.resources, errors)
    )
