"""A controller by itself, and a broker that is pointed at it: two processes, one cluster."""

import json
import signal
import time
from pathlib import Path

import confluent_kafka
import pytest

from tests.interop.node_process import NodeProcess

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


def controller(directory: Path) -> NodeProcess:
    return NodeProcess.server(
        directory, {"process.roles": "controller", "node.id": "9", "listeners": "CONTROLLER://127.0.0.1:0"}
    )


def broker(directory: Path, controller_port: int) -> NodeProcess:
    return NodeProcess.server(
        directory,
        {
            "process.roles": "broker",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        },
    )


def test_a_broker_joins_a_controller_and_ends_without_it(tmp_path: Path) -> None:
    with controller(tmp_path / "controller") as leader:
        leader.ready()
        assert "clients" not in leader.stdout
        assert leader.http_status("/readyz") == 200
        port = leader.port("controller")
        with broker(tmp_path / "broker", port) as node:
            node.ready()
            meta = {
                name: (tmp_path / name / "data" / "meta.properties").read_text().split("cluster.id=")[1].split()[0]
                for name in ("controller", "broker")
            }
            assert meta["broker"] == meta["controller"]
            producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
            assert producer.list_topics(timeout=10).cluster_id == meta["broker"]
            producer.produce("t", b"hello")
            assert producer.flush(20) == 0
            consumer = confluent_kafka.Consumer(
                {"bootstrap.servers": node.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
            )
            consumer.subscribe(["t"])
            deadline = time.monotonic() + 30
            while (message := consumer.poll(0.2)) is None:
                assert time.monotonic() < deadline
            assert message.value() == b"hello"
            consumer.commit(asynchronous=False)
            consumer.close()

            # Without its controller a stop waits for the leaderships to move, and a second signal ends the wait.
            leader.end(signal.SIGKILL)
            started = time.monotonic()
            node.process.send_signal(signal.SIGTERM)
            while '"pending_controlled_shutdown"' not in node.stderr:
                assert time.monotonic() < started + 10, node.stderr
                time.sleep(0.01)
            assert node.end(signal.SIGINT, timeout_s=3) == 128 + signal.SIGINT
            assert "Traceback" not in node.stderr


def test_a_broker_of_another_cluster_is_refused_with_both_ids(tmp_path: Path) -> None:
    with controller(tmp_path / "controller") as leader:
        port = leader.ready().port("controller")
        ours = "MkU3OEVBNTcwNTJENDM2Qk"
        directory = tmp_path / "broker" / "data"
        directory.mkdir(parents=True)
        (directory / "meta.properties").write_text(
            f"version=1\ncluster.id={ours}\nnode.id=1\ndirectory.id=LTNojMnBShS6ELDEP2qStQ\n"
        )
        events = [json.loads(line) for line in leader.stderr.splitlines()]
        theirs = next(event["cluster_id"] for event in events if event["event"] == "node_starting")
        with broker(tmp_path / "broker", port) as node:
            assert node.wait() == 2
            assert node.stderr.splitlines()[-1] == (
                f"wherry: {directory}/meta.properties belongs to cluster.id={ours}, but the cluster is "
                f"cluster.id={theirs}: this data is of another cluster."
            )
        assert leader.end() == 0
