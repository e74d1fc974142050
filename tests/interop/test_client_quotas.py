"""Quotas set by Kafka's own tool hold ordinary clients back, under our controller and under Apache Kafka's."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest

from tests.support import java_tools
from tests.support.apache_controllers import ApacheControllers
from tests.support.broker_process import BrokerProcess
from tests.support.cluster_process import ClusterProcess
from tests.support.patience import PATIENCE_S, until

from .apache_versions import APACHE_VERSIONS, need

pytestmark = [pytest.mark.interop, pytest.mark.java]

WINDOW = {"quota.window.num": "3"}  # bursts of two seconds' worth instead of ten
RATE = 100_000
COUNT, SIZE = 60, 10_000  # six seconds' worth
SECONDS_MIN = 2.5  # less than four, for what a window forgets


def configure(bootstrap: str, entity: list[str], *change: str) -> str:
    return java_tools.run("ConfigCommand", "--bootstrap-server", bootstrap, *entity, *change)


def clients(name: str) -> list[str]:
    return ["--entity-type", "clients", "--entity-name", name]


def described(bootstrap: str, entity: list[str]) -> dict[str, float]:
    output = configure(bootstrap, entity, "--describe")
    return {key: float(value) for key, value in re.findall(r"(\w+)=([\d.E]+)", output)}


def check_described(bootstrap: str, entity: list[str], quotas: dict[str, float]) -> None:
    """The broker shows, and does, what its metadata says, a moment after the controller has answered."""
    until(lambda: described(bootstrap, entity) == quotas, f"{quotas} are shown", lambda: described(bootstrap, entity))


def produce(bootstrap: str, topic: str, client_id: str) -> tuple[float, list[float]]:
    """How long it took, and the delays the broker told, in seconds."""
    delays: list[float] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "batch.size": 2 * SIZE,
        "throttle_cb": lambda event: delays.append(event.throttle_time),
    }
    producer = confluent_kafka.Producer(settings)
    began = time.monotonic()
    for number in range(COUNT):
        producer.produce(topic, b"%05d" % number * (SIZE // 5))
    assert producer.flush(PATIENCE_S) == 0
    return time.monotonic() - began, delays


def consume(bootstrap: str, topic: str, client_id: str) -> tuple[float, list[float]]:
    """The same for reading what was produced; nothing may be missing or there twice."""
    delays: list[float] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "group.id": client_id,
        "fetch.message.max.bytes": 5 * SIZE,
        "throttle_cb": lambda event: delays.append(event.throttle_time),
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    numbers: list[int] = []
    began = time.monotonic()

    def are_there() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            numbers.append(int(message.value()[:5]))
        return len(numbers) >= COUNT

    until(are_there, f"{COUNT} records of {topic}", lambda: numbers, every_s=0)
    elapsed = time.monotonic() - began
    consumer.close()
    assert numbers == list(range(COUNT))
    return elapsed, delays


def check_that_quotas_hold(bootstrap: str, topic: str) -> None:
    entity = clients("slow")
    quotas = {"producer_byte_rate": float(RATE), "consumer_byte_rate": float(RATE)}
    added = ",".join(f"{key}={value:.0f}" for key, value in quotas.items())
    configure(bootstrap, entity, "--alter", "--add-config", added)
    check_described(bootstrap, entity, quotas)

    elapsed, delays = produce(bootstrap, topic, "slow")
    assert elapsed > SECONDS_MIN
    assert max(delays, default=0) > 0.1
    elapsed, delays = consume(bootstrap, topic, "slow")
    assert elapsed > SECONDS_MIN
    assert max(delays, default=0) > 0.1
    assert consume(bootstrap, topic, "other")[1] == []

    configure(bootstrap, entity, "--alter", "--delete-config", ",".join(quotas))
    check_described(bootstrap, entity, {})
    assert produce(bootstrap, topic, "slow")[1] == []


def test_confluent_kafka_is_held_to_its_quota(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = own_broker(WINDOW)
    check_that_quotas_hold(broker.bootstrap, topic)
    for kind in ("produce", "fetch"):
        name = "broker_client_quota_throttle_seconds_total"
        assert broker.metric(f'{name}{{quota="{kind}"}}') > 0


@pytest.mark.parametrize("version", APACHE_VERSIONS)
def test_under_apache_kafkas_controllers(version: str, tmp_path: Path, topic: str) -> None:
    need(version)
    with ApacheControllers(tmp_path, version, voters=1) as controllers:
        settings = {**WINDOW, **controllers.broker_settings}
        with ClusterProcess(tmp_path, brokers=1, controllers=controllers.bootstrap, settings=settings) as cluster:
            check_that_quotas_hold(cluster.bootstrap, topic)


def test_kafka_python_is_held_to_the_default_quota(
    own_broker: Callable[..., BrokerProcess], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = own_broker(WINDOW)
    default = ["--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-default"]
    configure(broker.bootstrap, default, "--alter", "--add-config", f"producer_byte_rate={RATE}")
    check_described(broker.bootstrap, default, {"producer_byte_rate": float(RATE)})
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="anybody")
    began = time.monotonic()
    for _ in range(COUNT):
        producer.send(topic, b"x" * SIZE)
    producer.flush(PATIENCE_S)
    assert time.monotonic() - began > SECONDS_MIN
    producer.close()
    assert "ProduceResponse throttled by broker" in caplog.text


def test_the_tool_is_told_what_cannot_be(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    refused = java_tools.run(
        "ConfigCommand",
        "--bootstrap-server",
        broker.bootstrap,
        *clients("slow"),
        "--alter",
        "--add-config",
        "request_percentage=-1",
        check=False,
    )
    assert "Quota request_percentage must be greater than 0" in refused
    addresses = ["--entity-type", "ips", "--entity-name", "127.0.0.1"]
    configure(broker.bootstrap, addresses, "--alter", "--add-config", "connection_creation_rate=100")
    check_described(broker.bootstrap, addresses, {"connection_creation_rate": 100.0})
