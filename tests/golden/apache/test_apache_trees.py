"""Data directories of Apache Kafka are ours to go on with: after its clean stop, and after kill -9.

`*.json` is what Apache Kafka itself says of the same directory (capture.py): log start, end and last stable offset,
every batch and record, aborted transactions, lookups by timestamp and epoch, producers, committed offsets, configs.
"""

import base64
import json
import re
import shutil
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from broker.common.chance import Chance
from broker.common.disk import InlineDiskExecutor
from broker.common.errors import ErrorCode
from broker.common.file_system import OsFileSystem
from broker.common.identifiers import TopicPartition
from broker.config.config_holder import ConfigHolder
from broker.config.topic_config import TopicConfig
from broker.log.file_records import read
from broker.log.log_manager import LogManager
from broker.log.unified_log import UnifiedLog
from broker.metrics.log_metrics import LogMetrics
from broker.metrics.registry import MetricsRegistry
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import RecordBatch, batches
from tests.support.broker_process import BrokerProcess
from tests.support.builders import parsed
from tests.support.kafka_peer import KafkaPeer
from tests.support.patience import PATIENCE_S, until
from tests.unit.log.log_world import SettableClock, broker_config

from .cluster import GROUPS, Cluster
from .facts import Facts, describe

HERE = Path(__file__).parent
TREES = ["clean", "killed"]
LEADER_EPOCH = 9

FOR_EVER = {
    "log.retention.ms": "-1",  # the trees grow older than any default
    "offsets.retention.minutes": "2147483647",
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.cleaner.enable": "false",  # what is described twice must not change in between
}


