from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.server.controller_handlers.controller_handler_support import controller_client


async def test_static_voters_do_not_change() -> None:
    async with controller_client() as client:
        schema = RequestSchema.of(ApiKey.UPDATE_RAFT_VOTER, 0)
        answer = await client.ask(
            ApiKey.UPDATE_RAFT_VOTER,
            0,
            cluster_id=None,
            current_leader_epoch=1,
            voter_id=2,
            voter_directory_id=None,
            listeners=(),
            k_raft_version_feature=schema.KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        )
        assert answer.error_code is ErrorCode.unsupported_version
