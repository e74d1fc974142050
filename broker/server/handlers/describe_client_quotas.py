"""DescribeClientQuotas: the quotas in the metadata image (KIP-546)."""

from collections.abc import Mapping
from typing import Any, Final

from broker.common.errors import ErrorCode, InvalidRequestError, KafkaError
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.metadata_image import QuotaEntity
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext

MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_ANY: Final = 2
ENTITY_TYPES: Final = ("user", "client-id", "ip")


def describe_client_quotas_error(request: Request, error: KafkaError) -> Any:
    return request.schema.DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE, error_code=error.code, error_message=error.message, entries=None
    )


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=range(2), on_error=describe_client_quotas_error)
def describe_client_quotas(request: Request, context: RequestContext, cache: MetadataCache) -> Any:
    """DescribeClientQuotas: quotas by user, client id or address, as the cluster's metadata has them.

    Behaviour: an entity is in the answer when every component of the filter matches one of its parts; strict leaves out
      entities with parts the filter does not name.  An unknown entity type is INVALID_REQUEST.
    Versions:  0-1 alike · 1 flexible.
    Left out:  controller_mutation_rate and connection_creation_rate are shown, not enforced.
    """
    components: dict[str, tuple[int, str | None]] = {}
    for component in request.body.components:
        if component.entity_type not in ENTITY_TYPES:
            raise InvalidRequestError(f"unknown entity type {component.entity_type!r}")
        if component.entity_type in components:
            raise InvalidRequestError(f"the entity type {component.entity_type!r} is named twice")
        if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
            raise InvalidRequestError(f"unknown match type {component.match_type}")
        components[component.entity_type] = (component.match_type, component.match)
    schema = request.schema
    entries = tuple(
        schema.EntryData(
            entity=tuple(schema.EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
            values=tuple(schema.ValueData(key=key, value=value) for key, value in quotas.items()),
        )
        for entity, quotas in cache.image.client_quotas.items()
        if _matches(entity, components, is_strict=request.body.strict)
    )
    return schema.DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, entries=entries
    )


def _matches(entity: QuotaEntity, components: Mapping[str, tuple[int, str | None]], *, is_strict: bool) -> bool:
    parts = dict(entity)
    if is_strict and parts.keys() - components.keys():
        return False
    for kind, (match_type, name) in components.items():
        if kind not in parts:
            return False
        if match_type == MATCH_EXACT and parts[kind] != name:
            return False
        if match_type == MATCH_DEFAULT and parts[kind] is not None:
            return False
    return True