@pytest.fixture(params=TREES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def facts(name: str) -> Facts:
    found: Facts = json.loads((HERE / f"{name}.json").read_text())
    return found


@pytest.fixture
def tree(name: str, tmp_path: Path) -> Path:
    """A copy of the tree, as the data directory of a node below `tmp_path`."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path / "data", filter="data")
    return tmp_path / "data"


# -- the log by itself -------------------------------------------------------------------------------------------------


@pytest.fixture
async def manager(tree: Path, facts: Facts) -> AsyncIterator[LogManager]:
    """Our LogManager on the tree, at the time of its last record."""
    newest = max(part["max_timestamp"][0] for _, part in partitions_of(facts))
    config = broker_config(log_dirs=tree)
    manager = LogManager(
        ConfigHolder(config),
        clock=SettableClock(newest + 1000),
        file_system=OsFileSystem(),
        disk=InlineDiskExecutor(),
        chance=Chance(1),
        metrics=LogMetrics(MetricsRegistry()),
        topic_config=lambda topic: TopicConfig.effective(config, facts["topics"][topic]["configs"]),
    )
    await manager.start()
    yield manager
    await manager.shutdown()


def partitions_of(facts: Facts) -> list[tuple[TopicPartition, Facts]]:
    return [
        (TopicPartition(topic, index), part)
        for topic, each in facts["topics"].items()
        for index, part in enumerate(each["partitions"])
    ]


def each_log(manager: LogManager, facts: Facts) -> list[tuple[UnifiedLog, Facts]]:
    """With the high watermark where the only replica, and leader, puts it."""
    found = []
    for topic_partition, part in partitions_of(facts):
        log = manager.get(topic_partition)
        assert log is not None, topic_partition
        log.update_high_watermark(log.log_end_offset)
        found.append((log, part))
    return found


async def test_every_log_of_the_directory_is_there(manager: LogManager, facts: Facts, tree: Path) -> None:
    there = {path.name for path in tree.iterdir() if path.is_dir()}
    assert there - {"__cluster_metadata-0"} == {str(topic_partition) for topic_partition, _ in partitions_of(facts)}
    assert len(manager) == len(partitions_of(facts))


async def test_offsets_and_transactions(manager: LogManager, facts: Facts) -> None:
    for log, part in each_log(manager, facts):
        offsets = (log.log_start_offset, log.log_end_offset, log.last_stable_offset)
        assert offsets == (part["start"], part["end"], part["last_stable"]), log.topic_partition
        found = log.read(part["start"], 10_000_000, part["last_stable"], min_one_batch=True, with_aborted=True)
        if log.segment_count == 1:
            told = [[each.producer_id, each.first_offset] for each in found.aborted_transactions or ()]
            assert told == part["aborted"], log.topic_partition


async def test_producers(manager: LogManager, facts: Facts) -> None:
    seen = 0
    for log, part in each_log(manager, facts):
        assert sorted(list(each) for each in log.active_producers()) == part["producers"], log.topic_partition
        seen += len(part["producers"])
    assert seen > 10


async def test_producers_go_on(manager: LogManager, facts: Facts) -> None:
    """The next sequence is accepted, the one after it is not, and the last batch is known as a duplicate."""
    asked = 0
    for log, part in each_log(manager, facts):
        last_batches = newest_batches(log)
        for producer_id, epoch, last_sequence, _, _, open_transaction in part["producers"]:
            if str(producer_id) not in part["last_batches"] or open_transaction >= 0:
                continue
            assert bytes(last_batches[producer_id].buffer) == base64.b64decode(part["last_batches"][str(producer_id)])
            again = bytearray(last_batches[producer_id].buffer)
            again[0:8] = bytes(8)
            (duplicate,) = log.append_as_leader(parsed(again), LEADER_EPOCH)
            assert duplicate.is_duplicate
            assert duplicate.base_offset == last_batches[producer_id].base_offset
            codes = [append(log, producer_id, epoch, last_sequence + more) for more in (2, 1)]
            assert codes == [ErrorCode.out_of_order_sequence_number, ErrorCode.none], (log.topic_partition, producer_id)
            asked += 1
    assert asked > 5


def newest_batches(log: UnifiedLog) -> dict[int, RecordBatch]:
    found: dict[int, RecordBatch] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        file_slice = log.read(offset, 10_000_000, log.log_end_offset, min_one_batch=True).file_slice
        assert file_slice is not None
        for batch in batches(bytes(read(file_slice))):
            if batch.record_count:
                found[batch.producer_id] = batch
            offset = batch.next_offset
    return found


def append(log: UnifiedLog, producer_id: int, epoch: int, sequence: int) -> ErrorCode:
    batch = records_batch((1, b"key", b"value"), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    (result,) = log.append_as_leader(parsed(batch), LEADER_EPOCH)
    return ErrorCode.none if result.error is None else result.error.code


async def test_indexes_are_as_long_as_their_entries(manager: LogManager, facts: Facts, tree: Path) -> None:
    """Those of a killed Apache Kafka are up to 10 MiB of zeros: rebuilt, not believed."""
    each_log(manager, facts)
    await manager.shutdown()
    sizes = [path.stat().st_size for path in tree.glob("*/*index") if "__cluster_metadata" not in str(path)]
    assert sizes
    assert max(sizes) < 4096
    for path in tree.glob("*/*.index"):
        if "__cluster_metadata" not in str(path):
            entries = path.read_bytes()
            assert len(entries) % 8 == 0
            assert all(any(entries[start : start + 8]) for start in range(0, len(entries), 8)), path


# -- the whole node ----------------------------------------------------------------------------------------------------


def but_producers(facts: Facts) -> Facts:
    """Producers expire by the clock on the wall, and the trees grow old."""
    topics = {
        name: {**topic, "partitions": [{**part, "producers": []} for part in topic["partitions"]]}
        for name, topic in facts["topics"].items()
    }
    return {"topics": topics, "groups": facts["groups"]}


def assert_same(ours: Facts, theirs: Facts) -> None:
    """With a short message: which topic and which fact."""
    assert ours["groups"] == theirs["groups"]
    assert list(ours["topics"]) == list(theirs["topics"])
    for name, topic in theirs["topics"].items():
        found = ours["topics"][name]
        assert (found["id"], found["configs"]) == (topic["id"], topic["configs"]), name
        for index, (one, other) in enumerate(zip(found["partitions"], topic["partitions"], strict=True)):
            differences = {key: (one[key], other[key]) for key in other if one[key] != other[key]}
            assert not differences, f"{name}-{index}"


@pytest.mark.interop
def test_our_node_goes_on_with_the_directory(tree: Path, facts: Facts) -> None:
    with BrokerProcess(tree.parent, FOR_EVER) as broker:
        assert_same(but_producers(describe(broker.port, GROUPS)), but_producers(facts))
        produce_one(broker.bootstrap, "orders")
        broker.restart()
        found = describe(broker.port, GROUPS)
        orders = facts["topics"]["orders"]["partitions"][0]
        assert found["topics"]["orders"]["partitions"][0]["end"] == orders["end"] + 1
        assert found["groups"] == facts["groups"]


def produce_one(bootstrap: str, topic: str) -> None:
    errors: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce(topic, "one more", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None]


# -- the other way round -----------------------------------------------------------------------------------------------


def wait_for_log_start_offset(data: Path, line: str) -> None:
    """Deleted records may come back after kill -9 until the checkpoint knows of them, with Apache Kafka too."""
    checkpoint = data / "log-start-offset-checkpoint"
    until(
        lambda: checkpoint.exists() and line in checkpoint.read_text().splitlines(), f"{checkpoint} has a line {line}"
    )


def is_about_an_empty_log(complaint: str) -> bool:
    """Ours have no index file, and Apache Kafka says that it makes one."""
    match = re.search(r"Could not find offset index file corresponding to log file (\S+\.log),", complaint)
    return match is not None and Path(match[1]).stat().st_size == 0


def without_empty_epochs(theirs: Facts, ours: Facts) -> Facts:
    """A leader epoch in which nothing was written is left out: ours may forget it, and starting again adds one."""
    for name, topic in theirs["topics"].items():
        for one, other in zip(topic["partitions"], ours["topics"][name]["partitions"], strict=True):
            for place, (epoch, end) in enumerate(other["epoch_ends"]):
                if epoch < 0 or (end == other["end"] == one["epoch_ends"][place][1]):
                    one["epoch_ends"][place] = [epoch, end]
    return theirs


APACHE = {
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "3000",
}


@pytest.mark.java
@pytest.mark.interop
def test_apache_kafka_goes_on_with_our_directory(tmp_path: Path) -> None:
    """After kill -9, and again after a clean stop of what was killed."""
    killed, stopped = tmp_path / "killed", tmp_path / "stopped"
    with BrokerProcess(stopped, FOR_EVER) as broker:
        cluster = Cluster(broker.bootstrap, broker.data, has_transactions=False)
        cluster.create_topics()
        cluster.fill(1)
        cluster.trim(31)
        wait_for_log_start_offset(broker.data, "trimmed 0 31")
        ours = describe(broker.port, GROUPS)
        broker.kill()
        shutil.copytree(stopped, killed)
        check_that_apache_kafka_goes_on(killed, ours)
        broker.start()
        produce_one(broker.bootstrap, "orders")
        ours = describe(broker.port, GROUPS)
        assert broker.stop() == 0
        check_that_apache_kafka_goes_on(stopped, ours)


def check_that_apache_kafka_goes_on(directory: Path, ours: Facts) -> None:
    with KafkaPeer(directory, {**FOR_EVER, **APACHE}, static_voters=True) as peer:
        assert_same(without_empty_epochs(describe(peer.port, GROUPS), ours), ours)
        produce_one(peer.bootstrap, "orders")
        of_the_storage = [line for line in peer.complaints() if "org.apache.kafka.storage" in line]
        assert not [line for line in of_the_storage if not is_about_an_empty_log(line)]
