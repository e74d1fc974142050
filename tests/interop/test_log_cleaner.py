"""Compacted topics on a real broker, as real clients see them; and what Apache Kafka says of the files."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha512
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.interop.test_dump_log import COMPLAINTS, dump
from tests.support import java_tools
from tests.support.broker_process import BrokerProcess
from tests.support.kafka_peer import KafkaPeer
from tests.support.patience import PATIENCE_S, until

pytestmark = pytest.mark.interop

QUICK_CLEANER = {"log.cleaner.backoff.ms": "50", "log.flush.offset.checkpoint.interval.ms": "200"}
TOPIC = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "8000",
    "min.cleanable.dirty.ratio": "0.0001",
    "file.delete.delay.ms": "100",
}
GAP = re.compile(r"^  -?\d+ is followed by \d+$")  # the tool tells of each; here they are the point
KEYS = 20


class Entry(NamedTuple):
    offset: int
    key: str | None
    value: str | None


def create(bootstrap: str, topic: str, **config: str) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    settings = {**TOPIC, **{name.replace("_", "."): value for name, value in config.items()}}
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1, config=settings)])[topic].result(PATIENCE_S)


class Writer:
    """Writes one record after the other, and remembers what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str, codec: str = "none") -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec, "linger.ms": 1}
        )
        self._topic = topic
        self.entries: list[Entry] = []

    def write(self, records: Sequence[tuple[str, str | None]], batch: int = 7) -> None:
        for start in range(0, len(records), batch):
            for key, value in records[start : start + batch]:
                self._producer.produce(self._topic, value, key=key, partition=0, on_delivery=self._delivered)
            assert self._producer.flush(PATIENCE_S) == 0

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        key, value = message.key(), message.value()
        self.entries.append(Entry(message.offset(), key.decode(), None if value is None else value.decode()))

    @property
    def table(self) -> dict[str, str]:
        return table(self.entries)


def table(entries: Sequence[Entry]) -> dict[str, str]:
    found: dict[str, str] = {}
    for _, key, value in sorted(entries):
        assert key is not None
        found.pop(key, None)
        if value is not None:
            found[key] = value
    return found


def consume(bootstrap: str, topic: str, offset: int = 0) -> list[Entry]:
    """Everything from `offset` to the end."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True, "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
    found: list[Entry] = []

    def is_at_the_end() -> bool:
        message = consumer.poll(0.2)
        if message is None:
            return False
        error = message.error()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            return True
        key, value = message.key(), message.value()
        decoded = [None if part is None else part.decode() for part in (key, value)]
        found.append(Entry(message.offset(), *decoded))
        return False

    with contextlib.closing(consumer):
        until(is_at_the_end, f"the end of {topic} is read", lambda: found[-1:], every_s=0)
    return found


def updates(number: int, count: int = 300) -> list[tuple[str, str | None]]:
    """Many of few keys; each seventh is a tombstone, and there is a key of its own now and then."""
    records: list[tuple[str, str | None]] = []
    for each in range(count):
        key = f"key-{each % KEYS}" if each % 11 else f"once-{number}-{each}"
        records.append((key, None if each % 7 == 3 else f"value {number} {each} " + "x" * 40))
    return records


def filler(number: int, count: int = 200) -> list[tuple[str, str | None]]:
    """Enough to close the segment with what was written before, also when it is compressed."""
    return [(f"filler-{number}-{each}", sha512(b"%d %d" % (number, each)).hexdigest()) for each in range(count)]


def clean_offset(data: Path, topic: str) -> int:
    """What the cleaner's checkpoint says; 0 without an entry."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    except FileNotFoundError:
        return 0
    return max((int(line.split()[2]) for line in lines if line.split()[0] == topic), default=0)


def wait_for_compaction(data: Path, topic: str, offset: int) -> None:
    until(lambda: clean_offset(data, topic) >= offset, f"{topic} is compacted up to {offset}")


