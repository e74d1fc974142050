"""A broker whose log directory has got another id: its partitions find their leader again (KIP-858)."""

import re
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S, until

pytestmark = pytest.mark.interop


def leaders(bootstrap: str, topic: str) -> set[int]:
    metadata = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap}).list_topics(
        topic, timeout=PATIENCE_S
    )
    return {partition.leader for partition in metadata.topics[topic].partitions.values()}


def test_partitions_of_a_directory_with_a_new_id_are_led_again(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"before")
        assert producer.flush(PATIENCE_S) == 0
        broker.stop()
        meta = broker.data / "meta.properties"
        text = meta.read_text()
        meta.write_text(re.sub("directory.id=.*", "directory.id=LTNojMnBShS6ELDEP2qStQ", text))
        assert meta.read_text() != text
        broker.start()
        until(lambda: leaders(broker.bootstrap, "t") == {1}, "the partitions are led", broker.log_tail)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value() == b"before"
        consumer.close()
