"""ListConfigResources: what has a dynamic configuration, or could have one (KIP-1142)."""

from collections.abc import Iterator
from typing import Any

from broker.common.errors import ErrorCode, UnsupportedVersionError
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import MetadataImage
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext

LISTED_TYPES = (
    ConfigResourceType.TOPIC,
    ConfigResourceType.BROKER,
    ConfigResourceType.BROKER_LOGGER,
    ConfigResourceType.CLIENT_METRICS,
    ConfigResourceType.GROUP,
)


@handles(ApiKey.LIST_CONFIG_RESOURCES, versions=range(2))
def list_config_resources(request: Request, context: RequestContext, cache: MetadataCache) -> Any:
    """ListConfigResources: names of topics, brokers, groups and metric subscriptions that configurations belong to.

    Behaviour: topics are all topics, brokers and their loggers all registered brokers, groups and metric
      subscriptions those with dynamic settings.  No types asked for means all of them.
    Versions:  0 only metric subscriptions · 1 the types asked for.
    Left out:  authorization.
    """
    if request.version == 0:
        types: tuple[int, ...] = (ConfigResourceType.CLIENT_METRICS,)
    else:
        types = tuple(dict.fromkeys(request.body.resource_types)) or LISTED_TYPES
    unknown = [int(each) for each in types if each not in LISTED_TYPES]
    if unknown:
        raise UnsupportedVersionError(f"unsupported types of config resources: {unknown}")
    schema = request.schema
    return schema.ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        config_resources=tuple(
            schema.ConfigResource(resource_name=name, resource_type=int(each))
            for each in types
            for name in _names(cache.image, ConfigResourceType(each))
        ),
    )


def _names(image: MetadataImage, resource_type: ConfigResourceType) -> Iterator[str]:
    if resource_type is ConfigResourceType.TOPIC:
        yield from image.topics.by_name
    elif resource_type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        yield from (str(broker_id) for broker_id in sorted(image.brokers))
    else:
        yield from (resource.name for resource in image.configs.by_resource if resource.type == resource_type)
