from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.unit.server.controller_handlers.controller_handler_support import controller_client


async def test_a_broker_leaves_once() -> None:
    async with controller_client() as client:
        await client.start_brokers(1, 2)
        assert (await client.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=2)).error_code is ErrorCode.none
        assert list(client.controller.image.brokers) == [1]
        again = await client.ask(ApiKey.UNREGISTER_BROKER, 0, broker_id=2)
        assert again.error_code is ErrorCode.broker_id_not_registered
        assert again.error_message == "Broker ID 2 is not currently registered"
