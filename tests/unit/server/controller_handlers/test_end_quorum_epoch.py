from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.controller_handlers.end_quorum_epoch import end_quorum_epoch
from tests.unit.server.controller_handlers.controller_handler_support import controller_client


async def test_a_quorum_of_one_refuses_in_every_version() -> None:
    versions = end_quorum_epoch.__api_handler__.versions  # type: ignore[attr-defined]
    async with controller_client() as client:
        for version in versions:
            fields = {"cluster_id": None, "topics": ()}
            if version:
                fields |= {"leader_endpoints": ()}
            answer = await client.ask(ApiKey.END_QUORUM_EPOCH, version, **fields)
            assert answer.error_code is ErrorCode.invalid_request
    assert len(versions) > 0
