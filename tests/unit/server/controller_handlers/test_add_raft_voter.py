from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.unit.server.controller_handlers.controller_handler_support import TIMEOUT, controller_client


async def test_static_voters_do_not_change() -> None:
    async with controller_client() as client:
        for version in range(2):
            answer = await client.ask(
                ApiKey.ADD_RAFT_VOTER,
                version,
                cluster_id=None,
                timeout=TIMEOUT,
                voter_id=2,
                voter_directory_id=None,
                listeners=(),
                ack_when_committed=True,
            )
            assert answer.error_code is ErrorCode.unsupported_version
            assert "static" in answer.error_message
