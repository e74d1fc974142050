"""What an operator does to a node: start it wrongly, stop it, kill it; each answer is a sentence and an exit code."""

import random
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from broker.protocol.api_keys import ApiKey
from tests.interop.node_process import ANY_PORTS, NodeProcess
from tests.support.log_events import events_in
from tests.support.patience import PATIENCE_S, until
from tests.support.wire_client import WireClient

pytestmark = pytest.mark.interop

APACHE_PROPERTIES = Path(__file__).parents[1] / "java" / "server.properties"
CLEAN_MARKER = ".kafka_cleanshutdown"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
STARTS = 10
LONG_S = 4 * PATIENCE_S  # what waits so long is not what ends within the patience of a test


def events(node: NodeProcess, name: str) -> list[dict[str, Any]]:
    """What it logged under a name."""
    return [each for each in events_in(node.stderr) if each["event"] == name]


def assert_no_traceback(node: NodeProcess) -> None:
    assert "Traceback" not in node.stderr, node.stderr
    assert not [line for line in node.stderr.splitlines() if line and not line.startswith("{")], node.stderr


def consume_all(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []

    def are_there() -> bool:
        message = consumer.poll(0.2) if len(values) < count else None
        if message is not None:
            assert message.error() is None, message.error()
            values.append(message.value())
        return len(values) >= count

    until(are_there, f"{count} records of {topic}", lambda: len(values), every_s=0)
    consumer.close()
    return values


# Configuration


def test_apaches_own_file_with_environment_and_overrides(tmp_path: Path) -> None:
    """File < environment < --override; port 0 is announced as the real port; SIGINT stops as SIGTERM does."""
    text = APACHE_PROPERTIES.read_text()
    for was, now in (
        ("bootstrap.servers=127.0.0.1:29093", "voters=1@127.0.0.1:29093"),
        ("127.0.0.1:29092", "127.0.0.1:0"),
        ("CONTROLLER://127.0.0.1:29093", "CONTROLLER://127.0.0.1:0"),
        ("/tmp/peer-kafka/data", str(tmp_path / "data")),
    ):
        assert was in text
        text = text.replace(was, now)
    file = tmp_path / "server.properties"
    file.write_text(text + "metrics.http.listener=127.0.0.1:0\nmy.own.name=1\nanother.one=2\n")
    environment = {"WHERRY_NUM_PARTITIONS": "6", "WHERRY_DEFAULT_REPLICATION_FACTOR": "3"}
    arguments = ["server", str(file), "--override", "default.replication.factor=1"]
    with NodeProcess(tmp_path, arguments, environment) as node:
        node.ready()
        assert str(tmp_path / "data") in node.stdout
        admin = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
        admin.produce("auto", b"x")
        assert admin.flush(PATIENCE_S) == 0
        topic = admin.list_topics("auto", timeout=PATIENCE_S).topics["auto"]
        assert (len(topic.partitions), len(topic.partitions[0].replicas)) == (6, 1)
        assert [event["names"] for event in events(node, "unknown_settings")] == [["another.one", "my.own.name"]]
        assert (node.http_status("/readyz"), node.http_status("/healthz")) == (200, 200)
        assert node.end(signal.SIGINT) == 0
        assert_no_traceback(node)
        assert (tmp_path / "data" / CLEAN_MARKER).exists()


def test_a_wrong_value_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    with NodeProcess.server(tmp_path, {"log.segment.bytes": "12"}) as node:
        assert node.wait() == 2
        assert (node.stdout, node.stderr) == (
            "",
            "wherry: log.segment.bytes='12': valid values are [1048576,...].\n",
        )
        assert not (tmp_path / "data").exists()


def test_format_gives_the_identity_and_another_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    properties = {**ANY_PORTS, "process.roles": "broker,controller", "node.id": "1", "log.dirs": str(tmp_path / "data")}
    properties |= {"controller.listener.names": "CONTROLLER"}
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    for cluster_id, code in ((CLUSTER_ID, 0), ("Nk018hRAQFytWskYqtQduw", 2)):
        with NodeProcess(tmp_path / cluster_id, ["format", "--cluster-id", cluster_id, str(file)]) as command:
            assert command.wait() == code, command.stderr
    assert command.stderr.startswith(
        f"wherry: {tmp_path}/data/meta.properties belongs to cluster.id={CLUSTER_ID}, but "
    )
    assert "Nk018hRAQFytWskYqtQduw" in command.stderr
    with NodeProcess(tmp_path / "other-node", ["server", str(file), "--override", "node.id=7"]) as node:
        assert node.wait() == 2
        assert "wherry: " in node.stderr
        assert "belongs to node.id=1, but node.id=7 is configured" in node.stderr
    with NodeProcess(tmp_path / "right", ["server", str(file)]) as node:
        client = confluent_kafka.Producer({"bootstrap.servers": node.ready().bootstrap})
        assert client.list_topics(timeout=PATIENCE_S).cluster_id == CLUSTER_ID


def test_directory_and_port_in_use_are_named(tmp_path: Path) -> None:
    with NodeProcess.server(tmp_path / "a", {}) as node:
        node.ready()
        with NodeProcess.server(tmp_path / "b", {"log.dirs": str(tmp_path / "a" / "data")}) as second:
            assert second.wait() == 1
            assert f"wherry: {tmp_path}/a/data/.lock is locked: another broker runs on this directory" in second.stderr
        listeners = f"PLAINTEXT://{node.bootstrap},CONTROLLER://127.0.0.1:0"
        with NodeProcess.server(tmp_path / "c", {"listeners": listeners}) as second:
            assert second.wait() == 1
            assert f"wherry: listener PLAINTEXT://{node.bootstrap}: Address already in use" in second.stderr
            assert "Traceback" not in second.stderr
        assert node.process.poll() is None


def test_what_is_lost_or_broken_is_named(tmp_path: Path) -> None:
    """The drills of docs/operations.md that end with a refusal."""
    data = tmp_path / "data"
    properties = {"log.dirs": str(data)}
    with NodeProcess.server(tmp_path / "1", properties) as node:
        node.ready()
        assert node.end() == 0
    identity, metadata = data / "meta.properties", data / "__cluster_metadata-0" / f"{0:020d}.log"
    kept_identity, kept_metadata = identity.read_bytes(), metadata.read_bytes()
    broken = bytearray(kept_metadata)
    broken[len(broken) // 3] ^= 0xFF
    for number, (path, content, code, sentence) in enumerate(
        (
            (identity, None, 2, f"wherry: {data} has no meta.properties but is not empty"),
            (identity, b"version=7\n", 2, f"wherry: {identity}: version='7' is not supported"),
            (metadata, bytes(broken), 1, f"wherry: {metadata} at position "),
        )
    ):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        with NodeProcess.server(tmp_path / f"refused-{number}", properties) as node:
            assert node.wait() == code
            assert node.stderr.splitlines()[-1].startswith(sentence), node.stderr
            assert "Traceback" not in node.stderr
        identity.write_bytes(kept_identity)
        metadata.write_bytes(kept_metadata)
    metadata.write_bytes(kept_metadata + kept_metadata[:50])  # a torn last batch is cut
    with NodeProcess.server(tmp_path / "2", properties) as node:
        node.ready()
        assert [event["size_bytes"] for event in events(node, "metadata_log_tail_cut")] == [50]


# Signals


class Load:
    """A producer that never rests; what was acknowledged is remembered."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[bytes] = []
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 1})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            self._producer.produce("load", b"%d" % number, partition=0, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.001)

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            self.acknowledged.append(message.value())

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._producer.poll(0.2)


def parked_fetch(port: int) -> WireClient:
    """A consumer that waits for more bytes than there will be."""
    client = WireClient(port)
    schema = client.request(ApiKey.FETCH, 12)
    row = schema.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    topic = schema.FetchTopic(topic="load", partitions=(row,))
    request = schema.FetchRequest(
        max_wait=timedelta(seconds=LONG_S),
        min_bytes=1 << 30,
        max_bytes=1 << 30,
        isolation_level=0,
        topics=(topic,),
        forgotten_topics_data=(),
    )
    client.send(ApiKey.FETCH, 12, request)
    return client


def waiting_join(port: int, member: int) -> WireClient:
    """A member of a group whose first rebalance waits for more of them."""
    client = WireClient(port)
    schema = client.request(ApiKey.JOIN_GROUP, 3)
    request = schema.JoinGroupRequest(
        group_id=f"group-{member}",
        session_timeout=timedelta(seconds=LONG_S),
        rebalance_timeout=timedelta(seconds=LONG_S),
        member_id="",
        protocol_type="consumer",
        protocols=(schema.JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    client.send(ApiKey.JOIN_GROUP, 3, request)
    return client


def test_sigterm_under_load_is_a_clean_stop(tmp_path: Path) -> None:
    with NodeProcess.server(tmp_path / "1", {"group.initial.rebalance.delay.ms": str(int(1000 * LONG_S))}) as node:
        node.ready()
        load = Load(node.bootstrap)
        try:
            until(lambda: len(load.acknowledged) >= 100, "100 acknowledged", lambda: node.stderr)
            port = node.port("clients")
            idle = [WireClient(port) for _ in range(5)]
            waiting = [parked_fetch(port), waiting_join(port, 1), waiting_join(port, 2)]
            time.sleep(0.3)
            assert node.end() == 0, "it waits for none of them"
        finally:
            load.stop()
        assert_no_traceback(node)
        assert all(client.is_closed() for client in idle)
        for client in [*idle, *waiting]:
            client.close()
    data = tmp_path / "1" / "data"
    assert (data / CLEAN_MARKER).exists()
    with NodeProcess.server(tmp_path / "2", {"log.dirs": str(data)}) as node:
        node.ready()
        (loaded,) = events(node, "logs_loaded")
        assert (loaded["was_clean_shutdown"], loaded["recovered_segments"]) == (True, 0)
        assert not (data / CLEAN_MARKER).exists()
        found = consume_all(node.bootstrap, "load", len(load.acknowledged))
        assert found[: len(load.acknowledged)] == load.acknowledged


def wait_until_it_loads(node: NodeProcess) -> None:
    """Until it has taken SIGINT from the interpreter, which tells of one with a traceback; or has its own handlers."""
    status = Path(f"/proc/{node.process.pid}/status")
    has_interpreter = False

    def is_loading() -> bool:
        nonlocal has_interpreter
        caught = int(status.read_text().partition("SigCgt:")[2].split()[0], 16)
        is_interrupt_caught, is_termination_caught = (
            caught & 1 << (number - 1) != 0 for number in (signal.SIGINT, signal.SIGTERM)
        )
        has_interpreter |= is_interrupt_caught
        return is_termination_caught or (has_interpreter and not is_interrupt_caught)

    until(is_loading, "the program is loaded", lambda: node.stderr, every_s=0)


def test_a_start_that_is_interrupted_leaves_a_directory_that_starts(tmp_path: Path) -> None:
    """kill -9, SIGTERM and SIGINT at ten moments of ten starts; then all records are there."""
    data = tmp_path / "data"
    properties = {"log.dirs": str(data)}
    with NodeProcess.server(tmp_path / "first", properties) as node:
        producer = confluent_kafka.Producer({"bootstrap.servers": node.ready().bootstrap})
        values = [b"%d" % number for number in range(200)]
        for value in values:
            producer.produce("kept", value, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        node.end(signal.SIGKILL)
    moments = random.Random(4)
    for number in range(STARTS):
        sent = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT)[number % 4]
        with NodeProcess.server(tmp_path / f"start-{number}", properties) as node:
            wait_until_it_loads(node)
            time.sleep(moments.random())
            code = node.end(sent)
            expected = {0} if sent is not signal.SIGKILL else {-sent}
            if not node.stderr:  # still loading, nothing is open: a signal does what it does to every process
                expected.add(-sent)
            assert code in expected, (number, node.stderr)
            assert "Traceback" not in node.stderr, node.stderr
    with NodeProcess.server(tmp_path / "last", properties) as node:
        assert consume_all(node.ready().bootstrap, "kept", len(values)) == values
        assert node.end() == 0
