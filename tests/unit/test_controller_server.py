import socket
from pathlib import Path

import pytest

from broker.common.chance import Chance
from broker.common.clock import SystemClock
from broker.common.disk import InlineDiskExecutor
from broker.common.file_system import OsFileSystem
from broker.config.config_holder import ConfigHolder
from broker.controller_server import ControllerServer
from broker.metrics.registry import MetricsRegistry
from broker.metrics.request_metrics import RequestMetrics
from broker.network.broker_client import BrokerClient
from broker.network.byte_stream import AsyncioNetwork
from broker.network.listener import ListenError
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from tests.unit.node_support import node_config
from tests.unit.server.controller_handlers.controller_handler_support import controller_client

CLUSTER_ID = "Nk018hRAQFytWskYqtQduw"


def server(directory: Path, **properties: str) -> ControllerServer:
    registry = MetricsRegistry()
    return ControllerServer(
        ConfigHolder(node_config(directory, **properties)),
        directory=directory,
        cluster_id=CLUSTER_ID,
        clock=SystemClock(),
        chance=Chance(1),
        file_system=OsFileSystem(),
        disk=InlineDiskExecutor(),
        network=AsyncioNetwork(),
        registry=registry,
        request_metrics=RequestMetrics(registry),
    )


async def test_it_leads_and_answers_on_its_own_listeners_only(tmp_path: Path) -> None:
    controller = server(tmp_path)
    assert not controller.is_ready
    await controller.start()
    try:
        assert controller.is_ready
        assert list(controller.ports) == ["CONTROLLER"]
        client = BrokerClient("127.0.0.1", controller.ports["CONTROLLER"], "test")
        request = RequestSchema.of(ApiKey.DESCRIBE_CLUSTER, 1).DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=2
        )
        answer = await client.send(ApiKey.DESCRIBE_CLUSTER, 1, request, 10_000)
        await client.close()
        assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, 1)
    finally:
        await controller.stop()
    assert not controller.is_ready


async def test_what_was_started_is_stopped_when_the_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        controller = server(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}")
        with pytest.raises(ListenError, match=rf"listener CONTROLLER://127.0.0.1:{port}: .*in use"):
            await controller.start()
    assert not controller.is_ready
    await controller.stop()  # nothing is left to stop
    again = server(tmp_path)
    await again.start()
    await again.stop()


async def test_every_handler_has_its_services_and_every_api_of_a_controller_is_there() -> None:
    async with controller_client() as client:
        offered = {handler.api_key for handler in client.dispatcher.registry}
    assert offered >= {
        ApiKey.API_VERSIONS,
        ApiKey.FETCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ENVELOPE,
        ApiKey.ALTER_PARTITION,
        ApiKey.CREATE_TOPICS,
    }
    assert not offered & {ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.LIST_OFFSETS}
