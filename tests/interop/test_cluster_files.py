"""The three files of config/cluster, as the README has people start them."""

import contextlib
import time
from pathlib import Path

import confluent_kafka
import pytest

from tests.interop.node_process import NodeProcess, as_overrides
from tests.support.broker_process import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

FILES = sorted((Path(__file__).parents[2] / "config" / "cluster").glob("*.properties"))
HELD_BY_ALL_S = 60


def test_three_brokers_from_their_files_hold_the_same_bytes(tmp_path: Path) -> None:
    """Only ports and directories differ from the files; the topic has their replication factor, racks and minimum."""
    controller = free_port()
    with contextlib.ExitStack() as stack:
        nodes = []
        for number, file in enumerate(FILES, 1):
            listeners = "PLAINTEXT://127.0.0.1:0" + (f",CONTROLLER://127.0.0.1:{controller}" if number == 1 else "")
            changed = {
                "listeners": listeners,
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
                "metrics.http.listener": "127.0.0.1:0",
                "log.dirs": str(tmp_path / str(number) / "data"),
            }
            arguments = ["server", str(file), *as_overrides(changed)]
            nodes.append(stack.enter_context(NodeProcess(tmp_path / str(number), arguments)))
        for node in nodes:
            node.ready()
        producer = confluent_kafka.Producer({"bootstrap.servers": nodes[0].bootstrap, "acks": "all"})
        producer.produce("greetings", b"hello")
        assert producer.flush(60) == 0
        metadata = producer.list_topics("greetings", timeout=30)
        partition = metadata.topics["greetings"].partitions[0]
        assert (len(metadata.brokers), len(partition.replicas), sorted(partition.isrs)) == (3, 3, [1, 2, 3])

        logs = [tmp_path / str(number) / "data" / "greetings-0" / f"{0:020}.log" for number, _ in enumerate(FILES, 1)]
        deadline = time.monotonic() + HELD_BY_ALL_S
        while len({log.read_bytes() for log in logs}) != 1:
            assert time.monotonic() < deadline, [log.stat().st_size for log in logs]
            time.sleep(0.1)
        assert b"hello" in logs[0].read_bytes()
