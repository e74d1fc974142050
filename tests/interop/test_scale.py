"""Hundreds of partitions and connections in one broker: nothing is held, nothing is left open, nothing is lost.

`make bench-scale` measures the same with ten thousand.
"""

import os
from collections.abc import Callable

from broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE, until
from tests.support.wire_client import WireClient

PARTITIONS = 500
CONNECTIONS = 200
CREATE_TOPICS, METADATA, API_VERSIONS = 7, 12, 3


def create_topic(client: WireClient, name: str, partitions: int) -> None:
    schema = client.request(ApiKey.CREATE_TOPICS, CREATE_TOPICS)
    topic = schema.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
    )
    request = schema.CreateTopicsRequest(topics=(topic,), timeout=PATIENCE, validate_only=False)
    assert [each.error_code for each in client.ask(ApiKey.CREATE_TOPICS, CREATE_TOPICS, request).topics] == [0]


def partitions_of(client: WireClient, name: str) -> set[int]:
    """The partition counts clients may see of a topic while it is made; the last is the whole."""
    schema = client.request(ApiKey.METADATA, METADATA)
    topic = schema.MetadataRequestTopic(topic_id=None, name=name)
    request = schema.MetadataRequest(
        topics=(topic,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    )
    seen: set[int] = set()

    def is_whole() -> bool:
        seen.add(len(client.ask(ApiKey.METADATA, METADATA, request).topics[0].partitions))
        return PARTITIONS in seen

    until(is_whole, f"{PARTITIONS} partitions are seen", lambda: seen, every_s=0)
    return seen


def wait_until_all_are_led(broker: BrokerProcess) -> None:
    """A broker is ready when it is let in; that it leads what it has comes to it with the metadata."""
    count = "kafka_server_replicamanager_leadercount"
    until(lambda: broker.metric(count) == PARTITIONS, "every partition is led", lambda: broker.metric(count))


def open_files(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def test_a_topic_of_many_partitions_appears_as_a_whole(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    before = open_files(broker)
    with WireClient(broker.port) as client:
        create_topic(client, "wide", PARTITIONS)
        assert partitions_of(client, "wide") <= {0, PARTITIONS}
        assert open_files(broker) < before + 20, "an idle partition holds no descriptor"
    for _ in ("as made", "after a clean stop"):
        wait_until_all_are_led(broker)
        assert broker.metrics().count("\nkafka_log_log_size{") == PARTITIONS
        broker.restart()
    broker.kill()
    broker.start()
    wait_until_all_are_led(broker)
    assert broker.metric("broker_event_loop_lag_seconds_count") > 0
    log_text = broker.log_file.read_text()
    assert "broker_fenced_itself" not in log_text
    assert log_text.count('"was_clean_shutdown": true') == 2


def test_many_connections_come_and_go(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    before = open_files(broker)
    clients = [WireClient(broker.port) for _ in range(CONNECTIONS)]
    schema = clients[0].request(ApiKey.API_VERSIONS, API_VERSIONS)
    hello = schema.ApiVersionsRequest(client_software_name="many", client_software_version="1")
    for client in clients:
        assert client.ask(ApiKey.API_VERSIONS, API_VERSIONS, hello).error_code == 0
    listener = {"listener": "PLAINTEXT"}
    assert broker.metric("kafka_server_socketservermetrics_connectioncount", **listener) == CONNECTIONS
    for client in clients:
        client.close()
    until(lambda: not broker.metric("kafka_server_socketservermetrics_connectioncount", **listener), "all have gone")
    until(lambda: open_files(broker) <= before + 1, "nothing is left open", lambda: (before, open_files(broker)))
