"""AlterClientQuotas on a controller."""

from typing import Any

from broker.common.errors import KafkaError
from broker.controller.client_quota_control_manager import QuotaAlteration, QuotaChange
from broker.controller.controller import Controller
from broker.protocol.api_keys import ApiKey
from broker.protocol.durations import NO_THROTTLE
from broker.protocol.requests import Request
from broker.server.api_registry import handles
from broker.server.request_context import RequestContext


def alter_client_quotas_error(request: Request, error: KafkaError) -> Any:
    schema = request.schema
    return schema.AlterClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        entries=tuple(
            schema.EntryData(
                error_code=error.code,
                error_message=error.message,
                entity=tuple(
                    schema.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ),
            )
            for entry in request.body.entries
        ),
    )


@handles(ApiKey.ALTER_CLIENT_QUOTAS, versions=range(2), on_error=alter_client_quotas_error)
async def alter_client_quotas(request: Request, context: RequestContext, controller: Controller) -> Any:
    """AlterClientQuotas: set and remove quotas of users, client ids and addresses (KIP-546).

    Behaviour: all changes of an entity or none, each entity by itself.  INVALID_REQUEST with a sentence for an entity
      that cannot be (an address beside others, an empty name, a part or an entity named twice), for a key that such an
      entity does not have or that is named twice, and for a value that is not above 0 or should be whole.
    Versions:  0-1 alike · 1 flexible.
    Left out:  looking up the names of hosts.
    """
    body, schema = request.body, request.schema
    alterations = [
        QuotaAlteration(
            tuple((part.entity_type, part.entity_name) for part in entry.entity),
            [QuotaChange(change.key, None if change.remove else float(change.value)) for change in entry.ops],
        )
        for entry in body.entries
    ]
    results = await controller.alter_client_quotas(alterations, validate_only=body.validate_only)
    return schema.AlterClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        entries=tuple(
            schema.EntryData(
                error_code=error.code,
                error_message=error.message,
                entity=tuple(schema.EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
            )
            for entity, error in results
        ),
    )
