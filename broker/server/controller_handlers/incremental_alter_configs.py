"""IncrementalAlterConfigs on a controller."""

from typing import Any

from broker.common.errors import ErrorCode
from broker.controller.api_error import ApiError
from broker.controller.configuration_control_manager import AlterConfigOperation, ConfigChange
from broker.controller.controller import Controller
from broker.metadata.configs_image import ConfigResource
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.controller_handlers.config_resources import refused_resources, resource_of, resource_responses
from broker.server.request_context import RequestContext


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=range(2))
async def incremental_alter_configs(request: Request, context: RequestContext, controller: Controller) -> Any:
    """IncrementalAlterConfigs: set, delete, append to and subtract from configs of topics and brokers (KIP-339).

    Behaviour: all changes of a resource or none, each resource by itself.  The resulting configs are checked as a
      whole: INVALID_CONFIG with a sentence.  An unknown topic is UNKNOWN_TOPIC_OR_PARTITION, an unknown broker
      BROKER_ID_NOT_REGISTERED, a resource or config that is named twice INVALID_REQUEST.
    Versions:  1 flexible.
    Left out:  groups, client metrics and broker loggers (INVALID_REQUEST).
    """
    body = request.body
    errors = refused_resources(body.resources)
    changes: dict[ConfigResource, list[ConfigChange]] = {}
    for resource in body.resources:
        key = resource_of(resource)
        if key in errors:
            continue
        unknown = [config for config in resource.configs if config.config_operation not in _OPERATIONS]
        if unknown:
            message = f"Unknown operation type {unknown[0].config_operation} for {unknown[0].name}."
            errors[key] = ApiError(ErrorCode.invalid_request, message)
            continue
        changes[key] = [
            ConfigChange(config.name, AlterConfigOperation(config.config_operation), config.value)
            for config in resource.configs
        ]
    errors |= await controller.incremental_alter_configs(changes, validate_only=body.validate_only)
    return request.schema.IncrementalAlterConfigsResponse(
        throttle_time=NO_THROTTLE, responses=resource_responses(request.schema, body.resources, errors)
    )


_OPERATIONS = frozenset(map(int, AlterConfigOperation))
