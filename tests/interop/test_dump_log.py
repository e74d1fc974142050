"""Apache Kafka's kafka-dump-log reads our files, also on the live data directory after kill -9."""

import re
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.interop.clients import CONFLUENT
from tests.support import java_tools
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.interop, pytest.mark.java]

# The tool takes the first offset of any segment but the first for a gap ("-1 is followed by 501"); others are real.
COMPLAINTS = re.compile(r"isvalid: false|mismatch|exception|corrupt|Found timestamp|\d is followed by|dropped", re.I)
FIRST_OF_A_SEGMENT = re.compile(r"^  -1 is followed by \d+$")


def dump(files: list[Path], *options: str) -> str:
    """kafka-dump-log over files; fails when it complains."""
    output = java_tools.run("DumpLogSegments", "--files", ",".join(map(str, files)), *options)
    complaints = [
        line for line in output.splitlines() if COMPLAINTS.search(line) and not FIRST_OF_A_SEGMENT.match(line)
    ]
    assert not complaints, complaints[:10]
    return output


@pytest.fixture
def killed(own_broker: Callable[..., BrokerProcess]) -> tuple[BrokerProcess, dict[int, int]]:
    """A broker killed with data, groups and topics in it, and what its clients were told: end offset by partition."""
    broker = own_broker({"log.index.interval.bytes": "1024"})
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"internal.segment.bytes": "60000", "index.interval.bytes": "1024"}
    admin.create_topics([confluent_kafka.admin.NewTopic("dumped", 2, 1, config=config)])["dumped"].result(PATIENCE_S)
    acknowledged = {0: 0, 1: 0}

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        acknowledged[message.partition()] = max(acknowledged[message.partition()], message.offset() + 1)

    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(2000):
        producer.produce("dumped", b"x" * 100, key=str(number), partition=number % 2, on_delivery=delivered)
        if number % 50 == 0:
            producer.flush(PATIENCE_S)
    assert producer.flush(PATIENCE_S) == 0
    assert len(CONFLUENT.consume(broker.bootstrap, "dumped", "dump-group", 2000)) == 2000
    broker.kill()
    return broker, acknowledged


def test_batches_equal_what_the_producer_was_told(killed: tuple[BrokerProcess, dict[int, int]]) -> None:
    broker, acknowledged = killed
    for partition, end_offset in acknowledged.items():
        segments = sorted((broker.data / f"dumped-{partition}").glob("*.log"))
        assert len(segments) > 1
        output = dump(segments, "--deep-iteration", "--print-data-log")
        offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+) ", output, re.M)]
        assert offsets == list(range(end_offset))
        assert set(re.findall(r"producerId: (-?\d+)", output)) != {"-1"}


def test_indexes_match_their_segments(killed: tuple[BrokerProcess, dict[int, int]]) -> None:
    broker, _ = killed
    for pattern in ("*.index", "*.timeindex"):
        files = sorted((broker.data / "dumped-0").glob(pattern))
        assert files
        dump(files, "--verify-index-only")
        dump(files, "--index-sanity-check")
    entries = dump(sorted((broker.data / "dumped-0").glob("*.index")))
    assert len(re.findall(r"^offset: \d+ position: \d+", entries, re.M)) > 3


def test_producer_snapshots_are_readable(killed: tuple[BrokerProcess, dict[int, int]]) -> None:
    broker, _ = killed
    files = sorted((broker.data / "dumped-0").glob("*.snapshot"))
    assert files
    assert "producerId:" in dump(files)


def test_topics_in_the_metadata_log(killed: tuple[BrokerProcess, dict[int, int]]) -> None:
    broker, _ = killed
    files = sorted((broker.data / "__cluster_metadata-0").glob("*.log"))
    output = dump(files, "--cluster-metadata-decoder")
    assert re.search(r'"type":"TOPIC_RECORD","version":0,"data":\{"name":"dumped"', output), output
    assert output.count('"type":"PARTITION_RECORD"') >= 2
    assert "LeaderChange" in output


def test_offsets_in_the_group_log(killed: tuple[BrokerProcess, dict[int, int]]) -> None:
    broker, acknowledged = killed
    files = sorted(broker.data.glob("__consumer_offsets-*/*.log"))
    output = dump(files, "--offsets-decoder")
    committed = {}
    for partition, offset in re.findall(
        r'"group":"dump-group","topic":"dumped","partition":(\d+)\}.*?"offset":(\d+)', output
    ):
        committed[int(partition)] = int(offset)
    assert committed == acknowledged
