from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from tests.unit.controller.controller_support import CLUSTER_ID
from tests.unit.server.controller_handlers.controller_handler_support import controller_client

QUESTION = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}


async def test_controllers_are_described() -> None:
    async with controller_client() as client:
        for version in (1, 2):
            answer = await client.ask(ApiKey.DESCRIBE_CLUSTER, version, endpoint_type=2, **QUESTION)
            assert (answer.error_code, answer.cluster_id, answer.controller_id) == (ErrorCode.none, CLUSTER_ID, 1)
            assert answer.endpoint_type == 2
            (node,) = answer.brokers
            assert (node.broker_id, node.host, node.port) == (1, "127.0.0.1", 9190)


async def test_other_types_are_asked_at_the_wrong_door() -> None:
    async with controller_client() as client:
        brokers = await client.ask(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=1, **QUESTION)
        assert brokers.error_code is ErrorCode.mismatched_endpoint_type
        assert (await client.ask(ApiKey.DESCRIBE_CLUSTER, 0, **QUESTION)).error_code is (
            ErrorCode.mismatched_endpoint_type
        )
        unknown = await client.ask(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=3, **QUESTION)
        assert unknown.error_code is ErrorCode.unsupported_endpoint_type
