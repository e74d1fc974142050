"""Clients that send halves or do not read: they cost what they sent, and nobody else waits for them."""

import contextlib
import struct
import time
from collections.abc import Callable

import pytest

from broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.wire_client import WireClient

from .api_questions import Cluster, batch, errors_of

pytestmark = [pytest.mark.interop, pytest.mark.timeout(60)]

ANNOUNCED = 104_857_600  # socket.request.max.bytes: three of them are more than queued.max.request.bytes
SENT = 70_000


def test_requests_that_stay_half_sent_stop_nobody_else(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stalled = stack.enter_context(WireClient(broker.port))
            stalled.send_bytes(struct.pack(">i", ANNOUNCED) + bytes(SENT))
        deadline = time.monotonic() + 10
        while broker.metric("broker_requests_in_flight_bytes") < 3 * SENT:
            assert time.monotonic() < deadline, "the halves did not arrive"
            time.sleep(0.02)
        assert broker.metric("broker_requests_in_flight_bytes") < 8 << 20
        neighbour = stack.enter_context(WireClient(broker.port))
        cluster = Cluster(broker, neighbour)
        assert len(cluster.ask(ApiKey.METADATA, 4, topics=(), allow_auto_topic_creation=False).brokers) == 1
        topic, _ = cluster.new_topic()
        assert errors_of(cluster.produce(topic, batch(b"x" * 500_000))) == {"none"}, "and so does a large one"