def check(broker: BrokerProcess, topic: str, writer: Writer, compacted: int) -> list[Entry]:
    """What consumers see, and that they see it from wherever they begin."""
    found = consume(broker.bootstrap, topic)
    assert table(found) == writer.table
    assert set(found) <= set(writer.entries)
    assert [entry.offset for entry in found] == sorted(entry.offset for entry in found)
    keys = [entry.key for entry in found if entry.offset < compacted]
    assert len(keys) == len(set(keys)), "one record of each key"
    assert [entry for entry in found if entry.offset >= compacted] == [
        entry for entry in writer.entries if entry.offset >= compacted
    ], "what is not compacted yet is whole"
    for start in (1, compacted // 3, compacted // 2, compacted - 1, compacted):
        assert consume(broker.bootstrap, topic, start) == [entry for entry in found if entry.offset >= start]
    return found


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_compacted_topic_keeps_the_newest_values_also_over_kill_9(
    own_broker: Callable[..., BrokerProcess], topic: str, codec: str
) -> None:
    broker = own_broker(QUICK_CLEANER)
    create(broker.bootstrap, topic)
    writer = Writer(broker.bootstrap, topic, codec)
    for turn in range(3):
        writer.write(updates(turn))
        compacted = len(writer.entries)
        writer.write(filler(turn))
        if turn == 1:  # anywhere in what the cleaner does
            broker.kill()
            broker.start()
        wait_for_compaction(broker.data, topic, compacted)
        found = check(broker, topic, writer, compacted)
        assert len(found) < len(writer.entries)
    assert broker.stop() == 0
    broker.start()
    check(broker, topic, writer, compacted)
    assert "log_uncleanable" not in broker.log_file.read_text()


def test_tombstones_go_after_delete_retention_ms(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = own_broker(QUICK_CLEANER)
    create(broker.bootstrap, topic, delete_retention_ms="0")
    writer = Writer(broker.bootstrap, topic)
    writer.write([("gone", "1"), ("stays", "1"), ("gone", None)])
    turn = 0
    while any(entry.value is None for entry in consume(broker.bootstrap, topic)):
        assert turn < 20
        offset = len(writer.entries)
        writer.write(filler(turn))
        wait_for_compaction(broker.data, topic, offset)
        turn += 1
    assert table(consume(broker.bootstrap, topic)) == writer.table
    assert "gone" not in {entry.key for entry in consume(broker.bootstrap, topic)}


def test_settings_of_the_topic_and_the_cleaner_may_change(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = own_broker({"log.cleaner.backoff.ms": "3600000"})
    create(broker.bootstrap, topic, cleanup_policy="delete")
    writer = Writer(broker.bootstrap, topic)
    writer.write(updates(0))
    writer.write(filler(0))
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})

    def alter(kind: confluent_kafka.admin.ResourceType, name: str, setting: str, value: str) -> None:
        entry = confluent_kafka.admin.ConfigEntry(
            setting, value, incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET
        )
        resource = confluent_kafka.admin.ConfigResource(kind, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    alter(confluent_kafka.admin.ResourceType.TOPIC, topic, "cleanup.policy", "compact")
    alter(confluent_kafka.admin.ResourceType.BROKER, "1", "log.cleaner.backoff.ms", "50")
    alter(confluent_kafka.admin.ResourceType.BROKER, "1", "log.cleaner.dedupe.buffer.size", "2000")
    wait_for_compaction(broker.data, topic, 300)
    check(broker, topic, writer, 300)


class Update(NamedTuple):
    """A step of the story that librdkafka's suite tells of compacted topics."""

    key: str
    value: str | None


def life_of_keys() -> Iterator[Update]:
    """Keys that are written once, many times, deleted, and written again after that."""
    for turn in range(10):
        for each in range(30):
            if each < 10 or (each < 20 and turn == 0):
                yield Update(f"k{each}", f"{turn}:{each}" + "z" * 60)
            elif each >= 20:
                yield Update(f"k{each}", None if turn % 3 == 1 else f"{turn}:{each}")


def test_what_a_consumer_sees_of_keys_that_come_and_go(own_broker: Callable[..., BrokerProcess], topic: str) -> None:
    """The story of 0077_compaction in librdkafka's suite, in words of our own."""
    broker = own_broker(QUICK_CLEANER)
    create(broker.bootstrap, topic)
    writer = Writer(broker.bootstrap, topic)
    writer.write([tuple(update) for update in life_of_keys()])
    compacted = len(writer.entries)
    writer.write(filler(0))
    wait_for_compaction(broker.data, topic, compacted)
    found = check(broker, topic, writer, compacted)
    assert sum(entry.offset < compacted for entry in found) == 30
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    with contextlib.closing(consumer):
        partition = confluent_kafka.TopicPartition(topic, 0)
        assert consumer.get_watermark_offsets(partition, timeout=PATIENCE_S) == (0, len(writer.entries))
        (at,) = consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, 1)], timeout=PATIENCE_S)
        assert at.offset == found[0].offset, "the first that is left"


@pytest.mark.java
def test_kafkas_dump_log_finds_nothing_wrong_with_compacted_files(
    own_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = own_broker(QUICK_CLEANER)
    create(broker.bootstrap, topic, index_interval_bytes="500")
    writer = Writer(broker.bootstrap, topic, "lz4")
    for turn in range(3):
        writer.write(updates(turn))
        compacted = len(writer.entries)
        writer.write(filler(turn))
        wait_for_compaction(broker.data, topic, compacted)
    directory = broker.data / f"{topic}-0"
    newest = max(int(path.stem) for path in directory.glob("*.log"))
    wait_for_compaction(broker.data, topic, newest)  # nothing is left to do: kill -9 finds no pass under way
    broker.kill()
    files = ",".join(map(str, sorted(directory.glob("*.log"))))
    output = java_tools.run("DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", files)
    complaints = [line for line in output.splitlines() if COMPLAINTS.search(line) and not GAP.match(line)]
    assert not complaints, complaints[:10]
    offsets = [line.partition("offset: ")[2].split()[0] for line in output.splitlines() if line.startswith("| offset")]
    assert len(offsets) == len(set(offsets)) < len(writer.entries)
    assert "deleteHorizonMs: OptionalLong[" in output
    for suffix in ("index", "timeindex"):
        files = [path for path in sorted(directory.glob(f"*.{suffix}")) if path.stat().st_size]
        assert files
        dump(files, "--verify-index-only")


@pytest.mark.java
def test_the_same_records_are_left_as_by_apache_kafka(
    own_broker: Callable[..., BrokerProcess], topic: str, tmp_path: Path
) -> None:
    broker = own_broker(QUICK_CLEANER)
    left = []
    with KafkaPeer(tmp_path / "peer", {**QUICK_CLEANER, "log.cleaner.dedupe.buffer.size": "2000000"}) as peer:
        for node in (broker, peer):
            create(node.bootstrap, topic)
            writer = Writer(node.bootstrap, topic)
            for turn in range(2):
                writer.write(updates(turn))
            compacted = len(writer.entries)
            writer.write(filler(0))
            wait_for_compaction(node.data, topic, compacted)
            left.append([entry for entry in consume(node.bootstrap, topic) if entry.offset < compacted])
    assert left[0] == left[1]
    assert 20 < len(left[0]) < 100
