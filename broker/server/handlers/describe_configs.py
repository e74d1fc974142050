"""DescribeConfigs: settings with their values, where these come from and what they mean."""

from collections.abc import Iterable
from typing import Any

from broker.common.errors import (
    ErrorCode,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from broker.config.describe import ConfigEntry, ConfigSource, ConfigSynonym
from broker.config.value_types import ConfigType
from broker.metadata.config_repository import ConfigRepository
from broker.metadata.configs_image import ConfigResourceType
from broker.metadata.metadata_cache import MetadataCache
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.broker_identity import BrokerIdentity
from broker.server.request_context import RequestContext
from broker.server.topic_names import invalid_topic_name_reason

_STORED_SOURCES = {
    ConfigResourceType.CLIENT_METRICS: ConfigSource.CLIENT_METRICS_CONFIG,
    ConfigResourceType.GROUP: ConfigSource.GROUP_CONFIG,
}


@handles(ApiKey.DESCRIBE_CONFIGS, versions=range(1, 5))
def describe_configs(
    request: Request,
    context: RequestContext,
    cache: MetadataCache,
    repository: ConfigRepository,
    identity: BrokerIdentity,
) -> Any:
    """DescribeConfigs: all settings of topics and of this broker, or those asked for by name.

    Behaviour: each resource has its own error.  A topic's value comes from the topic, else from this broker's dynamic
      or static setting, else from the default; the synonyms list all of these, the one in force first.  A broker
      answers for itself (by id) and for the cluster-wide defaults (empty name), for another id INVALID_REQUEST.
      Values of sensitive settings are null.
    Versions:  1 sources and synonyms · 3 types and documentation on demand · 4 flexible.
    Left out:  broker loggers (INVALID_REQUEST): the log level is fixed at start.
    """
    body = request.body
    answer = _Answer(
        request,
        include_synonyms=bool(body.include_synonyms),
        include_documentation=bool(getattr(body, "include_documentation", False)),
    )
    results = []
    for resource in body.resources:
        try:
            entries = _entries(resource.resource_type, resource.resource_name, cache, repository, identity)
        except KafkaError as error:
            results.append(answer.error(resource, error))
        else:
            asked = resource.configuration_keys
            results.append(answer.result(resource, [each for each in entries if not asked or each.name in asked]))
    return request.schema.DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _entries(
    resource_type: int, name: str, cache: MetadataCache, repository: ConfigRepository, identity: BrokerIdentity
) -> list[ConfigEntry]:
    match resource_type:
        case ConfigResourceType.TOPIC:
            reason = invalid_topic_name_reason(name)
            if reason is not None:
                raise InvalidTopicError(f"Topic name is invalid: {reason}")
            if cache.topic(name) is None:
                raise UnknownTopicOrPartitionError(f"Topic '{name}' does not exist.")
            return repository.describe_topic(name)
        case ConfigResourceType.BROKER:
            if not name:
                return repository.describe_broker_default()
            _check_broker_id(name, identity, or_empty=True)
            return repository.describe_broker()
        case ConfigResourceType.BROKER_LOGGER:
            _check_broker_id(name, identity, or_empty=False)
            raise InvalidRequestError("This broker has no loggers whose level can be changed while it runs.")
        case ConfigResourceType.CLIENT_METRICS | ConfigResourceType.GROUP:
            if not name:
                raise InvalidRequestError("The name of the resource must not be empty.")
            return _stored_entries(ConfigResourceType(resource_type), name, cache)
        case _:
            raise InvalidRequestError(f"Unsupported resource type: {resource_type}")


def _check_broker_id(name: str, identity: BrokerIdentity, *, or_empty: bool) -> None:
    try:
        broker_id = int(name)
    except ValueError:
        raise InvalidRequestError(f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != identity.node_id:
        expected = f"{identity.node_id} or empty string" if or_empty else str(identity.node_id)
        raise InvalidRequestError(f"Unexpected broker id, expected {expected}, but received {name}")


def _stored_entries(resource_type: ConfigResourceType, name: str, cache: MetadataCache) -> list[ConfigEntry]:
    """What was set, as it was set: there are no defaults of ours for these."""
    source = _STORED_SOURCES[resource_type]
    return [
        ConfigEntry(
            name=key,
            value=value,
            source=source,
            is_read_only=False,
            is_sensitive=False,
            config_type=ConfigType.UNKNOWN,
            documentation="",
            synonyms=(ConfigSynonym(key, value, source),),
        )
        for key, value in sorted(cache.image.configs.properties(resource_type, name).items())
    ]


class _Answer:
    """Builds results in the request's version."""

    def __init__(self, request: Request, *, include_synonyms: bool, include_documentation: bool) -> None:
        self._schema = request.schema
        self._include_synonyms = include_synonyms
        self._include_documentation = include_documentation

    def error(self, resource: Any, error: KafkaError) -> Any:
        return self._schema.DescribeConfigsResult(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=(),
        )

    def result(self, resource: Any, entries: Iterable[ConfigEntry]) -> Any:
        return self._schema.DescribeConfigsResult(
            error_code=ErrorCode.none,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=tuple(self._entry(entry) for entry in entries),
        )

    def _entry(self, entry: ConfigEntry) -> Any:
        synonyms = entry.synonyms if self._include_synonyms else ()
        return self._schema.DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=int(entry.source),
            is_sensitive=entry.is_sensitive,
            synonyms=tuple(
                self._schema.DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=int(synonym.source))
                for synonym in synonyms
            ),
            config_type=int(entry.config_type),
            documentation=entry.documentation if self._include_documentation else None,
        )
