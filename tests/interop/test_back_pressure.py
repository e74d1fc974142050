"""Clients that send halves or do not read: they cost what they sent, and nobody else waits for them."""

import contextlib
import re
import struct
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.patience import until
from tests.support.wire_client import WireClient

from .api_questions import Cluster, batch, errors_of

pytestmark = pytest.mark.interop

ANNOUNCED = 104_857_600  # socket.request.max.bytes: three of them are more than queued.max.request.bytes
SENT = 70_000
BATCH_BYTES = 900_000
TOPIC_BATCHES = 60
FETCH_BYTES = 50_000_000
DEAF_CLIENTS = 16  # 800 MB, if each got what it asks for
RSS_BYTES_MAX = 500 << 20  # 256 MiB of answers, a batch for each client, and what a broker takes anyhow


def test_requests_that_stay_half_sent_stop_nobody_else(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stalled = stack.enter_context(WireClient(broker.port))
            stalled.send_bytes(struct.pack(">i", ANNOUNCED) + bytes(SENT))
        until(lambda: broker.metric("broker_requests_in_flight_bytes") >= 3 * SENT, "the halves arrive")
        assert broker.metric("broker_requests_in_flight_bytes") < 8 << 20
        neighbour = stack.enter_context(WireClient(broker.port))
        cluster = Cluster(broker, neighbour)
        assert len(cluster.ask(ApiKey.METADATA, 4, topics=(), allow_auto_topic_creation=False).brokers) == 1
        topic, _ = cluster.new_topic()
        assert errors_of(cluster.produce(topic, batch(b"x" * 500_000))) == {"none"}, "and so does a large one"


def test_requests_that_trickle_stop_large_ones_of_others_for_two_sweeps_at_most(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    broker = own_broker({"queued.max.request.bytes": str(4 << 20)})
    with contextlib.ExitStack() as stack:
        trickling = [stack.enter_context(WireClient(broker.port)) for _ in range(2)]
        begin_large(broker, trickling)
        for client in trickling:
            client.send_bytes(bytes(1_500_000 - SENT))
        until(lambda: broker.metric("broker_requests_in_flight_bytes") >= 4 << 20, "the clients hold all there is")
        neighbour = stack.enter_context(WireClient(broker.port))
        cluster = Cluster(broker, neighbour)
        topic, _ = cluster.new_topic()
        stop = threading.Event()
        thread = threading.Thread(target=trickle, args=(trickling, stop))
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)
        assert errors_of(cluster.produce(topic, batch(b"x" * 500_000))) == {"none"}
        assert broker.metric("broker_connections_closed_total", reason="stalled") >= 1


def begin_large(broker: BrokerProcess, clients: list[WireClient]) -> None:
    """How much memory a request gets later depends on how much of it comes first: never more than what is sent here."""
    in_flight = "broker_requests_in_flight_bytes"
    for client in clients:
        held = broker.metric(in_flight)
        client.send_bytes(struct.pack(">i", ANNOUNCED) + bytes(SENT))
        until(lambda: broker.metric(in_flight) >= held + SENT, "it has begun")  # noqa: B023


def trickle(clients: list[WireClient], stop: threading.Event) -> None:
    """A byte now and then, so that none of them is silent."""
    while not stop.wait(0.5):
        for client in clients:
            with contextlib.suppress(OSError):
                client.send_bytes(b"x")


def fetch(client: WireClient, topic_id: uuid.UUID, offset: int = 0) -> Any:
    schema = client.request(ApiKey.FETCH, 13)
    row = schema.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
    return schema.FetchRequest(
        max_wait=timedelta(0),
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=0,
        topics=(schema.FetchTopic(topic_id=topic_id, partitions=(row,)),),
        forgotten_topics_data=(),
    )


def rss_bytes(broker: BrokerProcess) -> int:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


def test_clients_that_do_not_read_take_bounded_memory_and_stop_no_reader(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    broker = own_broker()
    with contextlib.ExitStack() as stack:
        reader = stack.enter_context(WireClient(broker.port))
        cluster = Cluster(broker, reader)
        topic, topic_id = cluster.new_topic()
        records = batch(b"x" * BATCH_BYTES)
        for _ in range(TOPIC_BATCHES):
            assert errors_of(cluster.produce(topic, records)) == {"none"}
        for _ in range(DEAF_CLIENTS):
            deaf = stack.enter_context(WireClient(broker.port, receive_buffer_bytes=4096))
            for _ in range(3):
                deaf.send(ApiKey.FETCH, 13, fetch(deaf, topic_id))
        served = {"request": "Fetch", "version": "13"}
        until(
            lambda: broker.metric("kafka_network_requestmetrics_requests_total", **served) >= DEAF_CLIENTS,
            "every client is answered once",
        )
        assert broker.metric("broker_unsent_response_bytes") > 200 << 20
        assert rss_bytes(broker) < RSS_BYTES_MAX
        for offset in range(3):
            ((row,),) = (
                each.partitions for each in reader.ask(ApiKey.FETCH, 13, fetch(reader, topic_id, offset)).responses
            )
            assert len(row.records) >= len(records), "who reads goes on, if in smaller steps"
    until(lambda: not broker.metric("broker_unsent_response_bytes"), "what was not read goes with the clients")
