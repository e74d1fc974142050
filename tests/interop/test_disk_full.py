"""A disk that is full: writes are refused, reads go on, the process lives, and space makes all of it work again."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.node_process import NodeProcess
from tests.support.patience import PATIENCE_MS, PATIENCE_S, until

pytestmark = pytest.mark.interop

VALUE_BYTES = 20_000
STORAGE_ERROR = confluent_kafka.KafkaError.KAFKA_STORAGE_ERROR


class SmallDisk:
    """A file system of a few megabytes in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / ".filler"  # names with a dot in front are nobody's data

    def fill(self) -> None:
        """Not one block is left."""
        descriptor = os.open(self._filler, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        try:
            with contextlib.suppress(OSError):
                while True:
                    os.write(descriptor, bytes(4096))
        finally:
            os.close(descriptor)
        assert os.statvfs(self.path).f_bavail == 0

    def grow(self) -> None:
        self._filler.unlink()
        subprocess.run(["mount", "-o", "remount,size=24m", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk to fill")
    path = tmp_path / "data"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def start(directory: Path, disk: SmallDisk) -> NodeProcess:
    return NodeProcess.server(directory, {"log.dirs": str(disk.path), "log.segment.bytes": "1048576"})


class Writer:
    """Produces without retries; knows what was acknowledged and what was refused, and why."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.refused: list[int] = []
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": 1,
                "retries": 0,
                "linger.ms": 2,
                "message.timeout.ms": PATIENCE_MS,
                "request.timeout.ms": PATIENCE_MS,
            }
        )

    def write(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(
                self._topic, os.urandom(VALUE_BYTES // 2).hex().encode(), partition=0, on_delivery=self._delivered
            )
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_S) == 0

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.refused.append(error.code())


def read_all(bootstrap: str, topic: str) -> list[bytes]:
    """Everything up to the end, as a client sees it."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    )
    partition = confluent_kafka.TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=PATIENCE_S)
    consumer.assign([partition])
    values: list[bytes] = []

    def are_there() -> bool:
        message = consumer.poll(0.5) if len(values) < end else None
        if message is not None:
            assert message.error() is None, message.error()
            values.append(message.value())
        return len(values) >= end

    until(are_there, f"{end} records of {topic}", lambda: len(values), every_s=0)
    consumer.close()
    assert len(values) == end
    return values


def creation_error(admin: AdminClient, topic: NewTopic) -> int | None:
    (future,) = admin.create_topics([topic], request_timeout=PATIENCE_S).values()
    try:
        future.result()
    except confluent_kafka.KafkaException as error:
        return int(error.args[0].code())
    return None


def commit(consumer: confluent_kafka.Consumer) -> bool:
    try:
        consumer.commit(offsets=[confluent_kafka.TopicPartition("t", 0, 5)], asynchronous=False)
    except confluent_kafka.KafkaException:
        return False
    return True


def test_a_full_disk(tmp_path: Path, disk: SmallDisk) -> None:
    with start(tmp_path / "1", disk) as node:
        admin = AdminClient({"bootstrap.servers": node.ready().bootstrap})
        assert creation_error(admin, NewTopic("t", 1, 1)) is None
        groups = confluent_kafka.Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g"})
        until(lambda: commit(groups), "offsets are committed")
        writer = Writer(node.bootstrap, "t")
        while not writer.refused:
            writer.write(40)
        assert len(writer.acknowledged) > 100
        assert set(writer.refused) == {STORAGE_ERROR}
        disk.fill()

        # The log, groups and the controller refuse; who reads, does not notice.
        refused_before = len(writer.refused)
        writer.write(3)
        assert writer.refused[refused_before:] == [STORAGE_ERROR] * 3
        assert read_all(node.bootstrap, "t") == writer.acknowledged
        answers = [creation_error(admin, NewTopic("big-0", 100, 1))]
        while answers[-1] is None:  # its records may fit into the last block of the metadata log
            answers.append(creation_error(admin, NewTopic(f"big-{len(answers)}", 100, 1)))
            assert len(answers) < 20
        assert answers[-1] == STORAGE_ERROR
        assert f"big-{len(answers) - 1}" not in admin.list_topics(timeout=PATIENCE_S).topics
        assert creation_error(admin, NewTopic("t", 1, 1)) == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
        until(lambda: not commit(groups), "offsets are refused")
        assert node.http_status("/readyz") == 200

        node.end(signal.SIGKILL)

    # The same after kill -9, and after a stop.
    with start(tmp_path / "2", disk) as node:
        assert read_all(node.ready().bootstrap, "t") == writer.acknowledged
        assert node.end() == 0
    disk.fill()
    with start(tmp_path / "3", disk) as node:
        assert read_all(node.ready().bootstrap, "t") == writer.acknowledged
        _works_again_with_space(node, disk, writer.acknowledged)
        assert "halting" not in node.stderr
        assert node.end() == 0


def _works_again_with_space(node: NodeProcess, disk: SmallDisk, before: list[bytes]) -> None:
    disk.grow()
    again = Writer(node.bootstrap, "t")
    until(partial(_writes, again), "the topic takes records again")
    groups = confluent_kafka.Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g"})
    until(lambda: commit(groups), "offsets are committed")
    groups.close()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    assert creation_error(admin, NewTopic("after", 1, 1)) is None
    for topic in ("after", "big-0"):  # a new topic, and one whose log the disk had refused
        writer = Writer(node.bootstrap, topic)
        until(partial(_writes, writer), f"{topic} takes records")
    assert read_all(node.bootstrap, "t") == before + again.acknowledged


def _writes(writer: Writer) -> bool:
    writer.write(1)
    return bool(writer.acknowledged)
