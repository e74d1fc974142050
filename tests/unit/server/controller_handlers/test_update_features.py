from typing import Any

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.server.controller_handlers.controller_handler_support import (
    TIMEOUT,
    ControllerClient,
    controller_client,
)

ELR = "eligible.leader.replicas.version"


async def update(client: ControllerClient, version: int, level: int, **fields: Any) -> Any:
    schema = RequestSchema.of(ApiKey.UPDATE_FEATURES, version)
    key = schema.FeatureUpdateKey(**{"feature": ELR, "max_version_level": level, **fields})
    return await client.ask(
        ApiKey.UPDATE_FEATURES, version, timeout=TIMEOUT, feature_updates=(key,), validate_only=False
    )


async def test_up_and_down_in_every_version() -> None:
    async with controller_client() as client:
        await client.start_brokers(1)
        for version in range(3):
            up = {"allow_downgrade": False} if version == 0 else {"upgrade_type": 1}
            down = {"allow_downgrade": True} if version == 0 else {"upgrade_type": 2}
            assert (await update(client, version, 1, **up)).error_code is ErrorCode.none
            assert client.controller.image.features.level(ELR) == 1
            refused = await update(client, version, 0, **up)
            assert refused.error_code is ErrorCode.invalid_update_version
            assert "without setting the upgrade type" in refused.error_message
            assert (await update(client, version, 0, **down)).error_code is ErrorCode.none
            assert client.controller.image.features.level(ELR) == 0


async def test_an_upgrade_type_there_is_not() -> None:
    async with controller_client() as client:
        answer = await update(client, 2, 1, upgrade_type=9)
        assert answer.error_code is ErrorCode.invalid_update_version
