"""Looks at changes of brokers' settings before they are forwarded (Kafka's ConfigAdminManager).

The controllers of Apache Kafka store what a broker is to be set to as it comes: what a setting may be, brokers know.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from broker.common.errors import KafkaError
from broker.config.broker_config import BrokerConfig
from broker.metadata.configs_image import ConfigResourceType
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request, decode_response, encode_request
from broker.server.forwarded_requests import forward
from broker.server.forwarding_manager import ForwardedResponse, ForwardingManager
from broker.server.request_context import RequestContext

SET: Final = 0  # of IncrementalAlterConfigs; the whole of AlterConfigs sets
CLUSTER_DEFAULT: Final = ""
_LENGTH_BYTES: Final = 4


async def forward_checked(
    request: Request, context: RequestContext, forwarding: ForwardingManager, response_class: Callable[..., Any]
) -> ForwardedResponse | Any:
    """The controller's answer; resources that this broker refuses are answered by it, and not forwarded."""
    refused = {index: row for index in range(len(request.body.resources)) if (row := _refusal(request, index))}
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


def _refusal(request: Request, index: int) -> Any | None:
    """The row of the answer for a resource with a setting of brokers that cannot be so; None when all can be."""
    resource = request.body.resources[index]
    if resource.resource_type != ConfigResourceType.BROKER:
        return None
    for change in resource.configs:
        if change.value is None or getattr(change, "config_operation", SET) != SET:
            continue
        try:
            BrokerConfig.validate_dynamic(
                change.name, change.value, per_broker=resource.resource_name != CLUSTER_DEFAULT
            )
        except KafkaError as error:
            return request.schema.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=str(error),
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
    return None
