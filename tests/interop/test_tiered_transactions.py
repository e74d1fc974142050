"""Transactions whose records, or whose ends, have left the local disks; numbers in names are those of docs/testing.md.

Nobody coordinates transactions yet, and a leader refuses what is sent in one that nobody has begun.  So their batches
are laid into the logs of stopped brokers, which recover from them, and are ended as a coordinator does it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from broker.records.memory_records_builder import records_batch
from tests.support import java_tools
from tests.support.partition_requests import end_transaction, fetch
from tests.support.patience import PATIENCE_MS, until
from tests.support.tiered_cluster import TieredCluster, consume, produce, tiered_cluster, value_of
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.interop

BUCKETS = ["directory", pytest.param("s3", marks=pytest.mark.s3)]
FIRST, SECOND = 1, 2
ABORTED, COMMITTED = 7001, 7002
COPY_LAG = "kafka_server_brokertopicmetrics_remotecopylagsegments"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


@dataclass
class Transactions:
    """0: aborted, 1: committed, 2 to 4: in none; then the ends of both, 5 and 6.  Two records to a segment."""

    cluster: TieredCluster
    topic: str

    def aborted_of(self, offset: int, leader: int, *, committed: bool = True) -> tuple[tuple[int, int], ...]:
        with WireClient(self.cluster.broker(leader).port) as client:
            answer = fetch(client, self.topic, {0: offset}, committed=committed)[0]
        assert (answer.error, bool(answer.records)) == (0, True)
        return answer.aborted


def lay_into_logs(cluster: TieredCluster, topic: str, *batches: bytes) -> None:
    """The only records of a topic's replicas, as a leader of epoch 0 would have had them replicated."""
    for node_id in reversed(cluster.node_ids):  # the first one has the controller
        assert cluster.graceful_stop(node_id) == 0
    for node_id in cluster.node_ids:
        data = cluster.broker(node_id).data
        (data / CLEAN_SHUTDOWN).unlink()
        (data / f"{topic}-0" / f"{0:020}.log").write_bytes(b"".join(batches))
        cluster.launch(node_id)
    cluster.wait_for_full_isr(topic)


def in_transaction(offset: int, producer_id: int) -> bytes:
    return bytes(
        records_batch(
            (int(time.time() * 1000), None, value_of(offset)),
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            partition_leader_epoch=0,
            is_transactional=True,
        )
    )


@pytest.fixture(scope="module", params=BUCKETS)
def transactions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transactions]:
    """Their records are in the bucket, their ends on the local disks; the leader is the first broker."""
    with tiered_cluster(request.param, tmp_path_factory.mktemp("tiered")) as cluster:
        topic = cluster.tiered_topic("transactions", per_segment=2)
        lay_into_logs(cluster, topic, in_transaction(0, ABORTED), in_transaction(1, COMMITTED))
        cluster.move_leader(topic, FIRST)
        produce(cluster, topic, [2, 3, 4])
        # Behaviour 11: the leader has looked, and of two closed segments copied none while a transaction is open.
        until(lambda: cluster.sum_of(COPY_LAG, topic=topic) == 2, "two segments wait for their copies")
        assert cluster.remote_segments(topic) == []
        with WireClient(cluster.broker(FIRST).port) as client:
            end_transaction(client, topic, ABORTED, commits=False)
            end_transaction(client, topic, COMMITTED, commits=True)
        cluster.wait_for_tiers(topic, remote=[0, 2], local=[4])
        yield Transactions(cluster, topic)


def test_36_aborted_transactions_are_told_when_their_ends_are_on_the_local_disk(transactions: Transactions) -> None:
    cluster, topic = transactions.cluster, transactions.topic
    for leader in (FIRST, SECOND):
        cluster.move_leader(topic, leader)
        assert transactions.aborted_of(0, leader) == ((ABORTED, 0),)
        assert transactions.aborted_of(0, leader, committed=False) == ()
        assert consume(cluster, topic, 4) == [(offset, value_of(offset)) for offset in (1, 2, 3, 4)]


def test_11_and_36_and_when_they_are_in_a_later_remote_segment(transactions: Transactions) -> None:
    cluster, topic = transactions.cluster, transactions.topic
    produce(cluster, topic, [7])
    cluster.wait_for_tiers(topic, remote=[0, 2, 4], local=[7])
    for leader in (SECOND, FIRST):
        cluster.move_leader(topic, leader)
        assert transactions.aborted_of(0, leader) == ((ABORTED, 0),)
        assert transactions.aborted_of(2, leader) == ((ABORTED, 0),)
        assert consume(cluster, topic, 5) == [(offset, value_of(offset)) for offset in (1, 2, 3, 4, 7)]
    uncommitted = consume(cluster, topic, 6, **{"isolation.level": "read_uncommitted"})
    assert uncommitted == [(offset, value_of(offset)) for offset in (0, 1, 2, 3, 4, 7)]


@pytest.mark.java
def test_36_javas_consumer_reads_what_is_committed(transactions: Transactions) -> None:
    server = ("--bootstrap-server", transactions.cluster.bootstrap, "--topic", transactions.topic)
    options = (
        "--from-beginning",
        "--isolation-level",
        "read_committed",
        "--max-messages",
        "4",
        "--timeout-ms",
        str(PATIENCE_MS),
    )
    output = java_tools.run("consumer.ConsoleConsumer", *server, *options, with_errors=False)
    assert [line for line in output.splitlines() if len(line) == len(value_of(0))] == [
        value_of(offset).decode() for offset in (1, 2, 3, 4)
    ]
