"""`wherry wal verify` with a bucket, a running broker's metadata topic and its logs: each kind of damage is found."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from broker.common.file_system import OsFileSystem
from broker.common.identifiers import TopicIdPartition
from broker.log.partition_metadata_file import PartitionMetadataFile
from broker.objectstore.s3_object_store import S3ObjectStore
from broker.records.memory_records_builder import records_batch
from broker.records.record_batch import RecordBatch, batches
from tests.support.broker_process import BrokerProcess
from tests.support.directories import files_under
from tests.support.patience import PATIENCE_S
from tests.support.s3_server import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, SeaweedServer
from tests.support.s3_tools import weed_command
from tests.support.wal_cluster import WAL_TOPIC, WalCluster, segment_files, wait_until_equal
from tests.support.wal_directory import WalDirectory, events, wal_slice

pytestmark = pytest.mark.interop

METADATA_TOPIC = "__remote_wal_log_metadata"
BATCHES = 6


class Bucket:
    """What a broker's log holds, in objects of its own making, announced on two partitions of the metadata topic."""

    def __init__(self, broker: BrokerProcess, directory: Path, topic: str) -> None:
        self.broker = broker
        self.log_dirs = [broker.data]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        if METADATA_TOPIC not in admin.list_topics(timeout=PATIENCE_S).topics:
            admin.create_topics([NewTopic(METADATA_TOPIC, 2, 1)])[METADATA_TOPIC].result(PATIENCE_S)
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
        self.partition = TopicIdPartition(topic_id(broker.data / f"{topic}-0"), topic, 0)
        self.wal = WalDirectory(directory, cluster_id(broker))
        self._producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        for number in range(BATCHES):
            self._producer.produce(topic, f"record {number}".encode() * 10, partition=0)
            self._producer.flush(PATIENCE_S)
        self.records = (broker.data / f"{topic}-0" / f"{0:020d}.log").read_bytes()
        found = list(batches(self.records))
        assert len(found) == BATCHES
        middle = sum(batch.size_bytes for batch in found[:3])
        self.objects = [
            self.wal.store(wal_slice(self.partition, number, part, leader_epoch=0))
            for number, part in enumerate((self.records[:middle], self.records[middle:]), 1)
        ]

    def announce(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self._producer.produce(METADATA_TOPIC, value, partition=partition)
        self._producer.flush(PATIENCE_S)

    def announce_all(self) -> None:
        for combined in self.objects:
            combined_event, *slice_events = events(combined)
            self.announce(combined_event)
            self.announce(*slice_events, partition=1)

    def verify(self, *arguments: str) -> tuple[int, list[str]]:
        logs = [argument for directory in self.log_dirs for argument in ("--log-dir", str(directory))]
        return verify(self.wal.path, "--bootstrap-server", self.broker.bootstrap, *logs, *arguments)


def verify(place: Path, *arguments: str) -> tuple[int, list[str]]:
    """Exit code and lines."""
    command = [sys.executable, "-m", "broker", "wal", "verify", str(place), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def cluster_id(broker: BrokerProcess) -> str:
    fields = dict(
        line.split("=", 1) for line in (broker.data / "meta.properties").read_text().splitlines() if "=" in line
    )
    return fields["cluster.id"].replace("\\", "")


def topic_id(directory: Path) -> UUID:
    found = PartitionMetadataFile(OsFileSystem(), directory).read()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("wal-command")) as broker:
        yield broker


@pytest.fixture
def bucket(own: BrokerProcess, topic: str, tmp_path: Path) -> Bucket:
    return Bucket(own, tmp_path / "bucket", topic)


def test_a_bucket_that_holds_what_it_should(bucket: Bucket) -> None:
    bucket.announce_all()
    size = sum(combined.size for combined in bucket.objects)
    code, lines = bucket.verify()
    assert (code, len(lines)) == (0, 1), lines
    assert lines[0].startswith(f"2 objects, 2 slices, {size} bytes; 0 not yet announced, ")
    assert lines[0].endswith(f"; batches in logs: {BATCHES} equal, 0 superseded, 0 absent; 0 problems")


def flip_a_byte(bucket: Bucket) -> str:
    file = bucket.wal.file(bucket.objects[0])
    data = bytearray(file.read_bytes())
    data[100] ^= 0x10
    file.write_bytes(data)
    return f"corrupt   {bucket.objects[0].metadata.object_key}: Slice 0 to 2 of "


def lose_an_object(bucket: Bucket) -> str:
    bucket.wal.file(bucket.objects[1]).unlink()
    return f"missing   {bucket.objects[1].metadata.object_key}: announced "


def store_something_foreign(bucket: Bucket) -> str:
    (bucket.wal.path / "notes.txt").write_text("not ours")
    return "foreign   notes.txt: no key of an object of the WAL"


def leave_an_orphan(bucket: Bucket) -> str:
    orphan = bucket.wal.store(wal_slice(bucket.partition, 9, bucket.records, leader_epoch=0))
    return f"orphan    {orphan.metadata.object_key}: stored "


def change_a_log(bucket: Bucket) -> str:
    """The bucket has what was acknowledged; the disk of another broker does not any more."""
    name = f"{bucket.partition.topic}-0"
    other = bucket.wal.path.parent / "other-broker"
    shutil.copytree(bucket.broker.data / name, other / name, ignore=shutil.ignore_patterns("*.tmp"))  # in use
    data = bytearray(bucket.records)
    data[-1] ^= 1
    (other / name / f"{0:020d}.log").write_bytes(data)
    bucket.log_dirs.append(other)
    return (
        f"log       {bucket.objects[1].metadata.object_key}: {name}: offset {BATCHES - 1} of epoch 0 has other bytes in"
    )


@pytest.mark.parametrize(
    "damage", [flip_a_byte, lose_an_object, store_something_foreign, leave_an_orphan, change_a_log]
)
def test_each_damage_is_found(bucket: Bucket, damage: Callable[[Bucket], str]) -> None:
    bucket.announce_all()
    expected = damage(bucket)
    code, lines = bucket.verify("--orphan-age", "0", "--quiet")
    assert code == 1
    (line,) = lines
    assert line.startswith(expected), line


def test_an_object_that_is_not_announced_yet_may_be_on_its_way(bucket: Bucket) -> None:
    code, lines = bucket.verify()
    assert code == 0
    assert "2 not yet announced" in lines[-1]


def test_the_buckets_of_a_cluster(tmp_path: Path) -> None:
    """Three zones, leaders in each, and a bucket, the topic and three logs that agree; then one object is lost."""
    topic, partitions = "through-buckets", 3
    with WalCluster(tmp_path / "cluster", settings={"remote.wal.fallback.enable": "false"}) as cluster:
        cluster.create_topic(topic, partitions=partitions, replication_factor=3, config=WAL_TOPIC)
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5})
        for number in range(300):
            producer.produce(topic, f"record {number}".encode() * 20, partition=number % partitions)
        assert producer.flush(PATIENCE_S) == 0
        wait_until_equal(cluster, topic, partitions)
        logs = [argument for node in cluster.nodes.values() for argument in ("--log-dir", str(node.data))]
        equal = 0
        for place in cluster.bucket_directories.values():
            code, lines = verify(place, "--bootstrap-server", cluster.bootstrap, *logs)
            assert code == 0, lines
            equal += int(lines[-1].partition("batches in logs: ")[2].partition(" equal")[0])
        stored = [batch for place in segment_batches(cluster, topic, partitions) for batch in place]
        assert equal == 3 * len(stored)
        place = next(iter(cluster.bucket_directories.values()))
        lost = files_under(place, ".wal")[-1]
        lost.unlink()
        code, lines = verify(place, "--bootstrap-server", cluster.bootstrap, "--quiet")
        assert code == 1
        assert [line.partition(": ")[0] for line in lines] == [f"missing   {lost.relative_to(place)}"]


