from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.server.controller_handlers.vote import vote
from tests.unit.server.controller_handlers.controller_handler_support import controller_client


async def test_a_quorum_of_one_refuses_in_every_version() -> None:
    versions = vote.__api_handler__.versions  # type: ignore[attr-defined]
    async with controller_client() as client:
        for version in versions:
            fields = {"cluster_id": None, "topics": ()}
            if version:
                fields["voter_id"] = 2
            answer = await client.ask(ApiKey.VOTE, version, **fields)
            assert answer.error_code is ErrorCode.invalid_request
    assert len(versions) > 0
