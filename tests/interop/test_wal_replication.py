"""Topics whose followers take their records from the leader's bucket, with ordinary clients (KIP-1176)."""

from collections.abc import Iterator

import confluent_kafka
import pytest

from tests.support.wal_cluster import WAL_TOPIC, WalCluster, log_bytes, received_bytes, wait_until_equal

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

RECORDS = 2_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WalCluster]:
    with WalCluster(tmp_path_factory.mktemp("wal")) as processes:
        yield processes
        for broker in processes.brokers:
            assert broker.is_running(), f"a broker died:\n{broker.log_tail()}"


def produce(cluster: WalCluster, topic: str, count: int, acks: str) -> None:
    failed: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 5})
    for index in range(count):
        producer.produce(
            topic,
            f"{index:08}".encode() * 50,
            on_delivery=lambda error, message: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failed == []


@pytest.mark.parametrize("acks", ["all", "1"])
def test_followers_have_the_leaders_bytes_and_got_them_from_the_bucket(cluster: WalCluster, acks: str) -> None:
    topic = f"through-the-bucket-{acks}"
    cluster.create_topic(topic, partitions=3, replication_factor=3, config=WAL_TOPIC)
    produce(cluster, topic, RECORDS, acks)
    wait_until_equal(cluster, topic, partitions=3)
    produced = sum(log_bytes(cluster, topic, partition, 1) for partition in range(3))
    assert received_bytes(cluster, topic) == {"wal": 2 * produced}
