from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.server.handlers.alter_client_quotas import alter_client_quotas
from tests.unit.server.handlers.forwarding_support import check_forwarded


def fields(version: int) -> dict[str, Any]:
    schema = RequestSchema.of(ApiKey.ALTER_CLIENT_QUOTAS, version)
    entity = (schema.EntityData(entity_type="user", entity_name=None),)
    change = schema.OpData(key="request_percentage", value=10.0, remove=False)
    return {"entries": (schema.EntryData(entity=entity, ops=(change,)),), "validate_only": False}


def test_the_controller_answers() -> None:
    check_forwarded(alter_client_quotas, ApiKey.ALTER_CLIENT_QUOTAS, fields)
