from typing import Any

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.unit.controller.controller_support import registration_request
from tests.unit.server.controller_handlers.controller_handler_support import ControllerClient, controller_client


async def heartbeat(client: ControllerClient, version: int, epoch: int, **fields: Any) -> Any:
    values: dict[str, Any] = {
        "broker_id": 5,
        "broker_epoch": epoch,
        "current_metadata_offset": client.controller.high_watermark - 1,
        "want_fence": False,
        "want_shut_down": False,
        "offline_log_dirs": (),
    }
    return await client.ask(ApiKey.BROKER_HEARTBEAT, version, **{**values, **fields})


async def test_fenced_until_caught_up_then_unfenced_and_shut_down() -> None:
    async with controller_client() as client:
        epoch = await client.controller.register_broker(registration_request(5))
        for version in range(2):
            behind = await heartbeat(client, version, epoch, current_metadata_offset=0)
            assert (behind.error_code, behind.is_caught_up, behind.is_fenced) == (ErrorCode.none, False, True)
        there = await heartbeat(client, 1, epoch)
        assert (there.is_caught_up, there.is_fenced, there.should_shut_down) == (True, False, False)
        leaving = await heartbeat(client, 1, epoch, want_shut_down=True)
        assert (leaving.is_fenced, leaving.should_shut_down) == (True, True)


async def test_another_epoch_is_stale() -> None:
    async with controller_client() as client:
        assert (await heartbeat(client, 1, 99)).error_code is ErrorCode.stale_broker_epoch
