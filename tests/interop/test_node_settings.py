"""Settings of a whole node, seen from outside: a controller and a broker in two processes, each with its own."""

import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess, free_port
from tests.support.patience import PATIENCE
from tests.support.wire_client import WireClient

from .api_questions import Cluster, errors_of

pytestmark = pytest.mark.interop

OwnBroker = Callable[..., BrokerProcess]
PROTOCOLS = "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,QUORUM:PLAINTEXT"


@pytest.fixture
def quorum(own_broker: OwnBroker) -> tuple[BrokerProcess, int]:
    """A node that is a controller only, and its port."""
    port = free_port()
    controller = own_broker(
        {
            "process.roles": "controller",
            "node.id": "100",
            "listeners": f"QUORUM://127.0.0.1:{port}",
            "advertised.listeners": "",
            "listener.security.protocol.map": PROTOCOLS,
            "controller.listener.names": "QUORUM",
            "inter.broker.listener.name": "",
            "controller.quorum.bootstrap.servers": "",
            "controller.quorum.voters": f"100@127.0.0.1:{port}",
            "delete.topic.enable": "false",
        }
    )
    return controller, port


def broker_of(port: int, **more: str) -> dict[str, str]:
    return {
        "process.roles": "broker",
        "node.id": "7",
        "listener.security.protocol.map": PROTOCOLS,
        "inter.broker.listener.name": "INSIDE",
        "controller.listener.names": "QUORUM",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def described(port: int) -> Any:
    """The cluster as a client of this listener sees it."""
    with WireClient(port) as client:
        schema = client.request(ApiKey.METADATA, 12)
        request = schema.MetadataRequest(
            topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        return client.ask(ApiKey.METADATA, 12, request)


def test_a_node_is_what_its_settings_say(quorum: tuple[BrokerProcess, int], own_broker: OwnBroker) -> None:
    controller, port = quorum
    inside, outside = free_port(), free_port()
    broker = own_broker(
        broker_of(
            port,
            listeners=f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.1:{outside}",
            advertised_listeners=f"INSIDE://127.0.0.1:{inside},OUTSIDE://localhost:{outside}",
            broker_rack="zone-a",
            max_incremental_fetch_session_cache_slots="0",
        )
    )
    seen = {}
    for name, at in (("inside", inside), ("outside", outside)):
        (node,) = described(at).brokers
        seen[name] = (node.node_id, node.host, node.port, node.rack)
    assert seen == {"inside": (7, "127.0.0.1", inside, "zone-a"), "outside": (7, "localhost", outside, "zone-a")}
    assert (broker.data / "meta.properties").exists()
    assert controller.metric("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert "kafka_controller_" not in broker.metrics()

    with WireClient(inside) as client:
        cluster = Cluster(broker, client)
        topic, identity = cluster.new_topic()
        assert (broker.data / f"{topic}-0").is_dir()
        assert not (controller.data / f"{topic}-0").exists()
        schema = client.request(ApiKey.FETCH, 13)
        row = schema.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        answer = cluster.ask(
            ApiKey.FETCH,
            13,
            max_wait=timedelta(0),
            min_bytes=0,
            max_bytes=1000,
            isolation_level=0,
            session_epoch=0,
            topics=(schema.FetchTopic(topic=topic, topic_id=identity, partitions=(row,)),),
            forgotten_topics_data=(),
        )
        assert answer.session_id == 0  # max.incremental.fetch.session.cache.slots
        deleted = client.request(ApiKey.DELETE_TOPICS, 5).DeleteTopicsRequest(topic_names=(topic,), timeout=PATIENCE)
        assert errors_of(client.ask(ApiKey.DELETE_TOPICS, 5, deleted)) == {"topic_deletion_disabled"}


def test_the_times_of_a_start_without_a_controller(own_broker: OwnBroker) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        settings = broker_of(
            silent.getsockname()[1],
            listeners=f"INSIDE://127.0.0.1:{port}",
            advertised_listeners=f"INSIDE://127.0.0.1:{port}",
            controller_quorum_request_timeout_ms="200",
            initial_broker_registration_timeout_ms="1500",
        )
        with pytest.raises(AssertionError, match="the broker ended with 1") as ended:
            own_broker(settings)
    assert "did not answer within 200 ms" in str(ended.value)
