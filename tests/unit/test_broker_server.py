import asyncio
from pathlib import Path

from broker.broker_server import ControllerLink
from broker.common.errors import ErrorCode
from broker.common.identifiers import TopicPartition
from broker.metadata.metadata_cache import MetadataCache
from broker.network.broker_client import BrokerClient
from broker.network.byte_stream import AsyncioNetwork
from broker.node import Node
from broker.protocol.api_keys import ApiKey
from broker.protocol.response_schema import RequestSchema
from broker.replication.fetch_params import FetchParams, FetchPartition, FetchPartitionResult
from broker.server.controller_finder import Endpoint
from broker.server.metadata_publisher import MetadataPublisher
from tests.support.patience import PATIENCE, PATIENCE_MS, eventually
from tests.support.sim_loop import SimLoop, simulate
from tests.unit.node_support import node_config, running_node
from tests.unit.server.link_support import CONTROLLER, IDENTITY, FakeConnection, FakeController


async def create_topic(node: Node, name: str) -> None:
    """Create it over the wire, and wait until this broker leads it."""
    assert node.broker is not None
    client = BrokerClient("127.0.0.1", node.broker.ports["PLAINTEXT"], "test")
    schema = RequestSchema.of(ApiKey.CREATE_TOPICS, 7)
    topic = schema.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
    request = schema.CreateTopicsRequest(topics=(topic,), timeout=PATIENCE, validate_only=False)
    answer = await client.send(ApiKey.CREATE_TOPICS, 7, request, PATIENCE_MS)
    await client.close()
    assert answer.topics[0].error_code is ErrorCode.none
    replicas = node.broker.replicas
    await eventually(lambda: replicas.hosted_partition(TopicPartition(name, 0)), f"{name} is led", every_s=0.005)


def fetch_error(node: Node, topic: str) -> ErrorCode:
    assert node.broker is not None
    answers: list[FetchPartitionResult] = []
    node.broker.replicas.fetch(FetchParams(version=12), [FetchPartition(topic, 0, 0, 1000)], answers.extend)
    return answers[0].error


async def test_it_is_ready_once_unfenced_and_no_longer_when_fenced(tmp_path: Path) -> None:
    async with running_node(node_config(tmp_path)) as node:
        broker = node.broker
        assert broker is not None
        assert broker.is_ready
        assert broker.lifecycle.broker_epoch >= 0
        await create_topic(node, "t")
        assert fetch_error(node, "t") is ErrorCode.none
        broker.lifecycle._set_lease(False)  # as when no heartbeat was answered for a whole session
        assert not broker.is_ready
        assert node.not_ready_reason().startswith("fenced: ")
        assert fetch_error(node, "t") is ErrorCode.not_leader_or_follower
        broker.lifecycle._set_lease(True)
        assert fetch_error(node, "t") is ErrorCode.none
    assert not broker.is_ready
    assert node.not_ready_reason() == "starting or stopping"


async def test_clients_are_told_the_bound_port_where_0_was_asked_for(tmp_path: Path) -> None:
    async with running_node(node_config(tmp_path)) as node:
        assert node.broker is not None
        (listener,) = node.broker.advertised_listeners()
        assert (listener.name, listener.host, listener.port) == (
            "PLAINTEXT",
            "127.0.0.1",
            node.broker.ports["PLAINTEXT"],
        )
        assert listener.port > 0
        registered = node.broker.cache.image.brokers[1].listeners["PLAINTEXT"]
        assert registered.port == listener.port


async def test_a_dynamic_setting_reaches_the_brokers_config(tmp_path: Path) -> None:
    async with running_node(node_config(tmp_path)) as node:
        assert node.broker is not None
        schema = RequestSchema.of(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
        change = schema.AlterableConfig(name="max.connections", config_operation=0, value="77")
        resource = schema.AlterConfigsResource(resource_type=4, resource_name="1", configs=(change,))
        request = schema.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        client = BrokerClient("127.0.0.1", node.broker.ports["PLAINTEXT"], "test")
        answer = await client.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, PATIENCE_MS)
        await client.close()
        assert answer.responses[0].error_code is ErrorCode.none
        config = node.broker.config
        await eventually(lambda: config.current.max_connections == 77, "the setting is there", every_s=0.005)


def test_the_link_to_the_controller_has_the_times_of_the_settings(tmp_path: Path) -> None:
    """As in test_metadata_observer.py, and from the settings on."""
    controller = FakeController()

    async def be_silent(_: object) -> None:
        await asyncio.sleep(3600)

    class Link(ControllerLink):
        def connect(self, endpoint: Endpoint) -> FakeConnection:  # type: ignore[override]
            return controller.connect(endpoint)

    async def story(_: SimLoop) -> None:
        controller.answers[ApiKey.FETCH] = be_silent
        config = node_config(
            tmp_path, controller_quorum_fetch_timeout_ms="100", controller_quorum_retry_backoff_ms="400"
        )
        publisher = MetadataPublisher(MetadataCache())
        link = Link(config, IDENTITY, [CONTROLLER], publisher, AsyncioNetwork())
        async with link.observer.running():
            await asyncio.sleep(10.5)

    simulate(story)
    assert len(controller.asked) == 11
