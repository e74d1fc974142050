"""Resources in requests that alter configs: what both of them check alike."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from broker.common.errors import ErrorCode
from broker.controller.api_error import ApiError
from broker.metadata.configs_image import ConfigResource, ConfigResourceType


def resource_of(resource: Any) -> ConfigResource:
    """UNKNOWN stands for every type there is not."""
    try:
        resource_type = ConfigResourceType(resource.resource_type)
    except ValueError:
        resource_type = ConfigResourceType.UNKNOWN
    return ConfigResource(resource_type, resource.resource_name)


def refused_resources(resources: Sequence[Any]) -> dict[ConfigResource, ApiError]:
    """Resources, or configs of one, that are named more than once."""
    counts = Counter(map(resource_of, resources))
    refused = {
        resource: ApiError(ErrorCode.invalid_request, "Each resource must appear at most once.")
        for resource, count in counts.items()
        if count > 1
    }
    for resource in resources:
        names = [config.name for config in resource.configs]
        if len(set(names)) != len(names):
            message = "Error due to duplicate config keys"
            refused.setdefault(resource_of(resource), ApiError(ErrorCode.invalid_request, message))
    return refused


def resource_responses(
    schema: Any, resources: Iterable[Any], errors: dict[ConfigResource, ApiError]
) -> tuple[Any, ...]:
    """One answer for each resource of the request, in its order."""
    return tuple(
        schema.AlterConfigsResourceResponse(
            error_code=errors[resource_of(resource)].code,
            error_message=errors[resource_of(resource)].message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in resources
    )
