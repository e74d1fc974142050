from typing import Any

import pytest

from broker.common.errors import ErrorCode, NotControllerError
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.server.controller_handlers.alter_client_quotas import alter_client_quotas_error
from tests.unit.server.controller_handlers.controller_handler_support import ControllerClient, controller_client
from tests.unit.server.link_support import request_of

KEY = "producer_byte_rate"


def fields(version: int, value: float | None, name: str | None = "app", **more: Any) -> dict[str, Any]:
    schema = RequestSchema.of(ApiKey.ALTER_CLIENT_QUOTAS, version)
    change = schema.OpData(key=KEY, value=value or 0.0, remove=value is None)
    entry = schema.EntryData(entity=(schema.EntityData(entity_type="client-id", entity_name=name),), ops=(change,))
    return {"entries": (entry,), "validate_only": False, **more}


async def alter(client: ControllerClient, version: int, value: float | None, **more: Any) -> Any:
    (row,) = (await client.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, **fields(version, value, **more))).entries
    assert [part.entity_type for part in row.entity] == ["client-id"]
    return row


async def test_set_and_removed_in_every_version() -> None:
    async with controller_client() as client:
        for version in range(2):
            row = await alter(client, version, 1000.0)
            assert (row.error_code, row.error_message, row.entity[0].entity_name) == (ErrorCode.none, None, "app")
            assert client.controller.image.client_quotas == {(("client-id", "app"),): {KEY: 1000.0}}
            assert (await alter(client, version, None)).error_code is ErrorCode.none
            assert client.controller.image.client_quotas == {}


async def test_validation_alone_changes_nothing() -> None:
    async with controller_client() as client:
        assert (await alter(client, 1, 1.0, validate_only=True)).error_code is ErrorCode.none
        assert client.controller.image.client_quotas == {}
        row = await alter(client, 1, -1.0, validate_only=True)
        assert (row.error_code, row.error_message) == (
            ErrorCode.invalid_request,
            f"Quota {KEY} must be greater than 0",
        )


@pytest.mark.parametrize("version", range(2))
def test_an_error_of_the_whole_is_told_for_each_entity(version: int) -> None:
    request = request_of(ApiKey.ALTER_CLIENT_QUOTAS, version, **fields(version, 1.0, name=None))
    (row,) = alter_client_quotas_error(request, NotControllerError()).entries
    assert (row.error_code, row.entity[0].entity_name) == (ErrorCode.not_controller, None)
