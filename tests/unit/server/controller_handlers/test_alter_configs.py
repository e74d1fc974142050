from broker.common.errors import ErrorCode
from broker.metadata.configs_image import ConfigResourceType
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.server.controller_handlers.controller_handler_support import controller_client


async def test_every_version_replaces_everything() -> None:
    async with controller_client() as client:
        await client.start_brokers(1)
        await client.create_topic("t", (1,))
        for version in range(3):
            schema = RequestSchema.of(ApiKey.ALTER_CONFIGS, version)
            name = f"flush.{'ms' if version % 2 else 'messages'}"
            resources = (
                schema.AlterConfigsResource(
                    resource_type=2, resource_name="t", configs=(schema.AlterableConfig(name=name, value="7"),)
                ),
                schema.AlterConfigsResource(resource_type=2, resource_name="x", configs=()),
            )
            answer = await client.ask(ApiKey.ALTER_CONFIGS, version, resources=resources, validate_only=False)
            assert [(each.resource_name, each.error_code) for each in answer.responses] == [
                ("t", ErrorCode.none),
                ("x", ErrorCode.unknown_topic_or_partition),
            ]
            properties = client.controller.image.configs.properties(ConfigResourceType.TOPIC, "t")
            assert properties == {name: "7"}
