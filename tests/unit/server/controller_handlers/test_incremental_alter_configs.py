from typing import Any

from broker.common.errors import ErrorCode
from broker.metadata.configs_image import ConfigResourceType
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.server.controller_handlers.controller_handler_support import ControllerClient, controller_client


async def alter(
    client: ControllerClient, version: int, *resources: tuple[int, str, Any], validate_only: bool = False
) -> list[tuple[str, ErrorCode]]:
    schema = RequestSchema.of(ApiKey.INCREMENTAL_ALTER_CONFIGS, version)
    wanted = tuple(
        schema.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=tuple(
                schema.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ),
        )
        for kind, name, changes in resources
    )
    answer = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, resources=wanted, validate_only=validate_only)
    return [(each.resource_name, each.error_code) for each in answer.responses]


async def test_every_version_alters_and_each_resource_has_its_error() -> None:
    async with controller_client() as client:
        await client.start_brokers(1)
        await client.create_topic("t", (1,))
        for version in range(2):
            results = await alter(
                client,
                version,
                (2, "t", [("retention.ms", 0, str(version))]),
                (2, "x", [("retention.ms", 0, "5")]),
                (4, "1", [("node.id", 0, "5")]),
                (32, "g", [("a", 0, "5")]),
                (77, "u", [("a", 0, "5")]),
            )
            assert results == [
                ("t", ErrorCode.none),
                ("x", ErrorCode.unknown_topic_or_partition),
                ("1", ErrorCode.invalid_config),
                ("g", ErrorCode.invalid_request),
                ("u", ErrorCode.invalid_request),
            ]
            properties = client.controller.image.configs.properties(ConfigResourceType.TOPIC, "t")
            assert properties == {"retention.ms": str(version)}


async def test_unknown_operations_duplicates_and_validation_alone() -> None:
    async with controller_client() as client:
        await client.start_brokers(1)
        await client.create_topic("t", (1,))
        assert await alter(client, 1, (2, "t", [("retention.ms", 9, "5")])) == [("t", ErrorCode.invalid_request)]
        twice = (2, "t", [("retention.ms", 0, "5")])
        assert await alter(client, 1, twice, twice) == [("t", ErrorCode.invalid_request)] * 2
        assert await alter(client, 1, twice, validate_only=True) == [("t", ErrorCode.none)]
        assert client.controller.image.configs.properties(ConfigResourceType.TOPIC, "t") == {}
