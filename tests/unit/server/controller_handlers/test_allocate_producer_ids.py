from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.unit.server.controller_handlers.controller_handler_support import controller_client


async def test_blocks_follow_each_other_and_epochs_are_checked() -> None:
    async with controller_client() as client:
        epochs = await client.start_brokers(1)
        for first in (0, 1000):
            answer = await client.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=1, broker_epoch=epochs[1])
            assert (answer.error_code, answer.producer_id_start, answer.producer_id_len) == (
                ErrorCode.none,
                first,
                1000,
            )
        stale = await client.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=1, broker_epoch=0)
        assert stale.error_code is ErrorCode.stale_broker_epoch
