from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.unit.server.controller_handlers.controller_handler_support import controller_client


async def test_static_voters_do_not_change() -> None:
    async with controller_client() as client:
        answer = await client.ask(ApiKey.REMOVE_RAFT_VOTER, 0, cluster_id=None, voter_id=2, voter_directory_id=None)
        assert answer.error_code is ErrorCode.unsupported_version
