from typing import Any
from uuid import UUID

from broker.common.errors import ErrorCode
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.controller.controller_support import CLUSTER_ID, directory_of
from tests.unit.server.controller_handlers.controller_handler_support import ControllerClient, controller_client


async def register(client: ControllerClient, version: int, **fields: Any) -> Any:
    schema = RequestSchema.of(ApiKey.BROKER_REGISTRATION, version)
    values: dict[str, Any] = {
        "broker_id": 5,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": UUID(int=0x555),
        "listeners": (schema.Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0),),
        "features": (schema.Feature(name="metadata.version", min_supported_version=7, max_supported_version=29),),
        "rack": "a",
        "is_migrating_zk_broker": False,
        "log_dirs": (directory_of(5),),
        "previous_broker_epoch": -1,
    }
    return await client.ask(ApiKey.BROKER_REGISTRATION, version, **{**values, **fields})


async def test_a_broker_is_registered() -> None:
    async with controller_client() as client:
        end = client.controller.log_end_offset
        for version in (2, 3, 4):
            answer = await register(client, version)
            assert (answer.error_code, answer.broker_epoch) == (ErrorCode.none, end)
        broker = client.controller.image.brokers[5]
        assert (broker.rack, broker.fenced, broker.directories) == ("a", True, (directory_of(5),))
        assert broker.listeners["PLAINTEXT"].port == 9092


async def test_versions_without_directories_cannot_join() -> None:
    async with controller_client() as client:
        for version in (0, 1):
            assert (await register(client, version)).error_code is ErrorCode.invalid_registration


async def test_refusals_have_no_epoch() -> None:
    async with controller_client() as client:
        schema = RequestSchema.of(ApiKey.BROKER_REGISTRATION, 4)
        odd = schema.Listener(name="X", host="h", port=1, security_protocol=9)
        old = schema.Feature(name="metadata.version", min_supported_version=7, max_supported_version=8)
        for fields, error in (
            ({"cluster_id": "other"}, ErrorCode.inconsistent_cluster_id),
            ({"features": ()}, ErrorCode.invalid_registration),
            ({"features": (old,)}, ErrorCode.unsupported_version),
            ({"is_migrating_zk_broker": True}, ErrorCode.invalid_registration),
            ({"listeners": (odd,)}, ErrorCode.invalid_registration),
        ):
            answer = await register(client, 4, **fields)
            assert (answer.error_code, answer.broker_epoch) == (error, -1)