def segment_batches(cluster: WalCluster, topic: str, partitions: int) -> Iterator[list[RecordBatch]]:
    for partition in range(partitions):
        for content in segment_files(cluster, topic, partition, 1).values():
            yield list(batches(content))


@pytest.mark.s3
def test_a_bucket_of_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys come from the environment, where AWS's tools look for them as well."""
    if weed_command() is None:
        pytest.skip("weed is missing: the test extra installs it")
    partition = TopicIdPartition(UUID(int=5), "t", 0)
    wal = WalDirectory(tmp_path / "directory")
    combined = wal.build(wal_slice(partition, 1, bytes(records_batch((1000, None, b"v"), partition_leader_epoch=0))))
    data, key = b"".join(bytes(buffer) for buffer in combined.buffers), f"team/{combined.metadata.object_key}"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    with SeaweedServer(tmp_path / "s3") as server:
        asyncio.run(put(server, key, data))
        place = ["--endpoint-url", server.url, "--region", REGION, "--path-style", "--key-prefix", "team/"]
        listed = wal_command("ls", f"s3://{BUCKET}", *place)
        assert listed.stdout.splitlines()[1].split()[1:] == [str(len(data)), "1", "1", combined.metadata.object_key]
        assert "t-0 " in wal_command("show", f"s3://{BUCKET}", combined.metadata.object_key, *place).stdout
        verified = wal_command("verify", f"s3://{BUCKET}", *place)
        assert (verified.returncode, verified.stdout) == (0, f"1 objects, 1 slices, {len(data)} bytes; 0 problems\n")
        missing = wal_command("ls", "s3://none", *place)
        assert missing.returncode == 2
        assert "none" in missing.stderr


async def put(server: SeaweedServer, key: str, data: bytes) -> None:
    store = await S3ObjectStore.open(BUCKET, server.settings())
    await store.put(key, data)
    await store.close()


def wal_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "broker", "wal", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
