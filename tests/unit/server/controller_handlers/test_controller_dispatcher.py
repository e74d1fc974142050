from broker.protocol.api_keys import ApiKey
from tests.unit.server.controller_handlers.controller_handler_support import controller_client


async def test_every_handler_has_its_services_and_every_api_of_a_controller_is_there() -> None:
    async with controller_client() as client:
        offered = {handler.api_key for handler in client.dispatcher.registry}
    assert offered >= {
        ApiKey.API_VERSIONS,
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ENVELOPE,
        ApiKey.ALTER_PARTITION,
        ApiKey.CREATE_TOPICS,
    }
    assert not offered & {ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.LIST_OFFSETS}
