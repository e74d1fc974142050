"""kill -9 under load: no acknowledged record is lost, none is there twice, none is out of order.

`WHERRY_KILLS=50` runs the long form (`make crash`).
"""

import os
import threading
import time
from collections.abc import Callable

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S, until

KILLS = int(os.environ.get("WHERRY_KILLS", "5"))
UPTIME_S = 0.7
TOPIC = "survivors"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600 + 60 * KILLS)]


class SteadyProducer:
    """An idempotent producer of ascending numbers; it remembers which were acknowledged, in order.

    Idempotent clients insist on acks=all; on one node that is the same promise as acks=1.
    """

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[int] = []
        self.sent = 0
        self.failures: list[str] = []
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "linger.ms": 1,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._producer.produce(TOPIC, str(self.sent), on_delivery=self._delivered, partition=0)
                self.sent += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)
            if self.sent % 20 == 0:
                time.sleep(0.002)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None:
            self.acknowledged.append(int(message.value()))
        else:
            self.failures.append(str(error))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0


def read_all(bootstrap: str) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    partition = confluent_kafka.TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)
    consumer.assign([partition])
    values: list[int] = []

    def are_there() -> bool:
        for message in consumer.consume(1000, timeout=1):
            assert message.error() is None, message.error()
            assert message.offset() == len(values), f"offset {message.offset()} after {len(values)} records"
            values.append(int(message.value()))
        return len(values) >= end

    until(are_there, f"{end} records of {TOPIC}", lambda: len(values), every_s=0)
    consumer.close()
    return values


def test_kill_9_under_load(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker({"log.flush.interval.messages": "1"})
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    rolling = {"internal.segment.bytes": "200000"}
    admin.create_topics([confluent_kafka.admin.NewTopic(TOPIC, 1, 1, config=rolling)])[TOPIC].result(PATIENCE_S)
    producer = SteadyProducer(broker.bootstrap)
    producer.start()
    try:
        for number in range(KILLS):
            before = len(producer.acknowledged)
            time.sleep(UPTIME_S * (0.5 + (number % 7) / 7))
            until(lambda: len(producer.acknowledged) > before, "something is acknowledged between two kills")  # noqa: B023
            broker.kill()
            broker.start()
    finally:
        producer.stop()
    assert producer.failures == []
    assert producer.acknowledged == list(range(producer.sent))
    assert read_all(broker.bootstrap) == list(range(producer.sent))
    assert len(list(broker.data.glob(f"{TOPIC}-0/*.log"))) > 1
    print(f"{KILLS} kills, {producer.sent} records: each acknowledged record is there once, in order")
