"""Looks at changes of brokers' settings before they are forwarded (Kafka's ConfigAdminManager).

The controllers of Apache Kafka store what a broker is to be set to as it comes: what a setting may be, brokers know.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from broker.common.errors import KafkaError
from broker.config.broker_config import BrokerConfig
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.configs_image import CLUSTER_DEFAULT, ConfigResourceType
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request, decode_response, encode_request
from broker.server.forwarded_requests import forward
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext

SET: Final = 0  # of IncrementalAlterConfigs, as DELETE
DELETE: Final = 1
_LENGTH_BYTES: Final = 4


async def forward_checked(
    request: Request,
    context: RequestContext,
    forwarding: ForwardingManager,
    repository: ConfigRepository,
    response_class: Callable[..., Any],
) -> ForwardedResponse | Any:
    """The controller's answer; resources that this broker refuses are answered by it, and not forwarded."""
    refused = {
        index: row
        for index, resource in enumerate(request.body.resources)
        if (row := _refusal(request, resource, repository)) is not None
    }
    if not refused:
        return await forward(request, context, forwarding)
    rows = []
    passed = tuple(each for index, each in enumerate(request.body.resources) if index not in refused)
    if passed:
        body = replace(request.body, resources=passed)
        frame = encode_request(request.api_key, request.version, request.correlation_id, request.client_id, body)
        response = await forwarding.forward_frame(frame[_LENGTH_BYTES:], context)
        rows += decode_response(request.api_key, request.version, response)[1].responses
    return response_class(throttle_time=NO_THROTTLE, responses=(*rows, *refused.values()))


def _refusal(request: Request, resource: Any, repository: ConfigRepository) -> Any | None:
    """The row of the answer for a broker that cannot be set so; None when it can, and for other resources."""
    if resource.resource_type != ConfigResourceType.BROKER:
        return None
    try:
        for change in resource.configs:
            if change.value is not None and _operation(change) == SET:
                BrokerConfig.validate_dynamic(
                    change.name, change.value, per_broker=resource.resource_name != CLUSTER_DEFAULT
                )
        repository.check_broker_change(resource.resource_name, _wanted(request, resource, repository))
    except KafkaError as error:
        return request.schema.AlterConfigsResourceResponse(
            error_code=error.code,
            error_message=str(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    return None


def _wanted(request: Request, resource: Any, repository: ConfigRepository) -> Mapping[str, str]:
    """What a broker's dynamic settings will be.  Lists that grow or shrink are left as they are."""
    is_incremental = request.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS
    wanted = dict(repository.dynamic_properties(resource.resource_name)) if is_incremental else {}
    for change in resource.configs:
        operation = _operation(change)
        if operation == SET and change.value is not None:
            wanted[change.name] = change.value
        elif operation == DELETE:
            wanted.pop(change.name, None)
    return wanted


def _operation(change: Any) -> int:
    """AlterConfigs only sets."""
    return getattr(change, "config_operation", SET)
